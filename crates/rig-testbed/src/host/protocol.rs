//! What a runner and the program of a host say to each other on the program's standard input and output: requests and replies of
//! `rig_lines`, and between them the input and output of the processes that the host has started.
//!
//! ```text
//! runner                                        netrig host
//!   Greeting  --------------------------------->
//!             <--------------------------------- Greeting
//!   Request { number: 0, request: Apply } ----->
//!             <--------------------------------- Answer { number: 0, value: Done }
//!   Request { number: 1, request: Start { process: 1 } }
//!             <--------------------------------- Answer { number: 1, value: Done }
//!   Input { process: 1, data } ---------------->
//!             <--------------------------------- Output { process: 1, data }   (whenever it writes)
//!   Request { number: 2, request: Mark } ------>
//!             <--------------------------------- Answer { number: 2, value: Mark }
//!             <--------------------------------- OutputEnded, ErrorsEnded, Ended { process: 1, status }
//! ```
//! The runner says that it is there (`Notice`) when it has had nothing to say for [`SIGN_OF_LIFE`]: a host that hears nothing for [`SILENCE`] ends by itself,
//! because no end of its input comes over a link that is gone for good.
//!
//! Closing the program's standard input ends it, and with it every process that it started and every node. A line that is
//! too long or says nothing known ends it too, after [`Reply::Broken`]; so does another version's greeting.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rig_lines::{Error, Protocol, Reply, Request, decode, encode};
use rig_sys::cpu::CpuSet;
use rig_sys::probe;
use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::{ContainerAccess, Environment, Facts, HostInterface, Mark, Program, Sampled, StackSampling, Window};
use crate::frames::NodeFrames;
use crate::plan::Plan;
use crate::preflight::{NetworkFault, ReachableContainer};
use crate::requirements::{Missing, Settings};
use crate::sampler::NodeSample;
use crate::stacks::FoldedStacks;

/// The longest line has room for the plan of a testbed with a thousand containers.
pub const PROTOCOL: Protocol = Protocol { name: "netrig-host", version: 11, longest: 16 << 20 };

/// Most bytes of a process's input or output that one line carries. Each takes six bytes of the line at most.
pub const CHUNK: usize = 32 << 10;

/// How often a runner says at least something.
pub const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// How long a host goes on without a word from its runner: longer than a runner waits for an answer, so that the runner is who gives up first.
pub const SILENCE: Duration = Duration::from_secs(120);

/// To a host.
#[derive(Debug, Clone, PartialEq)]
pub enum ToHost {
    Request(Request<Question>),
    Process(ToProcess),
    Notice(Notice),
}

/// From a host, which answers with `A`.
#[derive(Debug, Clone, PartialEq)]
pub enum FromHost<A> {
    Reply(Reply<A>),
    Process(FromProcess),
}

impl ToHost {
    /// What a line says.
    ///
    /// # Errors
    /// When it says nothing known.
    pub fn read(line: &[u8]) -> Result<Self, Error> {
        let notice = || decode(line).map(Self::Notice);
        decode(line).map(Self::Process).or_else(|_| notice()).or_else(|_| decode(line).map(Self::Request))
    }
}

impl<A: DeserializeOwned> FromHost<A> {
    /// As [`ToHost::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(line: &[u8]) -> Result<Self, Error> {
        decode(line).map(Self::Process).or_else(|_| decode(line).map(Self::Reply))
    }
}

/// What wants no answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// The runner is there.
    Alive,
}

/// To a process that the host has started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ToProcess {
    /// For its standard input.
    Input {
        process: u64,
        data: Bytes,
    },
    InputEnded {
        process: u64,
    },
    Kill {
        process: u64,
    },
}

/// The methods of [`Host`](super::Host).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    Facts,
    Environment,
    Probe {
        congestion_controls: Vec<String>,
    },
    Interfaces,
    Cards,
    Missing {
        datapath: String,
        settings: Settings,
    },
    TryOut {
        datapath: String,
    },
    KeepOff {
        cpus: CpuSet,
    },
    Apply {
        plan: Box<Plan>,
    },
    UseContainers {
        containers: BTreeMap<String, ContainerAccess>,
    },
    CheckNetworks {
        containers: Vec<ReachableContainer>,
        payload: u32,
    },
    /// The runner numbers processes, each with another number.
    Start {
        process: u64,
        /// `None` is the host's own network namespace.
        space: Option<String>,
        program: Program,
    },
    Now,
    Mark,
    CountInterrupts,
    Between {
        begin: Mark,
        end: Mark,
    },
    Forget {
        mark: Mark,
    },
    LostFrames,
    StartSampling,
    Sample,
    EndSampling,
    PrepareStacks {
        cpus: CpuSet,
    },
    StartStacks {
        cpus: CpuSet,
        hertz: u32,
    },
    StopStacks {
        sampling: StackSampling,
    },
    FoldedStacks {
        sampling: StackSampling,
    },
    TearDown,
}

/// From a process that the host has started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FromProcess {
    /// It wrote this on its standard output.
    Output {
        process: u64,
        data: Bytes,
    },
    OutputEnded {
        process: u64,
    },
    /// And this on its standard error.
    Errors {
        process: u64,
        data: Bytes,
    },
    ErrorsEnded {
        process: u64,
    },
    /// Both its outputs have ended, and so has it, with this wait status (wait(2)).
    Ended {
        process: u64,
        status: i32,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    Done,
    Facts(Facts),
    Environment(Box<Environment>),
    Probed(Box<probe::Facts>),
    Interfaces(Vec<HostInterface>),
    Cards(BTreeMap<String, BTreeMap<String, String>>),
    /// For a datapath.
    Missing(Option<Missing>),
    /// Why a datapath is not taken, where it is not.
    TriedOut {
        refusal: Option<String>,
    },
    /// The container that is not reached, or that receives what is for another.
    Networks {
        unfit: Option<NetworkFault>,
    },
    Now {
        ns: u64,
    },
    Mark(Mark),
    Window(Window),
    LostFrames(Vec<NodeFrames>),
    Sample(Vec<NodeSample>),
    Sampled(Sampled),
    StackSampling(StackSampling),
    FoldedStacks(FoldedStacks),
}

/// Any bytes, in JSON as a string of the characters U+0000 to U+00FF, each a byte: what is text of ASCII stays readable.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.iter().map(|byte| char::from(*byte)).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string of characters up to U+00FF")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
                bytes.map(Bytes).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Reads `bytes` as both sides read each other, and checks that what was understood reads back as it was. For fuzzing:
/// panics when it finds a fault.
pub fn exercise(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let _ = PROTOCOL.check(line);
        match ToHost::read(line) {
            Ok(ToHost::Request(request)) => reads_back(&request),
            Ok(ToHost::Process(message)) => reads_back(&message),
            Ok(ToHost::Notice(notice)) => reads_back(&notice),
            Err(_) => {}
        }
        match FromHost::<Answer>::read(line) {
            Ok(FromHost::Reply(reply)) => reads_back(&reply),
            Ok(FromHost::Process(message)) => reads_back(&message),
            Err(_) => {}
        }
    }
}

fn reads_back<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(value: &T) {
    let line = encode(value, usize::MAX).expect("what was read can be written");
    assert_eq!(&decode::<T>(line.trim_ascii_end()).expect("what was written can be read"), value);
}

#[cfg(test)]
mod tests;
