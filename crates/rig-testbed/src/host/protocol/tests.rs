use proptest::prelude::*;

use super::*;

#[test]
fn what_is_said_reads_back_and_anything_else_is_refused() {
    let input = ToProcess::Input { process: 7, data: Bytes(b"{\"go\":1}\n\xff\0".to_vec()) };
    let line = encode(&input, PROTOCOL.longest).unwrap();
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(ToHost::read(line.trim_ascii_end()).unwrap(), ToHost::Process(input));
    assert_eq!(ToHost::read(br#""alive""#).unwrap(), ToHost::Notice(Notice::Alive));
    for text in [
        "",
        "{}",
        "null",
        "hello",
        r#"{"number":1,"request":"fly"}"#,
        r#"{"number":-1,"request":"now"}"#,
        r#"{"number":1,"request":"now","more":1}"#,
        r#"{"input":{"process":1,"data":"Ā"}}"#,
        r#"{"kill":{"process":1}} {"kill":{"process":2}}"#,
    ] {
        let why = ToHost::read(text.as_bytes()).unwrap_err().to_string();
        assert!(why.contains("does not speak the protocol"), "{text}: {why}");
    }
    // The begin of a long line is enough to know it by.
    let why = ToHost::read(&[b'x'; 1000]).unwrap_err().to_string();
    assert!(why.len() < 300, "{why}");
}

#[test]
fn a_message_that_the_other_side_would_refuse_is_not_sent() {
    let longest = ToProcess::Input { process: u64::MAX, data: Bytes(vec![0; CHUNK]) };
    assert!(encode(&longest, PROTOCOL.longest).unwrap().len() < 7 * CHUNK);
    let too_long = ToProcess::Input { process: 1, data: Bytes(vec![b'x'; PROTOCOL.longest]) };
    let error = encode(&too_long, PROTOCOL.longest).unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_come_through_as_they_were(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let text = encode(&Bytes(bytes.clone()), PROTOCOL.longest).unwrap();
        prop_assert_eq!(decode::<Bytes>(text.trim_ascii_end()).unwrap(), Bytes(bytes));
    }

    #[test]
    fn nothing_that_is_heard_breaks_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        exercise(&bytes);
    }
}
