//! The protocol that the two ends of ntttcp-for-linux agree by, before, during and after a test.
//!
//! One TCP connection from the sender to the receiver's port below the data ports. Every message is a signed 32-bit
//! integer in network byte order; the sender asks, the receiver answers each question with one message. The format is
//! that of ntttcp-for-linux 1.4.3 (`endpointsync.c`):
//!
//! | question | meaning | answer |
//! |---|---|---|
//! | 88 `X` | is the receiver free? | its state: 10 unknown, 11 not started, 12 running, 13 finished |
//! | a number of seconds | how long shall all of it last (warm-up, test, cool-down)? 0 has no end | the seconds agreed |
//! | 82 `R` | begin | 82 begin now, 87 `W` wait and 82 follows, 69 `E` no |
//! | 76 `L` | begin, all clients are there | as for `R` |
//! | 69 `E` | stop | the state |
//!
//! The original tells questions apart by their value alone, so that a test of 69, 76, 82 or 88 seconds is taken for a
//! command. Here their order tells: what follows the answer to the first `X` is the time.
//!
//! Nothing here does input or output: bytes come in, actions go out, and no byte sequence is trusted.

use std::collections::BTreeMap;
use std::fmt;

/// The longest test that is agreed to, in seconds: a week.
pub const LONGEST_CYCLE: u32 = 7 * 24 * 3600;
/// Clients of one multi-client test, the one that says `L` included (MAX_REMOTE_ENDPOINTS of the original).
pub const SEATS: usize = 8;
/// Questions that one client may ask. A sender asks four, and now and then whether the test is over.
const QUESTIONS: u32 = 10_000;

const QUERY: i32 = b'X' as i32;
const START: i32 = b'R' as i32;
const START_LAST: i32 = b'L' as i32;
const WAIT: i32 = b'W' as i32;
const EXIT: i32 = b'E' as i32;

/// Where the receiver's test stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Unknown,
    NotStarted,
    Running,
    Finished,
}

impl State {
    fn code(self) -> i32 {
        match self {
            Self::Unknown => 10,
            Self::NotStarted => 11,
            Self::Running => 12,
            Self::Finished => 13,
        }
    }

    fn of(code: i32) -> Option<Self> {
        [Self::Unknown, Self::NotStarted, Self::Running, Self::Finished].into_iter().find(|s| s.code() == code)
    }
}

/// How long a test lasts from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cycle {
    Seconds(u32),
    Endless,
}

impl Cycle {
    /// The duration that a peer names; `None` for a number that has no meaning.
    fn of(seconds: i32) -> Option<Self> {
        match u32::try_from(seconds).ok()? {
            0 => Some(Self::Endless),
            seconds @ 1..=LONGEST_CYCLE => Some(Self::Seconds(seconds)),
            _ => None,
        }
    }

    fn code(self) -> i32 {
        match self {
            Self::Seconds(seconds) => i32::try_from(seconds).unwrap_or(i32::MAX),
            Self::Endless => 0,
        }
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(seconds) => write!(f, "{seconds} seconds"),
            Self::Endless => f.write_str("continuous mode"),
        }
    }
}

fn message(code: i32) -> [u8; 4] {
    code.to_be_bytes()
}

/// Puts messages together that arrive in pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct MessageAssembler {
    bytes: [u8; 4],
    held: usize,
}

impl MessageAssembler {
    /// Takes one byte; a message when it is the last of one.
    fn push(&mut self, byte: u8) -> Option<i32> {
        self.bytes[self.held] = byte;
        self.held = (self.held + 1) % 4;
        (self.held == 0).then(|| i32::from_be_bytes(self.bytes))
    }
}

/// One sync connection, numbered by the owner of the sockets.
pub type Client = u32;

/// What the holder of the receiver's sockets shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Reply(Client, [u8; 4]),
    /// The test begins: replies that belong to it come before.
    Begin(Cycle),
    /// A client of the test wants it to end.
    Stop(Client),
    /// All clients of the test have gone.
    Deserted,
    /// A client joined and waits for the last one.
    Joined {
        waiting: usize,
    },
    /// Close the connection; why, in words for people.
    Refuse(Client, Refusal),
}

