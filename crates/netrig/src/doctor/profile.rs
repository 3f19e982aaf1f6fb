//! Whether it can be seen here where CPUs spend their time.

use rig_sys::advice::{Capability, rights};

use super::{Finding, FindingArea, MissingResource, State};

/// What came of attempts to sample stacks, and to count cycles.
pub fn finding(tried: &rig_sys::Result<()>, cycles: &rig_sys::Result<()>) -> Finding {
    let state = match tried {
        Ok(()) => State::Ok {
            found: match cycles {
                Ok(()) => "by CPU cycles".to_owned(),
                Err(error) => format!("by the kernel's timer: it cannot {error}"),
            },
        },
        Err(error) => State::Lacking(MissingResource {
            found: error.to_string(),
            effect: "reports have no flame graphs and no costs by layer".to_owned(),
            remedy: format!(
                "{}; CAP_PERFMON and a kernel with CONFIG_PERF_EVENTS are needed",
                rights(&[Capability::Perfmon])
            ),
        }),
    };
    Finding { area: FindingArea::Cpus, name: "sampled stacks", state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_cannot_be_sampled_lacks_flame_graphs_only() {
        let denied = rig_sys::Error::new("sample the stacks of CPU 0", std::io::Error::from_raw_os_error(13));
        let State::Lacking(lack) = finding(&Err(denied), &Ok(())).state else { panic!("not a lack") };
        assert!(lack.found.starts_with("sample the stacks of CPU 0: Permission denied"), "{}", lack.found);
        assert!(lack.effect.contains("flame graphs") && lack.remedy.contains("CAP_PERFMON"), "{lack:?}");
    }

    #[test]
    fn it_is_said_what_stacks_are_sampled_by() {
        let none = rig_sys::Error::new("count the cycles of CPU 0", std::io::Error::other("no counter"));
        let found = |cycles| match finding(&Ok(()), &cycles).state {
            State::Ok { found } => found,
            other => panic!("{other:?}"),
        };
        assert_eq!(found(Ok(())), "by CPU cycles");
        assert_eq!(found(Err(none)), "by the kernel's timer: it cannot count the cycles of CPU 0: no counter");
    }
}
