use rig_facts::claim::Threshold;
use rig_facts::programme::{Condition, Rate, Step};
use rig_facts::record::Settings;
use serde_json::json;

use super::*;

const MS: u64 = 1_000_000;
const WINDOW: Duration = Duration::from_millis(500);

/// A clock that goes as it is waited for, and a throughput that depends on the time.
struct Fake {
    now_ns: u64,
    /// How much later than asked for every wait ends.
    late_ns: u64,
    throughput: fn(u64) -> Option<f64>,
    /// What was done, with the time in milliseconds.
    done: Vec<(u64, String)>,
}

impl Fake {
    fn new(throughput: fn(u64) -> Option<f64>) -> Self {
        Self { now_ns: 0, late_ns: 0, throughput, done: Vec::new() }
    }

    fn log(&mut self, what: String) {
        self.done.push((self.now_ns / MS, what));
    }

    fn did(&self, what: &str) -> Vec<u64> {
        self.done.iter().filter(|(_, one)| one == what).map(|(at, _)| *at).collect()
    }

    /// What was said, whenever.
    fn said(&self) -> Vec<&str> {
        let words = self.done.iter().map(|(_, what)| what.as_str());
        words.filter(|what| !["read", "sample"].contains(what)).collect()
    }
}

impl UnderLoad for Fake {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn wait_until(&mut self, at_ns: u64) -> Result<()> {
        self.now_ns = self.now_ns.max(at_ns + self.late_ns);
        Ok(())
    }

    fn set_rate(&mut self, load: ScenarioLoad, rate: f64, at_ns: u64) {
        self.log(format!("{load:?} {rate} at {}", at_ns / MS));
    }

    fn mark(&mut self, at_ns: u64) {
        self.log(format!("mark {}", at_ns / MS));
    }

    fn end_at(&mut self, at_ns: u64) {
        self.log(format!("end {}", at_ns / MS));
    }

    fn command(&mut self, command: &Command) -> Result<CommandRecord> {
        let Command { datapath, name, arguments, .. } = command.clone();
        self.log(format!("{datapath} {name}"));
        if name == "fail" {
            anyhow::bail!("it cannot");
        }
        let told_ns = self.now_ns;
        self.now_ns += MS;
        let answers = vec![("lb".to_owned(), json!(self.done.len()))];
        Ok(CommandRecord { datapath, command: name, arguments, told_ns, answered_ns: self.now_ns, answers })
    }

    fn read(&mut self) -> Result<()> {
        self.log("read".to_owned());
        Ok(())
    }

    fn sample(&mut self) -> Result<()> {
        self.log("sample".to_owned());
        Ok(())
    }

    fn figure(&self, side: Side, metric: Metric) -> Option<f64> {
        assert_eq!((side, metric), (Side::Receiver, Metric::Throughput));
        (self.throughput)(self.now_ns / MS)
    }
}

fn phase(name: &str, steps: Vec<Step>, lasts: PhaseLength) -> Phase {
    Phase { name: name.to_owned(), steps, lasts }
}

fn rate(rate: Rate) -> Vec<Step> {
    vec![Step::Rate { load: ScenarioLoad::Own, rate }]
}

fn time(ms: u64) -> PhaseLength {
    PhaseLength::Time(Duration::from_millis(ms))
}

fn sampled(phases: Vec<Phase>) -> Programme {
    Programme { sample: Some(Duration::from_millis(100)), phases }
}

/// Until more than 5 bit/s arrive, for `hold` milliseconds.
fn until(hold: u64, deadline: u64) -> PhaseLength {
    let threshold = Threshold::Above(5.0);
    let condition =
        Condition { text: "throughput > 5bit".to_owned(), side: Side::Receiver, metric: Metric::Throughput, threshold };
    PhaseLength::Until(WaitCondition {
        condition,
        hold: Duration::from_millis(hold),
        deadline: Duration::from_millis(deadline),
    })
}

fn play(stage: &mut Fake, programme: &Programme) -> Vec<PhaseEnd> {
    let outcomes = carry_out(stage, programme, 1000 * MS, WINDOW, 2000.0, Vec::new()).unwrap();
    outcomes.into_iter().map(|outcome| outcome.ended).collect()
}

fn command(name: &str) -> Command {
    Command { datapath: "balancer".to_owned(), node: None, name: name.to_owned(), arguments: Settings::new() }
}

#[test]
fn a_plain_window_is_read_at_its_edges_and_nobody_is_told_anything() {
    let mut stage = Fake::new(|_| None);
    assert_eq!(play(&mut stage, &Programme::default()), [PhaseEnd::Time]);
    assert_eq!(stage.done, [(1000, "read".to_owned()), (1500, "read".to_owned())]);
}

#[test]
fn phases_of_known_length_are_said_ahead() {
    let programme = sampled(vec![
        phase("low", rate(Rate::OfLimit(0.25)), time(250)),
        phase("high", rate(Rate::At(70.0)), PhaseLength::Window),
        phase("off", rate(Rate::At(0.0)), time(150)),
    ]);
    assert_eq!(programme.longest(WINDOW), Duration::from_millis(900));
    let mut stage = Fake::new(|_| None);
    assert_eq!(play(&mut stage, &programme), [PhaseEnd::Time, PhaseEnd::Time, PhaseEnd::Time]);
    assert_eq!(stage.did("read"), [1000, 1250, 1750, 1900]);
    assert_eq!(stage.did("sample"), [1100, 1200, 1300, 1400, 1500, 1600, 1700, 1800, 1900]);
    assert_eq!(stage.said(), ["mark 1250", "Own 70 at 1250", "mark 1750", "Own 0 at 1750"]);
    assert_eq!(stage.did("mark 1250"), [1190]);
    assert_eq!(stage.did("mark 1750"), [1690]);
}

