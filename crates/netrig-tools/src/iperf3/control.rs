//! Both sides of the control connection as state machines: bytes in, events out. They do no I/O and know no time, so that
//! recordings and a fuzzer can drive them.

use super::error::{Code, TestError};
use super::json::Json;
use super::settings::TestSettings;
use super::wire::{
    COOKIE, Cookie, MOST_CLIENT_RESULTS, MOST_PARAMETERS, MOST_SERVER_RESULTS, Results, State, read_parameters,
    read_results,
};

/// What has come and is not understood yet. It never holds more than what is expected may have.
#[derive(Debug, Default)]
struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
}

impl Inbox {
    fn push(&mut self, bytes: &[u8]) {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.rest().first()?;
        self.taken += 1;
        Some(byte)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = self.rest().get(..N)?.try_into().ok()?;
        self.taken += N;
        Some(array)
    }

    /// JSON behind its length.
    fn json(&mut self, most: usize, code: Code) -> Result<Option<Json>, TestError> {
        let Some((length, rest)) = self.rest().split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || length > most {
            return Err(TestError::with(code, format!("{length} bytes, and 1 to {most} are taken")));
        }
        let Some(text) = rest.get(..length) else { return Ok(None) };
        // Some versions count a NUL at the end.
        let text = text.strip_suffix(&[0]).unwrap_or(text);
        let json = Json::read(text).map_err(|error| TestError::with(code, format!("no JSON: {error}")))?;
        self.taken += 4 + length;
        Ok(Some(json))
    }
}

/// What a client has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    SendParameters,
    CreateStreams,
    /// Timers begin.
    Start,
    /// Load begins.
    Run,
    SendResults,
    /// The server's.
    Results(Box<Results>),
    /// The test is over: print, and say so.
    Display,
    /// The server was stopped.
    Terminated,
    /// What the server says has gone wrong.
    Failed(TestError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientStage {
    Greeted,
    Parameters,
    Streams,
    Started,
    Running,
    Ending,
    ServerResults,
    Display,
    Over,
    /// The server's error is on its way.
    Error,
}

/// A client's side, which has sent its cookie.
#[derive(Debug)]
pub struct ClientSession {
    inbox: Inbox,
    stage: ClientStage,
}

impl Default for ClientSession {
    fn default() -> Self {
        Self { inbox: Inbox::default(), stage: ClientStage::Greeted }
    }
}

impl ClientSession {
    /// Takes what has come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.inbox.push(bytes);
    }

    /// Between the server's word that the test runs and its end.
    pub fn is_running(&self) -> bool {
        self.stage == ClientStage::Running
    }

    /// The test is over as far as this end goes, and it says so. False when it does not run.
    pub fn end(&mut self) -> bool {
        let running = self.is_running();
        if running {
            self.stage = ClientStage::Ending;
        }
        running
    }

    /// Nothing more is expected.
    pub fn is_over(&self) -> bool {
        self.stage == ClientStage::Over
    }

    /// What follows from what has come; `None` until more does.
    ///
    /// # Errors
    /// What no server says, or not now.
    pub fn next_event(&mut self) -> Result<Option<ClientEvent>, TestError> {
        match self.stage {
            ClientStage::ServerResults => {
                let json = self.inbox.json(MOST_SERVER_RESULTS, Code::RECEIVE_RESULTS)?;
                let Some(json) = json else { return Ok(None) };
                self.stage = ClientStage::Display;
                return Ok(Some(ClientEvent::Results(Box::new(read_results(&json)?))));
            }
            ClientStage::Error => {
                let Some(numbers) = self.inbox.array::<8>() else { return Ok(None) };
                let number =
                    |at: usize| i32::from_be_bytes([numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]]);
                self.stage = ClientStage::Over;
                let trouble = TestError { code: Code(number(0)), detail: None, errno: number(4) };
                return Ok(Some(ClientEvent::Failed(trouble)));
            }
            ClientStage::Over => return Ok(None),
            _ => {}
        }
        let Some(byte) = self.inbox.byte() else { return Ok(None) };
        let (stage, event) = match (self.stage, State::of(byte)) {
            (ClientStage::Greeted, Some(State::ParameterExchange)) => {
                (ClientStage::Parameters, ClientEvent::SendParameters)
            }
            (ClientStage::Greeted, Some(State::AccessDenied)) => return Err(Code::ACCESS_DENIED.into()),
            (ClientStage::Parameters, Some(State::CreateStreams)) => (ClientStage::Streams, ClientEvent::CreateStreams),
            (ClientStage::Streams, Some(State::TestStart)) => (ClientStage::Started, ClientEvent::Start),
            (ClientStage::Started, Some(State::TestRunning)) => (ClientStage::Running, ClientEvent::Run),
            (ClientStage::Ending, Some(State::ExchangeResults)) => {
                (ClientStage::ServerResults, ClientEvent::SendResults)
            }
            (ClientStage::Display, Some(State::DisplayResults)) => (ClientStage::Over, ClientEvent::Display),
            (_, Some(State::ServerTerminate)) => (ClientStage::Over, ClientEvent::Terminated),
            (_, Some(State::ServerError)) => {
                self.stage = ClientStage::Error;
                return self.next_event();
            }
            _ => return Err(TestError::with(Code::MESSAGE, format!("state {}", byte as i8))),
        };
        self.stage = stage;
        Ok(Some(event))
    }
}

