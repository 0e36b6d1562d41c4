//! Two programs: one prints the number of instances, the other changes it.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use kew_scaling::Instances;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::number::{number, shown};
use super::{ActError, Ages, Happened, Target};
use crate::config;

/// What a program may print on standard output, in bytes. Of its errors, so many are kept.
const OUTPUT_MAX: usize = 4 << 10;
/// The variable with the number.
const NUMBER_VARIABLE: &str = config::Own::Instances.name();

/// Counts and changes instances with programs. Each is waited for, within a bounded time.
#[derive(Debug)]
pub struct CommandTarget {
    config: config::Command,
    ages: Ages,
}

impl CommandTarget {
    /// Starts nothing yet.
    #[must_use]
    pub fn new(group: &config::Group, config: &config::Command) -> Self {
        Self {
            config: config.clone(),
            ages: Ages::new(group.law.start_delay),
        }
    }

    /// Runs a program to its end.
    async fn run(&self, program: &[String], number: Option<u32>) -> Result<String, String> {
        let mut parts = program.iter();
        let mut command = Command::new(parts.next().map_or("", String::as_str));
        let number = number.map(|it| it.to_string());
        let environment = &self.config.environment;
        environment.give(command.as_std_mut(), number.as_deref());
        command.args(parts);
        run(command, self.config.timeout).await
    }

    async fn count(&self) -> Result<u32, String> {
        let output = self.run(&self.config.count, None).await?;
        number(&output).map_err(|what| format!("it has printed {what}"))
    }
}

#[async_trait]
impl Target for CommandTarget {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        let counted = self.count().await;
        let counted = counted.map_err(|what| {
            let program = program_of(&self.config.count);
            ActError::elsewhere(&self.config.places.0, format!("count ({program}): {what}"))
        });
        counted.map(|it| self.ages.see(it))
    }

    async fn set(&mut self, count: u32) -> Vec<Happened> {
        let done = self.run(&self.config.set, Some(count)).await;
        vec![match done {
            Ok(_) => Happened::Set(count),
            Err(what) => {
                let program = program_of(&self.config.set);
                let what = format!("set ({program}) with {NUMBER_VARIABLE}={count}: {what}");
                Happened::Failed(ActError::elsewhere(&self.config.places.1, what))
            }
        }]
    }
}

fn program_of(command: &[String]) -> String {
    shown(command.first().map_or("", String::as_str))
}

/// Runs a program to its end, and returns what it printed. If it takes too long or prints too much, its process group is
/// killed.
async fn run(mut command: Command, within: Duration) -> Result<String, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C at the agent's terminal is not for it.
        .process_group(0);
    let child = command.spawn();
    let mut group = Group::of(child.map_err(|error| format!("it cannot be started: {error}"))?);
    let (status, output, errors) = match timeout(within, finish(&mut group.child)).await {
        Ok(finished) => finished?,
        Err(_) => {
            return Err(format!(
                "it has not ended within {} s",
                within.as_secs_f64()
            ));
        }
    };
    match status.success() {
        true => Ok(output),
        false if errors.trim().is_empty() => Err(format!("it has failed with {status}")),
        false => Err(format!("it has failed with {status}: {}", shown(&errors))),
    }
}

/// What a program printed, and how it ended. It is waited for last: until then nothing else gets its process id.
async fn finish(child: &mut Child) -> Result<(ExitStatus, String, String), String> {
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let unreadable = |error: std::io::Error| format!("its output cannot be read: {error}");
    let read_output = async {
        let kept = beginning(output, OUTPUT_MAX + 1)
            .await
            .map_err(unreadable)?
            .0;
        match kept.len() > OUTPUT_MAX {
            true => Err(format!("it has printed more than {OUTPUT_MAX} bytes")),
            false => Ok(kept),
        }
    };
    let read_errors = async {
        let (kept, rest) = beginning(errors, OUTPUT_MAX).await.map_err(unreadable)?;
        if let Some(mut rest) = rest {
            let read = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
            read.map_err(unreadable)?;
        }
        Ok(kept)
    };
    let (output, errors) = tokio::try_join!(read_output, read_errors)?;
    let ended = child.wait().await;
    let status = ended.map_err(|error| format!("it cannot be waited for: {error}"))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((status, text(output), text(errors)))
}

/// Reads so many bytes, or to the end. Also returns what is left to read.
async fn beginning<T: AsyncRead + Unpin>(
    from: Option<T>,
    limit: usize,
) -> std::io::Result<(Vec<u8>, Option<T>)> {
    let mut kept = Vec::new();
    let Some(from) = from else {
        return Ok((kept, None));
    };
    let mut from = from.take(u64::try_from(limit).unwrap_or(u64::MAX));
    from.read_to_end(&mut kept).await?;
    Ok((kept, Some(from.into_inner())))
}

/// A program and what it has started. If it has not ended when this is dropped, all of them are killed.
struct Group {
    child: Child,
    leader: Option<Pid>,
}

impl Group {
    fn of(child: Child) -> Self {
        let pid = child.id().and_then(|it| i32::try_from(it).ok());
        let leader = pid.and_then(Pid::from_raw);
        Self { child, leader }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // One that was waited for has no id any more: another process can have it by now.
        if let (Some(leader), Some(_)) = (self.leader, self.child.id()) {
            // All of them can have ended meanwhile.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}
