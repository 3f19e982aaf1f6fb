//! `netrig list` and `netrig show`.

use std::fmt::Write;

use rig_load::plan::{Engine, TcpStream};
use rig_stats::units::{ByteRate, Bytes};

use super::print;
use crate::exit::{Exit, Failure};
use crate::suite::{Repeat, Scenario, Suite};

pub fn list() -> Result<Exit, Failure> {
    let mut text = String::new();
    for suite in Suite::built_in() {
        let suite = suite?;
        let _ = writeln!(text, "{}: {}", suite.name, suite.title);
        for scenario in &suite.scenarios {
            let _ = writeln!(text, "  {:<4} {:<32} {}", scenario.id, scenario.name, scenario.topology.path());
        }
    }
    print(&text)?;
    Ok(Exit::Done)
}

pub fn show(name: &str) -> Result<Exit, Failure> {
    let suite = Suite::load(name)?;
    let mut text = String::new();
    let phases = suite.timing.phases;
    let _ = writeln!(text, "{}\n\n{}\n", suite.title, suite.about);
    let _ = writeln!(
        text,
        "Each trial: warm-up {:?}, window {:?}, cool-down {:?}; {}.",
        phases.warm_up,
        phases.window,
        phases.cool_down,
        repeat_text(suite.timing.repeat)
    );
    for scenario in &suite.scenarios {
        let _ = writeln!(text, "\n{}  {}", scenario.id, scenario.name);
        if !scenario.about.is_empty() {
            let _ = writeln!(text, "   {}", scenario.about);
        }
        let _ = writeln!(text, "   {}", load_text(scenario));
        for note in &scenario.notes {
            let _ = writeln!(text, "   Note: {note}");
        }
        for line in scenario.topology.draw(&[]).lines() {
            let _ = writeln!(text, "   {line}");
        }
    }
    if !suite.claims.is_empty() {
        let _ = writeln!(text, "\nClaims");
    }
    for claim in &suite.claims {
        let _ = writeln!(text, "  {}\n    {}", claim.text(), claim.expression());
    }
    print(&text)?;
    Ok(Exit::Done)
}

/// How often trials are repeated, in words.
pub fn repeat_text(repeat: Repeat) -> String {
    match repeat {
        Repeat::Times(n) => format!("{n} trials"),
        Repeat::Until(goal) => format!(
            "{} to {} trials, until {} % intervals are within {}",
            goal.min(),
            goal.max(),
            goal.level.percent(),
            goal.width
        ),
    }
}

/// A scenario's load in one line.
pub fn load_text(scenario: &Scenario) -> String {
    let send = &scenario.send;
    let mut parts = vec![format!("TCP stream, {} messages", Bytes(u64::from(send.message)))];
    if scenario.receive.message != send.message {
        parts.push(format!("received by up to {}", Bytes(u64::from(scenario.receive.message))));
    }
    match scenario.pairs.len() {
        1 => {}
        n => parts.push(format!("{n} pairs")),
    }
    if send.threads > 1 {
        parts.push(format!("{} threads", send.threads));
    }
    if send.connections > 1 {
        parts.push(format!("{} connections per thread", send.connections));
    }
    parts.extend(send.send_buffer.map(|b| format!("send buffer {}", Bytes(u64::from(b)))));
    parts.extend(send.receive_buffer.map(|b| format!("receive buffer {}", Bytes(u64::from(b)))));
    if send.no_delay {
        parts.push("nodelay".into());
    }
    parts.extend(send.throttle.map(|rate| format!("at most {} per thread", ByteRate(rate))));
    parts.extend(send.congestion_control.clone());
    parts.push(format!("send {}, receive {}", engine_text(send), engine_text(&scenario.receive)));
    if scenario.send.send_mode != Default::default() {
        parts.push(format!("copy-free send ({})", scenario.send.send_mode));
    }
    if scenario.receive.receive_mode != Default::default() {
        parts.push(format!("copy-free receive ({})", scenario.receive.receive_mode));
    }
    parts.join(", ")
}

fn engine_text(end: &TcpStream) -> String {
    match end.engine {
        Engine::Blocking => "blocking".into(),
        Engine::Uring { outstanding } => format!("io_uring with {outstanding} outstanding"),
    }
}
