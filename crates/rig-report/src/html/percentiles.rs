//! Distributions as HdrHistogram plots them.

use super::canvas::{Anchor, Area, Plane, Rise};
use super::svg::{AXIS, Role, SMALL, Shape, draw_named_lines, draw_names, names_width, style, text_width};
use crate::document::Percentiles;

/// Percentiles that are named on the axis.
const NAMED: [f64; 7] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
/// Room for the vertical axis' name.
pub(super) const TOP: i32 = 24;

pub(super) fn height(shape: Shape) -> i32 {
    match shape {
        Shape::Wide => 300,
        Shape::Narrow => 260,
    }
}

/// Tenfolds by which the share of all values is larger than the share beyond the percentile: 2 for 99 %.
fn tenfolds(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).max(f64::MIN_POSITIVE).log10()
}

/// 1, 2 and 5 times the powers of ten between the magnitudes `low` and `high`; where those are many, powers of ten alone.
pub(super) fn ticks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high - low > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = low.floor() as i32..=high.ceil() as i32;
    let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
    all.filter(|tick| (low..=high).contains(&tick.log10())).collect()
}

pub(super) fn draw(chart: &Percentiles, shape: Shape, area: &Area) {
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let end = points().map(|p| tenfolds(p.0)).fold(1.0, f64::max);
    let magnitudes = || points().map(|p| p.1.max(f64::MIN_POSITIVE).log10());
    // At least a factor of three is shown, so that a flat line does not look steep.
    let (low, high) = (magnitudes().fold(f64::INFINITY, f64::min), magnitudes().fold(f64::NEG_INFINITY, f64::max));
    let (low, high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
    let missing = ((0.5 - (high - low)) / 2.0).max(0.03);
    let (low, high) = (low - missing, high + missing);
    let ticks = ticks(low, high);
    let name = |tick: f64| if tick >= 1.0 { format!("{tick:.0}") } else { format!("{tick}") };
    let widest = ticks.iter().map(|tick| text_width(&name(*tick), SMALL)).max().unwrap_or(0);
    let labels = names_width(chart.lines.iter().map(|one| one.label.as_str()), shape);
    let plane = Plane::within(area, [TOP, labels + 20, AXIS, widest + 12], 0.0..end, low..high);
    let small = |h, v| style(SMALL, Role::Muted, h, v);
    for tick in ticks {
        let [left, right] = plane.level(tick.log10());
        area.line([left, right], Role::Grid, 1);
        area.text(&name(tick), (left.0 - 6, left.1), small(Anchor::End, Rise::Center));
    }
    let mut free = i32::MIN;
    for percentile in NAMED.into_iter().filter(|p| tenfolds(*p) <= end + 1e-6) {
        let [bottom, top] = plane.upright(tenfolds(percentile));
        area.line([bottom, top], Role::Grid, 1);
        let text = percentile.to_string();
        let half = text_width(&text, SMALL) / 2;
        // Names do not run into each other.
        if bottom.0 - half > free {
            area.text(&text, (bottom.0, bottom.1 + 5), small(Anchor::Middle, Rise::Top));
            free = bottom.0 + half + 6;
        }
    }
    draw_names(area, plane.level(low), "Percentile", &chart.value.to_string());
    let place = |p: &(f64, f64)| (tenfolds(p.0), p.1.max(f64::MIN_POSITIVE).log10());
    let lines = chart.lines.iter().map(|line| (line.label.as_str(), line.points.iter().map(place).collect()));
    draw_named_lines(area, &plane, lines, labels);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nine_is_as_far_as_the_one_before() {
        let at = [0.0, 90.0, 99.0, 99.9, 99.99].map(tenfolds);
        for (place, expected) in at.into_iter().zip([0.0, 1.0, 2.0, 3.0, 4.0]) {
            assert!((place - expected).abs() < 1e-9, "{place}");
        }
    }

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(0.9, 2.1), [10.0, 20.0, 50.0, 100.0]);
        assert_eq!(ticks(0.0, 4.0), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }
}
