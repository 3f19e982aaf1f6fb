//! Figures in few columns.

/// `12.3M`, `4.56k`, `789`: three digits.
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 999.5e6 => (v / 1e9, "G"),
        v if v >= 999.5e3 => (v / 1e6, "M"),
        v if v >= 999.5 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let digits = match scaled {
        s if s >= 99.95 || s == 0.0 => 0,
        s if s >= 9.995 => 1,
        _ if unit.is_empty() => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{unit}")
}

/// In percent.
pub fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// How long something is ago, coarse: `420 ms`, `3.2 s`, `5 min`.
pub fn ago(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        60_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_never_four() {
        let cases = [
            (0.0, "0"),
            (0.25, "0.2"),
            (7.0, "7.0"),
            (12.34, "12.3"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (45_678.0, "45.7k"),
            (99_990.0, "100k"),
            (999_900.0, "1.00M"),
            (3.4e6, "3.40M"),
            (21.1e9, "21.1G"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }
}
