//! Known work is found in what the programs count.

mod gone;
mod known;
mod receive;
mod rights;
mod rules;

use std::sync::{Mutex, MutexGuard, PoisonError};

use rig_datapath::Error;
use rig_datapath::cputime::{CpuTime, Reading, Times};
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;

/// One test at a time: they work on the same CPU, and what is counted for their process would be that of all.
static ALONE: Mutex<()> = Mutex::new(());

/// The programs, with the CPUs to oneself among the tests; unless this machine does not let them in, which is said.
fn attach() -> Option<(CpuTime, MutexGuard<'static, ()>)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match CpuTime::attach() {
        Ok(counting) => Some((counting, alone)),
        Err(Error::NotPermitted(_)) => {
            skip(Lack::Root, "eBPF programs need it");
            None
        }
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}

/// The last CPU that this thread may use, which it stays on from now on.
fn stay_on_one_cpu() -> u32 {
    let cpu = *CpuSet::allowed().unwrap().as_slice().last().unwrap();
    CpuSet::new([cpu]).apply().unwrap();
    cpu
}

/// What came to a CPU between two readings.
fn between(begin: &Reading, end: &Reading, cpu: u32) -> Times {
    end.0[&cpu].since(&begin.0[&cpu])
}
