//! Lines over time with the phases of a programme.

use super::canvas::{Anchor, Area, Plane, Point, Rise};
use super::percentiles::ticks as round_magnitudes;
use super::svg::{AXIS, Role, SMALL, Shape, draw_named_lines, draw_names, fit, names_width, style, text_width};
use crate::document::{PhaseSpan, TimelineChart};
use crate::text::clean_line;
use crate::text_chart::decimals_for;

/// Room for the vertical axis' name, and under it for those of the phases.
const TOP: i32 = 40;
const PHASES: i32 = 20;

pub(super) fn height(shape: Shape) -> i32 {
    match shape {
        Shape::Wide => 280,
        Shape::Narrow => 250,
    }
}

/// The vertical axis.
struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Scale {
    fn of(chart: &TimelineChart) -> Self {
        let values = || chart.lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        if !chart.is_logarithmic {
            let high = values().fold(0.0, f64::max);
            return Self { low: 0.0, high: if high > 0.0 { high * 1.05 } else { 1.0 }, is_logarithmic: false };
        }
        let magnitudes = || values().filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) = (magnitudes().fold(f64::INFINITY, f64::min), magnitudes().fold(f64::NEG_INFINITY, f64::max));
        let (low, high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
        // At least a factor of three is shown, so that a flat line does not look steep.
        let missing = ((0.5 - (high - low)) / 2.0).max(0.05);
        Self { low: low - missing, high: high + missing, is_logarithmic: true }
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_logarithmic { value.max(f64::MIN_POSITIVE).log10().max(self.low) } else { value }
    }

    /// Values that are named, from the least.
    fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic { round_magnitudes(self.low, self.high) } else { round_steps(self.high) }
    }

    fn name(&self, tick: f64) -> String {
        if self.is_logarithmic {
            return if tick >= 1.0 { format!("{tick:.0}") } else { format!("{tick}") };
        }
        let decimals = decimals_for(self.high);
        format!("{tick:.decimals$}")
    }
}

/// About five multiples of 1, 2 or 5 times a power of ten, from 0 to `high`.
pub(super) fn round_steps(high: f64) -> Vec<f64> {
    let power = 10f64.powf((high / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| high / step <= 5.5);
    let step = step.unwrap_or(high);
    (0..=5).map(|n| f64::from(n) * step).filter(|tick| *tick <= high).collect()
}

pub(super) fn draw(chart: &TimelineChart, shape: Shape, area: &Area) {
    let scale = Scale::of(chart);
    let points = chart.lines.iter().flat_map(|line| &line.points).map(|point| point.0);
    let end = points.chain(chart.phases.iter().map(|phase| phase.to)).fold(f64::MIN_POSITIVE, f64::max);
    let ticks = scale.ticks();
    let widest = ticks.iter().map(|tick| text_width(&scale.name(*tick), SMALL)).max().unwrap_or(0);
    let labels = names_width(chart.lines.iter().map(|one| one.label.as_str()), shape);
    let plane = Plane::within(area, [TOP, labels + 20, AXIS, widest + 12], 0.0..end, scale.low..scale.high);
    let small = |h, v| style(SMALL, Role::Muted, h, v);
    for tick in ticks {
        let [left, right] = plane.level(scale.place(tick));
        area.line([left, right], Role::Grid, 1);
        area.text(&scale.name(tick), (left.0 - 6, left.1), small(Anchor::End, Rise::Center));
    }
    draw_time(area, |at| plane.at((at, scale.low)), end, chart.phases.iter(), PHASES);
    draw_names(area, plane.level(scale.low), &chart.x.to_string(), &chart.y.to_string());
    let place = |point: &(f64, f64)| (point.0, scale.place(point.1));
    let lines = chart.lines.iter().map(|line| (line.label.as_str(), line.points.iter().map(place).collect()));
    draw_named_lines(area, &plane, lines, labels);
}

/// Draws figures under the horizontal axis, where `place` has the moments from 0 to `end`, and the phases, whose names stand at
/// `top`.
pub(super) fn draw_time<'a>(
    area: &Area,
    place: impl Fn(f64) -> Point,
    end: f64,
    phases: impl Iterator<Item = &'a PhaseSpan>,
    top: i32,
) {
    let decimals = decimals_of_steps(end);
    for tick in round_steps(end) {
        let (x, y) = place(tick);
        let small = style(SMALL, Role::Muted, Anchor::Middle, Rise::Top);
        area.text(&format!("{tick:.decimals$}"), (x, y + 5), small);
    }
    for phase in phases {
        let ((from, bottom), (to, _)) = (place(phase.from), place(phase.to));
        area.line([(from, top), (from, bottom)], Role::Mark, 1);
        let name = fit(&clean_line(&phase.label), SMALL, to - from - 6);
        area.text(&name, (from + 4, top + 2), style(SMALL, Role::Ink, Anchor::Start, Rise::Top));
    }
}

/// Digits after the point that tell the [`round_steps`] to `end` apart.
pub(super) fn decimals_of_steps(end: f64) -> usize {
    match end {
        end if end >= 8.0 => 0,
        end if end >= 1.0 => 1,
        end => (1.0 - end.log10().floor()).min(12.0) as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_steps_differ() {
        for end in [0.003, 0.011, 0.05, 0.1, 0.3, 0.7, 1.0, 1.9, 5.0, 8.0, 60.0] {
            let decimals = decimals_of_steps(end);
            let figures: Vec<f64> =
                round_steps(end).iter().map(|tick| format!("{tick:.decimals$}").parse().unwrap()).collect();
            let differ = round_steps(end).iter().zip(figures).all(|(tick, figure)| (tick - figure).abs() < end * 1e-9);
            assert!(differ, "{end} with {decimals} digits");
        }
    }

    #[test]
    fn steps_are_round_and_few() {
        assert_eq!(round_steps(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(round_steps(1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        for high in [0.003, 0.7, 12.0, 49.0, 73_000.0, 2.1e9] {
            let steps = round_steps(high);
            assert!((2..=6).contains(&steps.len()) && steps[steps.len() - 1] > high / 2.0, "{high}: {steps:?}");
        }
    }
}
