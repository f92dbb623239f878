use super::*;

#[test]
fn quantities_are_numbers() {
    for (text, number) in [
        ("500m", Some("0.5")),
        ("1Gi", Some("1073741824")),
        ("2k", Some("2000")),
        ("1e3", Some("1000")),
        ("", None),
        ("much", None),
    ] {
        assert_eq!(parse(text), number.and_then(parse), "{text}");
    }
    assert_eq!(
        pairs("pods=1, limits.cpu=2,x"),
        [("pods", "1"), ("limits.cpu", "2")]
    );
}
