//! A scenario over time, as SVG.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use rig_spread::simulate::report::SimulationTimeline;
use rig_spread::simulate::{Sample, Scenario};

const WIDTH: f64 = 960.0;
const TITLE: f64 = 40.0;
const PANEL: f64 = 240.0;
const PANELS: usize = 3;
/// What a panel leaves around its plane.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 36.0;
/// Numbers along an axis, at most.
const TICKS: f64 = 8.0;

/// Told apart by the colour-blind, too (Okabe and Ito, "Color universal design", 2008).
const COLOURS: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000"];
const BLACK: &str = "#000";

/// Throughput and CPUs in use of each rule, and where the first rule had the entries.
pub(super) fn draw(scenario: &Scenario, courses: &[SimulationTimeline]) -> String {
    let height = TITLE + PANELS as f64 * PANEL;
    let title = escaped(&format!("{} {} (simulated, seed {})", scenario.name, scenario.title, scenario.seed));
    let seconds = scenario.length as f64 / 1000.0;
    let panels = [
        lines(0, "Gbit/s", seconds, courses, &|sample| sample.bits / 1e9, false),
        lines(1, "CPUs in use", seconds, courses, &|sample| sample.cpus, true),
        courses.first().map(|course| strip(2, seconds, course)).unwrap_or_default(),
    ];
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">
<rect width="{WIDTH}" height="{height}" fill="#fff"/>
<text x="{}" y="26" font-size="18" text-anchor="middle">{title}</text>
{}</svg>
"##,
        WIDTH / 2.0,
        panels.concat()
    )
}

/// A plane with seconds from left to right.
struct Panel {
    svg: String,
    top: f64,
    seconds: f64,
    /// The value at its upper edge; 0 is at the lower.
    most: f64,
}

impl Panel {
    fn new(index: usize, seconds: f64, most: f64) -> Self {
        Self { svg: String::new(), top: TITLE + index as f64 * PANEL + TOP, seconds, most }
    }

    fn bottom(&self) -> f64 {
        self.top + PANEL - TOP - BOTTOM
    }

    fn x(&self, at: f64) -> f64 {
        LEFT + at / self.seconds * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom() - value / self.most * (self.bottom() - self.top)
    }

    fn add(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.svg.write_fmt(element);
        self.svg.push('\n');
    }

