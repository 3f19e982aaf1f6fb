//! Names for addresses and ports, and back: as the system's resolver and services database have them.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use dns_lookup::{AddrInfoHints, SockType, getaddrinfo, getnameinfo};

use super::message::Protocol;

/// How long all look-ups of one command may take together; what has no name by then is shown as a number.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Names that are asked for at a time.
const ASKING: usize = 16;

/// Where the numbers of names are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameResolution {
    /// At the system's resolver and services database.
    System,
    /// Nowhere: what is no number is not known, and no resolver is asked.
    Numbers,
}

impl NameResolution {
    /// The port of a service by its number or its name.
    pub fn port(self, protocol: Protocol, text: &str) -> Option<u16> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok();
        }
        if self == Self::Numbers {
            return None;
        }
        let socket = match protocol {
            Protocol::Tcp => SockType::Stream,
            Protocol::Udp => SockType::DGram,
        };
        let hints = AddrInfoHints { socktype: socket.into(), ..AddrInfoHints::default() };
        let mut found = getaddrinfo(None, Some(text), Some(hints)).ok()?;
        found.next()?.ok().map(|info| info.sockaddr.port())
    }

    /// The address of a host by its number or its name; of several, the first.
    pub fn host(self, text: &str) -> Option<IpAddr> {
        // The resolver takes 80 for 0.0.0.80.
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        match text.parse() {
            Ok(address) => Some(address),
            Err(_) if self == Self::Numbers => None,
            Err(_) => (text, 0).to_socket_addrs().ok()?.next().map(|address| address.ip()),
        }
    }
}

/// How addresses are written in a listing.
#[derive(Debug)]
pub enum Names {
    Numeric,
    Looked { hosts: HashMap<IpAddr, Option<String>>, services: HashMap<(Protocol, u16), String>, left: Duration },
}

impl Names {
    pub fn looked_up() -> Self {
        Self::Looked { hosts: HashMap::new(), services: HashMap::new(), left: TIMEOUT }
    }

    /// Looks up those that are not known yet. The time that is left for it only ever gets less.
    pub fn learn(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        let Self::Looked { hosts, left, .. } = self else { return };
        let new: HashSet<IpAddr> = addresses.into_iter().filter(|address| !hosts.contains_key(address)).collect();
        if new.is_empty() || left.is_zero() {
            return;
        }
        let begin = Instant::now();
        hosts.extend(new.iter().map(|address| (*address, None)));
        for (address, name) in answers(new, begin + *left) {
            hosts.insert(address, name);
        }
        *left = left.saturating_sub(begin.elapsed());
    }

    /// `host:port`, the host in brackets where it is of IPv6.
    pub fn write(&mut self, protocol: Protocol, address: SocketAddr) -> String {
        let Self::Looked { hosts, services, .. } = self else { return address.to_string() };
        let host = hosts.get(&address.ip()).cloned().flatten().unwrap_or_else(|| address.ip().to_string());
        let port = services
            .entry((protocol, address.port()))
            .or_insert_with(|| service_name(protocol, address.port()).unwrap_or_else(|| address.port().to_string()));
        if address.is_ipv6() { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// What names the resolver gives until then. Threads that it keeps waiting for longer are left behind.
fn answers(addresses: HashSet<IpAddr>, until: Instant) -> impl Iterator<Item = (IpAddr, Option<String>)> {
    let threads = addresses.len().min(ASKING);
    let questions = Arc::new(Mutex::new(Vec::from_iter(addresses)));
    let (answer, answers) = mpsc::channel();
    for _ in 0..threads {
        let (questions, answer) = (Arc::clone(&questions), answer.clone());
        thread::spawn(move || {
            let next = || questions.lock().unwrap_or_else(PoisonError::into_inner).pop();
            while let Some(address) = next() {
                let name = getnameinfo(&SocketAddr::new(address, 0), libc::NI_NAMEREQD).ok().map(|(host, _)| host);
                if Instant::now() >= until || answer.send((address, name)).is_err() {
                    return;
                }
            }
        });
    }
    drop(answer);
    std::iter::from_fn(move || answers.recv_timeout(until.saturating_duration_since(Instant::now())).ok())
}

fn service_name(protocol: Protocol, port: u16) -> Option<String> {
    let of_protocol = match protocol {
        Protocol::Tcp => 0,
        Protocol::Udp => libc::NI_DGRAM,
    };
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    getnameinfo(&address, libc::NI_NUMERICHOST | of_protocol).ok().map(|(_, service)| service)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_no_database() {
        for resolution in [NameResolution::System, NameResolution::Numbers] {
            assert_eq!(resolution.port(Protocol::Tcp, "80"), Some(80));
            assert_eq!(resolution.port(Protocol::Tcp, "65536"), None);
            assert_eq!(resolution.port(Protocol::Udp, ""), None);
            assert_eq!((resolution.host("80"), resolution.host("")), (None, None));
            assert_eq!(resolution.host("2001:db8::1"), Some("2001:db8::1".parse().unwrap()));
        }
        assert_eq!(
            (NameResolution::Numbers.host("localhost"), NameResolution::Numbers.port(Protocol::Tcp, "http")),
            (None, None)
        );
        assert_eq!(Names::Numeric.write(Protocol::Tcp, "[2001:db8::1]:80".parse().unwrap()), "[2001:db8::1]:80");
    }

    #[test]
    fn this_host_has_a_name_and_the_rest_of_time_is_bounded() {
        let mut names = Names::looked_up();
        names.learn(["127.0.0.1".parse().unwrap()]);
        let Names::Looked { left, .. } = &mut names else { unreachable!() };
        assert!(*left <= TIMEOUT);
        *left = Duration::ZERO;
        // Without time nothing is asked, and nothing is waited for.
        names.learn(["192.0.2.1".parse().unwrap()]);
        assert!(names.write(Protocol::Tcp, "192.0.2.1:1".parse().unwrap()).starts_with("192.0.2.1:"));
        let local = names.write(Protocol::Tcp, "127.0.0.1:61234".parse().unwrap());
        assert!(local == "localhost:61234" || local == "127.0.0.1:61234" || local.starts_with("localhost"), "{local}");
    }
}
