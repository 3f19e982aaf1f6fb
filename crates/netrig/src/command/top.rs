//! `netrig top` of this machine, or of hosts.

use anyhow::{Context, bail};
use netrig_top::command::TopArgs;
use netrig_top::hosts::WatchedHost;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_testbed::host::Remote;

use super::hosts::{HostChoice, named};

pub fn top(args: &TopArgs) -> Result<Exit, Failure> {
    let hosts = watched(args).or_exit(Exit::BadInput)?;
    netrig_top::command::execute(args, hosts)
}

fn watched(args: &TopArgs) -> anyhow::Result<Vec<WatchedHost>> {
    let (names, file) = args.hosts();
    if let Some((_, twice)) = names.iter().enumerate().find(|(number, name)| names[..*number].contains(name)) {
        bail!("host {twice} is named twice");
    }
    names.iter().map(|name| one(name, file)).collect()
}

fn one(name: &str, file: Option<&std::path::Path>) -> anyhow::Result<WatchedHost> {
    if let Some((node, host)) = name.split_once('=') {
        bail!("'{name}' is a node and its host: here it is the host alone, --on {host}, without {node}");
    }
    let program = std::env::current_exe().context("find netrig's own program")?;
    let Ok(choice) = name.parse::<HostChoice>();
    Ok(WatchedHost {
        name: name.to_owned(),
        reach: match choice {
            HostChoice::Local | HostChoice::Child => Box::new(move || Remote::child(&program)),
            HostChoice::Named(name) => {
                let access = named(&name, file)?.access;
                Box::new(move || Remote::reach(&access, &program))
            }
        },
    })
}
