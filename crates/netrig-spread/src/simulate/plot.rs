//! A scenario over time, as SVG.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use rig_spread::simulate::Scenario;
use rig_spread::simulate::report::SimulationTimeline;

const WIDTH: u32 = 960;
const PANEL: u32 = 240;

/// Told apart by the colour-blind, too (Okabe and Ito, "Color universal design", 2008).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(240, 228, 66),
    RGBColor(0, 0, 0),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Throughput and CPUs in use of each rule, and where the first rule had the entries.
pub(super) fn draw(scenario: &Scenario, courses: &[SimulationTimeline]) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, 3 * PANEL + 40)).into_drawing_area();
        area.fill(&WHITE).map_err(told)?;
        let title = format!("{} {} (simulated, seed {})", scenario.name, scenario.title, scenario.seed);
        let area = area.titled(&title, ("sans-serif", 18)).map_err(told)?;
        let panels = area.split_evenly((3, 1));
        let seconds = scenario.length as f64 / 1000.0;
        lines(&panels[0], "Gbit/s", seconds, courses, &|sample| sample.bits / 1e9, false)?;
        lines(&panels[1], "CPUs in use", seconds, courses, &|sample| sample.cpus, true)?;
        if let Some(course) = courses.first() {
            strip(&panels[2], seconds, course)?;
        }
        area.present().map_err(told)?;
    }
    Ok(text)
}

fn told(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

/// A line for each course; with the fewest CPUs that would do, where these are drawn.
fn lines(
    area: &Area<'_>,
    label: &str,
    seconds: f64,
    courses: &[SimulationTimeline],
    of: &dyn Fn(&rig_spread::simulate::Sample) -> f64,
    oracle: bool,
) -> Result<()> {
    let samples = courses.iter().flat_map(|course| &course.samples);
    let most = samples.map(|sample| of(sample).max(if oracle { f64::from(sample.oracle) } else { 0.0 }));
    // Room for the legend above the lines.
    let most = most.fold(1.0, f64::max) * 1.4;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(28)
        .x_label_area_size(28)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..seconds, 0.0..most)
        .map_err(told)?;
    chart.configure_mesh().x_desc("seconds").y_desc(label).light_line_style(WHITE).draw().map_err(told)?;
    for (course, colour) in courses.iter().zip(COLOURS) {
        let points = course.samples.iter().map(|sample| (sample.at as f64 / 1000.0, of(sample)));
        let series = chart.draw_series(LineSeries::new(points, colour.stroke_width(2))).map_err(told)?;
        series.label(course.rule.name()).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    if let (true, Some(course)) = (oracle, courses.first()) {
        let points = course.samples.iter().map(|sample| (sample.at as f64 / 1000.0, f64::from(sample.oracle)));
        let series = chart.draw_series(LineSeries::new(points, BLACK.stroke_width(1))).map_err(told)?;
        series.label("fewest needed").legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], BLACK));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .position(SeriesLabelPosition::UpperRight)
        .draw()
        .map_err(told)
}

/// The CPU of each entry over time: a colour for each CPU, in the order in which they are first used.
fn strip(area: &Area<'_>, seconds: f64, course: &SimulationTimeline) -> Result<()> {
    let entries = course.samples.first().map_or(0, |sample| sample.table.len());
    let label = format!("entry: colour is its CPU, {}", course.rule);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(28)
        .x_label_area_size(28)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..seconds, 0.0..entries.max(1) as f64)
        .map_err(told)?;
    chart.configure_mesh().disable_mesh().x_desc("seconds").y_desc(label).draw().map_err(told)?;
    let mut order: Vec<u32> = Vec::new();
    for cpu in course.samples.iter().flat_map(|sample| &sample.table) {
        if !order.contains(cpu) {
            order.push(*cpu);
        }
    }
    let colour = |cpu: u32| {
        let at = order.iter().position(|known| *known == cpu).unwrap_or_default();
        COLOURS[at % COLOURS.len()].mix(if at < COLOURS.len() { 0.9 } else { 0.45 })
    };
    for entry in 0..entries {
        let mut begun: Option<(f64, u32)> = None;
        let mut bars = Vec::new();
        for sample in &course.samples {
            let (at, Some(&cpu)) = (sample.at as f64 / 1000.0, sample.table.get(entry)) else { continue };
            match begun {
                Some((from, same)) if same != cpu => {
                    bars.push((from, at, same));
                    begun = Some((at, cpu));
                }
                None => begun = Some((0.0, cpu)),
                Some(_) => {}
            }
        }
        if let Some((from, cpu)) = begun {
            bars.push((from, seconds, cpu));
        }
        let low = entry as f64;
        let boxes = bars
            .into_iter()
            .map(|(from, to, cpu)| Rectangle::new([(from, low + 0.08), (to, low + 0.92)], colour(cpu).filled()));
        chart.draw_series(boxes).map_err(told)?;
    }
    let moved: BTreeSet<u64> = course.moves.iter().map(|(at, _)| *at / 100).collect();
    let marks = moved.into_iter().map(|at| {
        let x = at as f64 / 10.0;
        PathElement::new([(x, 0.0), (x, entries as f64 * 0.04)], BLACK.stroke_width(1))
    });
    chart.draw_series(marks).map_err(told)?;
    Ok(())
}
