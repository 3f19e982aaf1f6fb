//! TLS of a check (RFC 8446, RFC 5246): a client without I/O. Bytes of the backend in, bytes for it out, and a verdict.
//!
//! Sessions are not resumed: a backend that resumes one shows no certificate, and a check has to see what a new client sees.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use der::asn1::{GeneralizedTime, UtcTime};
use der::{Decode, Reader, SliceReader, Tag, TagNumber};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, InvalidMessage,
    PeerIncompatible, RootCertStore, SignatureScheme,
};

use super::super::check::TlsRules;
use super::judge::{HttpAnswer, LONGEST_ANSWER, shown};
use super::words::Verdict;

/// After which time files of certificates are read again, those that could not be read, too: they are renewed in place.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// Of certificates of issuers; those of all public ones have 0.2 MiB.
const LARGEST_FILE: u64 = 4 << 20;
/// Bytes that are taken from a backend at most, handshake and answer: it may send records without an end that say nothing.
const MOST_BYTES: usize = 256 << 10;
/// Of an answer that is no TLS, for a message.
const SHOWN: usize = 40;
/// Plaintext that is read at once.
const PIECE: usize = 4096;

/// Issuers that are known.
#[derive(Debug)]
struct Issuers {
    verifier: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

/// What a file came to when it was last read.
#[derive(Debug)]
struct LastRead {
    at: Instant,
    issuers: Result<Arc<Issuers>, String>,
}

/// What the handshakes of all checks share.
#[derive(Debug)]
pub struct TlsTrust {
    usual: ClientConfig,
    provider: Arc<CryptoProvider>,
    /// By their file; `None`: the system's.
    read: HashMap<Option<PathBuf>, LastRead>,
}

impl TlsTrust {
    /// # Errors
    /// When the library has no cipher suite for the versions of TLS that are spoken.
    pub fn new() -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let anybody = Arc::new(Verifier::new(&provider, None));
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(io::Error::other)?;
        let mut usual = builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth();
        usual.resumption = Resumption::disabled();
        Ok(Self { usual, provider, read: HashMap::new() })
    }

    /// A client for one probe of `name`, or else of the address that is asked.
    pub(super) fn client(
        &mut self,
        rules: &TlsRules,
        (name, to): (Option<&str>, IpAddr),
        answer: HttpAnswer,
    ) -> io::Result<TlsClient> {
        let issuers = if rules.verify { Some(self.issuers(rules.ca.as_deref())?) } else { None };
        let verifier = Arc::new(Verifier::new(&self.provider, issuers));
        let mut config = self.usual.clone();
        config.dangerous().set_certificate_verifier(Arc::clone(&verifier) as _);
        let name = name.and_then(server_name).unwrap_or_else(|| ServerName::from(to));
        let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        Ok(TlsClient { connection, verifier, first: Vec::new(), received: 0, answer })
    }

    fn issuers(&mut self, ca: Option<&Path>) -> io::Result<Arc<Issuers>> {
        self.read.retain(|_, last| last.at.elapsed() < READ_AGAIN);
        let key = ca.map(Path::to_owned);
        let last = match self.read.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let issuers = read_issuers(ca, &self.provider).map_err(|error| error.to_string());
                new.insert(LastRead { at: Instant::now(), issuers })
            }
        };
        last.issuers.clone().map_err(io::Error::other)
    }
}

fn read_issuers(ca: Option<&Path>, provider: &Arc<CryptoProvider>) -> io::Result<Arc<Issuers>> {
    let certificates = match ca {
        Some(file) => of_file(file)?,
        None => of_system()?,
    };
    let mut roots = RootCertStore::empty();
    let (good, _) = roots.add_parsable_certificates(certificates.iter().cloned());
    if good == 0 {
        let from = ca.map_or_else(|| "the system's store".to_owned(), |file| file.display().to_string());
        return Err(io::Error::other(format!("no certificate of an issuer can be read from {from}")));
    }
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let verifier = builder.build().map_err(io::Error::other)?;
    Ok(Arc::new(Issuers { verifier, certificates }))
}

