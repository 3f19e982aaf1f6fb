//! What to do about a reason to doubt a trial.

use super::Flag;

impl Flag {
    /// Whether something outside of what is measured disturbed the trial: how far such trials lie apart says nothing of how far
    /// two runs of the same thing do.
    pub const fn is_disturbance(&self) -> bool {
        matches!(
            self,
            Self::Stolen { .. }
                | Self::OtherLoad { .. }
                | Self::Throttled { .. }
                | Self::OtherMachine { .. }
                | Self::WindowSkew { .. }
        )
    }

    /// What a user who sees the flag does next: the advice of the table of flags in docs/REFERENCE.md, for a machine that is known.
    pub const fn next_step(&self) -> &'static str {
        match self {
            Self::ReceiveElsewhere { .. } => "look for other receive steering (RPS, RFS) on the machine",
            Self::Stolen { .. } => "use a host with CPUs of its own, or more blocks (--budget)",
            Self::OtherLoad { .. } => {
                "stop them (`netrig doctor` names them), or give the nodes other CPUs with --cpus"
            }
            Self::Saturated { .. } | Self::SaturatedCpu { .. } => {
                "read the throughput as what these CPUs can do; more CPUs with --cpus, or less load, show the path"
            }
            Self::SaturatedThread { .. } => "give the load more `threads`",
            Self::SharedCore { .. } => "choose one thread of each core with --cpus",
            Self::SharedCpu { .. } => "use fewer `workers`, or more CPUs",
            Self::Throttled { .. } => "raise the CPU limit of the control group (cpu.max, `docker run --cpus`)",
            Self::Dropped { .. } => "read the rate as what was sent, or lower it until nothing is dropped",
            Self::Unexplained { .. } => {
                "look at the switch and the cables between the cards, and at what the kernel drops: `perf trace -e skb:kfree_skb`"
            }
            Self::NotOneSegment { .. } => "see which interface merges segments: `ethtool -k` in that node",
            Self::WindowSkew { .. } => "use a longer window (--window), or a quieter machine",
            Self::NotGranted { .. } => "see `netrig doctor` for the limit, or ask for less",
            Self::Unanswered { .. }
            | Self::NotConnected { .. }
            | Self::Behind { .. }
            | Self::FailedConnections { .. }
            | Self::SentAgain { .. }
            | Self::Late { .. } => "ask for a lower rate",
            Self::GeneratorBound { .. } | Self::GeneratorBusy { .. } => {
                "read the figure as `at least`; more `workers` raise it"
            }
            Self::ConnectionsDiffer { .. } => {
                "read the load's own count; connections that begin twice or not at all show in the datapath's drops and listings"
            }
            Self::NoLimit { .. } => "change `start`, `most` or `precision` of the search",
            Self::NotReached { .. } => "see the course of the phase (`netrig series`), or give it a longer deadline",
            Self::OtherMachine { .. } => {
                "measure more blocks (--budget), or again when the machine is as fast as before"
            }
            Self::TicksDiffer { .. } => "nothing: netrig's figure is counted exactly; other tools show the other one",
        }
    }
}
