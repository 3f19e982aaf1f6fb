//! States of connections.

use rig_wire::protocol::{TCP, UDP};

use super::super::shape::State;
use super::{ACK, Connection, Direction, FIN, RST, SYN};

pub(super) fn is_closing(state: State) -> bool {
    matches!(state, State::FinWait | State::CloseWait | State::TimeWait | State::Close)
}

impl Connection {
    /// A packet of it; `direct_return` where the backend's do not pass. Whether it is a backend's reset in place of an answer to a SYN.
    pub(super) fn note(&mut self, protocol: u8, flags: u8, direction: Direction, direct_return: bool) -> bool {
        let was = self.state;
        if protocol == TCP && was == State::Close && flags & (RST | SYN) == 0 {
            self.state = self.before;
        }
        self.state = next_state(self.state, protocol, flags, direction, direct_return);
        let is_reset = self.state == State::Close && was != State::Close;
        if is_reset {
            self.before = was;
            self.refused = direction == Direction::Outward;
        }
        is_reset && self.refused && was == State::SynReceived && flags & ACK != 0
    }
}

/// How a state follows from a packet; `direct_return` where the backend's packets do not pass.
fn next_state(state: State, protocol: u8, flags: u8, direction: Direction, direct_return: bool) -> State {
    let inward = direction == Direction::Inward;
    if protocol == UDP {
        return if inward { state } else { State::UdpNormal };
    }
    if flags & RST != 0 {
        return State::Close;
    }
    if flags & SYN != 0 {
        let again = inward && flags & ACK == 0 && is_closing(state);
        return if again { State::SynReceived } else { state };
    }
    if flags & FIN != 0 {
        return match state {
            State::None | State::SynReceived | State::Established if inward && !direct_return => State::CloseWait,
            State::None | State::SynReceived | State::Established => State::FinWait,
            State::FinWait if inward && !direct_return => State::TimeWait,
            State::CloseWait if !inward => State::TimeWait,
            other => other,
        };
    }
    match state {
        State::None => State::Established,
        State::SynReceived if inward => State::Established,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_opens_and_closes() {
        use Direction::{Inward, Outward};
        let walk = |packets: &[(u8, Direction)], direct_return| {
            packets.iter().fold(State::SynReceived, |state, (flags, direction)| {
                next_state(state, TCP, *flags, *direction, direct_return)
            })
        };
        assert_eq!(walk(&[(SYN | ACK, Outward)], false), State::SynReceived);
        assert_eq!(walk(&[(SYN | ACK, Outward), (ACK, Inward)], false), State::Established);
        assert_eq!(walk(&[(ACK, Inward), (FIN | ACK, Inward)], false), State::CloseWait);
        assert_eq!(walk(&[(ACK, Inward), (FIN | ACK, Outward)], false), State::FinWait);
        assert_eq!(
            walk(&[(ACK, Inward), (FIN | ACK, Outward), (FIN | ACK, Inward), (ACK, Outward)], false),
            State::TimeWait
        );
        assert_eq!(walk(&[(ACK, Inward), (FIN | ACK, Inward), (FIN | ACK, Inward)], false), State::CloseWait);
        assert_eq!(walk(&[(ACK, Inward), (FIN | ACK, Inward)], true), State::FinWait);
        assert_eq!(walk(&[(ACK, Inward), (RST, Outward), (SYN, Inward)], false), State::SynReceived);
    }
}