fn of_file(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let failed = |why: String| io::Error::other(format!("the certificates in {}: {why}", file.display()));
    let metadata = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?;
    if !metadata.is_file() {
        // A pipe would keep all checks waiting.
        return Err(failed("it is no file".to_owned()));
    }
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file);
    let read = opened.and_then(|opened| opened.take(LARGEST_FILE + 1).read_to_end(&mut bytes));
    read.map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(failed(format!("it has more than {} MiB", LARGEST_FILE >> 20)));
    }
    // Comments between sections may be in any encoding, and one section that is broken does not speak against the others.
    Ok(CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok).collect())
}

fn of_system() -> io::Result<Vec<CertificateDer<'static>>> {
    let loaded = rustls_native_certs::load_native_certs();
    match loaded.errors.first() {
        Some(error) if loaded.certs.is_empty() => Err(io::Error::other(format!("the system's certificates: {error}"))),
        _ => Ok(loaded.certs),
    }
}

/// The name or address in a host, which may have a port.
fn server_name(host: &str) -> Option<ServerName<'static>> {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = |text: &str| text.trim_start_matches('[').trim_end_matches(']').to_owned();
    let address = [host, without_port].into_iter().find_map(|text| bare(text).parse::<IpAddr>().ok());
    address.map(ServerName::from).or_else(|| ServerName::try_from(without_port.to_owned()).ok())
}

/// Judges the certificates of one backend, and keeps when the first of them ends.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None`: anybody's are good.
    issuers: Option<Arc<Issuers>>,
    end: OnceLock<Option<SystemTime>>,
    signs_itself: OnceLock<bool>,
}

impl Verifier {
    fn new(provider: &Arc<CryptoProvider>, issuers: Option<Arc<Issuers>>) -> Self {
        Self { provider: Arc::clone(provider), issuers, end: OnceLock::new(), signs_itself: OnceLock::new() }
    }

