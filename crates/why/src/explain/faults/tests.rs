use super::agent_field;

#[test]
fn a_field_of_the_job_is_one_of_the_agent() {
    let start = "the API server does not accept 'create jobs' of 'x': Job.batch \"x\" is invalid: ";
    for (words, field) in [
        (
            "spec.template.spec.containers[0].resources.requests: Invalid value",
            Some("resources.requests"),
        ),
        (
            "spec.template.spec.nodeSelector: Invalid value",
            Some("nodeSelector"),
        ),
        ("spec.completions: Required value", None),
    ] {
        assert_eq!(agent_field(&format!("{start}{words}")), field, "{words}");
    }
}
