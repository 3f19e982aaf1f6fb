//! Checks by https, of servers that do what they should and of others.

use std::net::TcpStream;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::super::super::check::TlsRules;
use super::*;

const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nall is well";
const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

/// Whom both ends may know.
struct Issuer(CertifiedIssuer<'static, KeyPair>);

impl Issuer {
    fn new() -> Self {
        Self::named("an issuer")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn file(&self, directory: &Path) -> PathBuf {
        write_pem(directory, "issuer.pem", &self.0.pem())
    }

    /// A certificate for these names from one year to another.
    fn certificate(&self, names: &[&str], (from, to): (i32, i32)) -> Identity {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity { chain: vec![certificate.der().clone()], key: key.serialize_der() }
    }
}

fn write_pem(directory: &Path, name: &str, text: &str) -> PathBuf {
    let file = directory.join(name);
    std::fs::write(&file, text).unwrap();
    file
}

/// What a server shows, and its key.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

/// Years in which the machine that runs this is.
const NOW: (i32, i32) = (2020, 2100);
/// 2100-01-01.
const END: Duration = Duration::from_secs(4_102_444_800);

fn config(identity: &Identity, versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let key = PrivateKeyDer::try_from(identity.key.clone()).unwrap();
    builder.with_no_client_auth().with_single_cert(identity.chain.clone(), key).unwrap()
}

/// Serves a page to each that asks, and tells which name was asked for.
fn tls_server(config: ServerConfig, page: &'static [u8]) -> (SocketAddr, mpsc::Receiver<Option<String>>) {
    let config = Arc::new(config);
    let (tell, told) = mpsc::channel();
    let at = server(move |mut stream| {
        let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut asked = [0; 1024];
        // Who is not content with what it is shown has gone by now.
        let mut tls = rustls::Stream::new(&mut connection, &mut stream);
        if tls.read(&mut asked).is_ok_and(|length| length > 0) {
            let _ = tls.write_all(page);
            let _nobody_listens = tell.send(connection.server_name().map(str::to_owned));
        }
        // What it is told last, such as an alert, has been written.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = stream.read(&mut asked);
    });
    (at, told)
}

fn https(host: Option<&str>, body: Option<&str>, tls: TlsRules) -> Probe {
    let request = HttpRequest {
        path: "/health".into(),
        host: host.map(str::to_owned),
        status: vec![(200, 399)],
        body: body.map(str::to_owned),
    };
    Probe::Https(request, tls)
}

fn unverified() -> Probe {
    https(None, None, TlsRules::default())
}

fn verified(host: Option<&str>, ca: &Path) -> Probe {
    https(host, None, TlsRules { verify: true, ca: Some(ca.to_owned()), server_name: None })
}

/// With when the certificate ends that was shown.
#[track_caller]
fn last(probe: Probe, to: SocketAddr, timeout: Duration) -> (Outcome, Option<SystemTime>) {
    let last = last_within(probe, to, timeout);
    (last.outcome, last.certificate_end)
}

#[test]
fn a_page_over_tls_is_judged_and_the_certificates_end_is_kept() {
    let identity = Issuer::new().certificate(&["www.example.com"], NOW);
    for version in BOTH {
        let (at, _) = tls_server(config(&identity, &[version]), PAGE);
        let end = Some(SystemTime::UNIX_EPOCH + END);
        assert_eq!(last(unverified(), at, TIMEOUT), (Outcome::Good, end), "{version:?}");
        let with = |body| https(None, Some(body), TlsRules::default());
        assert_eq!(outcome(with("is well"), at), Outcome::Good);
        assert_eq!(last(with("is ill"), at, TIMEOUT), (bad("the body lacks \"is ill\""), end));
    }
    let (busy, _) = tls_server(config(&identity, BOTH), b"HTTP/1.1 503 Busy\r\n\r\n");
    assert_eq!(outcome(unverified(), busy), bad("status 503, expected 200-399"));
}

#[test]
fn certificates_are_verified_where_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let issuer = Issuer::new();
    let ca = issuer.file(directory.path());
    let (good, _) = tls_server(config(&issuer.certificate(&["www.example.com", "127.0.0.1"], NOW), BOTH), PAGE);
    assert_eq!(outcome(verified(Some("www.example.com:8443"), &ca), good), Outcome::Good);
    // Without a name by the address that is asked.
    assert_eq!(outcome(verified(None, &ca), good), Outcome::Good);
    let named = |name: &str| TlsRules { verify: true, ca: Some(ca.clone()), server_name: Some(name.to_owned()) };
    assert_eq!(outcome(https(Some("other.example.com"), None, named("www.example.com")), good), Outcome::Good);
    let Outcome::Bad(why) = outcome(verified(Some("other.example.com"), &ca), good) else { panic!() };
    assert!(why.starts_with("certificate does not match the name other.example.com, it is for "), "{why}");
    let (past, _) = tls_server(config(&issuer.certificate(&["127.0.0.1"], (2001, 2002)), BOTH), PAGE);
    let ended = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_009_843_200));
    let expired = bad("certificate expired at 2002-01-01T00:00:00Z");
    assert_eq!(last(verified(None, &ca), past, TIMEOUT), (expired, ended));
    assert_eq!(last(unverified(), past, TIMEOUT), (Outcome::Good, ended), "nobody has asked");
    let (future, _) = tls_server(config(&issuer.certificate(&["127.0.0.1"], (2098, 2099)), BOTH), PAGE);
    assert_eq!(outcome(verified(None, &ca), future), bad("certificate not valid before 2098-01-01T00:00:00Z"));
    let of = |issuer: &Issuer| tls_server(config(&issuer.certificate(&["127.0.0.1"], NOW), BOTH), PAGE).0;
    let unknown = of(&Issuer::named("another issuer"));
    assert_eq!(outcome(verified(None, &ca), unknown), bad("certificate of an unknown issuer"));
    // One that has the name of a known one alone.
    let why = "bad signature, of the certificate or of the handshake";
    assert_eq!(outcome(verified(None, &ca), of(&Issuer::new())), bad(why));
}

