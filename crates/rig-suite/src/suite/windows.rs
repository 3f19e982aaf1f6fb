//! Whether something of each load falls into the windows that a suite has, so that no run ends without a figure.

use std::time::Duration;

use rig_cli::mistakes::FileError;
use rig_cli::source::Spanned;
use rig_facts::programme::{Rate, ScenarioLoad};
use rig_load::plan::PlanError;

use super::file::SuiteFile;
use super::load::{LoadError, LoadSource};
use super::resolve::{Resolver, Result};
use super::{PacketTraffic, Scenario, Suite, Traffic};

impl Traffic {
    /// Whether at least one of what each end sends falls into a window.
    pub fn falls_into(&self, window: Duration) -> Result<(), PlanError> {
        [&self.connect, &self.listen].into_iter().try_for_each(|load| load.falls_into(window, |own| Some(&own.client)))
    }
}

impl Scenario {
    /// Why nothing of a load may fall into a window; `None` when something does, and when the rate is searched for or a share of a
    /// limit, since it is known only in the trial.
    fn misses(&self, traffic: &Traffic, which: ScenarioLoad, window: Duration) -> Option<PlanError> {
        if traffic.packets.as_ref().is_some_and(PacketTraffic::is_searched) {
            return None;
        }
        let window = self.programme.longest(window);
        match self.programme.first_rate(which) {
            Some(Rate::OfLimit(_)) => None,
            Some(Rate::At(rate)) if rate > 0.0 => traffic.at_rate(rate).falls_into(window).err(),
            Some(Rate::At(_)) | None => traffic.falls_into(window).err(),
        }
    }
}

impl Suite {
    /// Refuses a window into which nothing of a scenario's loads may fall.
    pub fn check_window(&self, window: Duration) -> Result<(), FileError> {
        for scenario in &self.scenarios {
            let loads = std::iter::once((&scenario.traffic, ScenarioLoad::Own));
            for (traffic, which) in loads.chain(scenario.under.iter().map(|under| (under, ScenarioLoad::Under))) {
                if let Some(error) = scenario.misses(traffic, which, window) {
                    let what = format!("scenario '{}': {error}", scenario.id);
                    return Err(FileError { file: self.file.clone(), line: None, what, hint: None });
                }
            }
        }
        Ok(())
    }
}

impl Resolver<'_> {
    /// Refuses windows, and steps of a search, into which nothing of the loads may fall.
    pub(super) fn check_windows(
        &self,
        file: &SuiteFile,
        scenario: &Scenario,
        own: &LoadSource<'_>,
        under: Option<&LoadSource<'_>>,
    ) -> Result<()> {
        let quick = file.quick.as_ref().map(Spanned::get_ref);
        let windows = [
            ("", Some(file.defaults.get_ref().window.get_ref().0)),
            ("with --quick, ", quick.map(|q| q.window.get_ref().0)),
        ];
        let step_of_quick = quick.and_then(|quick| quick.search.as_ref()?.get_ref().step).map(|step| step.0);
        let under = scenario.under.as_ref().zip(under);
        let loads = [(&scenario.traffic, own, ScenarioLoad::Own)].into_iter();
        for (traffic, of, which) in loads.chain(under.map(|(traffic, of)| (traffic, of, ScenarioLoad::Under))) {
            let step = traffic.packets.as_ref().and_then(|packets| packets.search).map(|search| search.step);
            let steps = [("in its first step, ", step), ("in the first step of --quick, ", step.and(step_of_quick))];
            let windows = windows
                .iter()
                .filter_map(|(place, window)| Some((*place, scenario.misses(traffic, which, (*window)?)?)));
            let steps = steps.iter().filter_map(|(place, step)| Some((*place, traffic.falls_into((*step)?).err()?)));
            if let Some((place, error)) = windows.chain(steps).next() {
                return Err(self.load_error(of, LoadError::of_plan(place, &error)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(quick: &str, load: &str) -> String {
        format!(
            "name = 's'\ntitle = 'S'\n[defaults]\nwindow = '1s'\nwarm_up = '100ms'\ncool_down = '0s'\n\
             confidence = {{ level = '95%', width = '5%', min = 3, max = 10 }}\n\
             [quick]\nwarm_up = '100ms'\ncool_down = '0s'\ntrials = 3\nwindow = {quick}\n\
             [testbed.two]\nnodes = ['a', 'b']\nwire = {{}}\n\
             [[scenario]]\nid = 'A'\nname = 'A'\ntestbed = 'two'\npath = 'raw'\nfrom = 'a'\nto = 'b'\n{load}\n"
        )
    }

    fn suite(quick: &str, load: &str) -> Result<Suite> {
        Suite::parse("s.toml", &text(quick, load))
    }

    #[test]
    fn windows_into_which_nothing_may_fall_are_refused_with_their_load() {
        let udp =
            |throttle: &str| format!("load = {{ kind = 'udp-stream', message = '1400', throttle = '{throttle}' }}");
        let packets = |more: &str| format!("load = {{ kind = 'packets', protocol = 'udp', {more} }}");
        let under = |throttle: &str| {
            let ends = format!("kind = 'udp-stream', message = '1400', throttle = '{throttle}'");
            format!("load = {{ kind = 'tcp-rr' }}\nunder = {{ {ends} }}")
        };
        let phases =
            |rate: &str| format!("{}\nphase = [{{ name = 'one', time = '2s', rate = '{rate}' }}]", udp("1000B/s"));
        for (quick, load, expected) in [
            ("'1s'", udp("1400B/s"), None),
            ("'1s'", udp("1000B/s"), Some("s.toml:23: at this rate a datagram leaves each 1.400s")),
            ("'300ms'", udp("2000B/s"), Some("s.toml:23: with --quick, at this rate a datagram leaves each 700.000ms")),
            ("'1s'", under("1000B/s"), Some("s.toml:24: at this rate a datagram leaves each 1.400s")),
            ("'1s'", phases("1000B/s"), None),
            ("'1s'", phases("500B/s"), Some("s.toml:23: at this rate a datagram leaves each 2.800s")),
            ("'1s'", packets("connections_per_second = 1"), None),
            (
                "'300ms'",
                packets("connections_per_second = 1"),
                Some("s.toml:23: with --quick, at this rate a connection"),
            ),
            // What is searched for rises above its first value; each step is to say something.
            ("'300ms'", packets("search = { goal = 'loss-free', start = 1 }"), None),
            (
                "'1s'",
                packets("search = { goal = 'loss-free', start = 1, step = '300ms' }"),
                Some("s.toml:23: in its first step, at this rate a connection leaves each 1.000s"),
            ),
            (
                "'1s'\nsearch = { step = '300ms' }",
                packets("search = { goal = 'loss-free', start = 1 }"),
                Some("in the first step of --quick, at this rate a connection leaves each 1.000s"),
            ),
        ] {
            let read = suite(quick, &load).map_err(|error| error.to_string());
            match expected {
                None => assert_eq!(read.err(), None, "{load}"),
                Some(words) => {
                    let said = read.unwrap_err();
                    assert!(said.contains(words) && said.contains("none may fall"), "{load}: {said}");
                    Suite::parse_stored("s.toml", &text(quick, &load)).expect("runs of older versions are reported");
                }
            }
        }
        // Where the window is the command line's.
        let suite = suite("'1s'", &udp("2000B/s")).unwrap();
        suite.check_window(Duration::from_millis(700)).unwrap();
        let said = suite.check_window(Duration::from_millis(699)).unwrap_err().to_string();
        assert!(said.contains("scenario 'A': at this rate a datagram leaves each 700.000ms"), "{said}");
    }
}
