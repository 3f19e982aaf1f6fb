//! Numbers that UDP requests carry, so that an answer says which request it is to.
//!
//! A request begins with its number, four bytes, most significant first; a server of ours copies them to the begin of its
//! answer, and so does every server that echoes. Others, such as dperf's, answer with bytes of their own: their answers
//! are matched by addresses and ports alone, as all are where there is no room for a number. Which kind a server is shows
//! in its answers: that one of them begins with the number of a recent request by chance is as improbable as that number
//! is rare among all of four bytes, and that several do so in a row is not believed.

use super::Nanos;
use super::config::Service;
use super::connection::Timestamp;
use super::counters::Counters;
use super::payload::Payload;

/// Of how many requests back it is known whether they were answered.
const REMEMBERED: u32 = 1 << 22;
/// As long as no more were sent, a number that was is no chance.
const FEW: u64 = 1 << 16;
/// Answers with a number, in a row, after which a server is known to echo.
const PROOF: u8 = 4;
/// Of a server that has not answered yet. Its first answer is believed when it has a number that can be one: by chance that
/// is so once in 1,024 times, and only once for each server.
const UNHEARD: u8 = u8::MAX;

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerMatch {
    /// It is the first to a request that is waited for.
    Awaited,
    /// It is the first to a request that was given up.
    Late,
    /// The request was answered before.
    Duplicate,
    /// Nothing: the server does not echo, as far as is known.
    Nothing,
    /// It is to no request, from a server that echoes.
    Stray,
}

/// The numbers of a thread's requests.
#[derive(Debug)]
pub(super) struct Numbers {
    next: u32,
    given: u64,
    /// A bit for each of the last numbers: whether it was answered.
    answered: Box<[u64]>,
    /// For each server's address: how many answers in a row carried a number, up to [`PROOF`], or [`UNHEARD`].
    proofs: Box<[u8]>,
}

impl Numbers {
    /// Bytes of a number.
    pub const BYTES: usize = 4;
    /// Bytes that they take, with the most addresses of servers.
    pub const MEMORY: u64 = REMEMBERED as u64 / 8 + u16::MAX as u64;

    /// The first one goes by the clock, as that of a TCP connection does: what a run before left behind on the way has
    /// another number, unless more than 15 million requests were sent in a second.
    pub fn new(now: Nanos, servers: usize) -> Self {
        let answered = vec![0; REMEMBERED as usize / 64].into();
        Self { next: Timestamp::of(now).0, given: 0, answered, proofs: vec![UNHEARD; servers].into() }
    }

    /// The number of the next request.
    #[inline]
    pub fn give(&mut self) -> u32 {
        let number = self.next;
        let (word, bit) = Self::place(number);
        self.answered[word] &= !bit;
        self.next = number.wrapping_add(1);
        self.given += 1;
        number
    }

    #[inline]
    fn place(number: u32) -> (usize, u64) {
        ((number % REMEMBERED / 64) as usize, 1 << (number % 64))
    }

    /// What an answer from `server` that begins with `number` says to a flow which waits for answers to so many requests
    /// from a first one on; `None`: the flow waits for nothing.
    #[inline]
    pub fn judge(&mut self, number: u32, awaited: Option<(u32, u32)>, server: usize) -> AnswerMatch {
        let age = self.next.wrapping_sub(number);
        let (word, bit) = Self::place(number);
        // Nearly every answer: what a flow waits for was given.
        if let Some((first, count)) = awaited
            && number.wrapping_sub(first) < count
            && age <= REMEMBERED
            && self.proofs[server] == PROOF
            && self.answered[word] & bit == 0
        {
            self.answered[word] |= bit;
            return AnswerMatch::Awaited;
        }
        self.judge_other(number, awaited, server)
    }

