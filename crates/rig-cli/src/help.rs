//! `-h` and `--help`, which fit a screen. What takes more is told by `help COMMAND` and the man pages.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, Error, Parser};

use crate::exit::Exit;
use crate::mistakes::closest;

/// The command line with the same short help by both names, for itself and each of its commands. Those that read `--help`
/// themselves go on doing so.
#[must_use]
pub fn on_a_screen(command: Command) -> Command {
    let reads_it_itself = command.is_disable_help_flag_set();
    let command = command.mut_subcommands(on_a_screen);
    if reads_it_itself {
        return command;
    }
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::HelpShort)
        .help("Print help")
        .help_heading(None::<&str>);
    command.disable_help_flag(true).arg(help.display_order(usize::MAX))
}

/// What `arguments` say, the program's name first; ends the process where they ask for help or are wrong.
pub fn parse<T: Parser>(arguments: impl IntoIterator<Item = OsString>) -> T {
    parse_as(command_of::<T>(), arguments, |_| None)
}

/// The same of a program with as many commands as a screen has room for, which tells of `help` below them; `instead` says what to write for
/// some words that are no command and some options that there are not.
pub fn parse_or<T: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
    instead: impl Fn(&str) -> Option<String>,
) -> T {
    let mut command = command_of::<T>();
    // clap adds its command `help` then.
    command.build();
    parse_as(command.mut_subcommand("help", |help| help.hide(true)), arguments, instead)
}

/// An option that comes twice holds as it was given last, so that a script's may be followed by one's own.
fn command_of<T: Parser>() -> Command {
    on_a_screen(T::command()).args_override_self(true)
}

fn parse_as<T: Parser>(
    mut command: Command,
    arguments: impl IntoIterator<Item = OsString>,
    instead: impl Fn(&str) -> Option<String>,
) -> T {
    let words: Vec<OsString> = arguments.into_iter().collect();
    let matches = command.try_get_matches_from_mut(&words);
    let mut matches = matches.unwrap_or_else(|error| {
        let error = with_option(without_hidden(error, &command, &words), &instead);
        leave(&with_suggestion(error, &command, &instead))
    });
    T::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

/// Says what clap has to say, be it help or a mistake, and ends the process. What cannot be written is a failure, unless
/// the reader has seen enough.
fn leave(error: &Error) -> ! {
    let written = error.print().and_then(|()| io::stdout().flush());
    match written {
        Err(failed) if !error.use_stderr() && failed.kind() != io::ErrorKind::BrokenPipe => {
            // Where this cannot be written either, the status says it.
            let _ = writeln!(io::stderr(), "error: write the help: {failed}");
            std::process::exit(Exit::Failed as i32)
        }
        _ => std::process::exit(error.exit_code()),
    }
}

/// Takes an option that the command's help does not show out of what is suggested.
fn without_hidden(mut error: Error, command: &Command, words: &[OsString]) -> Error {
    let Some(ContextValue::String(suggested)) = error.get(ContextKind::SuggestedArg) else { return error };
    let suggested = suggested.trim_start_matches('-').to_owned();
    let mut asked = command.clone();
    for word in words.iter().skip(1) {
        if let Some(inner) = asked.find_subcommand(word) {
            asked = inner.clone();
        }
    }
    let named = |arg: &&Arg| arg.get_long() == Some(&suggested);
    if asked.get_arguments().find(named).is_some_and(|arg| arg.is_hide_set() || arg.is_hide_short_help_set()) {
        let usage = asked.render_usage();
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

/// Says what an option of another program is called here, where `instead` knows it.
fn with_option(mut error: Error, instead: &dyn Fn(&str) -> Option<String>) -> Error {
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
        && let Some(words) = instead(option)
    {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![words.into()]));
    }
    error
}

/// Names the command that was meant where clap finds none alike: two letters that changed places are one mistake.
fn with_suggestion(mut error: Error, command: &Command, instead: &dyn Fn(&str) -> Option<String>) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    if let Some(words) = instead(word) {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![words.into()]));
        return error;
    }
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return error;
    }
    let names = command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name);
    if let Some(meant) = closest(word, names).map(str::to_owned) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_another_program_is_answered_with_what_it_is_called_here() {
        let said = |option: &str| {
            let arg = Arg::new("threads").long("threads");
            let error = Command::new("rig").arg(arg).try_get_matches_from(["rig", option]).unwrap_err();
            let instead = |word: &str| (word == "-P").then(|| "-P is --threads here".to_owned());
            with_option(error, &instead).to_string()
        };
        assert!(said("-P").contains("-P is --threads here"), "{}", said("-P"));
        assert!(!said("-Q").contains("--threads"), "{}", said("-Q"));
    }

    #[test]
    fn what_help_does_not_show_is_not_suggested() {
        let said = |option: &str| {
            let of_rare = [
                Arg::new("host").long("host").hide_short_help(true),
                Arg::new("turns").long("turns").hide(true),
                Arg::new("trials").long("trials"),
            ];
            let mut command = Command::new("rig").subcommand(Command::new("run").args(of_rare));
            let words = ["rig", "run", option].map(OsString::from);
            let error = command.try_get_matches_from_mut(&words).unwrap_err();
            without_hidden(error, &command, &words).to_string()
        };
        assert!(said("--trial").contains("'--trials'"), "{}", said("--trial"));
        for hidden in ["--hosts", "--turn"] {
            let said = said(hidden);
            assert!(!said.contains("tip:") && said.contains("Usage: rig run [OPTIONS]\n"), "{said}");
        }
    }

    #[test]
    fn the_last_of_two_holds() {
        #[derive(Debug, Parser)]
        struct Run {
            #[arg(long)]
            time: u32,
            #[arg(long)]
            each: Vec<u32>,
            #[command(subcommand)]
            inner: Inner,
        }
        #[derive(Debug, clap::Subcommand)]
        enum Inner {
            Go {
                #[arg(long)]
                rate: u32,
            },
        }
        let words = "rig --time 1 --each 1 --time 2 --each 2 go --rate 3 --rate 4";
        let run: Run = parse(words.split(' ').map(OsString::from));
        let Inner::Go { rate } = run.inner;
        assert_eq!((run.time, run.each, rate), (2, vec![1, 2], 4));
    }

    #[test]
    fn a_command_with_two_letters_exchanged_is_suggested() {
        let said = |word: &str| {
            let mut command = Command::new("rig").subcommands(["run", "report"].map(Command::new));
            let error = command.try_get_matches_from_mut(["rig", word]).unwrap_err();
            let instead = |word: &str| (word == "layers").then(|| "write `rig run layers`".to_owned());
            with_suggestion(error, &command, &instead).to_string()
        };
        assert!(said("rnu").contains("'run'"), "{}", said("rnu"));
        assert!(said("reprot").contains("'report'"), "{}", said("reprot"));
        assert!(!said("xyzzy").contains("similar"), "{}", said("xyzzy"));
        assert!(said("layers").contains("tip: write `rig run layers`"), "{}", said("layers"));
    }
}
