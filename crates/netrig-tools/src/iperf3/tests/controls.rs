//! Both sides of the control connection.

use proptest::prelude::*;

use super::super::control::{ClientEvent, ClientSession, Greeting, ServerEvent, ServerSession, fuzz};
use super::super::error::{Code, TestError};
use super::super::json::Json;
use super::super::settings::{Flow, Protocol, TestSettings};
use super::super::wire::{
    Results, State, StreamResult, cookie, cookie_text, error_message, framed, parameters, read_parameters,
    read_results, results, words,
};

fn test() -> TestSettings {
    TestSettings {
        protocol: Protocol::Udp,
        flow: Flow::Both,
        length: 1448,
        rate: 10_000_000_000,
        congestion: Some("bbr".into()),
        title: Some("a \"title\"".into()),
        server_affinity: Some(3),
        ..TestSettings::default()
    }
}

fn own_results() -> Results {
    let stream = StreamResult {
        id: 1,
        bytes: 1 << 40,
        retransmits: Some(7),
        jitter_s: 0.000_031,
        errors: 3,
        packets: 1000,
        omitted: Some((1, 100)),
        seconds: Some(10.0),
    };
    Results { cpu: [1.5, 0.5, 1.0], sender_has_retransmits: 1, streams: vec![stream], ..Results::default() }
}

#[test]
fn a_whole_conversation() {
    let (mut client, mut server) = (ClientSession::default(), ServerSession::default());
    let state = |state: State| [state.byte()];
    client.push(&state(State::ParameterExchange));
    assert_eq!(client.next_event(), Ok(Some(ClientEvent::SendParameters)));
    // Bytes come as they come.
    for byte in framed(&parameters(&test())) {
        assert_eq!(server.next_event(), Ok(None));
        server.push(&[byte]);
    }
    assert_eq!(server.next_event(), Ok(Some(ServerEvent::Parameters(Box::new(test())))));
    client.push(&[State::CreateStreams.byte(), State::TestStart.byte(), State::TestRunning.byte()]);
    assert!(!client.end(), "it does not run");
    for event in [ClientEvent::CreateStreams, ClientEvent::Start, ClientEvent::Run] {
        assert_eq!(client.next_event(), Ok(Some(event)));
    }
    assert!(client.end() && !client.end());
    server.push(&state(State::TestEnd));
    assert_eq!(server.next_event(), Ok(Some(ServerEvent::TestEnd)));
    client.push(&state(State::ExchangeResults));
    assert_eq!(client.next_event(), Ok(Some(ClientEvent::SendResults)));
    let message = framed(&results(&own_results()));
    server.push(&message);
    assert_eq!(server.next_event(), Ok(Some(ServerEvent::Results(Box::new(own_results())))));
    client.push(&[&message[..], &state(State::DisplayResults)].concat());
    assert_eq!(client.next_event(), Ok(Some(ClientEvent::Results(Box::new(own_results())))));
    assert_eq!(client.next_event(), Ok(Some(ClientEvent::Display)));
    server.push(&state(State::Done));
    assert_eq!(server.next_event(), Ok(Some(ServerEvent::Done)));
    assert!(client.is_over() && server.is_over());
}

#[test]
fn a_server_refuses_or_fails() {
    let of = |bytes: &[u8]| {
        let mut client = ClientSession::default();
        client.push(bytes);
        client.next_event()
    };
    assert_eq!(of(&[State::AccessDenied.byte()]), Err(Code::ACCESS_DENIED.into()));
    assert_eq!(of(&[State::ServerTerminate.byte()]), Ok(Some(ClientEvent::Terminated)));
    let trouble = TestError { code: Code::TOTAL_RATE, detail: None, errno: 11 };
    let message = error_message(&trouble);
    assert_eq!(message, [0xfe, 0, 0, 0, 27, 0, 0, 0, 11]);
    assert_eq!(of(&message[..8]), Ok(None));
    assert_eq!(of(&message), Ok(Some(ClientEvent::Failed(trouble))));
    for wrong in [State::TestRunning.byte(), State::DisplayResults.byte(), 0, 15, 77] {
        assert_eq!(of(&[wrong]).unwrap_err().code, Code::MESSAGE, "{wrong}");
    }
}

#[test]
fn what_is_too_long_or_no_json_is_refused_at_once() {
    for (length, text, why) in [
        (8193_u32, &b""[..], "8193 bytes, and 1 to 8192 are taken"),
        (u32::MAX, b"", "4294967295 bytes"),
        (0, b"", "0 bytes"),
        (2, b"{x", "no JSON"),
    ] {
        let mut server = ServerSession::default();
        server.push(&[&length.to_be_bytes()[..], text].concat());
        let error = server.next_event().unwrap_err();
        assert_eq!(error.code, Code::RECEIVE_PARAMETERS);
        assert!(error.to_string().contains(why), "{error}");
    }
    let mut server = ServerSession::default();
    server.push(&framed(&Json::read(b"[1]").unwrap()));
    assert_eq!(server.next_event().unwrap_err().code, Code::RECEIVE_PARAMETERS);
}

