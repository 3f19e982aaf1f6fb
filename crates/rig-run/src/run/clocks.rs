//! The clocks of the machines that a testbed stands on.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rig_cli::exit::both;
use rig_facts::record::{EndClocks, HostRecord, OffsetReading};
use rig_load::exchange::PathOffset;
use rig_sys::clock::monotonic_ns;
use rig_sys::piped::PipedProcess;
use rig_testbed::Testbed;
use rig_testbed::host::{ClockOffset, Host, Program};
use rig_testbed::topology::{Endpoint, Node};

use super::pairs::PORT;

/// How much longer than here the start command may take to reach the workers of another host, besides the delay that its clock's
/// bound tells of.
const LONGER_LEAD: Duration = Duration::from_millis(20);

/// How far clocks were from the runner's when a trial began.
#[derive(Debug)]
pub(super) struct Clocks {
    /// Of that by which the host has its marks.
    of_marks: ClockOffset,
    /// Of each node's machine, where they are several.
    of_nodes: Vec<NodeClock>,
    /// Of the ends of the load, where they are on two of these.
    of_ends: Option<Ends>,
}

#[derive(Debug)]
struct NodeClock {
    node: String,
    /// By questions to its host.
    asked: ClockOffset,
    /// By which times are converted.
    used: ClockOffset,
}

#[derive(Debug)]
struct Ends {
    from: Endpoint,
    to: Endpoint,
    at_begin: OffsetReading,
}

/// What a trial's record has of clocks.
#[derive(Debug)]
pub(super) struct ClockRecords {
    /// The host of all nodes, unless they are the runner's own or each has its own.
    pub of_host: Option<HostRecord>,
    /// That of each node, where they are several.
    pub of_nodes: Vec<(String, HostRecord)>,
    /// Those of the load's ends, where they are on two machines.
    pub of_ends: Option<EndClocks>,
}

impl Clocks {
    /// Those of a testbed's host.
    pub fn of(testbed: &Testbed<'_>) -> Result<Self> {
        let (host, nodes) = (testbed.host(), testbed.topology().nodes());
        let of_node = |node: &Node| {
            let clock = host.member_of(&node.name)?.clock();
            Some(clock.map(|asked| NodeClock { node: node.name.clone(), asked, used: asked }))
        };
        let of_nodes = nodes.iter().filter_map(of_node).collect::<Result<Vec<_>>>()?;
        // Where they are several, marks are by the runner's own clock, as far as the worst of theirs is known.
        let of_marks = match of_nodes.iter().map(|clock| clock.asked.bound_ns).max() {
            Some(bound_ns) => ClockOffset { ns: 0, bound_ns },
            None => host.clock()?,
        };
        Ok(Self { of_marks, of_nodes, of_ends: None })
    }

    /// With what the path of a load between these ends tells, before there is any, if their nodes are on two machines: the window is the same
    /// at both ends as far as the better of both ways knows.
    pub fn over_path(mut self, testbed: &Testbed<'_>, ends: Option<&(Endpoint, Endpoint)>) -> Self {
        let Some((from, to)) = ends else { return self };
        let index = |end: &Endpoint| self.of_nodes.iter().position(|clock| clock.node == end.node);
        let (Some(one), Some(other)) = (index(from), index(to)) else { return self };
        if one == other {
            return self;
        }
        let asked = self.of_nodes[one].asked.to(self.of_nodes[other].asked);
        // What is not to be had costs no trial: the record says that it is not there.
        let path = exchange(testbed, from, to).ok().flatten();
        let at_begin = OffsetReading { at_ns: monotonic_ns(), path, asked };
        self.join([one, other], at_begin.best());
        self.of_ends = Some(Ends { from: from.clone(), to: to.clone(), at_begin });
        self
    }

    /// Makes the times of two nodes' machines as far apart as their clocks are known to be: the one that the runner knows better stays, and the
    /// other follows.
    fn join(&mut self, [from, to]: [usize; 2], apart: ClockOffset) {
        let [one, other] = [from, to].map(|node| self.of_nodes[node].asked);
        if apart.bound_ns >= one.to(other).bound_ns {
            return;
        }
        if one.bound_ns <= other.bound_ns {
            self.of_nodes[to].used = one.plus(apart);
        } else {
            self.of_nodes[from].used = other.plus(apart.reversed());
        }
    }

    /// A time of the host's marks by the runner's clock.
    pub fn here(&self, host_ns: u64) -> u64 {
        self.of_marks.here(host_ns)
    }

    /// That of a node's machine.
    pub fn of_node(&self, node: &str) -> ClockOffset {
        self.of_nodes.iter().find(|clock| clock.node == node).map_or(self.of_marks, |clock| clock.used)
    }

    /// What is to be added to a time of the one node's clock to have that of the other's, as it was when the load began: the better of what the
    /// load's path and the runner's questions tell. Of one machine it is nothing, and exact.
    pub fn between(&self, from: &str, to: &str) -> ClockOffset {
        let of = |node: &str| self.of_nodes.iter().find(|clock| clock.node == node);
        let (Some(one), Some(other)) = (of(from), of(to)) else { return ClockOffset::NONE };
        match &self.of_ends {
            _ if from == to => ClockOffset::NONE,
            Some(ends) if (&*ends.from.node, &*ends.to.node) == (from, to) => ends.at_begin.best(),
            Some(ends) if (&*ends.from.node, &*ends.to.node) == (to, from) => ends.at_begin.best().reversed(),
            _ => one.asked.to(other.asked),
        }
    }

