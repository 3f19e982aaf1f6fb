//! From the letter of a suite file to a [`Suite`]: every name looked up, every unit and range checked, once.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use rig_load::plan::{Engine, Flow, Load, Phases, ReceiveMode, Role, SendMode, TcpStream, WorkerPlan};
use rig_stats::units::Bytes;
use toml::Spanned;

use super::file::{Defaults, LoadFile, OneOrMany, Quick, ScenarioFile, SuiteFile, TableFile, WireFile};
use super::{Layout, LayoutColumn, Reference, Repeat, Scenario, Suite, SuiteError, Timing};
use crate::claim::Claim;
use crate::testbed::topology::{Endpoint, Path, Topology, TopologyError, WireOptions, check_name};

pub(super) fn resolve(file: &str, text: &str) -> Result<Suite, SuiteError> {
    Resolver { file, text }.suite()
}

struct Resolver<'a> {
    file: &'a str,
    text: &'a str,
}

type Result<T, E = SuiteError> = std::result::Result<T, E>;

impl Resolver<'_> {
    fn suite(&self) -> Result<Suite> {
        let file: SuiteFile = toml::from_str(self.text).map_err(|error| SuiteError {
            file: self.file.to_owned(),
            line: error.span().map(|span| self.line(span)),
            what: error.message().to_owned(),
            hint: None,
        })?;
        check_name(file.name.get_ref()).map_err(|e| self.topology_error(file.name.span(), e))?;
        let timing = self.timing(&file.defaults)?;
        let quick = file.quick.as_ref().map(|quick| self.quick(quick)).transpose()?;
        let scenarios = self.scenarios(&file)?;
        let known: BTreeSet<&str> = scenarios.iter().map(|s| s.id.as_str()).collect();
        if let Some(baseline) = &file.baseline {
            self.known_scenario(&known, baseline)?;
        }
        let tables = file.table.iter().map(|table| self.table(&known, table)).collect::<Result<_>>()?;
        let claims = file
            .claim
            .iter()
            .map(|claim| {
                let span = claim.holds.span();
                let parsed = Claim::parse(&claim.text, claim.holds.get_ref())
                    .map_err(|e| self.error(span.clone(), e.to_string(), None))?;
                for figure in parsed.figures() {
                    self.known_scenario(&known, &Spanned::new(span.clone(), figure.scenario.clone()))?;
                }
                Ok(parsed)
            })
            .collect::<Result<_>>()?;
        Ok(Suite {
            name: file.name.into_inner(),
            title: file.title,
            about: file.about,
            file: self.file.to_owned(),
            text: self.text.to_owned(),
            baseline: file.baseline.map(Spanned::into_inner),
            timing,
            quick,
            nodes: scenarios.iter().map(|s| s.topology.nodes().len()).max().unwrap_or(0),
            scenarios,
            tables,
            claims,
        })
    }

    fn timing(&self, defaults: &Spanned<Defaults>) -> Result<Timing> {
        let d = defaults.get_ref();
        Timing::new(d.window.get_ref().0, d.warm_up.0, d.cool_down.0, Repeat::Until(d.confidence))
            .map_err(|e| self.error(d.window.span(), e.what, Some(e.hint)))
    }

    fn quick(&self, quick: &Spanned<Quick>) -> Result<Timing> {
        let q = quick.get_ref();
        if !(1..=100).contains(&q.trials) {
            return Err(self.error(quick.span(), format!("{} trials", q.trials), Some("choose 1 to 100")));
        }
        Timing::new(q.window.0, q.warm_up.0, q.cool_down.0, Repeat::Times(q.trials))
            .map_err(|e| self.error(quick.span(), e.what, Some(e.hint)))
    }

    fn scenarios(&self, file: &SuiteFile) -> Result<Vec<Scenario>> {
        let mut ids = BTreeSet::new();
        let mut scenarios = Vec::with_capacity(file.scenario.len());
        for scenario in &file.scenario {
            let id = &scenario.id;
            if !crate::claim::is_scenario_id(id.get_ref()) {
                let hint = "use letters, digits, '_' and '-', beginning with a letter: claims refer to it";
                return Err(self.error(id.span(), format!("'{}' is not a scenario id", id.get_ref()), Some(hint)));
            }
            if !ids.insert(id.get_ref().clone()) {
                let what = format!("scenario '{}' is described twice", id.get_ref());
                return Err(self.error(id.span(), what, Some("give each scenario an id of its own")));
            }
            scenarios.push(self.scenario(file, scenario)?);
        }
        if scenarios.is_empty() {
            return Err(self.error(file.name.span(), "a suite without scenarios", Some("add a [[scenario]]")));
        }
        Ok(scenarios)
    }

    fn scenario(&self, file: &SuiteFile, scenario: &ScenarioFile) -> Result<Scenario> {
        let Some(testbed) = file.testbed.get(scenario.testbed.get_ref()) else {
            let names: Vec<&str> = file.testbed.keys().map(String::as_str).collect();
            let what = format!("no testbed '{}'", scenario.testbed.get_ref());
            let hint = format!("the file's testbeds are: {}", names.join(", "));
            return Err(self.error(scenario.testbed.span(), what, Some(&hint)));
        };
        let path: Path = scenario.path.get_ref().parse().map_err(|e| self.topology_error(scenario.path.span(), e))?;
        let from = self.endpoints(&scenario.from)?;
        let to = self.endpoints(&scenario.to)?;
        if from.len() != to.len() {
            let what = format!("{} senders and {} receivers", from.len(), to.len());
            return Err(self.error(scenario.to.span(), what, Some("name a receiver for each sender")));
        }
        let mut endpoints: Vec<Endpoint> = from.iter().chain(&to).cloned().collect();
        endpoints.sort();
        if let Some(twice) = endpoints.windows(2).find(|pair| pair[0] == pair[1]) {
            let what = format!("endpoint {} is used twice", twice[0]);
            return Err(self.error(scenario.to.span(), what, Some("give each sender and receiver its own endpoint")));
        }
        let wire = self.wire(testbed.wire.as_ref(), scenario)?;
        let in_order: Vec<Endpoint> = from.iter().chain(&to).cloned().collect();
        let topology = Topology::new(testbed.nodes.get_ref(), wire, path, &in_order)
            .map_err(|e| self.topology_error(scenario.path.span(), e))?;
        let own = scenario.load.as_ref().map(|load| load.get_ref().clone()).unwrap_or_default();
        let span = scenario.load.as_ref().map_or_else(|| scenario.id.span(), Spanned::span);
        let (send, receive) = self.load(&span, own.or(&file.defaults.get_ref().load))?;
        Ok(Scenario {
            id: scenario.id.get_ref().clone(),
            name: scenario.name.clone(),
            about: scenario.about.clone(),
            notes: scenario.notes.clone(),
            topology,
            pairs: from.into_iter().zip(to).collect(),
            send,
            receive,
        })
    }

    fn endpoints(&self, names: &Spanned<OneOrMany>) -> Result<Vec<Endpoint>> {
        let list = match names.get_ref() {
            OneOrMany::One(name) => std::slice::from_ref(name),
            OneOrMany::Many(list) => list,
        };
        if list.is_empty() {
            return Err(self.error(names.span(), "an empty list of endpoints", Some("name at least one")));
        }
        list.iter().map(|name| name.parse().map_err(|e| self.topology_error(names.span(), e))).collect()
    }

    /// The testbed's wire with what the scenario changes of it.
    fn wire(&self, testbed: Option<&WireFile>, scenario: &ScenarioFile) -> Result<Option<WireOptions>> {
        let change = scenario.wire.as_ref().map(|wire| *wire.get_ref());
        let Some(base) = testbed else {
            return match &scenario.wire {
                None => Ok(None),
                Some(wire) => {
                    let what = format!("testbed '{}' has no wire to change", scenario.testbed.get_ref());
                    Err(self.error(wire.span(), what, Some("give the testbed a wire or remove this")))
                }
            };
        };
        let change = change.unwrap_or_default();
        let standard = WireOptions::default();
        Ok(Some(WireOptions {
            rate: change.rate.or(base.rate).map(|rate| rate.0),
            mtu: change.mtu.or(base.mtu).unwrap_or(standard.mtu),
            segmentation_offload: change
                .segmentation_offload
                .or(base.segmentation_offload)
                .unwrap_or(standard.segmentation_offload),
            queues: change.queues.or(base.queues).unwrap_or(standard.queues),
        }))
    }

    /// The load as the sending and as the receiving end run it.
    fn load(&self, span: &Range<usize>, load: LoadFile) -> Result<(TcpStream, TcpStream)> {
        let fail = |what: String, hint: &str| Err(self.error(span.clone(), what, Some(hint)));
        if load.kind.is_none() {
            return fail("the load has no kind".into(), "write kind = \"tcp-stream\"");
        }
        let Some(message) = load.message else {
            return fail("the load has no message size".into(), "write for instance message = \"128k\"");
        };
        // The plan checks its ranges itself; this is about what it cannot even hold.
        let bytes = |name: &str, value: Bytes| {
            let what = || self.error(span.clone(), format!("{name} of {value}"), Some("choose less than 4 GiB"));
            u32::try_from(value.0).map_err(|_| what())
        };
        let engine = |outstanding: Option<u32>| match outstanding {
            None => Engine::Blocking,
            Some(outstanding) => Engine::Uring { outstanding },
        };
        let send = TcpStream {
            flow: Flow::Forward,
            threads: load.threads.unwrap_or(1),
            connections: load.connections.unwrap_or(1),
            message: bytes("message", message)?,
            send_buffer: load.send_buffer.map(|b| bytes("send_buffer", b)).transpose()?,
            receive_buffer: load.receive_buffer.map(|b| bytes("receive_buffer", b)).transpose()?,
            no_delay: load.no_delay.unwrap_or(false),
            throttle: load.throttle.map(|rate| rate.0),
            congestion_control: load.congestion_control,
            engine: engine(load.outstanding.and_then(|o| o.send)),
            send_mode: load.send_mode.unwrap_or(SendMode::Copy),
            receive_mode: ReceiveMode::Copy,
        };
        let receive_message = load.receive_message.map(|b| bytes("receive_message", b)).transpose()?;
        let receive = TcpStream {
            message: receive_message.unwrap_or(send.message),
            engine: engine(load.outstanding.and_then(|o| o.receive)),
            send_mode: SendMode::Copy,
            receive_mode: load.receive_mode.unwrap_or(ReceiveMode::Copy),
            throttle: None,
            ..send.clone()
        };
        let anywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        // What both ends share is found wrong at the first.
        let ends = [
            ("", Role::Connect { to: anywhere }, &send),
            ("at the receiver, ", Role::Listen { address: anywhere, only_from: None }, &receive),
        ];
        for (place, role, end) in ends {
            let second = Duration::from_secs(1);
            let plan = WorkerPlan {
                name: String::new(),
                cpus: Vec::new(),
                role,
                load: Load::TcpStream(end.clone()),
                phases: Phases { warm_up: second, window: second, cool_down: second, interval: second },
            };
            plan.validate().map_err(|e| self.error(span.clone(), format!("{place}{e}"), None))?;
        }
        Ok((send, receive))
    }

    fn table(&self, known: &BTreeSet<&str>, table: &TableFile) -> Result<Layout> {
        let columns = table
            .columns
            .iter()
            .map(|column| {
                self.known_scenario(known, &column.scenario)?;
                let reference = |r: super::file::ReferenceFile| Reference {
                    throughput_mbit: r.throughput.0 as f64 / 1e6,
                    cpu_percent: r.cpu,
                };
                Ok(LayoutColumn {
                    head: column.head.clone(),
                    scenario: column.scenario.get_ref().clone(),
                    sender: column.sender.map(reference),
                    receiver: column.receiver.map(reference),
                })
            })
            .collect::<Result<_>>()?;
        Ok(Layout { title: table.title.clone(), source: table.source.clone(), columns })
    }

    fn known_scenario(&self, known: &BTreeSet<&str>, id: &Spanned<String>) -> Result<()> {
        if known.contains(id.get_ref().as_str()) {
            return Ok(());
        }
        let list: Vec<&str> = known.iter().copied().collect();
        let hint = format!("the suite's scenarios are {}", list.join(", "));
        Err(self.error(id.span(), format!("no scenario '{}'", id.get_ref()), Some(&hint)))
    }

    fn topology_error(&self, span: Range<usize>, error: TopologyError) -> SuiteError {
        self.error(span, error.what, Some(&error.hint))
    }

    fn error(&self, span: Range<usize>, what: impl Into<String>, hint: Option<&str>) -> SuiteError {
        SuiteError {
            file: self.file.to_owned(),
            line: Some(self.line(span)),
            what: what.into(),
            hint: hint.map(str::to_owned),
        }
    }

    fn line(&self, span: Range<usize>) -> usize {
        let end = span.start.min(self.text.len());
        self.text.as_bytes()[..end].iter().filter(|&&b| b == b'\n').count() + 1
    }
}
