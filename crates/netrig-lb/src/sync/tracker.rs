//! What of each connection of the table others have been told, and which connections are others' own: told of, and without a packet
//! here since. It knows no clock and no table; 12 bytes for each place of the table.

use std::hash::{DefaultHasher, Hash, Hasher};

use rig_datapath::balancer::{SharedConnection, State, TableRecord};

#[derive(Debug, Clone, Copy, Default)]
struct Note {
    /// Which connection was there; 0: none.
    id: u32,
    /// The tick at which it was first seen; of another's: that of the packet that was told of.
    tick: u32,
    /// The state that others know; 0: none.
    known: u8,
    is_others: bool,
    /// Noted since the table was last read here, which may have been before.
    is_fresh: bool,
}

#[derive(Debug)]
pub(crate) struct Tracker {
    notes: Vec<Note>,
    /// Ticks that a connection has been there before others are told of it.
    after: u32,
    /// When it began upon a table with connections.
    resumed: Option<u32>,
}

/// What is to be done about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing: it is too young, or nobody has answered yet.
    Silent,
    /// It is another balancer's: only a peer that has begun anew is told.
    Others,
    /// Others know of it as it is.
    Known,
    /// Others are to be told.
    News,
}

/// Which connection it is, whatever its state. Not 0.
fn id(connection: &SharedConnection) -> u32 {
    let mut hasher = DefaultHasher::new();
    let SharedConnection { protocol, client, service, backend, local, .. } = connection;
    (protocol, client, service, backend, local).hash(&mut hasher);
    hasher.finish() as u32 | 1
}

/// Whether both ends have spoken, as far as can be seen: what nobody has answered may be a flood.
pub(super) fn is_answered(connection: &SharedConnection) -> bool {
    let answered = |state| !matches!(state, State::None | State::SynReceived | State::UdpOneWay);
    answered(connection.state) && (connection.state != State::Close || connection.before.is_some_and(answered))
}

impl Tracker {
    /// `resumed`: the tick at which it begins, where the table has connections of which it is not known whose they are: those are others'
    /// until their next packet, since those of others would otherwise be told of as its own.
    pub(crate) fn new(slots: u32, after: u32, resumed: Option<u32>) -> Self {
        Self { notes: vec![Note::default(); slots as usize], after, resumed }
    }

    /// Nothing is in the slot.
    pub(crate) fn empty(&mut self, slot: u32) {
        if let Some(note) = self.notes.get_mut(slot as usize)
            && !std::mem::take(&mut note.is_fresh)
        {
            *note = Note::default();
        }
    }

    /// `now` in ticks.
    pub(crate) fn turn(&mut self, record: &TableRecord, now: u32) -> Turn {
        let id = id(&record.connection);
        let Some(note) = self.notes.get_mut(record.slot as usize) else { return Turn::Silent };
        if std::mem::take(&mut note.is_fresh) {
            return Turn::Others;
        }
        if note.id != id {
            *note = match self.resumed {
                Some(begun) if begun.wrapping_sub(record.tick) as i32 >= 0 => {
                    Note { id, tick: record.tick, is_others: true, ..Note::default() }
                }
                _ => Note { id, tick: now, ..Note::default() },
            };
        }
        if note.is_others {
            // Another's, until a packet comes here that is later than what was told of.
            if record.tick.wrapping_sub(note.tick) as i32 <= 0 {
                return Turn::Others;
            }
            // It is no new one.
            *note = Note { id, tick: now.wrapping_sub(self.after), ..Note::default() };
        }
        if !is_answered(&record.connection) || now.wrapping_sub(note.tick) < self.after {
            return Turn::Silent;
        }
        if note.known == record.connection.state as u8 { Turn::Known } else { Turn::News }
    }

    /// Others have been told of a record as it is.
    pub(crate) fn told(&mut self, record: &TableRecord) {
        if let Some(note) = self.notes.get_mut(record.slot as usize) {
            note.known = record.connection.state as u8;
        }
    }

