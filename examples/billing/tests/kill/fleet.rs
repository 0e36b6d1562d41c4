//! All programs of a billing system, which can be killed one by one.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

use kew_billing::place::{Place, RECHECK_S, Settings};
use kew_billing::start::{Plan, Program, Services, find_kew};
use rustix::process::Pid;

/// Each of these can die.
pub(crate) const VICTIMS: [&str; 5] = [
    "kew",
    "billing-initiator",
    "billing-worker",
    "billing-controller",
    "agent",
];

/// Those that the fleet starts itself, and how many of each.
const STARTED: [(&str, usize); 2] = [("billing-initiator", 2), ("billing-controller", 2)];

pub(crate) struct Fleet {
    plan: Plan,
    services: Services,
    kew: Option<Program>,
    agent: Option<Program>,
    programs: Vec<(&'static str, Option<Program>)>,
}

/// Workers that the agent starts at most.
pub(crate) const WORKERS_MAX: u32 = 3;

/// Whether a process runs this program. One that has ended and was not reaped has no program any more.
fn runs(pid: i32, program: &Path) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|it| it == program)
}

/// An address that stays free while its server is dead: connections from this machine begin at another one, so none
/// takes the port meanwhile.
fn address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 78, high, low.max(1));
    loop {
        let address = SocketAddr::from((host, NEXT.fetch_add(1, Ordering::Relaxed)));
        if TcpStream::connect(address).is_err() {
            return address;
        }
    }
}

/// The folder with the programs.
pub(crate) fn programs() -> PathBuf {
    let billing = Path::new(env!("CARGO_BIN_EXE_billing"));
    billing.parent().unwrap().to_owned()
}

impl Fleet {
    pub(crate) async fn start(folder: &Path) -> Self {
        let plan = Plan {
            kew: find_kew(&programs()).unwrap().canonicalize().unwrap(),
            programs: programs(),
            data: folder.to_owned(),
            listen: [address(), address()],
            // The messages of a killed program come back after it.
            timeout_s: 2,
            // So that most kills hit work.
            pause_ms: 200,
            // Nothing announces that a worker was killed.
            look_every_s: 2,
            idle_after_s: 20,
            // Packages, items and results are objects, which must be there for as long as their messages.
            inline_bytes: 64,
            ports: "23510-23609".to_owned(),
            // Failing requests are the purpose of the test.
            log: Some("off"),
        };
        let (kew, services) = plan.kew().await.unwrap();
        let mut fleet = Self {
            kew: Some(kew),
            agent: None,
            programs: Vec::new(),
            services,
            plan,
        };
        for (name, count) in STARTED {
            for _ in 0..count {
                let program = fleet.plan.start(name, &fleet.services).await.unwrap();
                fleet.programs.push((name, Some(program)));
            }
        }
        fleet.agent = Some(fleet.start_agent().await);
        fleet
    }

    async fn start_agent(&self) -> Program {
        let started = self.plan.agent(&self.services, WORKERS_MAX, 8).await;
        started.unwrap()
    }

    /// The workers that run: those of the agent, and those that it has found again.
    pub(crate) fn workers(&self) -> Vec<Pid> {
        let program = self.plan.programs.canonicalize().unwrap();
        let program = program.join("billing-worker");
        let reports = kew_billing::program::reports(&self.plan.data);
        let workers = reports.iter().filter(|it| it["program"] == "worker");
        let pids = workers.filter_map(|it| i32::try_from(it["pid"].as_i64()?).ok());
        pids.filter(|pid| runs(*pid, &program))
            .filter_map(Pid::from_raw)
            .collect()
    }

    /// The connections of the test itself.
    pub(crate) fn place(&self) -> Place {
        let settings = Settings {
            data: self.plan.data.clone(),
            storage: self.services.storage.clone(),
            bus: Some(self.services.bus.clone()),
            timeout_s: self.plan.timeout_s,
            inline_bytes: self.plan.inline_bytes,
            recheck_s: RECHECK_S,
        };
        settings.place().unwrap()
    }

    /// A program of the customer.
    pub(crate) fn customer(&self, arguments: &[&str]) -> tokio::process::Command {
        let mut command = self.plan.program("billing", &self.services);
        command.args(arguments).kill_on_drop(true);
        command
    }

    /// Kills one and starts it again; of a worker, the agent does that. Returns whether there was one.
    pub(crate) async fn kill(&mut self, victim: &str, choice: u32) -> bool {
        match victim {
            "kew" => {
                self.kew.take().unwrap().kill().await.unwrap();
                let (kew, services) = self.plan.kew().await.unwrap();
                assert_eq!(services, self.services);
                self.kew = Some(kew);
                true
            }
            "agent" => {
                self.agent.take().unwrap().kill().await.unwrap();
                self.agent = Some(self.start_agent().await);
                true
            }
            "billing-worker" => self.kill_worker(choice),
            name => {
                let (plan, services) = (&self.plan, &self.services);
                let mut of_name = self.programs.iter_mut().filter(|(is, _)| *is == name);
                let (_, program) = of_name.nth(usize::from(choice % 2 == 1)).unwrap();
                program.take().unwrap().kill().await.unwrap();
                *program = Some(plan.start(name, services).await.unwrap());
                true
            }
        }
    }

    /// Workers belong to the agent. Returns whether one ran, and was killed.
    fn kill_worker(&self, choice: u32) -> bool {
        let workers = self.workers();
        let index = usize::try_from(choice).unwrap() % workers.len().max(1);
        let Some(pid) = workers.get(index) else {
            return false;
        };
        // It may have been stopped meanwhile: then it was not killed.
        let killed = rustix::process::kill_process(*pid, rustix::process::Signal::KILL);
        killed.is_ok()
    }

    /// Stops all in order. Each must end well, in time.
    pub(crate) async fn stop(mut self) {
        let agent = self.agent.take().unwrap();
        assert!(agent.stop().await.unwrap().success());
        self.plan.stop_workers(&self.services).await.unwrap();
        let programs = self.programs.drain(..).filter_map(|(_, program)| program);
        for program in programs.chain(self.kew.take()) {
            let name = program.name().to_owned();
            let status = program.stop().await.unwrap();
            assert!(status.success(), "{name}: {status}");
        }
    }
}

impl Drop for Fleet {
    /// Also after a failure, no worker of the agent stays.
    fn drop(&mut self) {
        if self.kew.is_none() {
            return;
        }
        drop(self.agent.take());
        let mut stop = std::process::Command::new(&self.plan.kew);
        stop.env("BILLING_STORAGE", &self.services.storage);
        stop.args(["scale", "stop"])
            .arg(self.plan.data.join("scale.toml"));
        // There is nothing to do about a failure.
        let _ = stop.status();
    }
}