/// Why a client is sent away or not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it sent {0}, which the protocol does not allow at that point")]
    Meaningless(i32),
    #[error("it asked for more than {QUESTIONS} answers")]
    TooManyQuestions,
}

/// How the receiver settles a test's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthPolicy {
    /// The longer of this and what the sender proposes; endless when either is.
    AtLeast(Cycle),
    /// What the sender proposes.
    AsProposed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    New,
    Queried,
    Agreed,
    /// Waits for the test, or takes part in it.
    Seated,
}

#[derive(Debug, Clone, Copy)]
struct Peer {
    pieces: MessageAssembler,
    step: Step,
    questions: u32,
}

/// The receiver's side of the protocol.
#[derive(Debug)]
pub struct Receiver {
    terms: LengthPolicy,
    many: bool,
    state: State,
    agreed: Option<Cycle>,
    peers: BTreeMap<Client, Peer>,
}

impl Receiver {
    /// A receiver that has not started. `many`: it waits for several clients, the last of which says so, and its own
    /// terms stand.
    pub fn new(terms: LengthPolicy, many: bool) -> Self {
        Self { terms, many, state: State::NotStarted, agreed: None, peers: BTreeMap::new() }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// A client connected.
    pub fn connected(&mut self, client: Client) {
        self.peers.insert(client, Peer { pieces: MessageAssembler::default(), step: Step::New, questions: 0 });
    }

    /// Whether a client waits for the test or takes part in it. Others may be sent away when they take too long.
    pub fn is_seated(&self, client: Client) -> bool {
        self.peers.get(&client).is_some_and(|peer| peer.step == Step::Seated)
    }

    /// The clients that wait for the test or take part in it.
    fn seated(&self) -> impl Iterator<Item = Client> {
        self.peers.iter().filter(|(_, peer)| peer.step == Step::Seated).map(|(&client, _)| client)
    }

    /// The connection was closed by either end.
    pub fn closed(&mut self, client: Client) -> Vec<Action> {
        let seated = self.peers.remove(&client).is_some_and(|peer| peer.step == Step::Seated);
        let deserted = seated && self.state == State::Running && self.seated().next().is_none();
        if deserted { vec![Action::Deserted] } else { Vec::new() }
    }

    /// The test is over.
    pub fn finished(&mut self) {
        self.state = State::Finished;
    }

    /// Ready for the next test. Clients of the last one have no seat in it.
    pub fn renew(&mut self) {
        (self.state, self.agreed) = (State::NotStarted, None);
        for peer in self.peers.values_mut().filter(|peer| peer.step == Step::Seated) {
            peer.step = Step::Agreed;
        }
    }

    /// Bytes from a client, in pieces of any size. A client that is unknown or refused is not listened to.
    pub fn bytes(&mut self, client: Client, bytes: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        for &byte in bytes {
            let Some(peer) = self.peers.get_mut(&client) else { break };
            let Some(code) = peer.pieces.push(byte) else { continue };
            peer.questions += 1;
            let step = peer.step;
            let answer = if peer.questions > QUESTIONS {
                Err(Refusal::TooManyQuestions)
            } else {
                self.question(client, step, code, &mut actions)
            };
            match answer {
                Ok(code) => actions.push(Action::Reply(client, message(code))),
                Err(refusal) => {
                    // The holder closes the connection, and whether the test is deserted by that is told here.
                    let deserted = self.closed(client);
                    actions.push(Action::Refuse(client, refusal));
                    actions.extend(deserted);
                }
            }
            // What begins with this answer comes after it.
            if let Some(at) = actions.iter().position(|action| matches!(action, Action::Begin(_))) {
                let begin = actions.remove(at);
                actions.push(begin);
            }
        }
        actions
    }

    fn question(&mut self, client: Client, step: Step, code: i32, actions: &mut Vec<Action>) -> Result<i32, Refusal> {
        let next = match (step, code) {
            (Step::Queried, _) => return self.proposal(client, code),
            (_, QUERY) if step == Step::New => Step::Queried,
            (_, QUERY) => return Ok(self.state.code()),
            (_, EXIT) => {
                if step == Step::Seated && self.state == State::Running {
                    self.state = State::Finished;
                    actions.push(Action::Stop(client));
                }
                return Ok(self.state.code());
            }
            (Step::New | Step::Agreed, START) => return Ok(self.start(client, false, actions)),
            (Step::New | Step::Agreed, START_LAST) => return Ok(self.start(client, true, actions)),
            (Step::New | Step::Agreed, _) => return self.proposal(client, code),
            (Step::Seated, _) => return Err(Refusal::Meaningless(code)),
        };
        self.step(client, next);
        Ok(self.state.code())
    }

    fn proposal(&mut self, client: Client, code: i32) -> Result<i32, Refusal> {
        let proposed = Cycle::of(code).ok_or(Refusal::Meaningless(code))?;
        let agreed = match (self.terms, proposed) {
            (LengthPolicy::AtLeast(own), _) if self.many => own,
            (LengthPolicy::AtLeast(Cycle::Seconds(own)), Cycle::Seconds(proposed)) => Cycle::Seconds(own.max(proposed)),
            (LengthPolicy::AtLeast(_), _) => Cycle::Endless,
            (LengthPolicy::AsProposed, proposed) => proposed,
        };
        // Another test is running: the answer stands for nothing, because its start will be refused.
        if self.state == State::NotStarted {
            self.agreed = Some(agreed);
        }
        self.step(client, Step::Agreed);
        Ok(agreed.code())
    }

    /// A sender wants to begin. Returns the answer.
    fn start(&mut self, client: Client, last: bool, actions: &mut Vec<Action>) -> i32 {
        if self.state != State::NotStarted || (last && !self.many) {
            return EXIT;
        }
        // The last seat is for the client that says `L`.
        let limit = if last { SEATS } else { SEATS - 1 };
        if self.many && self.seated().count() >= limit {
            return EXIT;
        }
        let others: Vec<Client> = self.seated().collect();
        self.step(client, Step::Seated);
        if self.many && !last {
            actions.push(Action::Joined { waiting: others.len() + 1 });
            return WAIT;
        }
        actions.extend(others.into_iter().map(|other| Action::Reply(other, message(START))));
        self.state = State::Running;
        let own = match self.terms {
            LengthPolicy::AtLeast(own) => own,
            LengthPolicy::AsProposed => Cycle::Endless,
        };
        actions.push(Action::Begin(self.agreed.unwrap_or(own)));
        START
    }

    fn step(&mut self, client: Client, step: Step) {
        if let Some(peer) = self.peers.get_mut(&client) {
            peer.step = step;
        }
    }
}

/// What the sender learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The receiver is free: `next` is to be sent.
    Free { next: [u8; 4] },
    /// How long the test lasts. The connections can be opened now, and then [`Sender::start`] is due.
    Agreed(Cycle),
    /// The receiver waits for further clients.
    Wait,
    /// Go.
    Run,
    /// The receiver's state, asked for with [`Sender::ask`] or [`Sender::exit`].
    State(State),
}