#[test]
fn parameters_have_their_ranges_and_types() {
    let read = |text: &str| read_parameters(&Json::read(text.as_bytes()).unwrap());
    for (text, code) in [
        (r#"{"tcp":true,"parallel":129}"#, Code::STREAMS),
        (r#"{"tcp":true,"time":-1}"#, Code::DURATION),
        (r#"{"tcp":true,"time":86401}"#, Code::DURATION),
        (r#"{"tcp":true,"omit":601}"#, Code::OMIT),
        (r#"{"tcp":true,"len":1048577}"#, Code::BLOCK_SIZE),
        (r#"{"udp":true,"len":15}"#, Code::DATAGRAM_SIZE),
        (r#"{"tcp":true,"window":536870913}"#, Code::BUFFER_SIZE),
        (r#"{"tcp":true,"TOS":256}"#, Code::TOS),
        (r#"{"tcp":true,"burst":0}"#, Code::BURST),
        (r#"{"tcp":true,"bandwidth":-5}"#, Code::RECEIVE_PARAMETERS),
    ] {
        assert_eq!(read(text).unwrap_err().code, code, "{text}");
    }
    // Another type than its own, and what a later version may say, are passed over.
    let odd = read(r#"{"udp":1,"tcp":true,"parallel":"4","time":5,"reverse":1,"later":{"a":[]}}"#).unwrap();
    assert_eq!((odd.protocol, odd.parallel, odd.time, odd.flow), (Protocol::Tcp, 1, 5, Flow::Forward));
    assert_eq!(odd.length, 128 << 10);
    let sctp = read(r#"{"sctp":true,"time":5}"#).unwrap();
    assert_eq!((sctp.protocol, sctp.length), (Protocol::Sctp, 64 << 10));
}

#[test]
fn results_need_what_the_original_needs() {
    let whole = results(&own_results()).compact();
    assert!(read_results(&Json::read(whole.as_bytes()).unwrap()).is_ok());
    for name in [
        "cpu_util_total",
        "sender_has_retransmits",
        "id",
        "bytes",
        "retransmits",
        "jitter",
        "errors",
        "packets",
        "omitted_errors",
    ] {
        let lacking = whole.replace(&format!("\"{name}\""), "\"other\"");
        let error = read_results(&Json::read(lacking.as_bytes()).unwrap()).unwrap_err();
        assert_eq!(error.code, Code::RECEIVE_RESULTS, "{name}");
    }
    // Before 3.14 nothing was said of what is omitted, before 3.2 no times.
    let old = whole
        .replace("\"omitted_errors\"", "\"a\"")
        .replace("\"omitted_packets\"", "\"b\"")
        .replace("\"end_time\"", "\"c\"");
    let old = read_results(&Json::read(old.as_bytes()).unwrap()).unwrap();
    assert_eq!((old.streams[0].omitted, old.streams[0].seconds), (None, None));
}

#[test]
fn cookies_and_words() {
    let cookie = cookie().unwrap();
    assert_eq!((cookie[36], cookie_text(&cookie).len()), (0, 36));
    assert!(cookie_text(&cookie).bytes().all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b)));
    let mut greeting = Greeting::default();
    assert_eq!(greeting.push(&cookie[..10]), None);
    assert_eq!(greeting.missing(), 27);
    assert_eq!(greeting.push(&[&cookie[10..], &[1, 2, 3]].concat()), Some(cookie));
    assert!(words::is_connect(b"9876") && words::is_reply(b"6789") && !words::is_connect(b"6789"));
    // Of versions before 3.17, from machines of either byte order.
    for bytes in [123_456_789_u32.to_le_bytes(), 123_456_789_u32.to_be_bytes()] {
        assert!(words::is_connect(&bytes) && words::is_reply(&words::reply_to(&bytes)));
    }
    assert_eq!(words::reply_to(b"9876"), *b"6789");
    assert!(!words::is_connect(b"987") && !words::is_connect(b"98765"));
}

proptest! {
    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz(&data);
    }

    /// Conversations with bytes changed: far enough in to reach every stage.
    #[test]
    fn a_conversation_with_a_changed_byte(at in any::<prop::sample::Index>(), byte in any::<u8>(), choice in any::<u8>()) {
        let to_server = [&framed(&parameters(&test()))[..], &[4], &framed(&results(&own_results())), &[16]].concat();
        let to_client = [&[9, 10, 1, 2, 13][..], &framed(&results(&own_results())), &[14]].concat();
        for mut conversation in [to_server, to_client] {
            let at = at.index(conversation.len());
            conversation[at] = byte;
            fuzz(&[&[choice][..], &conversation].concat());
        }
    }
}
