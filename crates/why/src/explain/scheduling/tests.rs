use super::*;

#[test]
fn the_schedulers_words_are_taken_apart() {
    let message = "0/6 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {dedicated: gpu}, 1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector, 1 Too many pods. preemption: 0/6 nodes are available: 6 Preemption is not helpful for scheduling.";
    let what: Vec<(usize, What)> = parts(message)
        .into_iter()
        .map(|part| (part.count, part.what))
        .collect();
    assert_eq!(
        what,
        [
            (1, What::Insufficient("cpu".to_owned())),
            (1, What::Taint("dedicated: gpu".to_owned())),
            (1, What::Cordoned),
            (2, What::Selector),
            (1, What::TooManyPods),
        ]
    );
    assert_eq!(parts("no nodes available to schedule pods"), []);
    assert_eq!(
        parts("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
        [Part {
            count: 0,
            what: What::Other("pod has unbound immediate PersistentVolumeClaims".to_owned())
        }]
    );
}
