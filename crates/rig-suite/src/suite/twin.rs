//! The scenario that a run measures twice in each block (its A/A check): the two can differ only by chance, so that the run shows
//! how often its judge is wrong.

use rig_facts::claim::Claim;
use rig_stats::blocks::sequential::LEAST;

use super::{Scenario, Suite, Timing};

/// Which scenario a suite wants to be measured twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TwinChoice {
    /// What claims are about most, where that is cheap.
    #[default]
    Chosen,
    Named(String),
    None,
}

/// A scenario that is chosen, and not named by the suite, may take at most this fraction (one in so many) of the time of a block.
const CHEAP: u32 = 8;

impl Suite {
    /// What a scenario that is run a second time is called.
    pub fn name_of_again(id: &str) -> String {
        format!("{id}-again")
    }

    /// The scenario to measure twice in each block, so that the judge of claims can be checked; `None` where the suite or its timing is
    /// not made for it: without claims that blocks decide, or with fewer blocks than a test without assumptions needs.
    pub fn twin(&self, timing: &Timing) -> Option<&Scenario> {
        let is_in = |claim: &&Claim| claim.figures().iter().all(|figure| self.scenario(&figure.scenario).is_some());
        let judged: Vec<&Claim> = self.claims.iter().filter(|claim| !claim.is_fact()).filter(is_in).collect();
        if judged.is_empty() || timing.repeat.most() < LEAST {
            return None;
        }
        let is_free = |scenario: &&Scenario| self.scenario(&Self::name_of_again(&scenario.id)).is_none();
        match &self.twin {
            TwinChoice::None => None,
            TwinChoice::Named(id) => self.scenario(id).filter(is_free),
            TwinChoice::Chosen => {
                let of_one = |scenario: &Scenario| scenario.shortest_trial(timing.phases);
                // A search takes longer than any trial without one.
                let longest = self.scenarios.iter().filter_map(of_one).max()?;
                let block = self.scenarios.iter().map(|scenario| of_one(scenario).unwrap_or(longest)).sum();
                let is_cheap = |scenario: &&Scenario| of_one(scenario).is_some_and(|own| own * CHEAP <= block);
                let claims = |scenario: &Scenario| {
                    let names = |claim: &&&Claim| claim.figures().iter().any(|figure| figure.scenario == scenario.id);
                    judged.iter().filter(names).count()
                };
                let is_baseline = |scenario: &Scenario| self.baseline.as_ref() == Some(&scenario.id);
                let named = self.scenarios.iter().filter(|scenario| claims(scenario) > 0);
                // `max_by_key` takes the last of equals, and the order is reversed: the first scenario wins.
                let cheap = named.filter(is_free).filter(is_cheap).rev();
                cheap.max_by_key(|scenario| (is_baseline(scenario), claims(scenario)))
            }
        }
    }

    /// This suite with a scenario of it a second time behind the first, of which nothing is claimed.
    #[must_use]
    pub fn with_twin(mut self, id: &str) -> Self {
        if let Some(index) = self.scenarios.iter().position(|scenario| scenario.id == id) {
            let own = &self.scenarios[index];
            let name = format!("{} (again)", own.name);
            let twin = Scenario {
                id: Self::name_of_again(id),
                name,
                row_of: None,
                twin_of: Some(id.to_owned()),
                ..own.clone()
            };
            self.scenarios.insert(index + 1, twin);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::suite::Repeat;

    fn times(suite: &Suite, trials: u32) -> Timing {
        Timing { repeat: Repeat::Times(trials), ..suite.timing }
    }

    fn twin_of(suite: &Suite, timing: &Timing) -> Option<String> {
        suite.twin(timing).map(|scenario| scenario.id.clone())
    }

    fn with(keys: &str, scenarios: &[&str], claims: &[&str]) -> Suite {
        let mut text = format!(
            "name = \"x\"\ntitle = \"X\"\n{keys}\n[defaults]\nwindow = \"1s\"\nwarm_up = \"0s\"\ncool_down = \"0s\"\n\
             [defaults.load]\nkind = \"tcp-stream\"\nmessage = \"128k\"\n[testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n"
        );
        for id in scenarios {
            text += &format!("[[scenario]]\nid = \"{id}\"\nname = \"{id}\"\ntestbed = \"two\"\npath = \"raw\"\n");
            text += "from = \"a\"\nto = \"b\"\n";
        }
        for holds in claims {
            text += &format!("[[claim]]\ntext = \"x\"\nholds = \"{holds}\"\n");
        }
        Suite::parse("x.toml", &text).unwrap()
    }

    const MANY: [&str; 8] = ["A", "B", "C", "D", "E", "F", "G", "H"];

    #[test]
    fn built_in_suites_with_many_scenarios_have_one() {
        let of = |name: &str| {
            let suite = Suite::load(name).unwrap();
            twin_of(&suite, &suite.timing)
        };
        // No claim is about its baseline, A2.
        assert_eq!(of("layers").as_deref(), Some("B"));
        assert_eq!(of("namespaces").as_deref(), Some("TCP_STREAM-none"));
        assert_eq!(of("spreading"), None, "a single scenario without claims");
    }

    #[test]
    fn short_runs_and_few_scenarios_have_none() {
        let claims = ["C.throughput >= B.throughput", "C.throughput >= D.throughput"];
        let suite = with("", &MANY, &claims);
        assert_eq!(twin_of(&suite, &times(&suite, 6)).as_deref(), Some("C"), "most claims are about it");
        assert_eq!(twin_of(&suite, &times(&suite, 5)), None);
        assert_eq!(twin_of(&suite, &times(&suite, 1)), None);
        let few = suite.only(&MANY[..7].iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()).unwrap();
        assert_eq!(twin_of(&few, &times(&few, 6)), None, "more than an eighth of the time");
        let without = with("", &MANY, &[]);
        assert_eq!(twin_of(&without, &times(&without, 6)), None);
    }

    #[test]
    fn a_suite_names_another_or_none() {
        let claims = ["C.throughput >= B.throughput"];
        let of = |keys: &str, scenarios: &[&str]| {
            let suite = with(keys, scenarios, &claims);
            twin_of(&suite, &times(&suite, 6))
        };
        assert_eq!(of("baseline = \"B\"", &MANY).as_deref(), Some("B"));
        assert_eq!(of("aa = \"D\"", &MANY).as_deref(), Some("D"));
        assert_eq!(of("aa = \"D\"", &MANY[..4]).as_deref(), Some("D"), "whatever it costs");
        assert_eq!(of("aa = false", &MANY), None);
        assert_eq!(of("aa = true", &MANY).as_deref(), Some("B"));
        let mut names = MANY.to_vec();
        names.push("B-again");
        assert_eq!(of("aa = \"B\"", &names), None, "the name is taken");
    }

    #[test]
    fn the_twin_stands_behind_its_scenario_and_nothing_is_claimed_of_it() {
        let suite = with("", &MANY, &["C.throughput >= B.throughput"]);
        let twice = suite.clone().with_twin("B");
        assert_eq!(twice.scenarios.len(), 9);
        assert_eq!((twice.scenarios[2].id.as_str(), twice.scenarios[2].twin_of.as_deref()), ("B-again", Some("B")));
        assert_eq!(twice.claims, suite.claims);
        assert_eq!(suite.timing.phases.window, Duration::from_secs(1));
        assert_eq!(suite.clone().with_twin("nobody"), suite);
    }
}