#[test]
fn one_that_a_server_has_signed_for_itself_is_good_where_it_is_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    // As `openssl req -x509` makes it: it says that it is an issuer's.
    let own = |names: &[&str], to| {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let identity = Identity { chain: vec![certificate.der().clone()], key: key.serialize_der() };
        (certificate.pem(), identity)
    };
    let (pem, identity) = own(&["127.0.0.1"], 2100);
    let (at, _) = tls_server(config(&identity, BOTH), PAGE);
    let ca = write_pem(directory.path(), "own.pem", &pem);
    assert_eq!(outcome(verified(None, &ca), at), Outcome::Good);
    let Outcome::Bad(why) = outcome(verified(Some("www.example.com"), &ca), at) else { panic!() };
    assert!(why.contains("does not match the name www.example.com"), "{why}");
    let (pem, past) = own(&["127.0.0.1"], 2002);
    let (past, _) = tls_server(config(&past, BOTH), PAGE);
    let ca = write_pem(directory.path(), "past.pem", &pem);
    assert_eq!(outcome(verified(None, &ca), past), bad("certificate expired at 2002-01-01T00:00:00Z"));
    assert!(matches!(outcome(verified(None, &ca), at), Outcome::Bad(_)), "it is another one");
}

#[test]
fn a_file_of_issuers_that_cannot_be_read_takes_nobody_down() {
    let directory = tempfile::tempdir().unwrap();
    let (at, _) = tls_server(config(&Issuer::new().certificate(&["127.0.0.1"], NOW), BOTH), PAGE);
    let missing = directory.path().join("None.pem");
    assert!(matches!(outcome(verified(None, &missing), at), Outcome::Unable(why) if why.contains("None.pem")));
    let pipe = directory.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    assert!(matches!(outcome(verified(None, &pipe), at), Outcome::Unable(why) if why.ends_with("pipe: it is no file")));
    for text in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let ca = write_pem(directory.path(), "Bad.pem", text);
        assert!(matches!(outcome(verified(None, &ca), at), Outcome::Unable(why) if why.contains("Bad.pem")), "{text}");
    }
}