    /// One that cannot be read (X.509 of version 1, which has no extensions) has no key to check the signature by: where any certificate is
    /// good, that one is, too.
    fn lenient(&self, valid: Result<HandshakeSignatureValid, Error>) -> Result<HandshakeSignatureValid, Error> {
        match valid {
            Err(Error::InvalidCertificate(why)) if self.issuers.is_none() && why != CertificateError::BadSignature => {
                Ok(HandshakeSignatureValid::assertion())
            }
            valid => valid,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let all = std::iter::once(end_entity).chain(intermediates);
        let end = all.filter_map(|certificate| validity(certificate).ok()).map(|(_, end)| end).min();
        let _once = self.end.set(end.map(|end| SystemTime::UNIX_EPOCH + end));
        let is_known = self.issuers.as_ref().is_some_and(|issuers| issuers.certificates.contains(end_entity));
        let signs_itself = read(end_entity).is_ok_and(|certificate| certificate.signs_itself);
        let _once = self.signs_itself.set(signs_itself && !is_known);
        let Some(issuers) = &self.issuers else { return Ok(ServerCertVerified::assertion()) };
        match issuers.verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            // One that is in the file itself, as one that a server has signed for itself: webpki refuses those that say that they are an issuer's.
            Err(Error::InvalidCertificate(CertificateError::Other(_))) if issuers.certificates.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                is_in_time(end_entity, now)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.lenient(verify_tls12_signature(message, certificate, signed, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.lenient(verify_tls13_signature(message, certificate, signed, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn is_in_time(certificate: &[u8], time: UnixTime) -> Result<(), CertificateError> {
    let (begin, end) = validity(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let at = |since: Duration| UnixTime::since_unix_epoch(since);
    if time < at(begin) {
        return Err(CertificateError::NotValidYetContext { time, not_before: at(begin) });
    }
    if time > at(end) {
        return Err(CertificateError::ExpiredContext { time, not_after: at(end) });
    }
    Ok(())
}

/// When a certificate begins and ends to be valid, since 1970.
fn validity(certificate: &[u8]) -> der::Result<(Duration, Duration)> {
    read(certificate).map(|known| known.validity)
}

/// What is read of a certificate (RFC 5280, 4.1).
struct Certificate {
    validity: (Duration, Duration),
    /// Its issuer has the name of its subject.
    signs_itself: bool,
}

fn read(certificate: &[u8]) -> der::Result<Certificate> {
    const VERSION: Tag = Tag::ContextSpecific { constructed: true, number: TagNumber(0) };
    let mut reader = SliceReader::new(certificate)?;
    reader.sequence(|certificate| {
        let known = certificate.sequence(|signed| {
            if Tag::peek(signed)? == VERSION {
                signed.tlv_bytes()?;
            }
            // Serial number and algorithm.
            for _ in 0..2 {
                signed.tlv_bytes()?;
            }
            let issuer = signed.tlv_bytes()?;
            let validity = signed.sequence(|validity| der::Result::Ok((time(validity)?, time(validity)?)))?;
            let signs_itself = signed.tlv_bytes()? == issuer;
            signed.drain(signed.remaining_len())?;
            der::Result::Ok(Certificate { validity, signs_itself })
        })?;
        certificate.drain(certificate.remaining_len())?;
        Ok(known)
    })
}

fn time<'a>(reader: &mut impl Reader<'a>) -> der::Result<Duration> {
    match Tag::peek(reader)? {
        Tag::UtcTime => Ok(UtcTime::decode(reader)?.to_unix_duration()),
        _ => Ok(GeneralizedTime::decode(reader)?.to_unix_duration()),
    }
}

/// TLS with one backend.
#[derive(Debug)]
pub struct TlsClient {
    connection: ClientConnection,
    verifier: Arc<Verifier>,
    /// What came first, until it is known to be TLS.
    first: Vec<u8>,
    received: usize,
    answer: HttpAnswer,
}

impl TlsClient {
    /// Takes what shall be said once the handshake is over, and gives what is said first.
    pub(super) fn say(&mut self, text: &[u8]) -> io::Result<Vec<u8>> {
        self.connection.writer().write_all(text)?;
        Ok(self.outgoing())
    }

    pub(super) fn outgoing(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Writing into a vector does not fail.
        while self.connection.wants_write() && self.connection.write_tls(&mut bytes).is_ok() {}
        bytes
    }

    pub(super) fn certificate_end(&self) -> Option<SystemTime> {
        self.verifier.end.get().copied().flatten()
    }

    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<Verdict> {
        if self.first.len() < 2 {
            self.first.extend(bytes.iter().take(SHOWN));
            if !begins_record(&self.first) {
                return Some(Err(format!("no TLS is spoken there: it answers \"{}\"", shown(&self.first))));
            }
        }
        self.received += bytes.len();
        let mut rest = bytes;
        while !rest.is_empty() {
            // What has come is processed each time: only a message that is too long has no room.
            let read = self.connection.read_tls(&mut rest).map_err(|_| TOO_LONG.to_owned());
            let state = read.and_then(|_| self.connection.process_new_packets().map_err(|error| self.words(&error)));
            let state = match state {
                Ok(state) => state,
                Err(why) => return Some(Err(why)),
            };
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let mut piece = [0; PIECE];
                let Ok(length) = self.connection.reader().read(&mut piece) else { break };
                left = left.saturating_sub(length);
                if let Some(verdict) = self.answer.take(&piece[..length]) {
                    return Some(verdict);
                }
            }
            if state.peer_has_closed() {
                return Some(self.end());
            }
        }
        (self.received > MOST_BYTES)
            .then(|| Err(format!("more than {MOST_BYTES} bytes of TLS for an answer of at most {LONGEST_ANSWER}")))
    }

    /// Why TLS has failed.
    fn words(&self, error: &Error) -> String {
        match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::Other(_))
                if self.verifier.signs_itself.get() == Some(&true) =>
            {
                "self-signed certificate, not among the issuers that are known".to_owned()
            }
            error => words(error),
        }
    }

    pub(super) fn end(&self) -> Verdict {
        match (self.connection.is_handshaking(), self.first.is_empty()) {
            (true, true) => Err("closed without an answer to the TLS handshake".to_owned()),
            (true, false) => Err("closed in the TLS handshake".to_owned()),
            (false, _) => self.answer.end(),
        }
    }

    pub(super) fn late(&self) -> &'static str {
        match (self.connection.is_handshaking(), self.first.is_empty()) {
            (true, true) => "connected, and no answer to the TLS handshake",
            (true, false) => "half of a TLS handshake",
            (false, _) => self.answer.late(),
        }
    }
}

/// Whether bytes can be those of a record (RFC 8446, 5.1): its type and the first half of its version.
fn begins_record(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|kind| (20..=24).contains(kind)) && bytes.get(1).is_none_or(|version| *version == 3)
}

/// The library's limit.
const TOO_LONG: &str = "a message of the TLS handshake, such as its certificates, has more than 64 KiB";

fn words(error: &Error) -> String {
    match error {
        Error::AlertReceived(alert) => format!("TLS alert {} ({})", alert_name(*alert), u8::from(*alert)),
        Error::InvalidCertificate(why) => of_certificate(why),
        Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
        Error::InvalidMessage(
            InvalidMessage::CertificatePayloadTooLarge | InvalidMessage::HandshakePayloadTooLarge,
        ) => TOO_LONG.to_owned(),
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13 | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => "it speaks neither TLS 1.2 nor 1.3".to_owned(),
        Error::PeerIncompatible(why) => format!("its TLS has nothing in common with this one: {why:?}"),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            format!("what it sends is no TLS: {error}")
        }
        error => format!("TLS: {error}"),
    }
}

fn of_certificate(why: &CertificateError) -> String {
    use CertificateError as C;
    let at = |time: UnixTime| {
        let time = i64::try_from(time.as_secs()).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
        time.map_or_else(|| "the end of time".to_owned(), |time| time.to_string())
    };
    match why {
        C::ExpiredContext { not_after, .. } => format!("certificate expired at {}", at(*not_after)),
        C::Expired => "certificate expired".to_owned(),
        C::NotValidYetContext { not_before, .. } => format!("certificate not valid before {}", at(*not_before)),
        C::UnknownIssuer => "certificate of an unknown issuer".to_owned(),
        C::NotValidForNameContext { expected, presented } => {
            let mut text = format!("certificate does not match the name {}", expected.to_str());
            if !presented.is_empty() {
                // Writing into a string does not fail.
                let _ = write!(
                    text,
                    ", it is for {}",
                    shown(presented.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", ").as_bytes())
                );
            }
            text
        }
        // Of an issuer of the same name, say, that has other keys by now.
        C::BadSignature => "bad signature, of the certificate or of the handshake".to_owned(),
        why => format!("certificate: {why}"),
    }
}

/// A name of a certificate, which the library gives as `DnsName("a.example.com")`.
fn plain(name: &str) -> &str {
    let inside = name.split_once('(').and_then(|(_, inside)| inside.strip_suffix(')'));
    inside.unwrap_or(name).trim_matches('"')
}

/// As RFC 8446, 6, and the registry of alerts name them: `handshake_failure`, `unknown_ca`.
fn alert_name(alert: AlertDescription) -> String {
    let name = match alert {
        // RFC 6066, 3, has another spelling than the library.
        AlertDescription::UnrecognisedName => "UnrecognizedName".to_owned(),
        alert => format!("{alert:?}"),
    };
    if !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return "unknown".to_owned();
    }
    let mut snake = String::new();
    let mut before = None;
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        let begins_word =
            before.is_some_and(char::is_lowercase) || letters.peek().is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && before.is_some() && begins_word {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
        before = Some(letter);
    }
    snake
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
