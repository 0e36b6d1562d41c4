//! All programs of a billing system, which can be killed one by one.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

use kew_billing::place::{Place, Settings};
use kew_billing::start::{Plan, Program, Services, find_kew};

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
        self.plan.agent(&self.services, 3, 8).await.unwrap()
    }

    /// The connections of the test itself.
    pub(crate) fn place(&self) -> Place {
        let settings = Settings {
            data: self.plan.data.clone(),
            storage: self.services.storage.clone(),
            bus: Some(self.services.bus.clone()),
            timeout_s: self.plan.timeout_s,
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

    /// Workers belong to the agent. Each says in a file who it is.
    fn kill_worker(&self, choice: u32) -> bool {
        let reports = kew_billing::program::reports(&self.plan.data);
        let mut workers = reports.iter().filter(|it| it["program"] == "worker");
        let count = workers.clone().count();
        if count == 0 {
            return false;
        }
        let chosen = workers
            .nth(usize::try_from(choice).unwrap() % count)
            .unwrap();
        let pid = i32::try_from(chosen["pid"].as_i64().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        // It may have been stopped since it wrote its file.
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok()
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
