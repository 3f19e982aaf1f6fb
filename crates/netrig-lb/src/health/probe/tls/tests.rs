use std::net::SocketAddr;

use proptest::prelude::*;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::super::super::check::{HttpRequest, Probe};
use super::super::StreamJudge;
use super::*;

fn to() -> SocketAddr {
    "10.0.0.1:443".parse().unwrap()
}

fn begin(trust: &mut TlsTrust) -> (Vec<u8>, StreamJudge) {
    let request = HttpRequest { path: "/".into(), host: None, status: vec![(200, 299)], body: None };
    StreamJudge::of(&Probe::Https(request, TlsRules::default()), to(), trust).unwrap().unwrap()
}

/// What the exchange with a server comes to, whose bytes come in pieces.
fn exchange(
    (hello, judge): (Vec<u8>, &mut StreamJudge),
    server: &mut ServerConnection,
    piece: usize,
    mut on_the_way: impl FnMut(&mut Vec<u8>),
) -> Option<Verdict> {
    let mut said = hello;
    (0..4).find_map(|_| {
        let mut answer = answer(server, &std::mem::take(&mut said));
        on_the_way(&mut answer);
        let verdict = answer.chunks(piece).find_map(|piece| judge.take(piece));
        said = judge.outgoing();
        verdict
    })
}

/// Where bytes of records are that are no headers of theirs (RFC 8446, 5.1).
fn inside_records(bytes: &[u8]) -> Vec<usize> {
    let (mut inside, mut at) = (Vec::new(), 0);
    while let Some(length) = bytes.get(at + 3..at + 5) {
        let end = at + 5 + usize::from(u16::from_be_bytes([length[0], length[1]]));
        inside.extend(at + 5..end);
        at = end;
    }
    inside
}

fn server_config(version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    server_config_of(version, &rcgen::generate_simple_self_signed(["www.example.com".to_owned()]).unwrap())
}

fn server_config_of(
    version: &'static SupportedProtocolVersion,
    made: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap())
}

/// Gives the server what was said, and gives what it answers, with the page once it has been asked for, or the alert where that is wrong.
fn answer(server: &mut ServerConnection, mut said: &[u8]) -> Vec<u8> {
    while !said.is_empty() {
        server.read_tls(&mut said).unwrap();
        if server.process_new_packets().is_err() {
            break;
        }
    }
    let mut asked = [0; 1024];
    if server.reader().read(&mut asked).is_ok_and(|length| length > 0) {
        server.writer().write_all(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
    }
    let mut bytes = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut bytes).unwrap();
    }
    bytes
}

#[test]
fn what_a_certificate_lacks_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("issuers.pem");
    let why = |issuer: &rcgen::CertifiedKey<rcgen::KeyPair>, config: &Arc<ServerConfig>, host: Option<&str>| {
        std::fs::write(&file, issuer.cert.pem()).unwrap();
        let request =
            HttpRequest { path: "/".into(), host: host.map(str::to_owned), status: vec![(200, 299)], body: None };
        let rules = TlsRules { verify: true, ca: Some(file.clone()), server_name: None };
        let mut trust = TlsTrust::new().unwrap();
        let judge = StreamJudge::of(&Probe::Https(request, rules), to(), &mut trust).unwrap();
        let (hello, mut judge) = judge.unwrap();
        let mut server = ServerConnection::new(Arc::clone(config)).unwrap();
        exchange((hello, &mut judge), &mut server, 500, |_| {}).unwrap()
    };
    let mut params = rcgen::CertificateParams::new(vec!["other".to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "other");
    let signing_key = rcgen::KeyPair::generate().unwrap();
    let other = rcgen::CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key };
    let said = why(&other, &server_config(&TLS13), Some("www.example.com"));
    assert_eq!(said, Err("self-signed certificate, not among the issuers that are known".to_owned()));
    let known = rcgen::generate_simple_self_signed(["www.example.com".to_owned()]).unwrap();
    let said = why(&known, &server_config_of(&TLS13, &known), Some("b.example.com"));
    let name = "certificate does not match the name b.example.com, it is for www.example.com";
    assert_eq!(said, Err(name.to_owned()));
    assert_eq!(why(&known, &server_config_of(&TLS13, &known), Some("www.example.com")), Ok(()));
}

