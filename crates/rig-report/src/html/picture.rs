//! A report's first chart as a picture that stands alone: in a README, on a slide. Light or dark as the page that shows it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use maud::{PreEscaped, html};
use textwrap::wrap;

use super::svg::{Role, SMALL, Shape, draw, text_width};
use super::{STYLE, Text, describe, legend};
use crate::document::{Block, Chart, Document};
use crate::readable;
use crate::text::{clean_line, unparted};

const MARGIN: i32 = 16;
/// From one line of words to the next.
const LINE: i32 = 18;
const TITLE: i32 = 15;

/// The first chart of `document` with its title, its legend and the lines that say of which run and machine it is; `None`
/// without a chart.
///
/// # Errors
/// When the chart cannot be laid out.
pub fn picture(document: &Document, shape: Shape) -> io::Result<Option<String>> {
    let document = readable::document(document);
    let Some(chart) = document.all_blocks().find_map(|block| match block {
        Block::Figure(chart) => Some(chart),
        _ => None,
    }) else {
        return Ok(None);
    };
    let chart = &alone(chart);
    let drawing = draw(chart, shape);
    let lines = |text: &str, px: i32| {
        let columns = drawing.width as usize * 10 / (px as usize * 6);
        wrap(&unparted(&clean_line(text)), columns).into_iter().map(String::from).collect::<Vec<_>>()
    };
    let title = lines(chart.title(), TITLE);
    let foot: Vec<String> = document.summary.iter().flat_map(|line| lines(line, SMALL)).collect();
    let legend = legend(chart);
    // Title, legend, chart, words below: one under the other.
    let key = MARGIN + title.len() as i32 * LINE;
    let above = key + if legend.is_empty() { 0 } else { LINE } + 8;
    let below = above + drawing.height;
    let width = drawing.width + 2 * MARGIN;
    let height = below + foot.len() as i32 * LINE + MARGIN / 2;
    let mut at = 0;
    let legend: Vec<(i32, Role, String)> = legend
        .into_iter()
        .map(|(role, name)| {
            let from = at;
            at += 18 + text_width(&name, SMALL) + 14;
            (from, role, name)
        })
        .collect();
    let fill = |role: Role| format!("var({})", role.variable());
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) }
            role="img" aria-labelledby="title desc" font-family="sans-serif" {
            title id="title" { (Text(chart.title())) }
            desc id="desc" { (Text(&describe(chart))) }
            style { "STYLE" }
            rect width="100%" height="100%" fill="var(--ground)" {}
            g transform={ "translate(" (MARGIN) " 0)" } {
                @for (i, line) in (0..).zip(&title) {
                    text x="0" y=(MARGIN + 12 + i * LINE) font-size=(TITLE) font-weight="bold" fill=(fill(Role::Ink)) { (Text(line)) }
                }
                @for (from, role, name) in &legend {
                    @let thick = if matches!(role, Role::Mark | Role::Ink) { 3 } else { 12 };
                    rect x=(from + 6 - thick / 2) y=(key + 1) width=(thick) height="12" fill=(fill(*role)) {}
                    text x=(from + 18) y=(key + 12) font-size=(SMALL) fill=(fill(Role::Muted)) { (Text(name)) }
                }
            }
            g transform={ "translate(" (MARGIN) " " (above) ")" } { (PreEscaped(drawing.elements.trim())) }
            g transform={ "translate(" (MARGIN) " " (below) ")" } font-size=(SMALL) fill=(fill(Role::Muted)) {
                @for (i, line) in (0..).zip(&foot) { text x="0" y=(12 + i * LINE) { (Text(line)) } }
            }
        }
    };
    let mut svg = coloured(&svg.into_string());
    svg.push('\n');
    Ok(Some(svg))
}

/// The chart without a study's figures: they say nothing without their source beside them, and would take up the scale.
fn alone(chart: &Chart) -> Chart {
    let mut chart = chart.clone();
    if let Chart::Overview(overview) = &mut chart {
        overview.reference = None;
        overview.rows.iter_mut().flat_map(|row| &mut row.numbers).flatten().for_each(|number| number.reference = None);
    }
    chart
}

/// Variables become the light scheme's colours, which each program that draws SVG knows; the dark scheme's follow for those
/// that know of schemes.
fn coloured(svg: &str) -> String {
    let [light, dark] = palettes();
    let mut svg = svg.to_owned();
    let mut style = String::from("@media (prefers-color-scheme: dark) {");
    for (name, colour) in &light {
        let variable = format!("\"var(--{name})\"");
        if !svg.contains(&variable) {
            continue;
        }
        svg = svg.replace(&variable, &format!("\"{colour}\""));
        let dark = dark.get(name).unwrap_or(colour);
        for attribute in ["fill", "stroke"] {
            if svg.contains(&format!("{attribute}=\"{colour}\"")) {
                let written = write!(style, " [{attribute}=\"{colour}\"] {{ {attribute}: {dark} }}");
                debug_assert!(written.is_ok(), "writing to a string");
            }
        }
    }
    style.push_str(" }");
    svg.replacen("<style>STYLE</style>", &format!("<style>{style}</style>"), 1)
}

/// The colour variables of the light scheme, and of the dark scheme those that differ.
pub(super) fn palettes() -> [BTreeMap<&'static str, &'static str>; 2] {
    let (light, rest) = STYLE.split_once("@media screen and (prefers-color-scheme: dark)").unwrap_or((STYLE, ""));
    let dark = rest.split_once("\n}\n").map_or("", |(dark, _)| dark);
    let variables = |text: &'static str| {
        let each = text.split(';').filter_map(|one| one.rsplit_once("--")?.1.split_once(": "));
        each.filter(|(_, value)| value.starts_with('#')).collect()
    };
    [variables(light), variables(dark)]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use rig_verdict::fixture as views;

    use super::*;
    use crate::build;

    #[test]
    fn a_picture_stands_alone_in_light_and_dark() {
        for document in [build::document(&views::run_view()), build::document(&views::balancer::balancer_view())] {
            for shape in [Shape::Wide, Shape::Narrow] {
                let svg = picture(&document, shape).unwrap().unwrap();
                assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg:.200}");
                assert!(!svg.contains("var(") && !svg.contains("STYLE"), "a colour is not replaced");
                assert!(svg.contains("prefers-color-scheme: dark") && svg.contains("<desc id=\"desc\">"));
                for line in &document.summary {
                    let first = line.split(' ').next().unwrap();
                    assert!(svg.contains(first), "no {line}");
                }
            }
        }
    }

    #[test]
    fn without_a_chart_there_is_no_picture() {
        let document = Document { title: "Nothing".into(), ..Document::default() };
        assert_eq!(picture(&document, Shape::Wide).unwrap(), None);
    }

    /// The dark scheme is told by the light one's colours.
    #[test]
    fn no_two_variables_have_one_colour_in_light_and_two_in_dark() {
        let [light, dark] = palettes();
        let of = |name: &str| dark.get(name).copied().unwrap_or(light[name]);
        for (one, colour) in &light {
            for (other, same) in &light {
                assert!(colour != same || of(one) == of(other), "{one} and {other} are both {colour}");
            }
        }
    }
}
