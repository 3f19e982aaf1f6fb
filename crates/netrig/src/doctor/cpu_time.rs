//! Whether CPU time can be counted exactly here.

use anyhow::Result;
use rig_cli::exit::in_words;
use rig_datapath::cputime::CpuTime;
use rig_facts::record::Accounting;
use rig_sys::advice::{self, Capability};
use rig_sys::counters::idle_is_clocked;
use rig_testbed::accounting::exact_words;

use super::{Finding, FindingArea, MissingResource, State};

/// What came of trying it.
pub(super) fn finding(tried: &Result<CpuTime>) -> Finding {
    let state = match tried {
        Ok(counting) => State::Ok { found: exact_words(counting.missing()) },
        Err(error) => State::Doubtful(MissingResource {
            found: in_words(error),
            effect: format!(
                "CPU figures are by {}; what a node used by itself is not known",
                if idle_is_clocked() { Accounting::IdleClock.words() } else { Accounting::Ticks.words() }
            ),
            remedy: format!(
                "{}; the kernel has to have CONFIG_DEBUG_INFO_BTF",
                advice::rights(&[Capability::Bpf, Capability::Perfmon])
            ),
        }),
    };
    Finding { area: FindingArea::Cpus, name: "CPU time", state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_exact_count_the_way_that_is_taken_instead_is_named() {
        let error = anyhow::anyhow!("not permitted");
        let State::Doubtful(lack) = finding(&Err(error)).state else { panic!("not a doubt") };
        assert!(lack.found == "not permitted" && lack.effect.contains("clock"), "{lack:?}");
    }
}
