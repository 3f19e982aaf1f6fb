//! A claim with a small plot: what is claimed as a shaded range, what was measured as a dot with its interval.

use maud::{Markup, html};
use rig_facts::claim::Threshold;

use super::{Text, Verbatim};
use crate::build::seen;
use crate::document::{Claim, Effect};
use crate::text;

const WIDTH: f64 = 200.0;
const HEIGHT: f64 = 22.0;
const MARGIN: f64 = 6.0;

pub(super) fn claim(claim: &Claim) -> Markup {
    let verdict = claim.verdict;
    let (class, sign, word) = match seen(claim) {
        Some(what) => ("seen".to_owned(), '·', what.word().to_owned()),
        None => (verdict.to_string(), text::sign(verdict), verdict.to_string()),
    };
    html! {
        li class=(class) {
            span.verdict { span aria-hidden="true" { (sign) } " " (word) }
            div {
                p { (Text(&claim.text)) }
                p.words { (Text(&claim.words)) }
                @if !claim.expression.is_empty() { p { code { (Verbatim(&claim.expression)) } } }
            }
            @if let Some(effect) = &claim.effect { (plot(effect)) }
        }
    }
}

/// The part of the axis that is claimed; an open end is none.
fn claimed(threshold: Threshold) -> (Option<f64>, Option<f64>) {
    match threshold {
        Threshold::AtLeast(low) | Threshold::Above(low) => (Some(low), None),
        Threshold::AtMost(high) | Threshold::Below(high) => (None, Some(high)),
        Threshold::Within { low, high } => (Some(low), Some(high)),
    }
}

fn plot(effect: &Effect) -> Markup {
    let (least, most) = claimed(effect.threshold);
    let interval = effect.interval.map(|i| [i.low, i.high]);
    let points = || interval.into_iter().flatten().chain([Some(effect.value), least, most].into_iter().flatten());
    let finite = || points().filter(|value| value.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    if !effect.value.is_finite() || low > high {
        return html! {};
    }
    let around = if high > low { (high - low) * 0.15 } else { low.abs().max(1.0) * 0.5 };
    let (low, high) = (low - around, high + around);
    let x = |value: f64| MARGIN + (value.clamp(low, high) - low) / (high - low) * (WIDTH - 2.0 * MARGIN);
    let number = |value: f64| format!("{value:.1}");
    let (from, to) = (least.map_or(0.0, &x), most.map_or(WIDTH, &x));
    let middle = HEIGHT / 2.0;
    let label = format!("{} {}, {}", effect.of, effect.measured(), effect.claimed());
    html! {
        svg.plot viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(Text(&label)) {
            rect x=(number(from)) y="0" width=(number((to - from).max(1.0))) height=(HEIGHT) fill="var(--claimed)" {}
            @for edge in [least, most].into_iter().flatten() {
                line x1=(number(x(edge))) x2=(number(x(edge))) y1="0" y2=(HEIGHT) stroke="var(--muted)"
                    stroke-width="1.5" {}
            }
            @if let Some([low, high]) = interval {
                line x1=(number(x(low))) x2=(number(x(high))) y1=(middle) y2=(middle) stroke="var(--ink)"
                    stroke-width="2" {}
            }
            circle cx=(number(x(effect.value))) cy=(middle) r="4" fill="var(--ink)" {}
        }
    }
}
