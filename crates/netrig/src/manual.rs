//! Man pages and what shells complete, from the command line that clap reads.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use netrig_tools::dperf;
use netrig_tools::ntttcp::{self, Dialect};
use rig_cli::exit::{Exit, Failure, OrExit};
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
    let pages = || -> anyhow::Result<()> {
        fs::create_dir_all(directory)?;
        clap_mangen::generate_to(whole(netrig), directory)?;
        let file = |name: &str| fs::File::create(directory.join(name));
        Man::new(dperf::command_line()).render(&mut file("dperf.1")?)?;
        let dialects = [Dialect::Linux, Dialect::Windows].map(ntttcp::help).join("\n\n");
        plain("ntttcp", "1", "NTttcp's command lines, by netrig", &dialects).to_writer(&mut file("ntttcp.1")?)?;
        let options = netrig_lb::ipvsadm::AFTER_HELP;
        plain("ipvsadm", "8", "change and list netrig's balancer by ipvsadm's options", options)
            .to_writer(&mut file("ipvsadm.8")?)?;
        Ok(())
    };
    pages().with_context(|| format!("write man pages to {}", directory.display())).or_exit(Exit::BadInput)?;
    Ok(Exit::Done)
}

/// A page of a command line that is not clap's: its own help, as it is.
fn plain(name: &str, section: &str, about: &str, text: &str) -> Roff {
    let mut page = Roff::default();
    page.control("TH", [name, section, "", concat!("netrig ", env!("CARGO_PKG_VERSION"))]);
    page.control("SH", ["NAME"]).text([roman(format!("{name} - {about}"))]);
    page.control("SH", ["SYNOPSIS"]).text([bold(name), roman(" [OPTIONS]")]);
    page.control("SH", ["OPTIONS"]).control("nf", []);
    for line in text.lines() {
        page.text([Inline::Roman(line.to_owned())]);
    }
    page.control("fi", []).control("SH", ["SEE ALSO"]).text([bold("netrig"), roman("(1)")]);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_that_clap_reads_has_a_command_line() {
        for name in names() {
            let command = of_tool(name);
            command.clone().debug_assert();
            assert!(command.get_arguments().next().is_some(), "{name}");
        }
    }
}
