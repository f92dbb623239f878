use super::*;

#[test]
fn quantities_are_numbers() {
    for (text, number) in [
        ("1", Some(1.0)),
        ("500m", Some(0.5)),
        ("1Gi", Some(1_073_741_824.0)),
        ("2k", Some(2000.0)),
        ("1e3", Some(1000.0)),
        ("", None),
        ("much", None),
    ] {
        assert_eq!(value(text), number, "{text}");
    }
    assert_eq!(
        pairs("pods=1, limits.cpu=2,x"),
        [("pods", "1"), ("limits.cpu", "2")]
    );
}
