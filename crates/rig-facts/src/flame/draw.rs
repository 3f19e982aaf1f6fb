//! The picture.

use std::collections::BTreeMap;

use inferno::flamegraph::color::{BackgroundColor, MultiPalette, Palette};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

use rig_cli::visible::visible;

use super::IDLE;
use crate::record::Profile;
use rig_sys::perf::Clock;

/// Why there is no picture of a profile.
#[derive(Debug, thiserror::Error)]
pub enum FlameError {
    #[error("CPUs {cpus:?} were idle in all of {samples} samples")]
    Idle { cpus: Vec<u32>, samples: u64 },
    #[error("draw a flame graph: {0}")]
    Draw(#[from] std::io::Error),
}

/// A narrower frame, in percent of the width, could not be made out.
const LEAST: f64 = 0.1;

/// A field to search by, in the place of the script's own, which asks by a dialog.
const SEARCH: &str = include_str!("search.svg");

/// A flame graph as a document of its own, with zoom and search by a script inside it. Idle time is left out, and said in
/// the line under the title. It takes the width that it is given.
///
/// # Errors
/// When there is no sample but of idle CPUs, or a stack is not in the folded form.
pub fn svg(profile: &Profile, title: &str) -> Result<String, FlameError> {
    let busy = || profile.stacks.iter().filter(|(stack, _)| stack != IDLE);
    if busy().all(|(_, count)| *count == 0) {
        return Err(FlameError::Idle { cpus: profile.cpus.clone(), samples: profile.samples });
    }
    let mut options = options(title);
    options.subtitle = Some(subtitle(profile));
    options.colors = Palette::Multi(MultiPalette::Js);
    options.count_name = "samples".to_owned();
    let lines: Vec<String> = busy().map(|(stack, count)| format!("{stack} {count}")).collect();
    draw(options, &lines)
}

/// Two profiles of the same, with the CPU time that all busy samples of each stand for.
#[derive(Debug, Clone, Copy)]
pub struct ProfilePair<'a> {
    pub old: &'a Profile,
    pub new: &'a Profile,
    /// Old and new, microseconds for a unit of what was carried.
    pub totals: (f64, f64),
}

/// The flame graph of the new profile, coloured by how much more or less CPU time than in the old one each function takes, for
/// what is carried: both are scaled to their totals.
///
/// # Errors
/// As [`svg`], of either.
pub fn svg_of_change(change: &ProfilePair<'_>, unit: &str, title: &str) -> Result<String, FlameError> {
    /// Picoseconds, so that rare stacks do not vanish in rounding.
    const PER_US: f64 = 1e6;
    let mut stacks = BTreeMap::<&str, (u64, u64)>::new();
    let scaled = |profile: &'_ Profile, total: f64| -> Result<f64, FlameError> {
        let busy: u64 = profile.stacks.iter().filter(|(stack, _)| stack != IDLE).map(|(_, count)| count).sum();
        let idle = || FlameError::Idle { cpus: profile.cpus.clone(), samples: profile.samples };
        if busy == 0 { Err(idle()) } else { Ok(total * PER_US / busy as f64) }
    };
    let (old, new) = (scaled(change.old, change.totals.0)?, scaled(change.new, change.totals.1)?);
    for (stack, count) in change.old.stacks.iter().filter(|(stack, _)| stack != IDLE) {
        stacks.entry(stack).or_default().0 += (*count as f64 * old).round() as u64;
    }
    for (stack, count) in change.new.stacks.iter().filter(|(stack, _)| stack != IDLE) {
        stacks.entry(stack).or_default().1 += (*count as f64 * new).round() as u64;
    }
    let mut options = options(title);
    options.subtitle = Some(format!(
        "{:.3} {unit} before, {:.3} after; {} and {} samples",
        change.totals.0, change.totals.1, change.old.samples, change.new.samples
    ));
    options.count_name = unit.replacen("us", "ps", 1);
    let lines: Vec<String> = stacks.iter().map(|(stack, (old, new))| format!("{stack} {old} {new}")).collect();
    draw(options, &lines)
}

fn options(title: &str) -> Options<'_> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.bgcolors = Some(BackgroundColor::Flat((255, 255, 255).into()));
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.hash = true;
    options.deterministic = true;
    options.min_width = LEAST;
    options
}

fn draw(mut options: Options<'_>, lines: &[String]) -> Result<String, FlameError> {
    let mut svg = Vec::new();
    // Functions have the names that processes gave them.
    let lines: Vec<_> = lines.iter().map(|line| visible(line)).collect();
    from_lines(&mut options, lines.iter().map(AsRef::as_ref), &mut svg)?;
    let mut svg = String::from_utf8(svg).map_err(std::io::Error::other)?;
    let end = svg.rfind("</svg>").unwrap_or(svg.len());
    svg.insert_str(end, SEARCH);
    Ok(svg)
}

/// The height of a picture that [`svg`] drew, pixels.
pub fn height(svg: &str) -> u32 {
    let attribute = svg.split_once(" height=\"").and_then(|(_, rest)| rest.split_once('"'));
    attribute.and_then(|(height, _)| height.parse().ok()).unwrap_or(600)
}

fn subtitle(profile: &Profile) -> String {
    let idle: u64 = profile.stacks.iter().filter(|(stack, _)| stack == IDLE).map(|(_, count)| count).sum();
    let share = 100.0 * idle as f64 / profile.samples.max(1) as f64;
    let cpus = rig_sys::cpu::CpuSet::new(profile.cpus.iter().copied());
    let several = if profile.cpus.len() == 1 { "CPU" } else { "CPUs" };
    let lost = if profile.lost == 0 { String::new() } else { format!(", {} lost", profile.lost) };
    let samples = format!("{several} {cpus}, {} samples at {} Hz", profile.samples, profile.hertz);
    match profile.clock {
        // A halted CPU has no cycles, so idle samples do not tell how long it idled.
        Some(Clock::Cycles) => format!("{samples} of busy time, by CPU cycles{lost}"),
        Some(Clock::CpuClock) | None => format!("{samples}{lost}; {share:.1} % idle, left out"),
    }
}