#[test]
fn what_cannot_be_read_of_a_file_of_issuers_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let issuer = Issuer::new();
    let (at, _) = tls_server(config(&issuer.certificate(&["127.0.0.1"], NOW), BOTH), PAGE);
    let good = issuer.0.pem();
    // A comment in Latin-1, a section that is not base64, one that is no certificate, a beginning that is none, and one without an end.
    let text = [
        b"subject=M\xfcnchen\n-----BEGIN CERTIFICATE-----\n*\xfc*\n-----END CERTIFICATE-----\n".as_slice(),
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n-----BEGIN PEAR----\n",
        good.as_bytes(),
        b"-----BEGIN CERTIFICATE-----\nAAAA\n",
    ];
    let ca = directory.path().join("mixed.pem");
    std::fs::write(&ca, text.concat()).unwrap();
    assert_eq!(outcome(verified(None, &ca), at), Outcome::Good);
}

#[test]
fn who_signs_by_another_key_than_the_certificates_is_down() {
    let directory = tempfile::tempdir().unwrap();
    let issuer = Issuer::new();
    let ca = issuer.file(directory.path());
    let [own, foreign] = [(); 2].map(|()| issuer.certificate(&["127.0.0.1"], NOW));
    let why = bad("bad signature, of the certificate or of the handshake");
    for version in BOTH {
        for (signs, wanted) in [(&own, &Outcome::Good), (&foreign, &why)] {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let key = PrivateKeyDer::try_from(signs.key.clone()).unwrap();
            let key = provider.key_provider.load_private_key(key).unwrap();
            let shown = SingleCertAndKey::from(CertifiedKey::new(own.chain.clone(), key));
            let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
            let (at, _) = tls_server(builder.with_no_client_auth().with_cert_resolver(Arc::new(shown)), PAGE);
            assert_eq!(&outcome(verified(None, &ca), at), wanted, "verified, {version:?}");
            assert_eq!(&outcome(unverified(), at), wanted, "not verified, {version:?}");
        }
    }
}

#[test]
fn a_handshake_goes_on_after_this_thread_was_held_up() {
    let config = Arc::new(config(&Issuer::new().certificate(&["127.0.0.1"], NOW), BOTH));
    let start = |held_up: WhileHeldUp| {
        server(move |mut stream| {
            let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            connection.read_tls(&mut stream).unwrap();
            connection.process_new_packets().unwrap();
            held_up(&mut || assert!(connection.write_tls(&mut stream).unwrap() > 0));
            let mut tls = rustls::Stream::new(&mut connection, &mut stream);
            if tls.read(&mut [0; 1024]).is_ok_and(|length| length > 0) {
                let _ = tls.write_all(PAGE);
            }
        })
    };
    assert_eq!(while_held_up(unverified(), start), Outcome::Good);
}

#[test]
fn the_name_that_is_asked_for_is_that_of_the_server_or_else_the_host() {
    let identity = Issuer::new().certificate(&["a.example.com"], NOW);
    let (at, told) = tls_server(config(&identity, BOTH), PAGE);
    let asked = |host, server_name: Option<&str>| {
        let tls = TlsRules { server_name: server_name.map(str::to_owned), ..TlsRules::default() };
        assert_eq!(outcome(https(host, None, tls), at), Outcome::Good);
        // Each probe is told of, and there may have been more than one.
        let name = told.recv_timeout(TIMEOUT).unwrap();
        while told.recv_timeout(Duration::from_millis(300)).is_ok() {}
        name
    };
    assert_eq!(asked(None, None), None);
    assert_eq!(asked(Some("10.0.0.1:443"), None), None);
    assert_eq!(asked(Some("www.example.com:8443"), None).as_deref(), Some("www.example.com"));
    assert_eq!(asked(Some("www.example.com"), Some("a.example.com")).as_deref(), Some("a.example.com"));
}

