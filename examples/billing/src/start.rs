//! Starts programs, and stops them together.

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

use crate::place::TOPIC;

/// How long a program may take to be ready, or to end after a request to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that was started. Dropping it kills it.
#[derive(Debug)]
pub struct Program {
    child: Child,
    name: String,
    /// The lines `name=value` that it printed until it was ready.
    facts: Vec<(String, String)>,
}

impl Program {
    /// Starts a program and waits until it prints a line that begins with `ready`.
    pub async fn start(name: &str, mut command: Command, ready: &str) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C reaches only the program that started it, which stops all in order.
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn();
        let mut child = child.with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut facts = Vec::new();
        let reading = async {
            while let Some(line) = lines.next_line().await? {
                if let Some((fact, value)) = line.split_once('=') {
                    facts.push((fact.to_owned(), value.trim_matches('\'').to_owned()));
                }
                if line.starts_with(ready) {
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
            facts,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its PID, until its end was noticed.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it printed before it was ready.
    pub fn fact(&self, name: &str) -> Result<&str> {
        let found = self.facts.iter().find(|(is, _)| is == name);
        let found = found.with_context(|| format!("{} printed no {name}", self.name))?;
        Ok(&found.1)
    }

    /// Waits until it ends. To drop the future loses nothing.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills it, as a crash would, and waits for its end. It must not have ended by itself.
    pub async fn kill(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} has ended by itself: {status}", self.name);
        }
        Ok(self.child.kill().await?)
    }

    /// Asks it to stop, and waits for its end.
    pub async fn stop(mut self) -> Result<ExitStatus> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let name = &self.name;
        Ok(ended.with_context(|| format!("{name} did not end in {PATIENCE:?}"))??)
    }
}

/// How the programs of a billing system are started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kew itself.
    pub kew: PathBuf,
    /// The folder with the programs.
    pub programs: PathBuf,
    /// The folder for data.
    pub data: PathBuf,
    /// Where Kew listens: Queue Storage, and Service Bus.
    pub listen: [SocketAddr; 2],
    /// Seconds that a program may have a message.
    pub timeout_s: u32,
    /// Milliseconds that an item takes beside its computation.
    pub pause_ms: u64,
    /// Seconds between two looks of the agent. Announcements cause others at once.
    pub look_every_s: u32,
    /// Seconds without work until the last worker stops.
    pub idle_after_s: u32,
    /// Bytes after compression that a message has itself.
    pub inline_bytes: usize,
    /// Ports for the metrics of workers, such as 23400-23499: at least as many as there are workers.
    pub ports: String,
    /// What all programs log. `None`: what the environment says.
    pub log: Option<&'static str>,
}

/// The connection strings of Kew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Services {
    /// Queue Storage.
    pub storage: String,
    /// Service Bus.
    pub bus: String,
}

impl Plan {
    /// Where Kew serves Queue Storage, once that is known.
    pub fn queue_storage(&self) -> SocketAddr {
        let [queue, _] = self.listen;
        queue
    }

    /// Starts Kew.
    pub async fn kew(&self) -> Result<(Program, Services)> {
        let mut command = Command::new(&self.kew);
        // Settings of another Kew on this machine.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KEW_") {
                command.env_remove(name);
            }
        }
        let [queue, bus] = self.listen.map(|it| it.to_string());
        command.args(["serve", "--queue-listen", &queue, "--bus-listen", &bus]);
        command.arg("--data-dir").arg(self.data.join("kew"));
        command.env("KEW_LOG", self.log.unwrap_or("warn,audit=off"));
        let kew = Program::start("kew", command, "KEW_READY").await?;
        let services = Services {
            storage: kew.fact("KEW_QUEUE_CONNECTION_STRING")?.to_owned(),
            bus: kew.fact("KEW_BUS_CONNECTION_STRING")?.to_owned(),
        };
        Ok((kew, services))
    }

    /// A program of the billing system with its settings, such as `billing-worker`.
    pub fn program(&self, program: &str, services: &Services) -> Command {
        let mut command = Command::new(self.programs.join(program));
        // Not as arguments, which every user of the machine can read.
        command.env("BILLING_STORAGE", &services.storage);
        command.env("BILLING_BUS", &services.bus);
        command.env("BILLING_DATA", &self.data);
        command.env("BILLING_TIMEOUT_S", self.timeout_s.to_string());
        command.env("BILLING_PAUSE_MS", self.pause_ms.to_string());
        command.env("BILLING_INLINE_BYTES", self.inline_bytes.to_string());
        if let Some(log) = self.log {
            command.env("RUST_LOG", log);
        }
        command
    }

    /// Starts an initiator, a worker or a controller, and waits until it runs.
    pub async fn start(&self, program: &str, services: &Services) -> Result<Program> {
        let command = self.program(program, services);
        Program::start(program, command, "BILLING_PROGRAM=").await
    }

    /// Starts the scaling agent, which starts the workers.
    pub async fn agent(&self, services: &Services, maximum: u32, tasks: u32) -> Result<Program> {
        let file = self.data.join("scale.toml");
        std::fs::write(&file, self.scale_file(maximum, tasks)?)?;
        // Its workers inherit their settings from it.
        let mut command = self.program("billing-worker", services);
        let environment: Vec<_> = command
            .as_std()
            .get_envs()
            .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
            .collect();
        command = Command::new("sh");
        for (name, value) in environment {
            command.env(name, value.unwrap_or_default());
        }
        // The agent prints nothing when it is ready, so this line stands for that.
        command.args(["-c", r#"echo AGENT=starts; exec "$0" scale run "$1""#]);
        command.arg(&self.kew).arg(&file);
        Program::start("agent", command, "AGENT=").await
    }

    /// Stops the workers of an agent that has ended.
    pub async fn stop_workers(&self, services: &Services) -> Result<()> {
        let mut command = Command::new(&self.kew);
        command.env("BILLING_STORAGE", &services.storage);
        command
            .args(["scale", "stop"])
            .arg(self.data.join("scale.toml"));
        let status = command.stdin(Stdio::null()).status().await?;
        if !status.success() {
            bail!("kew scale stop failed: {status}");
        }
        Ok(())
    }

    fn scale_file(&self, maximum: u32, tasks: u32) -> Result<String> {
        let worker = self.programs.canonicalize()?.join("billing-worker");
        let state = self.data.canonicalize()?.join("scale");
        // JSON writes a text as TOML reads it.
        let (every, idle_after) = (self.look_every_s, self.idle_after_s);
        let ports = serde_json::to_string(&self.ports)?;
        let worker = serde_json::to_string(&worker)?;
        let state = serde_json::to_string(&state)?;
        Ok(format!(
            r#"[[group]]
name = "billing-worker"
goal = {{ age = "10s" }}
minimum = 0
maximum = {maximum}
every = "{every}s"
announcements = {{ connection_env = "BILLING_BUS", topic = "{TOPIC}" }}
start_delay = "2s"
cool_down = "10s"
idle_after = "{idle_after}s"
tasks_max = {tasks}

[[group.source]]
queue = "billing-items"
connection_env = "BILLING_STORAGE"

[group.target.process]
command = [{worker}, "--tasks", "{{tasks}}", "--metrics-port", "{{port}}"]
ports = {ports}
state_directory = {state}
stop_within = "15s"
"#
        ))
    }
}

/// The ports of workers, unless others are named.
pub const PORTS: &str = "23400-23499";

/// Finds Kew: the environment variable `KEW_BINARY`, or beside the programs.
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
