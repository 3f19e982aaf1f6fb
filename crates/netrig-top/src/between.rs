//! Two readings become a sample.

mod interfaces;
mod services;

use rig_sys::counters::CpuTicks;

use crate::reading::Reading;
use crate::sample::{Cpu, Sample, Spreader, ViewUsage};

/// What a counter rose by each second; 0 where it began anew.
fn rise(before: u64, now: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
}

/// What happened between two readings of one source.
pub fn between(before: &Reading, now: &Reading) -> Sample {
    let seconds = now.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
    let spreader = now.spreader.as_ref().map(|status| {
        let before = before.spreader.as_ref().filter(|before| before.process == status.process);
        let span = before.map_or(0, |before| status.uptime_ms.saturating_sub(before.uptime_ms)) as f64 / 1e3;
        let spent = before.map_or(0, |before| before.own.cpu_ns);
        Spreader {
            process: status.process,
            uptime_ms: status.uptime_ms,
            cpu: if span > 0.0 { rise(spent, status.own.cpu_ns, span) / 1e9 } else { status.own.share },
            waiting: status
                .waiting
                .iter()
                .map(|waiting| {
                    let lacks: Vec<String> =
                        waiting.lacks.iter().map(|lack| format!("{}: {}", lack.kind, lack.why)).collect();
                    let why = waiting.why.clone().unwrap_or_else(|| lacks.join("; "));
                    format!("{}: {why}", waiting.interface)
                })
                .collect(),
        }
    });
    let own = now.own_cpu.saturating_sub(before.own_cpu).as_secs_f64();
    Sample {
        netrig_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: None,
        at_ns: now.at_ns,
        seconds,
        cpus: cpus(before, now, seconds),
        interfaces: interfaces::of(before, now, seconds),
        spreader,
        balancer: now.balancer.as_ref().map(|status| services::balancer(before.balancer.as_ref(), status)),
        router: now.router.as_ref().map(|status| services::router(before.router.as_ref(), status)),
        lacks: now.lacks.clone(),
        own: ViewUsage {
            cpu: if seconds > 0.0 { own / seconds } else { 0.0 },
            reading_ms: now.took.as_secs_f64() * 1e3,
        },
    }
}

fn cpus(before: &Reading, now: &Reading, seconds: f64) -> Vec<Cpu> {
    let cpu = |(cpu, ticks): (&u32, &CpuTicks)| {
        // A CPU that was offline has no earlier count.
        let earlier = before.ticks.get(cpu).copied().unwrap_or(*ticks);
        let spent = |count: fn(&CpuTicks) -> u64| count(ticks).saturating_sub(count(&earlier)) as f64;
        let total = spent(CpuTicks::total).max(1.0);
        let idle = spent(|ticks| ticks.idle) + spent(|ticks| ticks.iowait);
        let softnet = now.softnet.get(cpu).copied().unwrap_or_default();
        let was = before.softnet.get(cpu).copied().unwrap_or(softnet);
        Cpu {
            cpu: *cpu,
            busy: busy(before, now, *cpu).unwrap_or((1.0 - idle / total).clamp(0.0, 1.0)),
            softirq: spent(|ticks| ticks.softirq) / total,
            processed_per_s: rise(was.processed, softnet.processed, seconds),
            dropped_per_s: rise(was.dropped, softnet.dropped, seconds),
            squeezed_per_s: rise(was.time_squeeze, softnet.time_squeeze, seconds),
        }
    };
    now.ticks.iter().map(cpu).collect()
}

/// By a finer clock than the kernel's tick, where there is one.
fn busy(before: &Reading, now: &Reading, cpu: u32) -> Option<f64> {
    if let (Some(before), Some(now)) = (&before.counted, &now.counted) {
        let span = now.reading.at.checked_sub(before.reading.at).filter(|span| *span > 0)? as f64 / 1e9;
        let idle = |reading: &rig_datapath::receive::Reading| Some(reading.cpus.get(cpu as usize)?.idle.as_secs_f64());
        return Some((1.0 - (idle(&now.reading)? - idle(&before.reading)?) / span).clamp(0.0, 1.0));
    }
    let (before, now) = (before.spreader.as_ref()?, now.spreader.as_ref()?);
    let of = |status: &netrig_spread::message::Status| status.cpus.iter().find(|load| load.cpu == cpu).copied();
    let (then, load) = (of(before)?, of(now)?);
    let span = now.at_ns.checked_sub(before.at_ns).filter(|span| *span > 0 && before.process == now.process);
    Some(span.map_or(load.busy, |span| rise(then.busy_ns, load.busy_ns, span as f64)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
