//! UDP requests and responses. A server keeps nothing of a client.

use std::ops::RangeInclusive;

use super::Nanos;
use super::config::{Link, UdpClient, UdpServer, nanos};
use super::connection::{Key, Stamp, State};
use super::engine::{Core, LATE, Opener};
use super::family::Family;
use super::port::Transmit;
use super::template::Template;

#[derive(Debug)]
pub(super) struct UdpService {
    message: Template,
    role: Role,
}

#[derive(Debug)]
enum Role {
    Client(ClientRole),
    Server { ports: RangeInclusive<u16> },
}

#[derive(Debug)]
struct ClientRole {
    opener: Opener,
    timeout: Nanos,
    interval: Nanos,
    /// Requests of a connection; 0: without end.
    requests: u16,
}

impl UdpService {
    pub fn client<F: Family>(link: &Link<F>, udp: &UdpClient) -> Self {
        let repeat = udp.client.repeat;
        let client = ClientRole {
            opener: Opener::new(&udp.client),
            timeout: nanos(udp.timeout),
            interval: repeat.map_or(0, |repeat| nanos(repeat.interval)),
            requests: repeat.map_or(1, |repeat| repeat.requests.unwrap_or(0)),
        };
        Self { message: Template::udp(link, &udp.request.bytes()), role: Role::Client(client) }
    }

    pub fn server<F: Family>(link: &Link<F>, udp: &UdpServer) -> Self {
        let ports = udp.server.ports.clone();
        Self { message: Template::udp(link, &udp.response.bytes()), role: Role::Server { ports } }
    }

    pub fn template(&mut self) -> &mut Template {
        &mut self.message
    }

    pub fn opener(&mut self) -> Option<&mut Opener> {
        match &mut self.role {
            Role::Client(client) => Some(&mut client.opener),
            Role::Server { .. } => None,
        }
    }

    pub fn open<F: Family>(&mut self, core: &mut Core<F>, now: Nanos, transmit: &mut impl Transmit) -> bool {
        let Role::Client(client) = &mut self.role else { return false };
        let Some((slot, due)) = client.opener.next(core, now) else { return false };
        let connection = &mut core.table.all[slot as usize];
        connection.requests_or_mss = client.requests;
        connection.stamp = Stamp::of(due);
        self.ask(core, now, slot, transmit);
        true
    }

    #[inline]
    pub fn datagram<F: Family>(&mut self, core: &mut Core<F>, now: Nanos, key: Key, transmit: &mut impl Transmit) {
        match &self.role {
            Role::Server { ports } if ports.contains(&key.local_port()) => self.send(core, key, transmit),
            Role::Server { .. } => core.counters.udp_drop += 1,
            Role::Client(_) => {
                let asked = |&slot: &u32| core.table.all[slot as usize].state == State::Asked;
                match core.table.find(key).filter(asked) {
                    Some(slot) => self.answered(core, now, slot, transmit),
                    None => core.counters.udp_drop += 1,
                }
            }
        }
    }

    #[inline]
    fn answered<F: Family>(&mut self, core: &mut Core<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let age = core.table.all[slot as usize].stamp.age(now);
        core.latencies.transaction.record(age);
        self.next(core, now, slot, transmit);
    }

    /// The next request, or the end.
    #[inline]
    fn next<F: Family>(&mut self, core: &mut Core<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let Role::Client(client) = &self.role else { return };
        let connection = &mut core.table.all[slot as usize];
        if connection.requests_or_mss == 1 || client.opener.stopped {
            return core.close(slot);
        }
        connection.requests_or_mss = connection.requests_or_mss.saturating_sub(1);
        let due = if client.interval == 0 { now } else { now - connection.stamp.age(now) + client.interval };
        connection.stamp = Stamp::of(due);
        if due <= now {
            core.counters.late += u64::from(now - due > LATE);
            return self.ask(core, now, slot, transmit);
        }
        connection.state = State::Resting;
        core.set_timer(slot, due);
    }

    #[inline]
    fn ask<F: Family>(&mut self, core: &mut Core<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let Role::Client(client) = &self.role else { return };
        let connection = &mut core.table.all[slot as usize];
        connection.state = State::Asked;
        let key = connection.key;
        core.set_timer(slot, now + client.timeout);
        self.send(core, key, transmit);
    }

    #[inline]
    fn send<F: Family>(&self, core: &mut Core<F>, key: Key, transmit: &mut impl Transmit) {
        let ends = core.ends(key);
        if let Some(frame) = core.claim(transmit, self.message.len()) {
            self.message.fill_udp::<F>(frame, ends);
            core.counters.udp_tx += 1;
        }
    }

    pub fn timer<F: Family>(&mut self, core: &mut Core<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let connection = &core.table.all[slot as usize];
        match (connection.state, &self.role) {
            (State::Resting, Role::Client(client)) if client.opener.stopped => core.close(slot),
            (State::Resting, _) => {
                core.counters.late += u64::from(connection.stamp.age(now) > LATE);
                self.ask(core, now, slot, transmit);
            }
            (State::Asked, _) => {
                core.counters.udp_rt += 1;
                self.unanswered(core, now, slot, transmit);
            }
            _ => {}
        }
    }

    /// A flow goes on with its next request; one that has no more has failed.
    fn unanswered<F: Family>(&mut self, core: &mut Core<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        match core.table.all[slot as usize].requests_or_mss {
            1 => core.fail(slot),
            _ => self.next(core, now, slot, transmit),
        }
    }
}