    #[inline(never)]
    fn judge_other(&mut self, number: u32, awaited: Option<(u32, u32)>, server: usize) -> AnswerMatch {
        let age = self.next.wrapping_sub(number);
        let (word, bit) = Self::place(number);
        let given = age > 0 && u64::from(age) <= self.given;
        let remembered = given && age <= REMEMBERED;
        let fresh = remembered && self.answered[word] & bit == 0;
        let unheard = self.proofs[server] == UNHEARD;
        let before = if unheard { 0 } else { self.proofs[server] };
        let proven = before == PROOF;
        if fresh {
            self.answered[word] |= bit;
            self.proofs[server] = PROOF.min(before + 1);
        } else if !proven {
            self.proofs[server] = 0;
        }
        let told = match awaited {
            Some((first, count)) if fresh && number.wrapping_sub(first) < count => return AnswerMatch::Awaited,
            _ if fresh => AnswerMatch::Late,
            _ if remembered => AnswerMatch::Duplicate,
            // It came longer after its request than is remembered.
            _ if given => AnswerMatch::Late,
            _ => AnswerMatch::Stray,
        };
        let likely = if self.given <= FEW { fresh || before > 0 } else { fresh && (before > 0 || unheard) };
        if proven || likely || awaited.is_none() { told } else { AnswerMatch::Nothing }
    }
}

impl Payload {
    /// Whether a message of these bytes has room for a number. Bytes that the user gave stay as they are.
    pub(super) fn takes_number(&self) -> bool {
        matches!(self, Self::Filler(_) | Self::Random { .. }) && self.len() >= Numbers::BYTES as u64
    }
}

impl Service {
    /// Why the requests of a UDP client carry no number, and what follows from that; `None` when they do, or need not.
    pub(super) fn unnumbered(&self) -> Option<String> {
        let Self::UdpClient(udp) = self else { return None };
        if udp.client.flood.is_some() || udp.request.takes_number() {
            return None;
        }
        let why = match udp.request {
            Payload::Bytes(_) => "requests are sent byte by byte as they were given, without a number".to_owned(),
            _ => format!("requests of {} bytes have no room for a number of {}", udp.request.len(), Numbers::BYTES),
        };
        Some(format!(
            "{why}: answers are matched by addresses and ports alone, and one that is late or comes twice counts for \
             whichever request its flow waits for"
        ))
    }

