//! The highest rate without loss, found by runs one after the other: each begins from nothing, so that what an overload
//! left behind is in no later one.

use std::time::Duration;

use anyhow::anyhow;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_load::driver::Cancel;
use rig_packet::search::{
    GeneratorBound, Loss, RateSearch, Search, SearchEnding, SearchResult, Step, StepPurpose, is_late_alone, losses,
};
use rig_packet::{Client, Counters, Service};

use super::console::Console;
use super::record::purpose;
use super::resolve::LoadPlan;
use super::run::{self, Gateways, RunResult};
use super::statistics::thousands;

/// How long a rate is offered before the last confirmation.
const STEP: Duration = Duration::from_secs(2);
/// Said once, where a step ends so for the first time.
const LATE: &str = "         the generator was behind its own schedule, which is no loss of what it drives: give it a CPU that nothing \
                    else uses (`cpu` in the file)\n";
const LATE_THROUGHOUT: &str =
    "the generator was behind its own schedule at every rate, so that nothing is known of what it drives";
/// In each run, so that not all of a rate comes at once.
const RAMP: Duration = Duration::from_millis(200);

/// What a search found.
#[derive(Debug)]
pub struct SearchReport {
    pub of: &'static str,
    pub outcome: SearchResult,
    /// Whether the rate held is the generator's own limit.
    pub bound: Option<GeneratorBound>,
    /// The last step that was over, or the first, interrupted.
    pub last: RunResult,
}

/// What the rate is of that is searched.
fn of(client: &Client) -> Result<&'static str, Failure> {
    match (client.repeat, client.load.hold) {
        (Some(repeat), _) if repeat.rate.is_some() => Ok("requests"),
        (_, Some(_)) => Err(Failure::new(
            Exit::BadInput,
            anyhow!("--search: with `cc` the number of connections is given; add `rps` to search the rate of requests"),
        )),
        _ if client.flood.is_some() => Ok("packets"),
        _ => Ok("connections"),
    }
}

/// Searches from the file's own rate on; each rate is offered for some seconds, the result for `hold`. `None`: stopped before the
/// gateways were known. Later, what was found until then is known, if only that the first step was under way.
pub fn search(
    plan: &LoadPlan,
    hold: Duration,
    cancel: &Cancel,
    console: &mut Console,
) -> Result<Option<SearchReport>, Failure> {
    let Some(client) = plan.packets.service.client() else {
        let why = "--search: a server offers nothing: search at the client";
        return Err(Failure::new(Exit::BadInput, anyhow!(why)));
    };
    let of = of(client)?;
    let start = client.repeat.and_then(|repeat| repeat.rate).unwrap_or(client.load.rate);
    let goal = Search { start, growth: 2.0, precision: 0.02, most: None, late: 0.01 };
    let mut finder = RateSearch::new(goal).or_exit(Exit::BadInput)?;
    let (mut last, mut busy) = (None, 0.0);
    let (mut gateways, mut silence, mut was_late) = (Gateways::Unknown, UnansweredSteps::default(), false);
    while let Some(offer) = finder.next() {
        let mut packets = plan.packets.clone();
        let client = match &mut packets.service {
            Service::TcpClient(tcp) => &mut tcp.client,
            Service::UdpClient(udp) => &mut udp.client,
            Service::TcpServer(_) | Service::UdpServer(_) => return Ok(None),
        };
        match &mut client.repeat {
            Some(repeat) if repeat.rate.is_some() => repeat.rate = Some(offer.rate),
            _ => client.load.rate = offer.rate,
        }
        client.load.ramp = RAMP;
        packets.course.wait = Duration::ZERO;
        packets.course.duration = RAMP + if offer.purpose == StepPurpose::Confirm { hold } else { STEP };
        let finished = match (run::run(plan, &packets, gateways, cancel, console), gateways) {
            (Err(failure), Gateways::Answered) => {
                let found = so_far(finder.steps(), of);
                return Err(Failure::new(failure.exit, anyhow!("--search: {failure}; {found}")));
            }
            (finished, _) => finished?,
        };
        let finished = match finished {
            Some(finished) if !finished.interrupted => finished,
            stopped => {
                finder.stop();
                last = last.or(stopped);
                break;
            }
        };
        gateways = Gateways::Answered;
        if silence.lasts(&packets.service, &finished.outcome.totals.counters) {
            let why = "the server does not answer any more: it ended before the search (see its `duration`), or cannot \
                       be reached";
            return Err(Failure::new(Exit::Failed, anyhow!("--search: {why}; {}", so_far(finder.steps(), of))));
        }
        let lost = lost(&finished, goal.late);
        let words: Vec<String> = lost.iter().map(ToString::to_string).collect();
        let verdict = if words.is_empty() { "carried".to_owned() } else { words.join(", ") };
        let rate = per_second(offer.rate);
        console.print(&format!("{:<8} {rate:>15} {of}/s  {verdict}\n", purpose(offer.purpose)));
        if is_late_alone(&lost) && !was_late {
            was_late = true;
            console.print(LATE);
        }
        if offer.purpose == StepPurpose::Confirm && lost.is_empty() {
            busy = finished.busiest();
        }
        finder.report(lost);
        last = Some(finished);
    }
    Ok(finder.outcome().zip(last).map(|(outcome, last)| {
        let bound = outcome.generator_bound(None, busy);
        SearchReport { of, outcome, bound, last }
    }))
}

/// Steps without an answer, after others with answers.
#[derive(Debug, Default)]
struct UnansweredSteps {
    heard: bool,
    steps: u32,
}

impl UnansweredSteps {
    /// As many are no overload any more.
    const ENOUGH: u32 = 2;

