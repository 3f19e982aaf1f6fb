//! Netrig at work on a node for a datapath: started through the node's host, and asked in lines.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use rig_lines::{Client, Protocol};
use rig_sys::piped::PipedProcess;

use crate::host::{Host, Program};
use crate::process_client::{Output, ProcessClient, StderrTail};

/// A process on a node, asked over its standard streams.
#[derive(Debug)]
pub(super) struct NodeProcess {
    datapath: &'static str,
    node: String,
    pub(super) client: ProcessClient<Output, Box<dyn Write + Send>>,
}

impl NodeProcess {
    /// Starts netrig with these arguments on a node, and greets it without waiting for it. Each answer may take as long as `answer_timeout`, and
    /// longer while the process works.
    ///
    /// # Errors
    /// When it cannot be started; [`LostPeer`](rig_lines::LostPeer) when it, or the host, cannot be spoken to.
    pub(super) fn start(
        host: &dyn Host,
        datapath: &'static str,
        node: &str,
        arguments: &[&str],
        protocol: &Protocol,
        answer_timeout: Duration,
    ) -> Result<Self> {
        let name = format!("{datapath} on {node}");
        let started = host.start(node, &Program::netrig(arguments));
        let PipedProcess { stdin, stdout, stderr, life } = started.with_context(|| format!("start {name}"))?;
        let stderr = StderrTail::of(stderr).context("start a thread")?;
        let stdout = Output::new(stdout, life.pid(), answer_timeout);
        let open = || Client::open(stdout, stdin, protocol, env!("CARGO_PKG_VERSION"));
        Ok(Self { datapath, node: node.to_owned(), client: ProcessClient::open(name, life, Some(stderr), open)? })
    }

    /// The name of the datapath.
    pub(super) fn datapath(&self) -> &'static str {
        self.datapath
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }
}
