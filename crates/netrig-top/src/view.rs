//! What is on the screen, as values: tables of the last sample with the minute before it.

mod services;
mod spreading;

use std::fmt::Display;
use std::time::Duration;

use crate::feed::Pane;
use crate::history::{History, Track};
use crate::sample::Sample;
use rig_cli::words::{percent, short};

/// What the user has chosen.
#[derive(Debug, Clone, Default)]
pub struct ViewState {
    /// The machine's name, where others are looked at.
    pub host: Option<String>,
    /// The number of the interface, or of the balancer's service, that is chosen.
    pub index: usize,
    /// Rows that are left out above.
    pub scroll: usize,
    pub frozen: bool,
    pub help: bool,
    pub interval: Duration,
    /// What came of the last key.
    pub message: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct View {
    pub title: String,
    pub notes: Vec<StatusNote>,
    pub tables: Vec<Table>,
    /// What can be pressed, the most important first.
    pub keys: Vec<&'static str>,
    /// In place of the tables.
    pub help: Option<&'static [(&'static str, &'static str)]>,
    pub scroll: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextStyle {
    #[default]
    Plain,
    Faint,
    Bold,
    Alarm,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusNote {
    pub tone: TextStyle,
    pub text: String,
}

impl StatusNote {
    fn new(tone: TextStyle, text: impl Into<String>) -> Self {
        Self { tone, text: text.into() }
    }
}

/// Where a table stands on a wide screen; one below the other else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Whole,
    Left,
    Right,
}

#[derive(Debug, Clone)]
pub struct Table {
    pub title: String,
    /// What the parts of bars mean.
    pub legend: Option<[&'static str; 3]>,
    pub side: Side,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
    /// Left out where there is no room for all tables.
    pub spare: bool,
    /// The row that the rest of the screen is about.
    pub chosen: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub head: &'static str,
    /// Where there is not enough room, the highest goes first.
    pub rank: u8,
    pub width: Width,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// As wide as its texts, at the right or the left.
    Right,
    Left,
    /// As wide as there is room.
    Between(u16, u16),
}

#[derive(Debug, Clone)]
pub enum Cell {
    Text(String, TextStyle),
    /// Shares of one CPU.
    Bar([f64; 3]),
    /// Values of the last minute, and the one that fills a column.
    Spark(Box<Track<f64>>, f64),
    /// CPUs of the last minute.
    Heat(Box<Track<i64>>),
}

impl Cell {
    fn of(text: impl Display) -> Self {
        Self::Text(format!("{text}"), TextStyle::Plain)
    }

    fn rate(value: f64) -> Self {
        Self::Text(short(value), if value == 0.0 { TextStyle::Faint } else { TextStyle::Plain })
    }

    /// The rate of something that should not happen: an alarm when it does.
    fn loss(value: f64) -> Self {
        Self::Text(short(value), if value > 0.0 { TextStyle::Alarm } else { TextStyle::Faint })
    }

    fn share(value: f64) -> Self {
        Self::Text(percent(value), if value < 0.0005 { TextStyle::Faint } else { TextStyle::Plain })
    }

    fn spark(track: Track<f64>, full: f64) -> Self {
        Self::Spark(Box::new(track), full)
    }
}

const fn column(head: &'static str, rank: u8, width: Width) -> Column {
    Column { head, rank, width }
}

/// The highest value of some minutes, so that their pictures have one scale.
fn highest<'a>(tracks: impl IntoIterator<Item = &'a Track<f64>>) -> f64 {
    tracks.into_iter().flatten().flatten().copied().fold(0.0, f64::max)
}

/// The one that is usually at the same place in each sample.
fn at<T>(list: &[T], place: usize, is: impl Fn(&T) -> bool) -> Option<&T> {
    list.get(place).filter(|found| is(found)).or_else(|| list.iter().find(|found| is(found)))
}

/// How many there are to choose from.
pub fn choices(sample: &Sample) -> usize {
    match (&sample.balancer, &sample.router) {
        (Some(balancer), _) => balancer.services.len(),
        (None, Some(_)) => 0,
        (None, None) => sample.interfaces.len(),
    }
}

impl View {
    /// Of a machine, of which nothing may come yet, or any more.
    pub fn of_pane(pane: &Pane, chosen: &ViewState) -> Self {
        let Pane { name, ended, .. } = pane;
        let Some(name) = name else { return Self::of(pane.shown(), chosen) };
        if let Some(Err(why)) = ended {
            // What was measured before is no more what happens.
            let notes = vec![StatusNote::new(TextStyle::Alarm, why)];
            let help = chosen.help.then_some(HELP);
            return Self { title: format!("{name}: gone"), notes, help, keys: keys(None, true), ..Self::default() };
        }
        let mut view = Self::of(pane.shown(), &ViewState { host: Some(name.clone()), ..chosen.clone() });
        if let Some(silence) = pane.silence(chosen.interval) {
            let text = format!("nothing has come from it for {} s", silence.as_secs());
            view.notes.insert(0, StatusNote::new(TextStyle::Alarm, text));
        }
        view
    }

    pub fn of(history: &History, chosen: &ViewState) -> Self {
        let mut title = match &chosen.host {
            None => "netrig top: ".to_owned(),
            Some(host) => format!("{host}: "),
        };
        let Some(sample) = history.last() else {
            title.push_str(if chosen.host.is_some() { "it is being reached" } else { "the first interval" });
            let help = chosen.help.then_some(HELP);
            return Self { title, help, keys: vec!["q quit"], ..Self::default() };
        };
        let mut view = Self { scroll: chosen.scroll, help: chosen.help.then_some(HELP), ..Self::default() };
        if let Some(balancer) = &sample.balancer {
            title.push_str(&format!("balancer {}", balancer.name));
            services::balancer(&mut view, history, sample, balancer, chosen.index);
        } else if let Some(router) = &sample.router {
            title.push_str(&format!("vRouter of node {}", router.node));
            services::router(&mut view, history, sample, router);
        } else {
            match &sample.spreader {
                Some(spreader) => title.push_str(&format!("spreader, process {}", spreader.process)),
                None => title.push_str("no spreader runs here"),
            }
            spreading::fill(&mut view, history, sample, chosen.index);
        }
        let span = rig_stats::units::Span(chosen.interval);
        title.push_str(&format!("; every {span}"));
        if chosen.frozen {
            title.push_str("; FROZEN");
        }
        let own = sample.own;
        title.push_str(&format!("; self {} % CPU", percent(own.cpu)));
        view.title = title;
        view.notes.extend(sample.lacks.iter().map(|lack| StatusNote::new(TextStyle::Faint, lack)));
        if let Some(message) = &chosen.message {
            view.notes.insert(0, StatusNote::new(TextStyle::Bold, message));
        }
        let interface = sample.interfaces.get(chosen.index);
        let is_spread = interface.is_some_and(|interface| interface.spread.is_some());
        view.keys = keys(Some((choices(sample), is_spread)), chosen.host.is_some());
        view
    }
}

/// Those that do something: how many there are to choose from, and whether the one that is has a mode.
fn keys(choice: Option<(usize, bool)>, is_host: bool) -> Vec<&'static str> {
    let mut keys = vec!["q quit", "? help", "f freeze"];
    if choice.is_some_and(|(choices, _)| choices > 1) {
        keys.push("Tab next");
    }
    if !is_host && choice.is_some_and(|(_, is_spread)| is_spread) {
        keys.push("m mode");
    }
    if !is_host {
        keys.push("+/- interval");
    }
    keys.push("up/down scroll");
    keys
}

/// What keys do, and what is meant by heads of columns.
const HELP: &[(&str, &str)] = &[
    ("q, Esc, Ctrl-C", "end"),
    ("f, space", "freeze the display; again to continue"),
    ("Tab, right", "the next interface, or service of a balancer"),
    ("Shift-Tab, left", "the one before"),
    ("up, down", "rows that do not fit; also PageUp, PageDown, Home"),
    ("m", "the spreader's next mode for this interface: static-vmq, static-vrss, dynamic"),
    ("+, -", "a longer or shorter interval, 100 ms to 1 min"),
    ("Ctrl-Z", "to the shell; fg comes back"),
    ("?", "this text, and back"),
    ("", ""),
    ("outside/s", "packets that came from outside, by the CPU that processed them"),
    (
        "processed/s",
        "packets that passed the kernel's receive path there; one that passes several virtual devices counts several times",
    ),
    ("distr %", "time in which a CPU hands packets to other CPUs"),
    ("proc %", "time in which it processes packets of this interface"),
    ("other %", "all else that ran there"),
    ("*", "the base CPU, which packets reach first; w: a balancer's worker"),
    ("entry", "what is moved whole between CPUs: a receive queue; CPU -1: on none"),
    ("CPU, last minute", "the CPU that an entry was on: 0 to 9, a is 10, A is 36, + is above 61"),
];