    /// What the answers that a UDP client counted leave in doubt: sentences.
    pub fn doubts(&self, counters: &Counters) -> Vec<String> {
        let Counters { udp_unnumbered, udp_late, .. } = *counters;
        let Self::UdpClient(udp) = self else { return Vec::new() };
        let mut doubts = Vec::new();
        if udp_unnumbered > 0 && udp.request.takes_number() {
            doubts.push(format!(
                "{udp_unnumbered} answers did not begin with a request's number, as those of a server that does not echo: \
                 they were matched by addresses and ports alone, and late or repeated ones among them cannot be told from \
                 good ones"
            ));
        }
        let interval = udp.client.repeat.map(|repeat| repeat.interval).filter(|interval| !interval.is_zero());
        if let Some(interval) = interval.filter(|interval| udp_late > 0 && *interval < udp.timeout) {
            doubts.push(format!(
                "{udp_late} answers came after their request was given up, which is when the flow's next one is due, after \
                 {interval:?}: at a longer interval they would be in time"
            ));
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(given: u32) -> Numbers {
        let mut numbers = Numbers::new(0, 2);
        // Across the wrap.
        numbers.next = u32::MAX - 5;
        for _ in 0..given {
            numbers.give();
        }
        numbers
    }

    fn waits(number: u32) -> Option<(u32, u32)> {
        Some((number, 1))
    }

    #[test]
    fn an_answer_is_to_the_request_whose_number_it_has() {
        let mut numbers = numbers(0);
        let all: Vec<u32> = (0..20).map(|_| numbers.give()).collect();
        assert_eq!(numbers.judge(all[0], waits(all[0]), 0), AnswerMatch::Awaited);
        // Its request is over; another is waited for.
        assert_eq!(numbers.judge(all[1], waits(all[2]), 0), AnswerMatch::Late);
        assert_eq!(numbers.judge(all[2], waits(all[2]), 0), AnswerMatch::Awaited);
        assert_eq!(numbers.judge(all[3], None, 0), AnswerMatch::Late);
        assert_eq!(numbers.judge(all[2], None, 0), AnswerMatch::Duplicate);
        assert_eq!(numbers.judge(all[1], waits(all[9]), 0), AnswerMatch::Duplicate, "late, and then again");
        // What was never sent is no answer of a server that echoes.
        assert_eq!(numbers.judge(all[19].wrapping_add(1), waits(all[9]), 0), AnswerMatch::Stray);
        assert_eq!(numbers.judge(all[0].wrapping_sub(1), waits(all[9]), 0), AnswerMatch::Stray);
        // Of several that were asked together each has its own.
        let together = Some((all[10], 3));
        assert_eq!(numbers.judge(all[11], together, 0), AnswerMatch::Awaited);
        assert_eq!(numbers.judge(all[11], together, 0), AnswerMatch::Duplicate);
        assert_eq!(numbers.judge(all[12], together, 0), AnswerMatch::Awaited);
        assert_eq!(numbers.judge(all[13], together, 0), AnswerMatch::Late);
    }

    #[test]
    fn the_first_answer_of_all_may_be_late() {
        let mut numbers = numbers(0);
        let (first, second) = (numbers.give(), numbers.give());
        assert_eq!(numbers.judge(first, waits(second), 1), AnswerMatch::Late);
    }

    /// So many requests after the first that a number could be chance.
    #[test]
    fn the_first_answer_of_a_server_may_be_late_at_any_time() {
        let mut numbers = numbers(FEW as u32 + 1);
        let (first, second) = (numbers.give(), numbers.give());
        assert_eq!(numbers.judge(first, waits(second), 1), AnswerMatch::Late);
        assert_eq!(numbers.judge(second, waits(second), 1), AnswerMatch::Awaited);
        // One that has answered with bytes of its own must do so more than once.
        let (first, second) = (numbers.give(), numbers.give());
        assert_eq!(numbers.judge(0x6161_6161, waits(first), 0), AnswerMatch::Nothing);
        assert_eq!(numbers.judge(first, waits(second), 0), AnswerMatch::Nothing);
    }

    #[test]
    fn a_server_with_bytes_of_its_own_is_found_out_whatever_they_are() {
        let mut numbers = numbers(0);
        let own = 0x6161_6161;
        for _ in 0..1000 {
            let asked = numbers.give();
            assert_eq!(numbers.judge(own, waits(asked), 0), AnswerMatch::Nothing);
        }
        // The numbers come by those bytes, after so many that it could be chance.
        (numbers.next, numbers.given) = (own - 10, FEW * 2);
        let mut verdicts = Vec::new();
        for _ in 0..1000 {
            let asked = numbers.give();
            verdicts.push(numbers.judge(own, waits(asked), 0));
        }
        let wrong: Vec<_> = verdicts.iter().filter(|told| !matches!(told, AnswerMatch::Nothing)).collect();
        assert_eq!(wrong, [&AnswerMatch::Awaited], "which is right, too");
        // The other server echoes all the same.
        let asked = numbers.give();
        assert_eq!(numbers.judge(asked, waits(asked), 1), AnswerMatch::Awaited);
    }

    #[test]
    fn what_is_too_long_ago_is_late_at_a_server_that_is_known() {
        let mut numbers = numbers(PROOF.into());
        let first = u32::MAX - 5;
        for n in 0..PROOF {
            let number = first.wrapping_add(n.into());
            assert_eq!(numbers.judge(number, waits(number), 0), AnswerMatch::Awaited);
        }
        let lost = numbers.give();
        for _ in 0..REMEMBERED {
            numbers.give();
        }
        assert_eq!(numbers.judge(lost, None, 0), AnswerMatch::Late);
        // To an unknown request it says nothing.
        assert_eq!(numbers.judge(lost, waits(lost.wrapping_add(9)), 1), AnswerMatch::Nothing);
    }
}
