//! Whether it can be seen here where CPUs spend their time.

use super::{Area, Finding, Lack, State};

/// What came of an attempt to sample stacks.
pub fn finding(tried: &rig_sys::Result<()>) -> Finding {
    let state = match tried {
        Ok(()) => State::Ok { found: "work".to_owned() },
        Err(error) => State::Lacking(Lack {
            found: error.to_string(),
            effect: "reports have no flame graphs".to_owned(),
            remedy: "run netrig as root, or give it CAP_PERFMON; a kernel with CONFIG_PERF_EVENTS is needed".to_owned(),
        }),
    };
    Finding { area: Area::Cpus, name: "sampled stacks", state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_cannot_be_sampled_lacks_flame_graphs_only() {
        let denied = rig_sys::Error::new("sample the stacks of CPU 0", std::io::Error::from_raw_os_error(13));
        let State::Lacking(lack) = finding(&Err(denied)).state else { panic!("not a lack") };
        assert!(lack.found.starts_with("sample the stacks of CPU 0: Permission denied"), "{}", lack.found);
        assert!(lack.effect.contains("flame graphs") && lack.remedy.contains("CAP_PERFMON"), "{lack:?}");
    }
}
