//! `outlier` of a service: read, written.

use std::ops::Range;
use std::time::Duration;

use rig_cli::mistakes::FileError;
use rig_cli::source::Source;
use rig_datapath::balancer::Scheduler;
use rig_stats::units::{Percent, Span};
use toml::Spanned;

use super::check::ignores_weights;
use super::rules::forward_name;
use crate::health::outlier::OutlierRules;
use crate::message::ForwardingMethod;

type Result<T, E = FileError> = std::result::Result<T, E>;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutlierFile {
    failures: Option<Spanned<u32>>,
    interval: Option<Spanned<Span>>,
    eject: Option<Spanned<Span>>,
    longest: Option<Spanned<Span>>,
    most: Option<Spanned<Percent>>,
    slow_start: Option<Spanned<Span>>,
}

/// Whether backends answer clients directly, so that nothing is seen of it.
pub(super) fn is_unseen(forward: ForwardingMethod) -> bool {
    matches!(forward, ForwardingMethod::Route | ForwardingMethod::Tunnel)
}

/// Reads the outlier detection of a service. `complete`: whether all has to fit together, which commands may have changed.
pub(super) fn read(
    source: &Source<'_>,
    said: &Spanned<OutlierFile>,
    (scheduler, forward): (Scheduler, Option<ForwardingMethod>),
    complete: bool,
) -> Result<OutlierRules> {
    let (file, usual) = (said.get_ref(), OutlierRules::default());
    let error = |span: Range<usize>, what: String, hint: &str| source.error(span, what, Some(hint));
    if let Some(forward) = forward.filter(|forward| complete && is_unseen(*forward)) {
        let what = format!("'outlier' with forward = \"{}\"", forward_name(forward));
        let hint = "remove it, and let a check find out: backends' answers do not pass here, and what clients do can be forged";
        return Err(error(said.span(), what, hint));
    }
    let span = |key: &str, said: &Option<Spanned<Span>>, usual: Duration, least: Duration, most: Duration| {
        let Some(said) = said else { return Ok(usual) };
        let Span(span) = *said.get_ref();
        if span < least || span > most {
            let hint = format!("choose {} to {}", Span(least), Span(most));
            return Err(error(said.span(), format!("'{key}' of {}", Span(span)), &hint));
        }
        Ok(span)
    };
    let failures = file.failures.as_ref().map_or(usual.failures, |said| *said.get_ref());
    if let Some(said) = file.failures.as_ref().filter(|_| !(1..=1_000_000).contains(&failures)) {
        return Err(error(said.span(), format!("'failures' of {failures}"), "choose 1 to 1000000"));
    }
    let most = file.most.as_ref().map_or(f64::from(usual.most), |said| said.get_ref().get());
    if let Some(said) = file.most.as_ref().filter(|_| !(1.0..=100.0).contains(&most) || most.fract() != 0.0) {
        return Err(error(said.span(), format!("'most' of {most}%"), "choose a whole number of 1% to 100%"));
    }
    let eject = span("eject", &file.eject, usual.eject, SECOND, HOUR)?;
    let slow_start = span("slow_start", &file.slow_start, usual.slow_start, Duration::ZERO, DAY)?;
    let unweighted = complete && ignores_weights(scheduler);
    if let Some(said) = file.slow_start.as_ref().filter(|_| unweighted && !slow_start.is_zero()) {
        let hint = "choose a scheduler that looks at weights: wrr, wlc, sh, mh";
        return Err(error(said.span(), "'slow_start' of a service whose scheduler ignores weights".to_owned(), hint));
    }
    Ok(OutlierRules {
        failures,
        interval: span("interval", &file.interval, usual.interval, 5 * SECOND, 60 * SECOND)?,
        eject,
        longest: span("longest", &file.longest, usual.longest.max(eject), eject, DAY)?,
        most: most as u32,
        slow_start,
    })
}

