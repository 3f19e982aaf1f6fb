//! `-h` and `--help`, which fit a screen. What takes more is told by `help COMMAND` and the man pages.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command, Parser};

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
    let mut command = on_a_screen(T::command());
    let mut matches = command.try_get_matches_from_mut(arguments).unwrap_or_else(|error| error.exit());
    T::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.format(&mut command).exit())
}
