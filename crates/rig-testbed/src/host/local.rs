//! This machine as a host: its nodes are namespaces of this process.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rig_cli::streams::note;
use rig_datapath::cputime::{Account, Member};
use rig_sys::clock::monotonic_ns;
use rig_sys::cpu::{CpuSet, shared_cores};
use rig_sys::netns::NetNs;
use rig_sys::piped::PipedProcess;
use rig_sys::probe;
use rig_sys::process::{die_with_parent, in_namespace, in_own_group};

use super::containers;
use super::environment::environment;
use super::interfaces::interfaces;
use super::{
    Build, ClockOffset, ContainerAccess, Environment, Facts, Host, HostInterface, Mark, Program, Sampled,
    StackSampling, Window,
};
use crate::accounting::CpuAccounting;
use crate::frames::NodeFrames;
use crate::meter::Reading;
use crate::namespaces::{self, Namespace, Namespaces, NodeSpaces};
use crate::plan::Plan;
use crate::preflight::{self, ReachableContainer};
use crate::requirements::{MachineChecks, Missing, Settings};
use crate::sampler::{NodeSample, Sampler};
use crate::stacks::{FoldedStacks, ProfileRecording, Profiler};

/// Nodes in namespaces of this process, and their counters.
#[derive(Debug)]
pub struct Local {
    /// Netrig's own; without one, that of this process.
    program: Option<PathBuf>,
    checks: Option<Box<dyn MachineChecks>>,
    /// What its program was built from.
    build: Build,
    /// Why it makes no nodes, where it cannot: programs beside them it starts all the same.
    without_nodes: Option<String>,
    /// What this process might use when the value was made.
    allowed: CpuSet,
    nodes: Namespaces,
    /// How programs are started in containers that a datapath has made, by `node/container`.
    starts: BTreeMap<String, Vec<String>>,
    cpu_accounting: CpuAccounting,
    /// By node, where its CPU time is counted apart, with what belongs to it.
    counted: Vec<(Option<Account>, Vec<Member>)>,
    marks: RefCell<BTreeMap<u64, Reading>>,
    next: Cell<u64>,
    sampler: RefCell<Option<Sampler>>,
    profilers: RefCell<BTreeMap<u64, Profiler>>,
    recordings: RefCell<BTreeMap<u64, ProfileRecording>>,
}

impl Local {
    /// CPU time is counted from now on, exactly where that can be.
    ///
    /// # Errors
    /// When the kernel does not say which CPUs this process may use.
    pub fn new() -> Result<Self> {
        Ok(Self { cpu_accounting: CpuAccounting::start(), ..Self::uncounted()? })
    }

    /// For nodes whose CPU time needs no exact count: it is read from the kernel's own counters.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn uncounted() -> Result<Self> {
        Ok(Self {
            program: None,
            checks: None,
            build: Build::default(),
            without_nodes: None,
            allowed: CpuSet::allowed()?,
            nodes: Namespaces::default(),
            starts: BTreeMap::new(),
            cpu_accounting: CpuAccounting::paused(),
            counted: Vec::new(),
            marks: RefCell::default(),
            next: Cell::new(0),
            sampler: RefCell::default(),
            profilers: RefCell::default(),
            recordings: RefCell::default(),
        })
    }

    /// With netrig's own program elsewhere than this process's.
    #[must_use]
    pub fn with_program(self, program: PathBuf) -> Self {
        Self { program: Some(program), ..self }
    }

    /// Whose program was built from this: for records.
    #[must_use]
    pub fn of_build(self, build: Build) -> Self {
        Self { build, ..self }
    }

    /// That makes no nodes, and says why where it is asked for some; `None` where it can make them.
    #[must_use]
    pub fn without_nodes(self, why: Option<String>) -> Self {
        Self { without_nodes: why, ..self }
    }

    /// That may be asked for these datapaths.
    #[must_use]
    pub fn with_datapaths(self, checks: impl MachineChecks + 'static) -> Self {
        Self { checks: Some(Box::new(checks)), ..self }
    }

    /// A program of this host's, with pipes.
    fn command(&self, program: &Program) -> Result<Command> {
        let path = match program.path.as_ref().or(self.program.as_ref()) {
            Some(path) => path.clone(),
            None => std::env::current_exe().context("find netrig's own program")?,
        };
        let mut command = Command::new(path);
        command.args(&program.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// A namespace, `node` or `node/container`.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn namespace(&self, space: &str) -> Result<&Namespace> {
        let mut namespaces = self.nodes.nodes().iter().flat_map(NodeSpaces::namespaces);
        namespaces.find(|namespace| namespace.name == space).with_context(|| format!("find {space}"))
    }

    fn count_apart(&mut self) -> Result<()> {
        self.count_together();
        let owned = self.nodes.nodes().iter().flat_map(|node| node.cpus().as_slice());
        self.cpu_accounting.count_on(&owned.copied().collect::<Vec<u32>>())?;
        for node in self.nodes.nodes() {
            let members = node.counted().map(|namespace| Ok(Member::Namespace(namespace.ns.inode()?)));
            let members = members.collect::<Result<Vec<Member>>>()?;
            self.counted.push((self.cpu_accounting.watch(members.iter().copied()), members));
        }
        Ok(())
    }

    fn count_together(&mut self) {
        for (account, members) in self.counted.drain(..) {
            if let Some(account) = account {
                self.cpu_accounting.forget(account, members);
            }
        }
    }
}

