//! Man pages and what shells complete, from the command line that clap reads.

use std::fs;
use std::io::{self, BufWriter};
use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use jiff::Timestamp;
use netrig_tools::dperf;
use netrig_tools::ntttcp::{self, Dialect};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::print;

use crate::tool::VROUTER;

/// The whole command line: `netrig` with what follows its services' names, which they read themselves.
fn whole(netrig: Command) -> Command {
    let services = [
        ("lb", netrig_lb::command::command_line()),
        ("vrouter", netrig_vrouter::command::command_line()),
        ("spread", netrig_spread::command::command_line()),
    ];
    services.into_iter().fold(netrig, |all, (name, service)| {
        let bin_name = format!("netrig {name}");
        let display_name = format!("netrig-{name}");
        let listed = all.find_subcommand(name).and_then(Command::get_about).cloned().unwrap_or_default();
        let service = service.name(name).bin_name(bin_name).display_name(display_name).about(listed);
        all.mut_subcommand(name, |_| service)
    })
}

/// Tools by whose name netrig may be called, and whose command lines clap reads.
pub fn names() -> Vec<&'static str> {
    [&["dperf"][..], &VROUTER].concat()
}

/// The command line of a tool of [`names`].
fn of_tool(name: &str) -> Command {
    match name {
        "dperf" => dperf::command_line(),
        name => {
            let router = netrig_vrouter::command::command_line();
            let listing = router.find_subcommand(name).cloned().unwrap_or_default();
            listing.bin_name(name.to_owned()).display_name(name.to_owned())
        }
    }
}

/// Prints what `shell` reads.
///
/// # Errors
/// Where it cannot be printed.
pub fn completions(netrig: Command, shell: Shell, tool: Option<&str>) -> Result<Exit, Failure> {
    let (name, mut command) = match tool {
        None => ("netrig", whole(netrig)),
        Some(name) => (name, of_tool(name)),
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}

/// Writes a page for each command, and for the tools by whose name netrig may be called.
///
/// # Errors
/// Where a file cannot be written.
pub fn write(netrig: Command, directory: &Path) -> Result<Exit, Failure> {
    let date = date();
    let pages = || -> anyhow::Result<()> {
        fs::create_dir_all(directory)?;
        // Each page knows the name by which its command is called only when the whole has been put together.
        let mut whole = whole(netrig).disable_help_subcommand(true);
        whole.build();
        let mut left = vec![whole, dperf::command_line()];
        while let Some(command) = left.pop() {
            left.extend(command.get_subcommands().filter(|one| !one.is_hide_set()).cloned());
            let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
            fs::write(directory.join(format!("{name}.1")), page(command, &date)?)?;
        }
        let dialects = [Dialect::Linux, Dialect::Windows].map(ntttcp::help).join("\n\n");
        for (name, section, about, text) in [
            ("ntttcp", "1", "NTttcp's command lines, by netrig", dialects.as_str()),
            ("ipvsadm", "8", "change and list netrig's balancer by ipvsadm's options", netrig_lb::ipvsadm::AFTER_HELP),
        ] {
            let file = fs::File::create(directory.join(format!("{name}.{section}")))?;
            plain(name, section, &date, about, text).to_writer(&mut BufWriter::new(file))?;
        }
        Ok(())
    };
    pages().with_context(|| format!("write man pages to {}", directory.display())).or_exit(Exit::BadInput)?;
    Ok(Exit::Done)
}

const SOURCE: &str = concat!("netrig ", env!("CARGO_PKG_VERSION"));

/// The date on the pages: that of `SOURCE_DATE_EPOCH`, so that builds are reproducible, or else today.
fn date() -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let time = given.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_else(Timestamp::now);
    time.strftime("%Y-%m-%d").to_string()
}

/// The page of a command that clap reads. Its examples stay lines of their own, which clap_mangen would fill.
fn page(command: Command, date: &str) -> io::Result<Vec<u8>> {
    // What is left out of the short help has no text in a page otherwise.
    let command = command.mut_args(|arg| arg.hide_short_help(false));
    let examples = command.get_after_long_help().or_else(|| command.get_after_help()).map(ToString::to_string);
    let (has_arguments, has_commands) = (
        command.get_arguments().any(|arg| !arg.is_hide_set()),
        command.get_subcommands().any(|one| !one.is_hide_set()),
    );
    let man = Man::new(command).date(date).source(SOURCE).manual("netrig");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if has_arguments {
        man.render_options_section(&mut text)?;
    }
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    let mut text = tidy(&String::from_utf8_lossy(&text)).into_bytes();
    if let Some(examples) = examples {
        let mut section = Roff::default();
        section.control("SH", ["EXAMPLES"]);
        as_it_is(&mut section, examples.strip_prefix("Examples:\n").unwrap_or(&examples));
        section.to_writer(&mut text)?;
    }
    Ok(text)
}

/// Without what man and mandoc warn of: spaces at ends of lines, and several breaks of a line in one place.
fn tidy(page: &str) -> String {
    let is_break = |line: &str| line.is_empty() || line == ".br";
    let (mut tidied, mut lines) = (String::new(), page.lines().map(str::trim_end).peekable());
    while let Some(line) = lines.next() {
        let mut several = false;
        while is_break(line) && lines.next_if(|next| is_break(next)).is_some() {
            several = true;
        }
        tidied.push_str(if several || line.is_empty() { ".sp" } else { line });
        tidied.push('\n');
    }
    tidied
}

/// Lines that are not filled.
fn as_it_is(page: &mut Roff, text: &str) {
    page.control("nf", []);
    for line in text.lines() {
        page.text([Inline::Roman(line.to_owned())]);
    }
    page.control("fi", []);
}

/// A page of a command line that is not clap's: its own help, as it is.
fn plain(name: &str, section: &str, date: &str, about: &str, text: &str) -> Roff {
    let mut page = Roff::default();
    page.control("TH", [name, section, date, SOURCE, "netrig"]);
    page.control("SH", ["NAME"]).text([roman(format!("{name} - {about}"))]);
    page.control("SH", ["SYNOPSIS"]).text([bold(name), roman(" [OPTIONS]")]);
    page.control("SH", ["OPTIONS"]);
    as_it_is(&mut page, text);
    page.control("SH", ["SEE ALSO"]).text([bold("netrig"), roman("(1)")]);
    page
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn a_page_has_its_name_its_day_examples_line_by_line_and_every_option() {
        let command = Command::new("rig").about("Rigs").after_help("Examples:\n  rig one   first\n  rig two");
        let command = command.arg(Arg::new("seed").long("seed").help("Of the order").hide_short_help(true));
        let text = String::from_utf8(page(command, "2026-01-02").unwrap()).unwrap();
        assert!(text.contains(&format!(".TH rig 1 2026-01-02 \"{SOURCE}\" netrig\n")), "{text}");
        assert!(text.contains("Of the order"), "{text}");
        assert!(text.contains(".SH EXAMPLES\n.nf\n  rig one   first\n  rig two\n.fi\n"), "{text}");
    }

    #[test]
    fn several_breaks_are_one() {
        assert_eq!(tidy("one \n\n.br\ntwo\n.br\nthree\n"), "one\n.sp\ntwo\n.br\nthree\n");
    }

    #[test]
    fn every_tool_that_clap_reads_has_a_command_line() {
        for name in names() {
            let command = of_tool(name);
            command.clone().debug_assert();
            assert!(command.get_arguments().next().is_some(), "{name}");
        }
    }
}
