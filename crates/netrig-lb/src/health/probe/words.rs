//! Why a probe has failed, in words.

use std::io;
use std::time::Duration;

use rig_stats::units::Span;

/// A probe's end: good, or why not.
pub type Verdict = Result<(), String>;

/// What the kernel says of a connection or a datagram.
pub fn of_error(error: &io::Error) -> String {
    use io::ErrorKind as K;
    match error.kind() {
        K::ConnectionRefused => "connection refused".to_owned(),
        K::ConnectionReset => "connection reset".to_owned(),
        K::BrokenPipe => "closed before the request was sent".to_owned(),
        K::HostUnreachable => "no route to host, or nobody there answers".to_owned(),
        K::NetworkUnreachable => "network unreachable".to_owned(),
        K::TimedOut => "no answer, the kernel has given up".to_owned(),
        K::PermissionDenied => "not permitted by this machine (a firewall, or CAP_NET_RAW is missing)".to_owned(),
        K::AddrNotAvailable => "the address to check from is not this machine's, or no port is free".to_owned(),
        // What was put in words already may name a file.
        _ if error.get_ref().is_some() => error.to_string(),
        _ => error.to_string().to_lowercase(),
    }
}

pub fn no_answer(timeout: Duration) -> String {
    format!("no answer within {}", Span(timeout))
}
