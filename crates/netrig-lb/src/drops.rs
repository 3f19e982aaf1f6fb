//! What `netrig lb drops` prints: why packets were dropped, and why left to the kernel.

use rig_cli::packet::wrapped;

use super::message::{ReasonCount, Status};

/// Those that have happened, or with `all` every reason there is. `width` is that of the terminal, columns.
pub fn write(status: &Status, all: bool, width: usize) -> String {
    let dropped = section(&status.drops, all, width);
    let passed = section(&status.passes, all, width);
    let none = |section: String, none: &str| if section.is_empty() { format!("{none}\n") } else { section };
    format!(
        "Dropped\n{}\nLeft to the kernel\n{}",
        none(dropped, "  no packet; --all lists every reason there is"),
        none(passed, "  no packet; --all lists every reason there is"),
    )
}

/// Of one balancer's reasons, those that `all` does not have to ask for first.
fn section(reasons: &[ReasonCount], all: bool, width: usize) -> String {
    let shown: Vec<&ReasonCount> = reasons.iter().filter(|reason| all || reason.packets > 0).collect();
    if shown.is_empty() {
        return String::new();
    }
    let mut text = format!("{:>4}  {:<18} {:>16} {:>12}\n", "no.", "name", "packets", "packets/s");
    for ReasonCount { number, key, text: what, remedy, packets, rate } in shown {
        text += &format!("{number:>4}  {key:<18} {packets:>16} {rate:>12}\n");
        text += &wrapped(what, "      ", "      ", width);
        text += &wrapped(remedy, "      remedy: ", "        ", width);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn what_happened_is_listed_with_its_remedy() {
        insta::assert_snapshot!(write(&fixture::status(), false, 80));
    }

    #[test]
    fn every_line_fits_and_all_are_listed() {
        let mut status = fixture::status();
        for width in [60, 80, 120] {
            let text = write(&status, true, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert!(status.drops.iter().chain(&status.passes).all(|reason| text.contains(&reason.key)), "{text}");
        }
        status.drops.iter_mut().chain(&mut status.passes).for_each(|reason| reason.packets = 0);
        assert_eq!(write(&status, false, 80).matches("no packet").count(), 2);
    }
}