    /// Whether one more step, of which this was counted, shows that the other end has gone.
    fn lasts(&mut self, service: &Service, counters: &Counters) -> bool {
        let is_flood = service.client().is_some_and(|client| client.flood.is_some());
        let answered = is_flood || counters.rtt_count + counters.tcp_rsp > 0;
        self.heard |= answered;
        self.steps = if answered { 0 } else { self.steps + 1 };
        self.heard && self.steps >= Self::ENOUGH
    }
}

/// A rate: in whole ones, where that says enough.
pub fn per_second(rate: f64) -> String {
    if rate < 10.0 { format!("{}", (rate * 100.0).round() / 100.0) } else { thousands(rate.round() as u64) }
}

/// Why a search found nothing.
pub fn failures(outcome: &SearchResult, of: &str, hold_s: f64) -> Vec<String> {
    match (outcome.held, outcome.ending) {
        (Some(_), _) => Vec::new(),
        (None, SearchEnding::Stopped) => {
            let known = so_far(&outcome.steps, of);
            vec![format!("the search was stopped before a rate was held for {hold_s} s: {known}")]
        }
        (None, _) if outcome.is_late() => vec![LATE_THROUGHOUT.to_owned()],
        (None, _) => vec![format!("no rate was without loss for {hold_s} s")],
    }
}

/// What a search that cannot go on has found, in words.
fn so_far(steps: &[Step], of: &str) -> String {
    match steps.iter().filter(|step| step.is_clean()).map(|step| step.rate).reduce(f64::max) {
        Some(rate) => format!("until then {} {of}/s were carried, which is not a limit", per_second(rate)),
        None if steps.is_empty() => "until then no rate had been offered to its end".to_owned(),
        None if steps.iter().all(|step| is_late_alone(&step.losses)) => format!("until then {LATE_THROUGHOUT}"),
        None => "until then no rate was carried".to_owned(),
    }
}

fn lost(finished: &RunResult, late: f64) -> Vec<Loss> {
    let counters = &finished.outcome.totals.counters;
    let count = |name: &str| counters.fields().find(|(field, _)| *field == name).map_or(0, |(_, value)| value);
    let mut all = losses("client", count, late);
    let nic = finished.nic;
    for (name, count) in [("ierrors", nic.ierrors), ("oerrors", nic.oerrors), ("imissed", nic.imissed)] {
        if count > 0 {
            all.push(Loss { counter: format!("client {name}"), count });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dperf::{language, resolve};

    #[test]
    fn an_end_of_the_server_is_told_from_an_overload() {
        let text = "cpu 0\nport eth0 10.0.0.2 10.0.0.1\nclient 10.1.0.1 1\nserver 10.2.0.1 1\ncps 1\n";
        let service = |more: &str| {
            let (settings, _) = language::read(&format!("{text}{more}")).unwrap();
            resolve::resolve(&settings, &mut Vec::new()).unwrap().packets.service
        };
        let (tcp, flood) = (service(""), service("flood\n"));
        let answers = |rtt_count| Counters { rtt_count, ..Counters::default() };
        let ends = |service: &Service, steps: &[u64]| {
            let mut silence = UnansweredSteps::default();
            steps.iter().map(|&count| silence.lasts(service, &answers(count))).collect::<Vec<_>>()
        };
        assert_eq!(ends(&tcp, &[9, 0, 0]), [false, false, true]);
        assert_eq!(ends(&tcp, &[9, 0, 1, 0]), [false; 4], "an overload lets some through");
        assert_eq!(ends(&tcp, &[0, 0, 0]), [false; 3], "one that never answered is for the search to find");
        assert_eq!(ends(&flood, &[0, 0, 0]), [false; 3], "a flood has no answers");
        let step = |rate, lost: &[Loss]| Step { rate, purpose: StepPurpose::Raise, attempt: 1, losses: lost.to_vec() };
        let loss = Loss { counter: "client synRt".into(), count: 1 };
        let steps = [step(1000.0, &[]), step(2000.0, &[]), step(4000.0, &[loss])];
        assert_eq!(so_far(&steps, "connections"), "until then 2,000 connections/s were carried, which is not a limit");
        assert_eq!(so_far(&steps[2..], "connections"), "until then no rate was carried");
    }

    #[test]
    fn a_search_that_is_stopped_takes_no_lateness_for_a_loss() {
        let stopped = |steps: &[&[&str]]| {
            let loss = |counter: &&str| Loss { counter: (*counter).to_owned(), count: 9 };
            let losses = steps.iter().map(|step| step.iter().map(loss).collect());
            let step = |losses| Step { rate: 500.0, purpose: StepPurpose::Raise, attempt: 1, losses };
            let steps = losses.map(step).collect();
            let outcome = SearchResult { ending: SearchEnding::Stopped, held: None, lost: None, steps };
            let [why] = failures(&outcome, "connections", 10.0).try_into().unwrap();
            why.strip_prefix("the search was stopped before a rate was held for 10 s: until then ").unwrap().to_owned()
        };
        assert_eq!(stopped(&[]), "no rate had been offered to its end");
        assert_eq!(stopped(&[&["client late"], &["client late"]]), LATE_THROUGHOUT);
        assert_eq!(stopped(&[&["client late"], &["client late", "client synRt"]]), "no rate was carried");
        assert_eq!(stopped(&[&[], &["client late"]]), "500 connections/s were carried, which is not a limit");
    }

    #[test]
    fn a_slow_rate_is_not_written_as_none() {
        let written = [0.4883, 1.0, 1.5625, 9.999, 10.4, 5000.0].map(per_second);
        assert_eq!(written, ["0.49", "1", "1.56", "10", "10", "5,000"]);
    }
}
