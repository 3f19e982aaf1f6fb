//! What stands in a cell.

use ratatui::style::{Color, Style};
use ratatui::text::Span;
use rig_cli::visible::visible_line;

use crate::history::{SECONDS, Track};
use crate::theme::Theme;

/// What a terminal would take for something else, as names of interfaces may have it, and what it cannot show.
pub fn clean(text: &str, theme: Theme) -> String {
    visible_line(text).chars().map(|c| if theme.ascii && !c.is_ascii() { '?' } else { c }).collect()
}

/// Its beginning.
pub fn clip(text: &str, width: u16) -> String {
    let mut columns = 0;
    let fits = |c: &char| {
        columns += textwrap::core::display_width(c.encode_utf8(&mut [0; 4]));
        columns <= usize::from(width)
    };
    text.chars().take_while(fits).collect()
}

const PARTS: [Color; 3] = [Color::Yellow, Color::Green, Color::Blue];

fn coloured(text: String, colour: Color, theme: Theme) -> Span<'static> {
    Span::styled(text, if theme.colour { Style::new().fg(colour) } else { Style::new() })
}

/// Shares of a whole, one after the other.
pub fn bar(shares: [f64; 3], theme: Theme, width: u16) -> Vec<Span<'static>> {
    let (glyphs, rest) = theme.bar();
    let mut spans = Vec::new();
    let (mut sum, mut drawn) = (0.0, 0);
    for ((share, glyph), colour) in shares.into_iter().zip(glyphs).zip(PARTS) {
        sum += share.max(0.0);
        let end = ((sum.min(1.0) * f64::from(width)).round() as usize).max(drawn);
        spans.push(coloured(glyph.to_string().repeat(end - drawn), colour, theme));
        drawn = end;
    }
    spans.push(Span::raw(rest.to_string().repeat(usize::from(width) - drawn)));
    spans
}

/// What the parts mean, in their colours; parts without a name are left out.
pub fn legend(names: [&'static str; 3], theme: Theme) -> Vec<Span<'static>> {
    let (glyphs, _) = theme.bar();
    let parts = names.into_iter().zip(glyphs).zip(PARTS).filter(|((name, _), _)| !name.is_empty());
    parts
        .flat_map(|((name, glyph), colour)| {
            [coloured(format!("  {glyph}"), colour, theme), Span::raw(format!(" {name}"))]
        })
        .collect()
}

/// A minute in fewer columns, or in as many.
fn squeezed<T: Copy>(track: &Track<T>, width: u16, of: impl Fn(&[Option<T>]) -> Option<T>) -> Vec<Option<T>> {
    let width = usize::from(width).min(SECONDS);
    (0..width).map(|n| of(&track[n * SECONDS / width..(n + 1) * SECONDS / width])).collect()
}

pub fn spark(track: &Track<f64>, full: f64, theme: Theme, width: u16) -> String {
    let levels = theme.levels();
    let most = |values: &[Option<f64>]| values.iter().flatten().copied().reduce(f64::max);
    let glyph = |value: Option<f64>| match value {
        None => ' ',
        Some(value) if full > 0.0 && value > 0.0 => {
            let level = (value / full).min(1.0) * (levels.len() - 1) as f64;
            // Something is never drawn as nothing.
            levels[(level.round() as usize).clamp(1, levels.len() - 1)]
        }
        Some(_) => levels[0],
    };
    squeezed(track, width, most).into_iter().map(glyph).collect()
}

/// 0-9, then a-z and A-Z, then `+`; `.` for none.
fn digit(cpu: i64) -> char {
    const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    match usize::try_from(cpu) {
        Err(_) => '.',
        Ok(cpu) => DIGITS.get(cpu).map_or('+', |digit| char::from(*digit)),
    }
}

const CPUS: [Color; 6] = [Color::Cyan, Color::Yellow, Color::Green, Color::Magenta, Color::Blue, Color::Red];

/// Which CPU, over time.
pub fn heat(track: &Track<i64>, theme: Theme, width: u16) -> Vec<Span<'static>> {
    let last = |values: &[Option<i64>]| values.iter().rev().flatten().next().copied();
    let mut spans: Vec<(Option<i64>, String)> = Vec::new();
    for cpu in squeezed(track, width, last) {
        let glyph = cpu.map_or(' ', digit);
        match spans.last_mut() {
            Some((before, text)) if *before == cpu => text.push(glyph),
            _ => spans.push((cpu, glyph.to_string())),
        }
    }
    let styled = |(cpu, text): (Option<i64>, String)| {
        let colour = cpu.and_then(|cpu| usize::try_from(cpu).ok()).map(|cpu| CPUS[cpu % CPUS.len()]);
        let style = colour.filter(|_| theme.colour).map(|colour| Style::new().fg(Color::Black).bg(colour));
        Span::styled(text, style.unwrap_or_default())
    };
    spans.into_iter().map(styled).collect()
}