#[test]
fn names_are_those_of_hosts_without_their_ports() {
    let of = |host: &str| server_name(host).map(|name| name.to_str().into_owned());
    let name = |text: &str| Some(text.to_owned());
    assert_eq!((of("a.example.com"), of("a.example.com:443")), (name("a.example.com"), name("a.example.com")));
    assert_eq!((of("10.0.0.1"), of("10.0.0.1:443")), (name("10.0.0.1"), name("10.0.0.1")));
    assert_eq!(
        (of("fd00::1"), of("[fd00::1]"), of("[fd00::1]:443")),
        (name("fd00::1"), name("fd00::1"), name("fd00::1"))
    );
    assert_eq!((of(""), of(":443"), of("a b"), of("a:b")), (None, None, None, None));
}

#[test]
fn alerts_have_the_names_of_the_standard() {
    let named = [
        (0, "close_notify"),
        (40, "handshake_failure"),
        (48, "unknown_ca"),
        (70, "protocol_version"),
        (112, "unrecognized_name"),
    ];
    for (code, name) in named {
        assert_eq!(alert_name(AlertDescription::from(code)), name);
    }
    assert_eq!(
        (alert_name(AlertDescription::from(115)), alert_name(AlertDescription::from(3))),
        ("unknown_psk_identity".into(), "unknown".into())
    );
}

#[test]
fn both_dates_of_a_certificate_are_read_in_either_form() {
    // UTCTime until 2049, GeneralizedTime from then on (RFC 5280, 4.1.2.5).
    for (to, end) in [(2049, 2_493_072_000), (2050, 2_524_608_000)] {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let dates = (Duration::from_secs(978_307_200), Duration::from_secs(end));
        assert_eq!(validity(certificate.der()).unwrap(), dates);
        for length in 0..certificate.der().len() {
            assert!(validity(&certificate.der()[..length]).is_err());
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), is_record in any::<bool>()) {
        let (_, mut judge) = begin(&mut TlsTrust::new().unwrap());
        let head = if is_record { vec![22, 3, 3, (bytes.len() >> 8) as u8, bytes.len() as u8] } else { Vec::new() };
        let verdict = judge.take(&[head, bytes].concat());
        prop_assert!(verdict != Some(Ok(())));
        let _ = (judge.outgoing(), judge.end(), judge.late(), judge.certificate_end());
    }

    #[test]
    fn a_handshake_with_a_wrong_bit_comes_to_no_page(
        at in any::<prop::sample::Index>(), bit in 0_u32..8, piece in 1_usize..700, is_new in any::<bool>(),
    ) {
        let (hello, mut judge) = begin(&mut TlsTrust::new().unwrap());
        let mut server = ServerConnection::new(server_config(if is_new { &TLS13 } else { &TLS12 })).unwrap();
        let mut is_first = true;
        let verdict = exchange((hello, &mut judge), &mut server, piece, |flight| {
            if std::mem::take(&mut is_first) {
                let inside = inside_records(flight);
                flight[*at.get(&inside)] ^= 1 << bit;
            }
        });
        prop_assert!(!is_first && verdict != Some(Ok(())), "{verdict:?}");
    }

    #[test]
    fn no_certificate_makes_it_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut certificate = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.der().to_vec();
        let n = at.index(certificate.len());
        certificate[n] = byte;
        let _ = validity(&certificate);
        certificate.truncate(cut.index(certificate.len()));
        let _ = validity(&certificate);
    }

    #[test]
    fn pieces_of_any_length_come_to_the_same(piece in 1_usize..2000, is_new in any::<bool>()) {
        let (hello, mut judge) = begin(&mut TlsTrust::new().unwrap());
        let mut server = ServerConnection::new(server_config(if is_new { &TLS13 } else { &TLS12 })).unwrap();
        let verdict = exchange((hello, &mut judge), &mut server, piece, |_| {});
        prop_assert_eq!(verdict, Some(Ok(())));
        prop_assert!(judge.certificate_end().is_some());
    }
}

#[test]
fn a_file_that_cannot_be_read_is_not_read_for_each_probe() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("issuers.pem");
    let mut trust = TlsTrust::new().unwrap();
    let why = trust.issuers(Some(&file)).unwrap_err().to_string();
    let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    std::fs::write(&file, made.cert.pem()).unwrap();
    assert_eq!(trust.issuers(Some(&file)).unwrap_err().to_string(), why);
    trust.read.clear();
    assert!(trust.issuers(Some(&file)).is_ok());
}