#[test]
fn a_wait_ends_when_its_condition_has_held() {
    let programme =
        sampled(vec![phase("wait", Vec::new(), until(200, 5000)), phase("then", rate(Rate::OfLimit(0.5)), time(100))]);
    // It holds for one interval, breaks off, and holds from the one that ends at 1800 on.
    let mut stage = Fake::new(|ms| Some(if ms == 1400 || ms >= 1800 { 6.0 } else { 4.0 }));
    let ended = play(&mut stage, &programme);
    let condition = "throughput > 5bit".to_owned();
    assert_eq!(ended, [PhaseEnd::Reached { condition, after_us: 800_000 }, PhaseEnd::Time]);
    assert_eq!(stage.did("read"), [1000, 2020, 2120]);
    assert_eq!(stage.said(), ["mark 2020", "Own 1000 at 2020", "end 2120"]);
}

#[test]
fn a_wait_in_vain_ends_at_its_deadline() {
    let programme = sampled(vec![phase("wait", Vec::new(), until(0, 730))]);
    for throughput in [|_| Some(5.0), |_| None] {
        let mut stage = Fake::new(throughput);
        let condition = "throughput > 5bit".to_owned();
        assert_eq!(play(&mut stage, &programme), [PhaseEnd::Deadline { condition, after_us: 730_000 }]);
        assert_eq!(stage.did("read"), [1000, 1730]);
        // As the workers' plans say.
        assert_eq!(stage.said(), [""; 0]);
    }
}

#[test]
fn what_held_before_a_phase_began_does_not_end_it() {
    let programme = sampled(vec![phase("before", Vec::new(), time(150)), phase("wait", Vec::new(), until(0, 5000))]);
    let mut stage = Fake::new(|_| Some(6.0));
    let ended = play(&mut stage, &programme);
    // The interval that ends at 1200 began before the phase did, at 1150.
    assert_eq!(ended[1], PhaseEnd::Reached { condition: "throughput > 5bit".to_owned(), after_us: 150_000 });
}

#[test]
fn samples_that_were_missed_are_left_out() {
    let mut stage = Fake { late_ns: 250 * MS, ..Fake::new(|_| None) };
    play(&mut stage, &sampled(vec![phase("all", Vec::new(), time(1000))]));
    assert_eq!(stage.did("sample"), [1350, 1650, 1950, 2250]);
}

#[test]
fn datapaths_are_told_when_the_counters_of_the_phase_before_have_been_read() {
    let both = vec![Step::Command(command("weight")), rate(Rate::At(7.0)).remove(0), Step::Command(command("flush"))];
    let programme = sampled(vec![
        phase("one", vec![Step::Command(command("before"))], time(100)),
        phase("two", both, time(100)),
        phase("three", Vec::new(), time(100)),
    ]);
    let mut stage = Fake::new(|_| None);
    let before = stage.command(&command("before")).unwrap();
    let outcomes = carry_out(&mut stage, &programme, 1000 * MS, WINDOW, 0.0, vec![before.clone()]).unwrap();
    let at_edge: Vec<(u64, &str)> = stage.done.iter().map(|(at, what)| (*at, what.as_str())).collect();
    let at_edge: Vec<_> =
        at_edge.into_iter().filter(|(at, what)| (1001..1110).contains(at) && *what != "sample").collect();
    let expected = [
        (1040, "mark 1100"),
        (1040, "Own 7 at 1100"),
        (1100, "read"),
        (1100, "balancer weight"),
        (1101, "balancer flush"),
    ];
    assert_eq!(at_edge, expected);
    // What the first phase begins with has been said before the load began.
    assert_eq!(stage.did("balancer before"), [0]);
    let moments = |outcome: &PhaseResult| -> Vec<(String, u64, u64)> {
        let moment = |one: &CommandRecord| (one.command.clone(), one.told_ns / MS, one.answered_ns / MS);
        outcome.commands.iter().map(moment).collect()
    };
    assert_eq!(outcomes[0].commands, [before]);
    let expected = [("weight".to_owned(), 1100, 1101), ("flush".to_owned(), 1101, 1102)];
    assert_eq!((moments(&outcomes[1]), moments(&outcomes[2])), (expected.to_vec(), Vec::new()));
}

#[test]
fn a_refusal_ends_the_trial() {
    let refused = ["weight", "fail", "flush"].map(|name| Step::Command(command(name)));
    let programme = sampled(vec![phase("one", Vec::new(), time(250)), phase("two", refused.to_vec(), time(100))]);
    let mut stage = Fake::new(|_| None);
    let error = carry_out(&mut stage, &programme, 1000 * MS, WINDOW, 0.0, Vec::new()).unwrap_err();
    assert_eq!(format!("{error:#}"), "begin phase two, 0.25 s into the window: it cannot");
    assert_eq!(stage.did("balancer flush"), [0; 0]);
    assert_eq!(stage.did("read"), [1000, 1250]);
}
