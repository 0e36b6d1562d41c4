//! Keeps all programs running: one that ends is started again, and all are stopped together.
//!
//! Nothing is lost when a program dies, so it may be started again at once. One that ends again and again is an error.

use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures_util::FutureExt as _;
use futures_util::future::select_all;
use tokio::time::{Instant, sleep};

use crate::program::print_line;
use crate::start::{Plan, Program, Services};

/// A program that ends within this time after its start has not worked.
const SOON: Duration = Duration::from_secs(10);

/// So often in a row a program may end soon.
const SOON_MAX: u32 = 5;

/// From a start that failed, or an end that came soon, to the next start.
const PAUSE: Duration = Duration::from_secs(1);

/// The programs that run, in the order of their starts.
#[derive(Debug)]
pub struct Supervisor {
    plan: Plan,
    services: Services,
    /// Worker instances at most, and tasks of each.
    workers: (u32, u32),
    programs: Vec<Watched>,
    /// How often Kew was started again.
    kew_restarts: u32,
}

#[derive(Debug)]
struct Watched {
    program: Program,
    started: Instant,
    /// How often in a row it has ended soon.
    ended_soon: u32,
}

impl Watched {
    fn new(program: Program) -> Self {
        let pid = program.pid().map_or("-".to_owned(), |it| it.to_string());
        print_line(&format!("{} runs with PID {pid}", program.name()));
        Self {
            program,
            started: Instant::now(),
            ended_soon: 0,
        }
    }
}

impl Supervisor {
    /// Starts Kew. It keeps its addresses when it is started again.
    pub async fn start(mut plan: Plan, instances: u32, tasks: u32) -> Result<Self> {
        let (kew, services) = plan.kew().await?;
        for (listen, fact) in plan
            .listen
            .iter_mut()
            .zip(["KEW_QUEUE_LISTEN", "KEW_BUS_LISTEN"])
        {
            *listen = kew.fact(fact)?.parse()?;
        }
        Ok(Self {
            plan,
            services,
            workers: (instances, tasks),
            programs: vec![Watched::new(kew)],
            kew_restarts: 0,
        })
    }

    /// How programs are started, with the addresses of Kew.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The connection strings of Kew.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Whether Kew was started again: its counters began again, too.
    pub fn has_restarted_kew(&self) -> bool {
        self.kew_restarts > 0
    }

    /// Starts a program beside those that run: `agent`, `billing-initiator` or `billing-controller`.
    pub async fn add(&mut self, name: &str) -> Result<()> {
        let program = self.begin(name).await?;
        self.programs.push(Watched::new(program));
        Ok(())
    }

    async fn begin(&self, name: &str) -> Result<Program> {
        let (instances, tasks) = self.workers;
        match name {
            "kew" => Ok(self.plan.kew().await?.0),
            "agent" => self.plan.agent(&self.services, instances, tasks).await,
            name => self.plan.start(name, &self.services).await,
        }
    }

    /// Starts those again that end. It returns when one ends again and again, and says which one. To drop the future
    /// loses nothing.
    pub async fn watch(&mut self) -> Result<()> {
        loop {
            let ended = self
                .programs
                .iter_mut()
                .map(|it| it.program.ended().boxed());
            let (status, index, _) = select_all(ended).await;
            self.restart(index, status?).await?;
        }
    }

    async fn restart(&mut self, index: usize, status: ExitStatus) -> Result<()> {
        let dead = self.programs.get(index).context("it was watched")?;
        let name = dead.program.name().to_owned();
        print_line(&format!(
            "{name} ended by itself: {status}; it is started again"
        ));
        let mut soon = match dead.started.elapsed() < SOON {
            true => dead.ended_soon + 1,
            false => 0,
        };
        let again = loop {
            if soon >= SOON_MAX {
                bail!("{name} ended {soon} times soon after its start, the last time: {status}");
            }
            if soon > 0 {
                sleep(PAUSE).await;
            }
            match self.begin(&name).await {
                Ok(program) => break program,
                Err(error) => print_line(&format!("{name} does not start: {error:#}")),
            }
            soon += 1;
        };
        self.kew_restarts += u32::from(name == "kew");
        let watched = self.programs.get_mut(index).context("it was watched")?;
        *watched = Watched {
            ended_soon: soon,
            ..Watched::new(again)
        };
        Ok(())
    }

    /// Stops all, in reverse: Kew last. The agent leaves its workers running, so they are stopped after it.
    pub async fn stop(mut self) -> Result<()> {
        while let Some(Watched { program, .. }) = self.programs.pop() {
            let name = program.name().to_owned();
            let status = program.stop().await?;
            print_line(&format!("{name} stopped: {status}"));
            if name == "agent" {
                self.plan.stop_workers(&self.services).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::process::Command;

    use super::*;
    use crate::start::Program;

    /// A supervisor whose programs are the same shell script, whatever their names are.
    async fn supervisor(folder: &std::path::Path, script: &str) -> Supervisor {
        use std::os::unix::fs::PermissionsExt as _;
        let path = folder.join("billing-initiator");
        std::fs::write(
            &path,
            format!("#!/bin/sh\necho BILLING_PROGRAM=x\n{script}"),
        )
        .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let plan = Plan {
            kew: path,
            programs: folder.to_owned(),
            data: folder.to_owned(),
            listen: [([127, 0, 0, 1], 0).into(); 2],
            timeout_s: 1,
            pause_ms: 0,
            look_every_s: 1,
            idle_after_s: 1,
            inline_bytes: 64,
            ports: String::new(),
            log: None,
        };
        let services = Services {
            storage: String::new(),
            bus: String::new(),
        };
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo READY; exec sleep 600"]);
        let kew = Program::start("kew", shell, "READY").await.unwrap();
        Supervisor {
            plan,
            services,
            workers: (1, 1),
            programs: vec![Watched::new(kew)],
            kew_restarts: 0,
        }
    }

    #[tokio::test]
    async fn a_program_that_ends_again_and_again_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        // A line for each start.
        let script = "echo started >> \"$(dirname \"$0\")/starts\"\nexit 3\n";
        let mut supervisor = supervisor(folder.path(), script).await;
        supervisor.add("billing-initiator").await.unwrap();
        let error = supervisor.watch().await.unwrap_err().to_string();
        let expected =
            "billing-initiator ended 5 times soon after its start, the last time: exit status: 3";
        assert_eq!(error, expected);
        let starts = std::fs::read_to_string(folder.path().join("starts")).unwrap();
        assert_eq!(starts.lines().count(), 5);
        assert!(!supervisor.has_restarted_kew());
    }
}
