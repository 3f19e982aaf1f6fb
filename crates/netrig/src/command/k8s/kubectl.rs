//! kubectl(1), with the user's configuration: whatever signs the user in is its matter.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rig_sys::process::{die_with_parent, in_own_group};

use super::super::remote_server::last_line;

/// Longest time for one request to the API server.
const REQUEST_TIMEOUT: &str = "--request-timeout=30s";

#[derive(Debug, Clone)]
pub struct Kubectl {
    context: Option<String>,
    namespace: Option<String>,
}

impl Kubectl {
    pub fn new(context: Option<&str>, namespace: Option<&str>) -> Self {
        Self { context: context.map(str::to_owned), namespace: namespace.map(str::to_owned) }
    }

    /// The same in this namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    /// A command line, without what is asked.
    pub fn words(&self) -> Vec<String> {
        let context = self.context.iter().map(|context| format!("--context={context}"));
        let namespace = self.namespace.iter().map(|namespace| format!("--namespace={namespace}"));
        ["kubectl".to_owned()].into_iter().chain(context).chain(namespace).collect()
    }

    /// What it prints.
    ///
    /// # Errors
    /// Its own words, where it fails, and where there is none.
    pub fn ask(&self, arguments: &[&str]) -> Result<String> {
        self.tell(arguments, "")
    }

    /// The same with this on its standard input.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn tell(&self, arguments: &[&str], input: &str) -> Result<String> {
        let answer = self.try_out(arguments, input)?;
        if !answer.is_success {
            let what = arguments.iter().take_while(|word| !word.starts_with('-')).copied().collect::<Vec<_>>();
            bail!("kubectl {}: {}", what.join(" "), answer.why);
        }
        Ok(answer.said)
    }

    /// What came of it, whatever it is.
    ///
    /// # Errors
    /// Where there is no kubectl.
    pub fn try_out(&self, arguments: &[&str], input: &str) -> Result<Answer> {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        // Ctrl-C on a terminal is for netrig, which then deletes what it made.
        let command = die_with_parent(in_own_group(&mut command));
        command.args(&words[1..]).arg(REQUEST_TIMEOUT).args(arguments);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| {
            let is_missing = error.kind() == ErrorKind::NotFound;
            let hint = "install it, and have it reach the cluster (kubectl get pods)";
            let error = anyhow::Error::from(error);
            if is_missing {
                error.context(format!("there is no kubectl here: {hint}"))
            } else {
                error.context("start kubectl")
            }
        })?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that failed before it has read all says why.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().context("wait for kubectl")?;
        let words = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = words
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("Error") || line.starts_with("error"))
            .collect();
        let why = match (errors.is_empty(), last_line(&output.stderr)) {
            (false, _) => errors.join("; "),
            (true, Some(line)) => line.to_owned(),
            (true, None) => output.status.to_string(),
        };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Answer { is_success: output.status.success(), said, why })
    }
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub is_success: bool,
    pub said: String,
    /// What it says of its failure.
    pub why: String,
}
