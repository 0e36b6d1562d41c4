//! Starts Kew, the web service and the workers, and stops them together.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::settings::QueueSettings;

/// How long a program may take to be ready, or to end after a request to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which service of Kew has the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Queue Storage.
    Storage,
    /// Service Bus.
    Bus,
}

impl Profile {
    /// The name of the connection string that Kew prints.
    fn fact(self) -> &'static str {
        match self {
            Self::Storage => "KEW_QUEUE_CONNECTION_STRING",
            Self::Bus => "KEW_BUS_CONNECTION_STRING",
        }
    }
}

/// A program that was started. Dropping it kills it.
#[derive(Debug)]
pub struct Program {
    child: Child,
    name: String,
    /// The value of the fact that was waited for.
    pub fact: String,
}

impl Program {
    /// Starts a program and waits until it prints `fact=value`, and `ready` if that is another one.
    pub async fn start(
        name: &str,
        mut command: Command,
        fact: &str,
        ready: Option<&str>,
    ) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C reaches only `bank start`, which stops its programs in order: Kew last.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut found = None;
        let reading = async {
            while let Some(line) = lines.next_line().await? {
                let (is, value) = line.split_once('=').unwrap_or((&line, ""));
                if is == fact {
                    found = Some(value.trim_matches('\'').to_owned());
                }
                if is == ready.unwrap_or(fact) {
                    return Ok(());
                }
            }
            Err(io::Error::from(io::ErrorKind::UnexpectedEof))
        };
        let read = timeout(PATIENCE, reading).await;
        let read = read.with_context(|| format!("{name} was not ready in {PATIENCE:?}"))?;
        if read.is_err() {
            let status = child.wait().await?;
            bail!("{name} ended before it was ready: {status}");
        }
        // Read to the end, so that the program never waits for its reader.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self {
            child,
            name: name.to_owned(),
            fact: found.with_context(|| format!("{name} printed no {fact}"))?,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until it ends.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills it, as a crash would, and waits for its end.
    pub async fn kill(mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Asks it to stop, and waits for its end.
    pub async fn stop(mut self) -> Result<ExitStatus> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // It may have ended by itself: a terminal sends its signal to all.
            let _ = kill_process(pid, Signal::TERM);
        }
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let name = &self.name;
        Ok(ended.with_context(|| format!("{name} did not end in {PATIENCE:?}"))??)
    }
}

/// How the programs of a bank are started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kew itself.
    pub kew: PathBuf,
    /// The folder with `bank-web` and `bank-worker`.
    pub programs: PathBuf,
    /// Where Kew keeps its data.
    pub data: PathBuf,
    /// Which service has the queue.
    pub profile: Profile,
    /// The stores.
    pub store: String,
    /// Where the web service listens.
    pub listen: SocketAddr,
    /// The queue.
    pub queue: QueueSettings,
    /// What all programs log. `None`: what the environment says.
    pub log: Option<&'static str>,
}

impl Plan {
    /// Starts Kew. Its fact is the connection string of the profile.
    pub async fn kew(&self, listen: SocketAddr) -> Result<Program> {
        let mut command = Command::new(&self.kew);
        // Settings of another Kew on this machine.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KEW_") {
                command.env_remove(name);
            }
        }
        command.arg("serve").arg("--data-dir").arg(&self.data);
        let address = listen.to_string();
        match self.profile {
            Profile::Storage => command.args(["--queue-listen", &address]),
            Profile::Bus => {
                let unused = SocketAddr::new(listen.ip(), 0).to_string();
                command.args(["--queue-listen", &unused, "--bus-listen", &address])
            }
        };
        command.env("KEW_LOG", self.log.unwrap_or("warn"));
        Program::start("kew", command, self.profile.fact(), Some("KEW_READY")).await
    }

    /// Starts the web service. Its fact is its address.
    pub async fn web(&self, connection_string: &str) -> Result<Program> {
        let mut command = self.of_the_bank("bank-web", connection_string);
        command.args(["--listen", &self.listen.to_string()]);
        Program::start("bank-web", command, "BANK_WEB", None).await
    }

    /// Starts a worker.
    pub async fn worker(&self, instance: u32, connection_string: &str) -> Result<Program> {
        let name = format!("worker-{instance}");
        let mut command = self.of_the_bank("bank-worker", connection_string);
        command.args(["--instance", &name]);
        Program::start(&name, command, "BANK_WORKER", None).await
    }

    fn of_the_bank(&self, program: &str, connection_string: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        // Not as arguments, which everybody on the machine can read.
        command.env("BANK_QUEUE_SERVICE", connection_string);
        command.env("BANK_STORE", &self.store);
        if let Some(log) = self.log {
            command.env("RUST_LOG", log);
        }
        let QueueSettings {
            queue,
            worker_timeout_s,
        } = &self.queue;
        command.args(["--queue", queue]);
        command.args(["--worker-timeout-s", &worker_timeout_s.to_string()]);
        command
    }
}

/// Finds Kew: the environment variable `KEW_BINARY`, or beside the programs of the bank.
pub fn find_kew(programs: &Path) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("KEW_BINARY") {
        return Ok(path.into());
    }
    let beside = programs.join("kew");
    if !beside.is_file() {
        bail!(
            "{} does not exist: build it with cargo build -p kew, or set KEW_BINARY",
            beside.display()
        );
    }
    Ok(beside)
}

#[cfg(test)]
mod tests {
    use rustix::process::getpgrp;

    use super::*;

    #[test]
    fn every_program_gets_the_settings_of_the_plan() {
        let plan = Plan {
            kew: "kew".into(),
            programs: "programs".into(),
            data: "data".into(),
            profile: Profile::Storage,
            store: "stores".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            queue: QueueSettings {
                queue: "other".to_owned(),
                worker_timeout_s: 7,
            },
            log: None,
        };
        let command = plan.of_the_bank("bank-worker", "UseDevelopmentStorage=true");
        let command = command.as_std();
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(arguments, ["--queue", "other", "--worker-timeout-s", "7"]);
        let store = command.get_envs().find(|(name, _)| *name == "BANK_STORE");
        assert_eq!(store.and_then(|(_, value)| value), Some("stores".as_ref()));
    }

    #[tokio::test]
    async fn a_signal_of_the_terminal_does_not_reach_a_program() {
        let mut command = Command::new("sh");
        // PID (NAME) STATE PARENT GROUP …
        let script = "read -r _ _ _ _ group _ </proc/$$/stat; echo GROUP=$group; exec sleep 60";
        command.args(["-c", script]);
        let program = Program::start("sh", command, "GROUP", None).await.unwrap();
        let group: i32 = program.fact.parse().unwrap();
        assert_ne!(Pid::from_raw(group), Some(getpgrp()));
        program.kill().await.unwrap();
    }
}