/// The keys and their values, without those that are as by default.
pub(super) fn entries(rules: &OutlierRules) -> Vec<(&'static str, String)> {
    let usual = OutlierRules::default();
    let span = |key, span: Duration, usual: Duration| (span != usual).then(|| (key, format!("\"{}\"", Span(span))));
    let entries = [
        (rules.failures != usual.failures).then(|| ("failures", rules.failures.to_string())),
        span("interval", rules.interval, usual.interval),
        span("eject", rules.eject, usual.eject),
        span("longest", rules.longest, usual.longest.max(rules.eject)),
        (rules.most != usual.most).then(|| ("most", format!("\"{}%\"", rules.most))),
        span("slow_start", rules.slow_start, usual.slow_start),
    ];
    entries.into_iter().flatten().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::message::{BackendOptions, RuleChange};
    use crate::settings::{Completeness, EditError, Settings};

    fn parse(text: &str) -> Settings {
        Settings::parse("lb.toml", text, Completeness::Required).unwrap()
    }

    fn refused(text: &str) -> String {
        Settings::parse("lb.toml", text, Completeness::Required).unwrap_err().to_string()
    }

    #[test]
    fn outliers_are_looked_for_where_answers_are_seen() {
        let service = |said: &str| {
            format!("[[service]]\nlisten = 'tcp 192.0.2.1:80'\nbackend = '10.0.0.1:80'\n{said}")
                .replace("backend = '10.0.0.1:80'", "backend = ['10.0.0.1:80']")
        };
        let nat = |said: &str| service(&format!("forward = 'nat'\noutlier = {{ {said} }}"));
        let settings = parse(&nat(""));
        assert_eq!(settings.rules.services[0].outlier, Some(OutlierRules::default()));
        assert!(settings.to_toml().contains("outlier = {}\n"), "{}", settings.to_toml());
        let rules = parse(&nat("failures = 9, interval = '1m', eject = '10m', most = '30%', slow_start = '5s'"));
        let expected = OutlierRules {
            failures: 9,
            interval: Duration::from_secs(60),
            eject: Duration::from_secs(600),
            longest: Duration::from_secs(600),
            most: 30,
            slow_start: Duration::from_secs(5),
        };
        assert_eq!(rules.rules.services[0].outlier, Some(expected));
        for (said, why) in [
            ("failures = 0", "'failures' of 0"),
            ("interval = '4s'", "'interval' of 4s"),
            ("eject = '2h'", "'eject' of 7200s"),
            ("eject = '1m', longest = '59s'", "'longest' of 59s"),
            ("most = '0.5%'", "'most' of 0.5%"),
            ("most = '101%'", "'most' of 101%"),
            ("kind = 'tcp'", "unknown field `kind`"),
        ] {
            let refused = refused(&nat(said));
            assert!(refused.contains(why) && refused.contains("lb.toml:5"), "{refused}");
        }
        for forward in ["route", "tunnel"] {
            let local = if forward == "tunnel" { "local = '198.51.100.1'\n" } else { "" };
            let refused = refused(&service(&format!("{local}forward = '{forward}'\noutlier = {{}}")));
            assert!(refused.contains(&format!("'outlier' with forward = \"{forward}\"")), "{refused}");
        }
        let udp = nat("").replace("tcp", "udp");
        assert!(refused(&udp).contains("'outlier' of a UDP service"));
        let unweighted = nat("slow_start = '5s'").replace("forward", "scheduler = 'rr'\nforward");
        assert!(refused(&unweighted).contains("'slow_start' of a service whose scheduler ignores weights"));

        // By commands, which could make it blind.
        let mut rules = settings.rules;
        let (key, options) = (rules.services[0].key, BackendOptions::default());
        let backend = rules.services[0].backends[0].address;
        let options = BackendOptions { forward: Some(ForwardingMethod::Route), ..options };
        let edit = RuleChange::EditBackend { service: key, backend, options };
        assert_eq!(rules.edit(&edit).unwrap_err(), EditError::Unseen("route"));
        let mut empty = parse("[[service]]\nlisten = 'tcp 192.0.2.1:80'\noutlier = {}").rules;
        let add = RuleChange::AddBackend { service: key, backend, options: BackendOptions::default() };
        assert_eq!(empty.edit(&add).unwrap_err(), EditError::Unseen("route"));
    }
}
