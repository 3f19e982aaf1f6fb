//! Checks before a load runs that each container reaches all others of its network, and no container of another network.
//!
//! Networks have the same addresses, so an answer proves nothing: it may be another network's. Every container therefore
//! has a socket that echoes (RFC 862) for a moment, and what counts is which container's socket received the message.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use rig_sys::netlink::Netlink;
use serde::{Deserialize, Serialize};

use crate::UPLINK;
use crate::namespaces::Namespace;

/// RFC 862; every container is a namespace of its own, so that it is always free.
const PORT: u16 = 7;
/// How long an answer may take; neighbours have to be found first.
const TIMEOUT: Duration = Duration::from_secs(3);
/// After which what has not been answered is sent again.
const AGAIN: Duration = Duration::from_millis(250);
/// How long no container of another host asks any more until all are taken to have their answers: it would have asked again.
const QUIET: Duration = Duration::from_millis(600);

/// A container, and where others of its network reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReachableContainer {
    /// `node/container`.
    pub name: String,
    pub network: u32,
    pub address: IpAddr,
}

/// Containers that do not reach each other as their networks say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum NetworkFault {
    #[error("{from} of network {network} gets no answer from {to}: {address} of that network is not reached")]
    Silent { from: String, to: String, network: u32, address: SocketAddr },
    #[error(
        "what {from} sent to {address} of network {network}, {meant}, was received by {by} of network {of}: networks are not \
         apart"
    )]
    Astray { from: String, meant: String, network: u32, address: SocketAddr, by: String, of: u32 },
}

/// A container that takes part.
#[derive(Debug)]
struct ContainerSocket {
    name: String,
    network: u32,
    /// Where others of its network reach it.
    address: SocketAddr,
    /// `None` where it is another host's, which checks the same containers at the same time.
    socket: Option<UdpSocket>,
}

/// Sends from each of these containers to each other of its network, and checks which container receives it; `namespace` has the
/// namespaces of those that are not another host's. Datagrams carry `payload` bytes, or as few as can be.
///
/// # Errors
/// [`NetworkFault`], with the first that is not reached or that receives what is not for it; or what the kernel refused.
pub(crate) fn check<'p>(
    containers: &[ReachableContainer],
    payload: u32,
    namespace: impl Fn(&str) -> Option<&'p Namespace>,
) -> Result<()> {
    let member = |ReachableContainer { name, network, address }: &ReachableContainer| -> Result<ContainerSocket> {
        let address = SocketAddr::new(*address, PORT);
        let socket = namespace(name).map(|namespace| namespace.ns.run(|| UdpSocket::bind(address)));
        let socket = socket.transpose()?.transpose().with_context(|| format!("open port {PORT} in {name}"))?;
        Ok(ContainerSocket { name: name.clone(), network: *network, address, socket })
    };
    let members: Vec<ContainerSocket> = containers.iter().map(member).collect::<Result<_>>()?;
    check_members(&members, payload, TIMEOUT, |network| {
        // The kernel has one table of at most 1,024 for all namespaces (net.ipv4.neigh.default.gc_thresh3), and keeps them for
        // a while.
        for member in network {
            let Some(own) = namespace(&member.name) else { continue };
            let mut netlink = Netlink::open(&own.ns)?;
            for other in network.iter().filter(|other| other.address != member.address) {
                netlink.forget_neighbor(UPLINK, other.address.ip())?;
            }
        }
        Ok(())
    })
}

fn check_members(
    members: &[ContainerSocket],
    payload: u32,
    time_limit: Duration,
    mut after_each: impl FnMut(&[&ContainerSocket]) -> Result<()>,
) -> Result<()> {
    let mut networks: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (number, member) in members.iter().enumerate() {
        member.socket.as_ref().map_or(Ok(()), |socket| socket.set_nonblocking(true))?;
        networks.entry(member.network).or_default().push(number);
    }
    let mut end = |network: &[usize]| after_each(&network.iter().map(|member| &members[*member]).collect::<Vec<_>>());
    // One to each at a time, which no receive buffer is too small for.
    for network in networks.values() {
        for step in 1..network.len() {
            let pairs = network.iter().copied().zip(network.iter().cycle().skip(step).copied());
            let own = pairs.filter(|(from, _)| members[*from].socket.is_some());
            round(members, payload, own.collect(), time_limit)?;
        }
        end(network)?;
    }
    if members.iter().any(|member| member.socket.is_none()) {
        answer_others(members, payload)?;
        networks.values().try_for_each(|network| end(network))?;
    }
    Ok(())
}

