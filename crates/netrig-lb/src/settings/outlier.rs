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
