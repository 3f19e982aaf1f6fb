//! What numbers of workers carry, both logarithmic.

use super::canvas::{Anchor, Area, Plane, Point, Rise};
use super::percentiles::{TOP, ticks};
use super::svg::{AXIS, Role, SMALL, Shape, draw_ends, draw_names, names_width, style, text_width};
use crate::document::{Number, Scaling};

pub(super) fn height(shape: Shape) -> i32 {
    match shape {
        Shape::Wide => 320,
        Shape::Narrow => 280,
    }
}

/// The powers of two, and the counts themselves, that stand on the axis of workers up to `most`.
fn counts(most: f64) -> Vec<f64> {
    (0..).map(|power| f64::from(2).powi(power)).take_while(|count| *count <= most * 1.001).collect()
}

/// `1.2M`, `60k`.
fn brief(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    format!("{}{unit}", (value * 100.0).round() / 100.0)
}

/// How far below its value, as a share of it, an interval may reach and still be drawn in full: one of few trials may span
/// magnitudes, or reach zero, which a logarithmic axis does not have.
const DEEPEST: f64 = 0.25;

/// Half the width of the ends of an interval.
const CAP: i32 = 2;

/// Pixels between series at the same number of workers.
fn beside(shape: Shape) -> f64 {
    match shape {
        Shape::Wide => 6.0,
        Shape::Narrow => 4.0,
    }
}

/// The magnitudes of a value's interval, or of the value, that the axis has to have.
fn reach(number: &Number) -> [f64; 2] {
    let (low, high) = number.interval.map_or((number.value, number.value), |interval| (interval.low, interval.high));
    [low.max(DEEPEST * number.value), high].map(f64::log10)
}

/// A logarithmic axis has no zero.
fn is_drawn((x, number): &&(f64, Number)) -> bool {
    *x > 0.0 && number.value > 0.0
}

pub(super) fn draw(chart: &Scaling, shape: Shape, area: &Area) {
    let points = || chart.series.iter().flat_map(|series| &series.points).filter(is_drawn);
    let most = points().map(|point| point.0).fold(2.0, f64::max);
    let magnitudes = || points().flat_map(|(_, number)| reach(number));
    let (low, high) = (magnitudes().fold(f64::INFINITY, f64::min), magnitudes().fold(f64::NEG_INFINITY, f64::max));
    let (low, high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
    // At least a factor of ten is shown, so that a flat line does not look steep and the axis has figures to read by.
    let missing = ((1.0 - (high - low)) / 2.0).max(0.06);
    let (low, high) = (low - missing, high + missing);
    let ticks = ticks(low, high);
    let widest = ticks.iter().map(|tick| text_width(&brief(*tick), SMALL)).max().unwrap_or(0);
    let labels = names_width(chart.series.iter().map(|one| one.label.as_str()), shape);
    let (left, right) = (-0.15, most.log2() + 0.15);
    let plane = Plane::within(area, [TOP, labels + 20, AXIS, widest + 12], left..right, low..high);
    let small = |h, v| style(SMALL, Role::Muted, h, v);
    for tick in ticks {
        let [from, to] = plane.level(tick.log10());
        area.line([from, to], Role::Grid, 1);
        area.text(&brief(tick), (from.0 - 6, from.1), small(Anchor::End, Rise::Center));
    }
    for count in counts(most) {
        let [bottom, top] = plane.upright(count.log2());
        area.line([bottom, top], Role::Grid, 1);
        area.text(&count.to_string(), (bottom.0, bottom.1 + 5), small(Anchor::Middle, Rise::Top));
    }
    draw_names(area, plane.level(low), &chart.x.quantity, &chart.y.to_string());
    let measured = chart.series.iter().filter(|series| !series.published).count() as f64;
    let beside = beside(shape) * (right - left) / f64::from(plane.right - plane.left);
    let mut ends = Vec::new();
    for (i, series) in chart.series.iter().enumerate() {
        // Side by side, so that intervals do not lie over each other; what was published has none.
        let aside = if series.published { 0.0 } else { (i as f64 - (measured - 1.0) / 2.0) * beside };
        let drawn = || series.points.iter().filter(is_drawn).map(|(x, number)| (x.log2() + aside, number));
        let points: Vec<Point> = drawn().map(|(x, number)| plane.at((x, number.value.log10()))).collect();
        ends.extend(points.last().map(|last| (i, plane.right, last.1)));
        area.path(&points, Role::Series(i), 2, series.published.then_some([5, 4]));
        for (x, number) in drawn() {
            let Some(interval) = number.interval else { continue };
            let [low, high] = reach(number).map(|magnitude| plane.at((x, magnitude)));
            area.line([low, high], Role::Series(i), 1);
            // No end where there is none.
            let is_whole = interval.low >= DEEPEST * number.value;
            for (x, y) in [Some(high), Some(low).filter(|_| is_whole)].into_iter().flatten() {
                area.line([(x - CAP, y), (x + CAP, y)], Role::Series(i), 1);
            }
        }
        points.into_iter().for_each(|point| area.circle(point, 4, Role::Series(i), !series.published));
    }
    draw_ends(area, ends, |i| &chart.series[i].label, labels);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Interval;

    #[test]
    fn an_axis_has_room_for_intervals_but_not_for_magnitudes_below_a_value() {
        let number = |low, high| Number::new(100.0, 0).with_interval(Some(Interval { low, high }));
        assert_eq!(reach(&Number::new(100.0, 0)), [2.0, 2.0]);
        assert_eq!(reach(&number(50.0, 150.0)), [50_f64.log10(), 150_f64.log10()]);
        assert_eq!(reach(&number(-40.0, 240.0)), [25_f64.log10(), 240_f64.log10()]);
    }

    #[test]
    fn figures_on_the_axes_are_short() {
        assert_eq!([1.0, 500.0, 60_000.0, 1_240_000.0, 2e9].map(brief), ["1", "500", "60k", "1.24M", "2G"]);
        assert_eq!(counts(10.0), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(counts(16.0), [1.0, 2.0, 4.0, 8.0, 16.0]);
    }
}