    fn axes(&mut self, label: &str, grid: bool) {
        let (top, bottom, right) = (self.top, self.bottom(), WIDTH - RIGHT);
        for at in ticks(self.seconds) {
            let x = self.x(at);
            if grid {
                self.add(format_args!(r##"<path d="M{x:.1} {top}V{bottom}" stroke="#ddd"/>"##));
            }
            self.add(format_args!(r#"<text x="{x:.1}" y="{}" text-anchor="middle">{at}</text>"#, bottom + 15.0));
        }
        for value in ticks(self.most) {
            let y = self.y(value);
            if grid {
                self.add(format_args!(r##"<path d="M{LEFT} {y:.1}H{right}" stroke="#ddd"/>"##));
            }
            self.add(format_args!(r#"<text x="{}" y="{:.1}" text-anchor="end">{value}</text>"#, LEFT - 6.0, y + 4.0));
        }
        self.add(format_args!(r#"<path d="M{LEFT} {top}V{bottom}H{right}" fill="none" stroke="{BLACK}"/>"#));
        self.add(format_args!(
            r#"<text x="{}" y="{}" text-anchor="middle">seconds</text>"#,
            f64::midpoint(LEFT, right),
            bottom + 30.0
        ));
        let middle = f64::midpoint(top, bottom);
        self.add(format_args!(
            r#"<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escaped(label)
        ));
    }

    fn line(&mut self, colour: &str, width: u32, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<String> = points.map(|(at, value)| format!("{:.1},{:.1}", self.x(at), self.y(value))).collect();
        self.add(format_args!(
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="{width}"/>"#,
            points.join(" ")
        ));
    }

    /// Names in a row above the lines, with their colours and widths.
    fn legend(&mut self, names: &[(&str, &str, u32)]) {
        const SPACING: f64 = 108.0;
        let y = self.top + 10.0;
        for (index, (name, colour, width)) in names.iter().enumerate() {
            let x = WIDTH - RIGHT - (names.len() - index) as f64 * SPACING;
            self.add(format_args!(
                r#"<path d="M{x} {}h16" stroke="{colour}" stroke-width="{width}"/><text x="{}" y="{y}">{}</text>"#,
                y - 4.0,
                x + 20.0,
                escaped(name)
            ));
        }
    }
}

/// A line for each course; with the fewest CPUs that would do, where these are drawn.
fn lines(
    index: usize,
    label: &str,
    seconds: f64,
    courses: &[SimulationTimeline],
    of: &dyn Fn(&Sample) -> f64,
    oracle: bool,
) -> String {
    let samples = courses.iter().flat_map(|course| &course.samples);
    let most = samples.map(|sample| of(sample).max(if oracle { f64::from(sample.oracle) } else { 0.0 }));
    // Room for the legend above the lines.
    let mut panel = Panel::new(index, seconds, most.fold(1.0, f64::max) * 1.4);
    panel.axes(label, true);
    let mut names = Vec::new();
    for (course, colour) in courses.iter().zip(COLOURS) {
        panel.line(colour, 2, course.samples.iter().map(|sample| (sample.at as f64 / 1000.0, of(sample))));
        names.push((course.rule.name(), colour, 2));
    }
    if let (true, Some(course)) = (oracle, courses.first()) {
        let fewest = course.samples.iter().map(|sample| (sample.at as f64 / 1000.0, f64::from(sample.oracle)));
        panel.line(BLACK, 1, fewest);
        names.push(("fewest needed", BLACK, 1));
    }
    panel.legend(&names);
    panel.svg
}

/// The CPU of each entry over time: a colour for each CPU, in the order in which they are first used.
fn strip(index: usize, seconds: f64, course: &SimulationTimeline) -> String {
    let entries = course.samples.first().map_or(0, |sample| sample.table.len());
    let mut panel = Panel::new(index, seconds, entries.max(1) as f64);
    let mut order: Vec<u32> = Vec::new();
    for cpu in course.samples.iter().flat_map(|sample| &sample.table) {
        if !order.contains(cpu) {
            order.push(*cpu);
        }
    }
    for entry in 0..entries {
        let (low, high) = (panel.y(entry as f64 + 0.08), panel.y(entry as f64 + 0.92));
        for (from, to, cpu) in stays(course, entry, seconds) {
            let at = order.iter().position(|known| *known == cpu).unwrap_or_default();
            let opacity = if at < COLOURS.len() { 0.9 } else { 0.45 };
            let (left, right) = (panel.x(from), panel.x(to));
            panel.add(format_args!(
                r#"<rect x="{left:.1}" y="{high:.1}" width="{:.1}" height="{:.1}" fill="{}" fill-opacity="{opacity}"/>"#,
                right - left,
                low - high,
                COLOURS[at % COLOURS.len()]
            ));
        }
    }
    // A mark at the foot of each tenth of a second in which something moved.
    let moved: BTreeSet<u64> = course.moves.iter().map(|(at, _)| *at / 100).collect();
    let mark = panel.y(0.0) - panel.y(entries as f64 * 0.04);
    for at in moved {
        let (x, bottom) = (panel.x(at as f64 / 10.0), panel.bottom());
        panel.add(format_args!(r#"<path d="M{x:.1} {bottom}v-{mark:.1}" stroke="{BLACK}"/>"#));
    }
    panel.axes(&format!("entry: colour is its CPU, {}", course.rule), false);
    panel.svg
}

/// From when until when, in seconds, an entry was on which CPU.
fn stays(course: &SimulationTimeline, entry: usize, seconds: f64) -> Vec<(f64, f64, u32)> {
    let mut stays: Vec<(f64, f64, u32)> = Vec::new();
    for sample in &course.samples {
        let (at, Some(&cpu)) = (sample.at as f64 / 1000.0, sample.table.get(entry)) else { continue };
        match stays.last_mut() {
            Some((_, _, same)) if *same == cpu => {}
            Some((_, to, _)) => {
                *to = at;
                stays.push((at, seconds, cpu));
            }
            None => stays.push((0.0, seconds, cpu)),
        }
    }
    stays
}

/// Round numbers from 0 to `most`.
fn ticks(most: f64) -> impl Iterator<Item = f64> {
    let power = 10_f64.powf((most / TICKS).log10().floor());
    let step = [1.0, 2.0, 5.0].map(|of| of * power).into_iter().find(|step| most / step <= TICKS);
    let step = step.unwrap_or(10.0 * power);
    // What is computed of a step below 1 is not as round.
    (0..).map(move |index| (f64::from(index) * step * 1e6).round() / 1e6).take_while(move |tick| *tick <= most)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use rig_spread::simulate::{Report, Rule, all, run};

    use super::*;

    fn drawn(rules: &[Rule]) -> (String, Report) {
        let scenario = all(16).into_iter().find(|one| one.name == "S9").unwrap();
        let mut report = Report::default();
        rules.iter().for_each(|&rule| report.add(&scenario, run(&scenario, rule), true));
        (draw(&scenario, &report.courses), report)
    }

    #[test]
    fn a_picture_has_a_line_for_each_rule_and_a_bar_for_each_stay() {
        let (svg, report) = drawn(&[Rule::Dynamic, Rule::RssPlusPlus]);
        // Of throughput and of CPUs, and the fewest CPUs that would do.
        assert_eq!(svg.matches("<polyline").count(), 2 * 2 + 1);
        for name in [Rule::Dynamic.name(), Rule::RssPlusPlus.name(), "fewest needed", "Gbit/s", "CPUs in use"] {
            assert!(svg.contains(&format!(">{name}<")), "{name}");
        }
        let course = &report.courses[0];
        let changes = |entry: usize| {
            course.samples.windows(2).filter(|pair| pair[0].table[entry] != pair[1].table[entry]).count()
        };
        let bars: usize = (0..course.samples[0].table.len()).map(|entry| 1 + changes(entry)).sum();
        assert!(bars > course.samples[0].table.len(), "nothing has moved");
        // And what all is drawn on.
        assert_eq!(svg.matches("<rect").count(), bars + 1);
    }

    #[test]
    fn nothing_is_drawn_outside_of_its_panel() {
        let (svg, _) = drawn(&[Rule::Dynamic]);
        for points in svg.split("points=\"").skip(1) {
            for point in points.split('"').next().unwrap().split(' ') {
                let (x, y) = point.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((LEFT..=WIDTH - RIGHT).contains(&x), "{point}");
                assert!((TITLE + TOP..=TITLE + 2.0 * PANEL - BOTTOM).contains(&y), "{point}");
            }
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(40.0).collect::<Vec<_>>(), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0]);
        assert_eq!(ticks(1.4).collect::<Vec<_>>(), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4]);
    }
}
