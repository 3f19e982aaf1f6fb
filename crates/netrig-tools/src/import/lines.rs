//! Numbers in lines of text.

/// A finite number that is not below 0.
pub fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)
}

/// A number with a unit right behind it, as `12.92ms`: the number times what the unit stands for.
pub fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (value, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number(value).map(|value| value * factor)
}

/// `1,234,567`
pub fn with_commas(text: &str) -> Option<f64> {
    text.starts_with(|c: char| c.is_ascii_digit()).then(|| number(&text.replace(',', ""))).flatten()
}