/// Each of these sends to another, which answers.
fn round(
    members: &[ContainerSocket],
    payload: u32,
    mut waiting: BTreeSet<(usize, usize)>,
    time_limit: Duration,
) -> Result<()> {
    let begin = Instant::now();
    let mut sent: Option<Instant> = None;
    while let Some((from, to)) = waiting.first().copied() {
        if begin.elapsed() > time_limit {
            let ContainerSocket { network, address, .. } = members[to];
            let [from, to] = [from, to].map(|member| members[member].name.clone());
            return Err(NetworkFault::Silent { from, to, network, address }.into());
        }
        if sent.is_none_or(|sent| sent.elapsed() > AGAIN) {
            for (from, to) in &waiting {
                // What cannot be sent gets no answer, and that is told by name.
                let ask = |socket: &UdpSocket| {
                    let message = Message::ask(*from, *to).in_payload_of(payload as usize);
                    socket.send_to(&message, members[*to].address)
                };
                let _ = members[*from].socket.as_ref().map(ask);
            }
            sent = Some(Instant::now());
        }
        if !hear(members, payload, &mut waiting)? {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    Ok(())
}

/// Answers containers of other hosts until they are quiet.
fn answer_others(members: &[ContainerSocket], payload: u32) -> Result<()> {
    let mut heard = Instant::now();
    while heard.elapsed() < QUIET {
        if hear(members, payload, &mut BTreeSet::new())? {
            heard = Instant::now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Takes what has come to these containers: answers what asks, and takes what is answered out of `waiting`. Whether there was anything.
fn hear(members: &[ContainerSocket], payload: u32, waiting: &mut BTreeSet<(usize, usize)>) -> Result<bool> {
    let mut has_heard = false;
    for (number, member) in members.iter().enumerate() {
        let Some(socket) = &member.socket else { continue };
        while let Some((message, source)) = receive(socket)? {
            has_heard = true;
            let Some((from, to)) = message.ends().filter(|(from, to)| (*from).max(*to) < members.len()) else {
                continue;
            };
            let expected = if message.is_answer() { from } else { to };
            if number != expected {
                let (sender, meant) = if message.is_answer() { (to, from) } else { (from, to) };
                let ContainerSocket { network, address, .. } = members[meant];
                let [from, meant] = [sender, meant].map(|member| members[member].name.clone());
                let (by, of) = (member.name.clone(), member.network);
                return Err(NetworkFault::Astray { from, meant, network, address, by, of }.into());
            }
            match message.is_answer() {
                true => drop(waiting.remove(&(from, to))),
                false => drop(socket.send_to(&message.answered().in_payload_of(payload as usize), source)),
            }
        }
    }
    Ok(has_heard)
}

/// A message, without what fills its datagram, and whence it came.
fn receive(socket: &UdpSocket) -> Result<Option<(Message, SocketAddr)>> {
    let mut message = Message([0; LENGTH]);
    match socket.recv_from(&mut message.0) {
        Ok((_, source)) => Ok(Some((message, source))),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        // An ICMP error for an earlier message, which counts as one without an answer.
        Err(error) if is_unreached(&error) => Ok(None),
        Err(error) => Err(error).context("hear from a container"),
    }
}

fn is_unreached(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionRefused | Kind::HostUnreachable | Kind::NetworkUnreachable)
}

const LENGTH: usize = 9;

/// The numbers of the container that asks and of the one that is asked, and whether this is the answer.
#[derive(Debug, Clone, Copy)]
struct Message([u8; LENGTH]);

impl Message {
    fn ask(from: usize, to: usize) -> Self {
        let mut bytes = [0; LENGTH];
        bytes[1..5].copy_from_slice(&(from as u32).to_be_bytes());
        bytes[5..].copy_from_slice(&(to as u32).to_be_bytes());
        Self(bytes)
    }

    /// A datagram of so many bytes, or of the message alone where that has more.
    fn in_payload_of(self, bytes: usize) -> Vec<u8> {
        let mut datagram = self.0.to_vec();
        datagram.resize(bytes.max(LENGTH), 0);
        datagram
    }

    fn answered(mut self) -> Self {
        self.0[0] = 1;
        self
    }

    fn is_answer(self) -> bool {
        self.0[0] == 1
    }

    fn ends(self) -> Option<(usize, usize)> {
        let number = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.try_into().ok()?) as usize);
        Some((number(&self.0[1..5])?, number(&self.0[5..])?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(400);

    /// Two networks of three, over the loopback interface.
    fn members() -> Vec<ContainerSocket> {
        let member = |(network, node): (u32, &str)| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            ContainerSocket {
                name: format!("{node}/net{network}"),
                network,
                address: socket.local_addr().unwrap(),
                socket: Some(socket),
            }
        };
        [1, 2].into_iter().flat_map(|network| ["a", "b", "c"].map(|node| (network, node))).map(member).collect()
    }

    fn unfit(members: &[ContainerSocket]) -> NetworkFault {
        check_members(members, 0, SHORT, |_| Ok(())).unwrap_err().downcast().unwrap()
    }

    #[test]
    fn containers_that_reach_their_networks_are_fit() {
        let mut networks = Vec::new();
        let ended = |network: &[&ContainerSocket]| {
            networks.push(network.len());
            Ok(())
        };
        check_members(&members(), 1472, TIMEOUT, ended).unwrap();
        assert_eq!(networks, [3, 3]);
    }

    #[test]
    fn containers_of_two_hosts_are_checked_by_both_at_a_time() {
        // Each has sockets of half of them.
        let (mut near, mut far) = (members(), members());
        for (number, (near, far)) in near.iter_mut().zip(&mut far).enumerate() {
            let (own, other) = if number % 2 == 0 { (near, far) } else { (far, near) };
            other.socket = None;
            other.address = own.address;
        }
        std::thread::scope(|scope| {
            let hosts = [near, far].map(|host| scope.spawn(move || check_members(&host, 0, TIMEOUT, |_| Ok(()))));
            hosts.into_iter().for_each(|host| host.join().unwrap().unwrap());
        });
    }

    #[test]
    fn who_does_not_answer_is_named() {
        let mut all = members();
        // No socket is bound to it any more.
        let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        all[4].address = gone;
        let error = unfit(&all);
        assert!(matches!(&error, NetworkFault::Silent { to, network: 2, .. } if to == "b/net2"), "{error}");
        assert!(error.to_string().contains(&format!("gets no answer from b/net2: {gone}")), "{error}");
    }

    #[test]
    fn who_answers_in_the_place_of_another_networks_is_named() {
        let mut all = members();
        // What is for the second of network 1 comes to that of network 2.
        let other = all[4].address;
        all[1].address = other;
        let error = unfit(&all);
        assert!(
            matches!(&error, NetworkFault::Astray { meant, by, .. } if meant == "b/net1" && by == "b/net2"),
            "{error}"
        );
        assert!(error.to_string().contains("received by b/net2 of network 2: networks are not apart"), "{error}");
    }
}