/// What is wrong with the receiver's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SenderError {
    #[error("the receiver is busy with another test: wait until it is over")]
    Busy,
    #[error("the receiver refuses to start: it is busy, has no seat left, or runs without -M, which -L needs")]
    Refused,
    #[error("the receiver answers {answer} when asked {asked}: does something else than NTttcp listen there?")]
    Nonsense { asked: &'static str, answer: i32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncState {
    Query,
    Proposal,
    Nothing,
    Start,
    Waiting,
    Running,
}

/// The sender's side of the protocol.
#[derive(Debug)]
pub struct Sender {
    pieces: MessageAssembler,
    asked: SyncState,
    proposal: Cycle,
}

impl Sender {
    /// A sender that proposes `cycle`, and its first message. The original would take four lengths for commands, so
    /// those are proposed a second longer.
    pub fn new(cycle: Cycle) -> (Self, [u8; 4]) {
        let proposal = match cycle {
            Cycle::Seconds(s) if [QUERY, START, START_LAST, EXIT].contains(&cycle.code()) => Cycle::Seconds(s + 1),
            cycle => cycle,
        };
        (Self { pieces: MessageAssembler::default(), asked: SyncState::Query, proposal }, message(QUERY))
    }

    /// All connections stand: the message that asks to begin. `last`: all other clients are there.
    pub fn start(&mut self, last: bool) -> [u8; 4] {
        self.asked = SyncState::Start;
        message(if last { START_LAST } else { START })
    }