/// What a server learns from a client.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    Parameters(Box<TestSettings>),
    TestEnd,
    Results(Box<Results>),
    /// The client has printed, and goes.
    Done,
    /// The client was stopped.
    Terminated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerStage {
    Parameters,
    Test,
    ClientResults,
    Display,
    Over,
}

/// A server's side, which has taken the cookie and asked for parameters.
#[derive(Debug)]
pub struct ServerSession {
    inbox: Inbox,
    stage: ServerStage,
}

impl Default for ServerSession {
    fn default() -> Self {
        Self { inbox: Inbox::default(), stage: ServerStage::Parameters }
    }
}

impl ServerSession {
    pub fn push(&mut self, bytes: &[u8]) {
        self.inbox.push(bytes);
    }

    pub fn is_over(&self) -> bool {
        self.stage == ServerStage::Over
    }

    /// What follows from what has come; `None` until more does.
    ///
    /// # Errors
    /// What no client says, or not now.
    pub fn next_event(&mut self) -> Result<Option<ServerEvent>, TestError> {
        let (stage, event) = match self.stage {
            ServerStage::Parameters => {
                let json = self.inbox.json(MOST_PARAMETERS, Code::RECEIVE_PARAMETERS)?;
                let Some(json) = json else { return Ok(None) };
                (ServerStage::Test, ServerEvent::Parameters(Box::new(read_parameters(&json)?)))
            }
            ServerStage::ClientResults => {
                let json = self.inbox.json(MOST_CLIENT_RESULTS, Code::RECEIVE_RESULTS)?;
                let Some(json) = json else { return Ok(None) };
                (ServerStage::Display, ServerEvent::Results(Box::new(read_results(&json)?)))
            }
            ServerStage::Over => return Ok(None),
            ServerStage::Test | ServerStage::Display => {
                let byte = loop {
                    let Some(byte) = self.inbox.byte() else { return Ok(None) };
                    // The original takes it, too, and does nothing.
                    if State::of(byte) != Some(State::TestStart) {
                        break byte;
                    }
                };
                match (self.stage, State::of(byte)) {
                    (ServerStage::Test, Some(State::TestEnd)) => (ServerStage::ClientResults, ServerEvent::TestEnd),
                    (_, Some(State::Done)) => (ServerStage::Over, ServerEvent::Done),
                    (_, Some(State::ClientTerminate)) => (ServerStage::Over, ServerEvent::Terminated),
                    _ => return Err(TestError::with(Code::MESSAGE, format!("state {}", byte as i8))),
                }
            }
        };
        self.stage = stage;
        Ok(Some(event))
    }
}

/// The cookie at the beginning of a connection that a server has accepted, as far as it has come.
#[derive(Debug, Default)]
pub struct Greeting(Vec<u8>);

impl Greeting {
    /// Bytes that are still missing.
    pub fn missing(&self) -> usize {
        COOKIE - self.0.len()
    }

    /// Takes up to as many bytes as are missing; the cookie when it is whole.
    pub fn push(&mut self, bytes: &[u8]) -> Option<Cookie> {
        self.0.extend(bytes.iter().take(self.missing()));
        self.0.as_slice().try_into().ok()
    }
}

/// What any two peers can do to each other, for fuzzing: bytes of any kind, in pieces or at once, end in events or an error, never in a
/// panic, and nothing more than what has come is held.
pub fn fuzz(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let step = if choice >> 2 == 0 { data.len().max(1) } else { usize::from(choice >> 2) };
    let mut greeting = Greeting::default();
    let _ = greeting.push(data);
    assert!(greeting.missing() <= COOKIE);
    if choice & 1 == 0 {
        let mut session = ServerSession::default();
        let mut ended = false;
        for bytes in data.chunks(step) {
            session.push(bytes);
            while let Ok(Some(event)) = session.next_event() {
                match event {
                    ServerEvent::Parameters(test) => {
                        assert!((1..=128).contains(&test.parallel) && test.length <= 1 << 20 && test.time <= 86_400);
                        // What is read is what would be sent.
                        let again = read_parameters(&super::wire::parameters(&test)).unwrap_or_default();
                        assert_eq!(again.total_rate(again.rate), test.total_rate(test.rate));
                    }
                    ServerEvent::TestEnd => ended = true,
                    ServerEvent::Results(_) => assert!(ended, "results before the end"),
                    ServerEvent::Done | ServerEvent::Terminated => assert!(session.is_over()),
                }
            }
        }
        assert!(session.inbox.bytes.len() <= data.len());
    } else {
        let mut session = ClientSession::default();
        let mut asked = false;
        for bytes in data.chunks(step) {
            session.push(bytes);
            while let Ok(Some(event)) = session.next_event() {
                match event {
                    ClientEvent::Run if choice & 2 == 0 => assert!(session.end()),
                    ClientEvent::SendResults => asked = true,
                    ClientEvent::Results(_) => assert!(asked, "results that were not asked for"),
                    ClientEvent::Display => assert!(session.is_over()),
                    _ => {}
                }
            }
        }
        assert!(session.inbox.bytes.len() <= data.len());
    }
}