#[test]
fn alerts_are_told_by_their_names() {
    let issuer = Issuer::new();
    let identity = issuer.certificate(&["127.0.0.1"], NOW);
    let mut roots = RootCertStore::empty();
    roots.add(issuer.0.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(BOTH).unwrap();
    let key = PrivateKeyDer::try_from(identity.key.clone()).unwrap();
    let config = builder.with_client_cert_verifier(clients).with_single_cert(identity.chain, key).unwrap();
    let (at, _) = tls_server(config, PAGE);
    assert_eq!(outcome(unverified(), at), bad("TLS alert certificate_required (116)"));
    for (code, name) in [
        (40, "handshake_failure"),
        (70, "protocol_version"),
        (48, "unknown_ca"),
        (115, "unknown_psk_identity"),
        (200, "unknown"),
    ] {
        let at = answers(move |_| vec![21, 3, 1, 0, 2, 2, code]);
        assert_eq!(outcome(unverified(), at), bad(&format!("TLS alert {name} ({code})")));
    }
}

/// A server that answers the first thing that is said with this, and says no more.
fn answers(answer: impl Fn(&mut TcpStream) -> Vec<u8> + Send + 'static) -> SocketAddr {
    server(move |mut stream| {
        if stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
            let answer = answer(&mut stream);
            let _ = stream.write_all(&answer);
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = stream.read(&mut [0; 1024]);
        }
    })
}

#[test]
fn what_is_no_tls_is_told_so() {
    let plain = answers(|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    let why = "no TLS is spoken there: it answers \"HTTP/1.1 400 Bad Request\\r\\n\\r\\n\"";
    assert_eq!(outcome(unverified(), plain), bad(why));
    assert_eq!(
        outcome(unverified(), server(|mut stream| drop(stream.read(&mut [0; 4096])))),
        bad("closed without an answer to the TLS handshake")
    );
    let half = server(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(&[22, 3, 3, 0, 100, 2]);
    });
    assert_eq!(outcome(unverified(), half), bad("closed in the TLS handshake"));
    // A ServerHello of TLS 1.0 (RFC 2246, 7.4.1.3).
    let old = answers(|_| {
        let hello = [&[3, 1][..], &[7; 32], &[0, 0, 0x2f, 0]].concat();
        let message = [&[2, 0, 0, hello.len() as u8][..], &hello].concat();
        [&[22, 3, 1, 0, message.len() as u8][..], &message].concat()
    });
    assert_eq!(outcome(unverified(), old), bad("it speaks neither TLS 1.2 nor 1.3"));
    let noise = answers(|_| vec![22, 3, 3, 0, 4, 2, 0, 0, 0]);
    let Outcome::Bad(why) = outcome(unverified(), noise) else { panic!() };
    assert!(why.starts_with("what it sends is no TLS: "), "{why}");
}

#[test]
fn who_is_slow_or_endless_is_cut_off() {
    let silent = server(|stream| thread::sleep(Duration::from_secs(if stream.peer_addr().is_ok() { 600 } else { 0 })));
    let within = |at, timeout| outcome_within(unverified(), at, timeout);
    assert_eq!(within(silent, SOON), bad("connected, and no answer to the TLS handshake within 300ms"));
    // A byte at a time, for ever: a record of 16 KiB is on its way.
    let slow = server(|mut stream| {
        let _ = stream.write_all(&[22, 3, 3, 0x40, 0, 2]);
        while stream.write_all(&[0]).is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(within(slow, SOON), bad("half of a TLS handshake within 300ms"));
    let issuer = Issuer::new();
    // 100 kB of certificates.
    let mut long = issuer.certificate(&["127.0.0.1"], NOW);
    let size = long.chain[0].len();
    long.chain = std::iter::repeat_n(long.chain[0].clone(), 100_000 / size + 1).collect();
    for version in BOTH {
        let (long, _) = tls_server(config(&long, &[version]), PAGE);
        let Outcome::Bad(why) = outcome(unverified(), long) else { panic!() };
        assert!(why.contains("has more than 64 KiB"), "{why}");
    }
    // Bytes of a body, each in a record of its own, without an end.
    let config = Arc::new(config(&issuer.certificate(&["127.0.0.1"], NOW), BOTH));
    let (tell, told) = mpsc::channel();
    let endless = server(move |mut stream| {
        let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut tls = rustls::Stream::new(&mut connection, &mut stream);
        let _ = tls.read(&mut [0; 1024]);
        let mut sent = 0_usize;
        let _ = tls.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while tls.write_all(b"x").is_ok() {
            sent += 1;
        }
        let _nobody_listens = tell.send(sent);
    });
    let Outcome::Bad(why) = outcome(https(None, Some("never"), TlsRules::default()), endless) else { panic!() };
    assert!(why.starts_with("more than 262144 bytes of TLS"), "{why}");
    assert!(told.recv_timeout(TIMEOUT).unwrap() < 1 << 20);
}