    /// The message that asks for the receiver's state.
    pub fn ask(&self) -> [u8; 4] {
        message(QUERY)
    }

    /// The message that ends the test.
    pub fn exit(&self) -> [u8; 4] {
        message(EXIT)
    }

    /// Bytes from the receiver, in pieces of any size: what they mean.
    ///
    /// # Errors
    /// An answer with which there will be no test. Nothing more is to be read after it.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<Vec<Event>, SenderError> {
        let mut events = Vec::new();
        for &byte in bytes {
            if let Some(code) = self.pieces.push(byte) {
                events.extend(self.answer(code)?);
            }
        }
        Ok(events)
    }

    fn answer(&mut self, code: i32) -> Result<Option<Event>, SenderError> {
        let nonsense = |asked| Err(SenderError::Nonsense { asked, answer: code });
        match (self.asked, code) {
            (SyncState::Query, code) => match State::of(code) {
                Some(State::Running) => Err(SenderError::Busy),
                Some(_) => {
                    self.asked = SyncState::Proposal;
                    Ok(Some(Event::Free { next: message(self.proposal.code()) }))
                }
                None => nonsense("whether it is free"),
            },
            (SyncState::Proposal, code) => match Cycle::of(code) {
                Some(cycle) => {
                    self.asked = SyncState::Nothing;
                    Ok(Some(Event::Agreed(cycle)))
                }
                None => nonsense("how long the test shall last"),
            },
            (SyncState::Start, WAIT) => {
                self.asked = SyncState::Waiting;
                Ok(Some(Event::Wait))
            }
            (SyncState::Start | SyncState::Waiting, START) => {
                self.asked = SyncState::Running;
                Ok(Some(Event::Run))
            }
            (SyncState::Start | SyncState::Waiting, EXIT) => Err(SenderError::Refused),
            (SyncState::Start | SyncState::Waiting, _) => nonsense("to begin"),
            // The original tells the client that said `L` twice to run.
            (SyncState::Running, START) => Ok(None),
            (SyncState::Running, code) => match State::of(code) {
                Some(state) => Ok(Some(Event::State(state))),
                None => nonsense("how its test stands"),
            },
            (SyncState::Nothing, _) => nonsense("nothing"),
        }
    }
}

/// Feeds arbitrary bytes to both sides: for fuzzing. The first byte chooses the receiver's terms. Then
/// come pieces, each after a byte that says which of several clients it is from, and in its highest bit whether it has
/// three bytes or a message's four.
///
/// # Panics
/// When a rule of the protocol is broken: what a fuzzer looks for.
pub fn fuzz(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    let terms = if first & 1 == 0 { LengthPolicy::AsProposed } else { LengthPolicy::AtLeast(Cycle::Seconds(60)) };
    let mut receiver = Receiver::new(terms, first & 2 != 0);
    let mut rest = data;
    while let Some((&header, after)) = rest.split_first() {
        let (piece, after) = after.split_at(after.len().min(if header & 0x80 == 0 { 4 } else { 3 }));
        rest = after;
        let client = Client::from(header % 12);
        if !receiver.peers.contains_key(&client) {
            receiver.connected(client);
        }
        let before = receiver.state;
        let actions = receiver.bytes(client, piece);
        let begins = actions.iter().filter(|action| matches!(action, Action::Begin(_))).count();
        assert!(begins <= usize::from(before == State::NotStarted), "a test began twice");
        assert!(receiver.seated().count() <= SEATS, "more clients than seats");
        match header {
            250..=255 => drop(receiver.closed(client)),
            245..=249 => {
                receiver.finished();
                receiver.renew();
            }
            _ => {}
        }
    }
    let (mut sender, _) = Sender::new(Cycle::Seconds(60));
    for piece in data.chunks(5) {
        match sender.bytes(piece) {
            Ok(events) if events.iter().any(|event| matches!(event, Event::Agreed(_))) => {
                sender.start(first & 4 != 0);
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