/// A process with pipes, which dies with this one.
fn spawn(command: &mut Command) -> Result<PipedProcess> {
    let child = die_with_parent(in_own_group(command)).spawn();
    Ok(child.with_context(|| format!("start {}", command.get_program().display()))?.try_into()?)
}

impl Host for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn facts(&self) -> Result<Facts> {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").context("read the kernel's release")?;
        Ok(Facts { kernel: kernel.trim().to_owned(), cpus: self.allowed.clone(), cores: shared_cores() })
    }

    fn environment(&self) -> Result<Environment> {
        let cpu_time = Some(self.cpu_accounting.words());
        Ok(Environment { cpu_time, ..environment(self.build) })
    }

    fn probe(&self, congestion_controls: &[String]) -> Result<probe::Facts> {
        for name in congestion_controls {
            // The list that is read next tells what came of it.
            let _ = probe::try_congestion_control(name);
        }
        Ok(probe::Facts::gather(Duration::ZERO))
    }

    fn interfaces(&self) -> Result<Vec<HostInterface>> {
        interfaces()
    }

    fn cards(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        super::cards()
    }

    fn missing(&self, datapath: &str, settings: &Settings) -> Result<Option<Missing>> {
        Ok(self.checks.as_ref().and_then(|checks| checks.missing(datapath, settings)))
    }

    fn try_out(&self, datapath: &str) -> Result<()> {
        self.checks.as_ref().map_or(Ok(()), |checks| checks.try_out(datapath))
    }

    fn keep_off(&self, cpus: &CpuSet) -> Result<()> {
        let others = self.allowed.without(cpus);
        Ok(if others.is_empty() { &self.allowed } else { &others }.apply()?)
    }

    fn apply(&mut self, part: &Plan) -> Result<()> {
        if let Some(why) = &self.without_nodes {
            bail!("{why}");
        }
        if part.uses_host() {
            give_back_what_was_left()?;
        }
        self.nodes.apply(part)?;
        self.count_apart()
    }

    fn use_containers(&mut self, containers: &BTreeMap<String, ContainerAccess>) -> Result<()> {
        for (space, ContainerAccess { namespace, engine, id, program }) in containers {
            if !space.contains('/') {
                bail!("{space} is a node, and no container");
            }
            let ns = NetNs::open(namespace).with_context(|| format!("find the container of {space}"))?;
            self.nodes.replace(space, ns)?;
            let start = ["in-container", &engine.to_string_lossy(), id].map(ToOwned::to_owned);
            self.starts.insert(space.clone(), start.into_iter().chain(program.iter().cloned()).collect());
        }
        self.count_apart()
    }

    fn local(&self) -> Option<&Local> {
        Some(self)
    }

    fn check_networks(&self, containers: &[ReachableContainer], payload: u32) -> Result<()> {
        preflight::check(containers, payload, |name| self.namespace(name).ok())
    }

    fn start(&self, space: &str, program: &Program) -> Result<PipedProcess> {
        let namespace = self.namespace(space)?;
        if let Some(start) = self.starts.get(space) {
            let None = &program.path else { bail!("only netrig is started in a container: {program:?}") };
            let arguments = start.iter().chain(&program.arguments).cloned().collect();
            return spawn(&mut self.command(&Program { path: None, arguments })?);
        }
        let mut command = self.command(program)?;
        if let Some(node) = self.nodes.nodes().iter().find(|node| node.name() == space) {
            containers::tell(&mut command, node.namespaces())?;
        }
        spawn(in_namespace(&mut command, &namespace.ns))
    }

    fn start_beside(&self, program: &Program) -> Result<PipedProcess> {
        spawn(&mut self.command(program)?)
    }

    fn now(&self) -> Result<u64> {
        Ok(monotonic_ns())
    }

    fn clock(&self) -> Result<ClockOffset> {
        Ok(ClockOffset::NONE)
    }

    fn mark(&self) -> Result<Mark> {
        let reading = Reading::take(self.nodes.nodes(), &self.cpu_accounting)?;
        let mark = Mark { number: self.next.get(), at_ns: reading.at_ns() };
        self.next.set(mark.number + 1);
        self.marks.borrow_mut().insert(mark.number, reading);
        Ok(mark)
    }

    fn count_interrupts(&mut self) -> Result<()> {
        self.cpu_accounting.count_interrupts()
    }

    fn between(&self, begin: Mark, end: Mark) -> Result<Window> {
        let marks = self.marks.borrow();
        let marked =
            |mark: Mark| marks.get(&mark.number).context("find counters that were read: the mark is forgotten");
        let (begin, end) = (marked(begin)?, marked(end)?);
        let accounts: Vec<Option<Account>> = self.counted.iter().map(|(account, _)| *account).collect();
        Ok(Window { nodes: begin.until(end, self.nodes.nodes(), &accounts)?, throttled_us: begin.throttled_until(end) })
    }

    fn forget(&self, mark: Mark) -> Result<()> {
        self.marks.borrow_mut().remove(&mark.number);
        Ok(())
    }

    fn lost_frames(&self) -> Result<Vec<NodeFrames>> {
        self.nodes.nodes().iter().map(NodeFrames::take).collect()
    }

    fn start_sampling(&self) -> Result<()> {
        *self.sampler.borrow_mut() = Some(Sampler::start(self.nodes.nodes(), &self.cpu_accounting)?);
        Ok(())
    }

    fn sample(&self) -> Result<Vec<NodeSample>> {
        let mut sampler = self.sampler.borrow_mut();
        let sampler = sampler.as_mut().context("nothing is sampled")?;
        sampler.sample(self.nodes.nodes(), &self.cpu_accounting)?;
        Ok(sampler.latest().to_vec())
    }

    fn end_sampling(&self) -> Result<Sampled> {
        let sampler = self.sampler.take().context("nothing is sampled")?;
        let (tracks, cost_ns) = sampler.finish();
        Ok(Sampled { tracks, cost_ns })
    }

    fn prepare_stacks(&self, cpus: &CpuSet) -> Result<()> {
        Ok(Profiler::prepare(cpus)?)
    }

    fn start_stacks(&self, cpus: &CpuSet, hertz: u32) -> Result<StackSampling> {
        let profiler = Profiler::start(cpus, hertz)?;
        let number = self.next.get();
        self.next.set(number + 1);
        self.profilers.borrow_mut().insert(number, profiler);
        Ok(StackSampling(number))
    }

    fn stop_stacks(&self, StackSampling(number): StackSampling) -> Result<()> {
        let profiler = self.profilers.borrow_mut().remove(&number).context("these stacks are not sampled")?;
        self.recordings.borrow_mut().insert(number, profiler.stop()?);
        Ok(())
    }

    fn folded_stacks(&self, StackSampling(number): StackSampling) -> Result<FoldedStacks> {
        let recording = self.recordings.borrow_mut().remove(&number);
        Ok(recording.context("there is no recording of these stacks")?.folded())
    }

    fn tear_down(&mut self) -> Result<()> {
        self.count_together();
        self.profilers.get_mut().clear();
        self.recordings.get_mut().clear();
        self.marks.get_mut().clear();
        self.sampler.take();
        let given_back = self.nodes.give_back();
        self.nodes = Namespaces::default();
        self.starts.clear();
        // The count costs CPU time, and without nodes no reading needs it.
        self.cpu_accounting.count_on(&[])?;
        Ok(given_back?)
    }
}

/// Gives back what processes that were killed have left of this host's interfaces, and says on standard error what.
///
/// # Errors
/// When it cannot be found out.
pub fn give_back_what_was_left() -> Result<()> {
    for line in namespaces::mend()? {
        note(line);
    }
    Ok(())
}
