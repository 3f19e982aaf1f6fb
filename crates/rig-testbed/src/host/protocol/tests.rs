use proptest::prelude::*;

use super::*;

#[test]
fn what_is_said_reads_back_and_anything_else_is_refused() {
    let input = ToHost::Input { process: 7, data: Bytes(b"{\"go\":1}\n\xff\0".to_vec()) };
    let line = line(&input).unwrap();
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(read::<ToHost>(line.trim_ascii_end()), Ok(input));
    for text in [
        "",
        "{}",
        "null",
        "hello",
        r#"{"ask":{"number":1,"question":"fly"}}"#,
        r#"{"ask":{"number":-1,"question":"now"}}"#,
        r#"{"ask":{"number":1,"question":"now","more":1}}"#,
        r#"{"input":{"process":1,"data":"Ā"}}"#,
        r#"{"kill":{"process":1}} {"kill":{"process":2}}"#,
    ] {
        let why = read::<ToHost>(text.as_bytes()).unwrap_err();
        assert!(why.contains("does not speak the protocol"), "{text}: {why}");
    }
    // The begin of a long line is enough to know it by.
    let why = read::<ToHost>(&[b'x'; 1000]).unwrap_err();
    assert!(why.len() < 300, "{why}");
}

#[test]
fn a_message_that_the_other_side_would_refuse_is_not_sent() {
    let longest = ToHost::Input { process: u64::MAX, data: Bytes(vec![0; CHUNK]) };
    assert!(line(&longest).unwrap().len() < 7 * CHUNK);
    let too_long = ToHost::Input { process: 1, data: Bytes(vec![b'x'; LONGEST]) };
    assert!(line(&too_long).unwrap_err().contains("longer than"));
}

#[test]
fn only_the_same_protocol_and_version_are_greeted() {
    let check = |text: &str| Greeting::check(text.as_bytes());
    assert_eq!(check(&serde_json::to_string(&Greeting::own()).unwrap()), Ok(()));
    // A later version may say more of itself.
    assert_eq!(check(r#"{"protocol":"netrig-host","version":2,"program":"netrig 9"}"#), Ok(()));
    let why = check(r#"{"protocol":"netrig-host","version":9}"#).unwrap_err();
    assert!(why.contains("version 9") && why.contains("other 2") && why.contains("same netrig"), "{why}");
    let why = check(r#"{"protocol":"netrig-worker","version":1}"#).unwrap_err();
    assert!(why.contains("netrig-worker"), "{why}");
    for text in ["", "Welcome to Debian", r#"{"protocol":"netrig-host"}"#, "[]"] {
        assert!(check(text).unwrap_err().contains("no greeting"), "{text}");
    }
}

proptest! {
    #[test]
    fn any_bytes_come_through_as_they_were(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let text = line(&Bytes(bytes.clone())).unwrap();
        prop_assert_eq!(read::<Bytes>(text.trim_ascii_end()), Ok(Bytes(bytes)));
    }

    #[test]
    fn nothing_that_is_heard_breaks_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        exercise(&bytes);
    }
}