    /// How much longer than here the start command may take to reach all workers.
    pub fn longer_lead(&self) -> Duration {
        match self.of_marks {
            ClockOffset::NONE => Duration::ZERO,
            ClockOffset { bound_ns, .. } => LONGER_LEAD + 4 * Duration::from_nanos(bound_ns),
        }
    }

    /// What a record has of them, now that the trial has ended; and which did not answer any more.
    pub fn at_end(&self, testbed: &Testbed<'_>) -> (ClockRecords, Result<()>) {
        let mut answered = Ok(());
        let mut record = |host: &dyn Host, clock_at_begin: ClockOffset, asked_at_begin: Option<ClockOffset>| {
            let (clock_at_end, asked) =
                host.clock().map_or_else(|error| (None, Err(error)), |clock| (Some(clock), Ok(())));
            answered = both(std::mem::replace(&mut answered, Ok(())), asked);
            HostRecord { name: host.name().to_owned(), clock_at_begin, clock_at_end, asked_at_begin }
        };
        let host = testbed.host();
        let is_one = host.local().is_none() && host.members().is_empty();
        let of_host = is_one.then(|| record(host, self.of_marks, None));
        let of_node = |NodeClock { node, asked, used }: &NodeClock| {
            let is_better = asked != used;
            Some((node.clone(), record(host.member_of(node)?, *used, is_better.then_some(*asked))))
        };
        let of_nodes = self.of_nodes.iter().filter_map(of_node).collect();
        let of_ends = answered.and_then(|()| self.of_ends(testbed));
        let (of_ends, answered) = of_ends.map_or_else(|error| (None, Err(error)), |found| (found, Ok(())));
        (ClockRecords { of_host, of_nodes, of_ends }, answered)
    }

    /// Those of the load's ends, where they are on two machines, once it has ended.
    pub fn of_ends(&self, testbed: &Testbed<'_>) -> Result<Option<EndClocks>> {
        let Some(Ends { from, to, at_begin }) = &self.of_ends else { return Ok(None) };
        let now = |end: &Endpoint| testbed.host().member_of(&end.node).context("find the host of an end")?.clock();
        let asked = now(from)?.to(now(to)?);
        // Who did not answer then does not now.
        let path = at_begin.path.and_then(|_| exchange(testbed, from, to).ok().flatten());
        let at_end = OffsetReading { at_ns: monotonic_ns(), path, asked };
        Ok(Some(EndClocks::between(&from.node, &to.node, at_begin, &at_end)))
    }
}

/// Exchanges times between the ends of a load, at the address and the port that it will have: what lets the load through lets these
/// through, too. `None` where they are not answered.
fn exchange(testbed: &Testbed<'_>, from: &Endpoint, to: &Endpoint) -> Result<Option<PathOffset>> {
    let address = testbed.topology().address(to).with_context(|| format!("find the address of {to}"))?;
    let address = SocketAddr::from((address, PORT)).to_string();
    let start =
        |end: &Endpoint, what| testbed.host().start(&end.to_string(), &Program::netrig(&["clock", what, &address]));
    let PipedProcess { stdin, stdout, mut life, .. } = start(to, "answer")?;
    let asked = (|| {
        let mut ready = String::new();
        BufReader::new(File::from(stdout)).read_line(&mut ready).context("hear of who answers")?;
        if ready != "ready\n" {
            bail!("{to} cannot answer at {address}");
        }
        let PipedProcess { stdout, mut life, .. } = start(from, "ask")?;
        let mut found = String::new();
        File::from(stdout).read_to_string(&mut found).context("hear of who asks")?;
        life.wait().context("wait for who asks")?;
        serde_json::from_str(&found).with_context(|| format!("read what {from} found out"))
    })();
    drop(stdin);
    life.wait().context("wait for who answers")?;
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(node: &str) -> Endpoint {
        Endpoint { node: node.to_owned(), container: None }
    }

    #[test]
    fn the_better_known_clock_leads_and_the_other_follows() {
        let offset = |ns, bound_ns| ClockOffset { ns, bound_ns };
        for (bounds, used) in
            [((40, 60), [offset(100, 40), offset(1_105, 41)]), ((60, 40), [offset(95, 41), offset(1_100, 40)])]
        {
            let asked = [offset(100, bounds.0), offset(1_100, bounds.1)];
            let of = |(node, asked): (&str, ClockOffset)| NodeClock { node: node.into(), asked, used: asked };
            let of_nodes = ["a", "b"].into_iter().zip(asked).map(of).collect();
            let mut clocks = Clocks { of_marks: offset(0, 60), of_nodes, of_ends: None };
            assert_eq!(clocks.between("a", "b"), offset(1_000, 100));
            clocks.join([0, 1], clocks.between("a", "b"));
            assert_eq!(["a", "b"].map(|node| clocks.of_node(node)), asked, "nothing better is known");
            let path = PathOffset { at_ns: 0, ns: 1_005, bound_ns: 1, exchanges: 1, stamped: 1, stepped: 0 };
            let at_begin = OffsetReading { at_ns: 0, path: Some(path), asked: offset(1_000, 100) };
            clocks.join([0, 1], at_begin.best());
            clocks.of_ends = Some(Ends { from: end("a"), to: end("b"), at_begin });
            assert_eq!(["a", "b"].map(|node| clocks.of_node(node)), used);
            assert_eq!(clocks.between("a", "b"), offset(1_005, 1));
            assert_eq!(clocks.between("b", "a"), offset(-1_005, 1));
            assert_eq!(clocks.between("a", "a"), ClockOffset::NONE);
            assert_eq!(clocks.between("a", "elsewhere"), ClockOffset::NONE);
        }
    }
}
