//! What an agent does on its node.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};
use rig_sys::cpu::CpuSet;
use rig_sys::netlink::Netlink;
use rig_sys::netns::{NetNs, NsFile};
use rig_sys::process::{die_with_parent, in_namespace};

/// The inside of a node, for whoever works there: an agent opens no namespace by itself.
#[derive(Debug)]
pub struct NodeAccess {
    name: String,
    ns: NetNs,
    /// For what does not carry packets; empty where there are no others than the nodes'.
    control: CpuSet,
}

impl NodeAccess {
    pub(super) fn new(name: &str, ns: &NetNs, control: &CpuSet) -> Result<Self> {
        Ok(Self { name: name.to_owned(), ns: ns.try_clone()?, control: control.clone() })
    }

    /// Of its own, which may outlive the testbed's by the time that an agent takes to end.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn try_clone(&self) -> Result<Self> {
        Self::new(&self.name, &self.ns, &self.control)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs something short there.
    ///
    /// # Errors
    /// When the node cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(self.ns.run(work)?)
    }

    /// Starts a thread there, on CPUs that no node owns where there are such. It is there when this returns.
    ///
    /// # Errors
    /// When the thread cannot be started or cannot enter the node.
    pub fn thread(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        let (ns, control) = (self.ns.try_clone()?, self.control.clone());
        let (say, said) = mpsc::channel();
        let inside = move || {
            let entered = ns.enter().and_then(|()| control.apply());
            let goes_on = entered.is_ok();
            if say.send(entered).is_ok() && goes_on {
                body();
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(inside).context("start a thread")?;
        said.recv().context("hear from a thread")??;
        Ok(thread)
    }

    /// Starts a program there, which ends with the thread that calls this.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, command: &mut Command) -> std::io::Result<Child> {
        in_namespace(die_with_parent(command), &self.ns).spawn()
    }

    /// What a program prints there, given `input`.
    ///
    /// # Errors
    /// When it does not succeed, with what it said on standard error.
    pub fn output(&self, program: &str, arguments: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.spawn(&mut command).with_context(|| format!("run {program}"))?;
        let mut stdin = child.stdin.take().context("speak to a child")?;
        // Whoever does not read all of it says why on standard error.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().with_context(|| format!("hear from {program}"))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            bail!("{program} ended with {}: {}", output.status, why.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Sets parameters of the kernel there, by name and value.
    ///
    /// # Errors
    /// Names the first that is refused.
    pub fn set_sysctls(&self, settings: &[(&str, &str)]) -> Result<()> {
        Ok(self.ns.sysctls(settings)?)
    }

    /// A parameter of the kernel there.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn sysctl(&self, name: &str) -> Result<String> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let read = self.run(|| std::fs::read_to_string(&path))?;
        Ok(read.with_context(|| format!("read {name}"))?.trim().to_owned())
    }

    /// A file of /proc/net there, to be read again and again.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn proc_net(&self, name: &'static str) -> Result<NsFile> {
        Ok(self.run(|| NsFile::here(name))??)
    }

    /// The kernel's interfaces, addresses and routes there.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn netlink(&self) -> Result<Netlink> {
        Ok(Netlink::open(&self.ns)?)
    }
}
