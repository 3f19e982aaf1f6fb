//! Findings on paper.

use std::fmt::{self, Write};

use rig_cli::look::wrapped;
use rig_cli::visible::visible;
use rig_stats::units::counted;

use super::{Finding, FindingArea, MachineReport, Readiness, State, SuiteSupport};

/// Columns of the longest of the words that a finding begins with.
const LABEL: usize = 8;

/// Escape sequences (ECMA-48, SGR) around what deserves colour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Palette {
    good: &'static str,
    doubt: &'static str,
    bad: &'static str,
    heading: &'static str,
    plain: &'static str,
}

impl Palette {
    pub const NONE: Self = Self { good: "", doubt: "", bad: "", heading: "", plain: "" };
    pub const ANSI: Self =
        Self { good: "\x1b[32m", doubt: "\x1b[33m", bad: "\x1b[31m", heading: "\x1b[1m", plain: "\x1b[0m" };
}

impl FindingArea {
    fn title(self) -> &'static str {
        match self {
            Self::Privileges => "Privileges",
            Self::Testbed => "Testbeds",
            Self::Cpus => "CPUs",
            Self::Clock => "Clock",
            Self::LoadGenerator => "Load generator",
            Self::PacketLoad => "Packet load",
            Self::Balancer => "Balancer",
            Self::Vrouter => "vRouter",
            Self::Store => "Store",
            Self::OtherLoad => "Other load",
            Self::Tools => "Tools to compare with",
        }
    }
}

/// In lines of at most `width` columns, as far as words allow.
pub(super) fn text(report: &MachineReport, palette: Palette, width: usize) -> String {
    let mut text = String::new();
    write_text(report, palette, width, &mut text).expect("a String takes all that is written to it");
    text
}

fn write_text(report: &MachineReport, palette: Palette, columns: usize, out: &mut impl Write) -> fmt::Result {
    let MachineReport { findings, suites, .. } = report;
    let Palette { good, doubt, bad, heading, plain } = palette;
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    let margin = " ".repeat(2 + LABEL + 2 + width + 2);
    let mut area = None;
    for Finding { area: of, name, state } in findings {
        if area.replace(*of) != Some(*of) {
            writeln!(out, "{heading}{}{plain}", of.title())?;
        }
        let (colour, label, found, lack) = match state {
            State::Ok { found } => (good, "ok", found, None),
            State::Doubtful(lack) => (doubt, "doubtful", &lack.found, Some(lack)),
            State::Lacking(lack) => (doubt, "lacking", &lack.found, Some(lack)),
            State::Missing(lack) => (bad, "MISSING", &lack.found, Some(lack)),
            State::Unknown { why } => (plain, "unknown", why, None),
        };
        // What stands before the text on the first line is as wide as the margin, but for its colours.
        let found = wrapped(&visible(found), &margin, &margin, columns);
        write!(out, "  {colour}{label:<LABEL$}{plain}  {name:<width$}  {}", &found[margin.len()..])?;
        if let Some(lack) = lack {
            for (what, text) in [("effect", &lack.effect), ("remedy", &lack.remedy)] {
                let deeper = format!("{margin}  ");
                out.write_str(&wrapped(&visible(&format!("{what}: {text}")), &margin, &deeper, columns))?;
            }
        }
    }
    write_suites(suites, palette, columns, out)?;
    writeln!(out)?;
    match Readiness::of(findings) {
        Readiness::Ready => {
            let in_doubt = doubtful_now(findings);
            if in_doubt.is_empty() {
                return writeln!(out, "{good}This machine can run `netrig run layers`.{plain}");
            }
            let text = format!(
                "This machine can run `netrig run layers`, but what it measures now is to be doubted: {}.",
                in_doubt.join("; ")
            );
            writeln!(out, "{doubt}{}{plain}", wrapped(&text, "", "  ", columns).trim_end())
        }
        Readiness::NotReady => {
            let missing: Vec<_> = findings
                .iter()
                .filter(|finding| matches!(finding.state, State::Missing(_)))
                .map(|finding| format!("{}: {}", finding.area.title(), finding.name))
                .collect();
            let text = format!("This machine cannot run `netrig run layers`. Missing: {}.", missing.join("; "));
            writeln!(out, "{bad}{}{plain}", wrapped(&text, "", "  ", columns).trim_end())
        }
    }
}

/// What a run would make of each suite.
pub(super) fn suites(suites: &[SuiteSupport], palette: Palette, columns: usize) -> String {
    let mut text = String::new();
    write_suites(suites, palette, columns, &mut text).expect("a String takes all that is written to it");
    text
}

fn write_suites(suites: &[SuiteSupport], palette: Palette, columns: usize, out: &mut impl Write) -> fmt::Result {
    let Palette { good, doubt, bad, heading, plain } = palette;
    if suites.is_empty() {
        return Ok(());
    }
    writeln!(out, "{heading}Suites{plain}")?;
    let width = suites.iter().map(|of| of.suite.len()).max().unwrap_or(0);
    let margin = " ".repeat(2 + LABEL + 2 + width + 2);
    let deeper = format!("{margin}  ");
    for SuiteSupport { suite, scenarios, left_out } in suites {
        let all = scenarios.len() + left_out.iter().map(|one| one.scenarios.len()).sum::<usize>();
        let all_words = counted(all, "scenario", "scenarios");
        let (colour, label, found) = match scenarios.len() {
            0 => (bad, "none", format!("none of {all_words}")),
            some if some < all => (doubt, "in part", format!("{some} of {all_words}, all but")),
            _ => (good, "ok", format!("all of {all_words}")),
        };
        writeln!(out, "  {colour}{label:<LABEL$}{plain}  {suite:<width$}  {found}")?;
        for one in left_out {
            out.write_str(&wrapped(&visible(&one.to_string()), &margin, &deeper, columns))?;
        }
    }
    Ok(())
}

/// What else keeps the machine busy, which is another a minute later.
fn doubtful_now(findings: &[Finding]) -> Vec<String> {
    let now = findings.iter().filter(|finding| finding.area == FindingArea::OtherLoad);
    let doubtful = |finding: &Finding| match &finding.state {
        State::Doubtful(lack) => Some(format!("{} ({})", finding.name, lack.found)),
        _ => None,
    };
    now.filter_map(doubtful).collect()
}

pub(super) fn json(report: &MachineReport) -> String {
    let json = serde_json::to_string_pretty(report).expect("a report is texts, which JSON can hold");
    format!("{json}\n")
}