    /// A slot has a connection that another balancer has told of, as of this tick.
    pub(crate) fn adopted(&mut self, slot: u32, tick: u32, connection: &SharedConnection) {
        if let Some(note) = self.notes.get_mut(slot as usize) {
            *note = Note { id: id(connection), tick, known: connection.state as u8, is_others: true, is_fresh: true };
        }
    }

    #[cfg(test)]
    fn is_others(&self, slot: u32) -> bool {
        self.notes.get(slot as usize).is_some_and(|note| note.is_others)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use rig_datapath::balancer::Protocol;

    use super::*;

    fn record(state: State, tick: u32) -> TableRecord {
        let connection = SharedConnection {
            protocol: Protocol::Tcp,
            forward: 2,
            state,
            before: None,
            idle: 0,
            client: "198.51.100.9:4000".parse().unwrap(),
            service: "192.0.2.1:80".parse().unwrap(),
            backend: "10.0.0.1:80".parse().unwrap(),
            any_port: false,
            local: None,
        };
        TableRecord { slot: 5, tick, is_spliced: false, connection }
    }

    #[test]
    fn others_are_told_of_what_is_old_enough_and_of_changes() {
        let mut tracker = Tracker::new(10, 8, None);
        let established = record(State::Established, 100);
        assert_eq!(tracker.turn(&record(State::SynReceived, 100), 100), Turn::Silent);
        assert_eq!(tracker.turn(&established, 107), Turn::Silent);
        assert_eq!(tracker.turn(&established, 108), Turn::News);
        tracker.told(&established);
        assert_eq!(tracker.turn(&established, 109), Turn::Known);
        let closing = record(State::FinWait, 110);
        assert_eq!(tracker.turn(&closing, 110), Turn::News);
        // A reset of one that nobody has answered.
        let mut reset = record(State::Close, 110);
        reset.connection.before = Some(State::SynReceived);
        assert_eq!(tracker.turn(&reset, 110), Turn::Silent);
        // Another one in the same place is a new one.
        let mut other = established;
        other.connection.client.set_port(4001);
        assert_eq!(tracker.turn(&other, 120), Turn::Silent);
        tracker.empty(5);
        assert_eq!(tracker.turn(&other, 130), Turn::Silent);
        assert_eq!(tracker.turn(&other, 138), Turn::News);
    }

    #[test]
    fn what_others_have_told_of_is_theirs_until_a_packet_comes() {
        let mut tracker = Tracker::new(10, 8, None);
        let at = |tick| record(State::Established, tick);
        tracker.adopted(5, 100, &at(100).connection);
        // What was read of the table before says nothing of it.
        tracker.empty(5);
        assert!(tracker.is_others(5));
        assert_eq!(tracker.turn(&at(100), 200), Turn::Others);
        // It has gone on here: at once, since it is old.
        assert_eq!(tracker.turn(&at(201), 201), Turn::News);
        assert!(!tracker.is_others(5));
        // And there again.
        tracker.adopted(5, 210, &at(210).connection);
        assert_eq!(tracker.turn(&at(205), 211), Turn::Others);
        assert_eq!(tracker.turn(&at(210), 211), Turn::Others);
        // Ticks wrap.
        tracker.adopted(5, u32::MAX, &at(u32::MAX).connection);
        assert_eq!(tracker.turn(&at(u32::MAX), 2), Turn::Others);
        assert_eq!(tracker.turn(&at(u32::MAX), 3), Turn::Others);
        assert_eq!(tracker.turn(&at(2), 3), Turn::News);
    }

    #[test]
    fn what_was_there_at_a_restart_is_others_until_a_packet_comes() {
        let mut tracker = Tracker::new(10, 8, Some(100));
        let at = |tick| record(State::Established, tick);
        assert_eq!(tracker.turn(&at(100), 101), Turn::Others);
        assert_eq!(tracker.turn(&at(100), 200), Turn::Others);
        assert_eq!(tracker.turn(&at(201), 201), Turn::News);
        // One that has begun since.
        let mut new = at(210);
        new.connection.client.set_port(4001);
        assert_eq!(tracker.turn(&new, 210), Turn::Silent);
        assert_eq!(tracker.turn(&new, 218), Turn::News);
    }
}
