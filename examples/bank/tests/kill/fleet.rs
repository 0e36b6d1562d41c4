//! All programs of a bank, which can be killed one by one.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

use kew_bank::chance::Chance;
use kew_bank::client::Client;
use kew_bank::settings::QueueSettings;
use kew_bank::start::{Plan, Profile, Program, find_kew};

use crate::server::Server;
use crate::url::url;

pub(crate) const WORKERS: u32 = 3;

/// Who can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Kew,
    Web,
    Worker,
    Postgres,
}

pub(crate) struct Fleet {
    plan: Plan,
    kew_address: SocketAddr,
    connection_string: String,
    kew: Option<Program>,
    web: Option<Program>,
    workers: Vec<Option<Program>>,
    postgres: Option<Server>,
}

/// An address that stays free while its server is dead: connections from this machine begin at another one, so none
/// takes the port meanwhile. Nothing listens there to find out, because a program that is being started would inherit
/// that for a moment.
pub(crate) fn address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 77, high, low.max(1));
    loop {
        let address = SocketAddr::from((host, NEXT.fetch_add(1, Ordering::Relaxed)));
        // Somebody may listen at this port of all addresses.
        if TcpStream::connect(address).is_err() {
            return address;
        }
    }
}

/// The folder with the programs of the bank.
pub(crate) fn programs() -> PathBuf {
    let web = Path::new(env!("CARGO_BIN_EXE_bank-web"));
    web.parent().unwrap().to_owned()
}

impl Fleet {
    pub(crate) async fn start(folder: &Path, profile: Profile, postgres: Option<Server>) -> Self {
        let programs = programs();
        let plan = Plan {
            kew: find_kew(&programs).unwrap(),
            programs,
            data: folder.join("kew"),
            profile,
            store: match &postgres {
                Some(server) => url(server, "postgres"),
                None => folder.join("bank.sqlite").to_str().unwrap().to_owned(),
            },
            listen: address(),
            // As short as each service allows, because a killed worker's messages come back after it.
            queue: QueueSettings {
                queue: "bank-transactions".to_owned(),
                worker_timeout_s: match profile {
                    Profile::Storage => 2,
                    Profile::Bus => 5,
                },
            },
            // Failing requests are the purpose of the test.
            log: Some("off"),
        };
        let kew_address = address();
        let kew = plan.kew(kew_address).await.unwrap();
        let mut fleet = Self {
            connection_string: kew.fact.clone(),
            kew: Some(kew),
            kew_address,
            web: None,
            workers: Vec::new(),
            postgres,
            plan,
        };
        fleet.web = Some(fleet.start_web().await);
        for instance in 0..WORKERS {
            let worker = fleet.start_worker(instance).await;
            fleet.workers.push(Some(worker));
        }
        fleet
    }

    pub(crate) fn connection_string(&self) -> &str {
        &self.connection_string
    }

    pub(crate) fn store(&self) -> &str {
        &self.plan.store
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.plan.listen)).unwrap()
    }

    pub(crate) fn victims(&self) -> Vec<Victim> {
        let mut victims = vec![Victim::Kew, Victim::Web, Victim::Worker];
        victims.extend(self.postgres.as_ref().map(|_| Victim::Postgres));
        victims
    }

    async fn start_web(&self) -> Program {
        self.plan.web(&self.connection_string).await.unwrap()
    }

    async fn start_worker(&self, instance: u32) -> Program {
        let started = self.plan.worker(instance, &self.connection_string);
        started.await.unwrap()
    }

    /// Kills one, and starts it again.
    pub(crate) async fn kill(&mut self, victim: Victim, chance: &mut Chance) {
        match victim {
            Victim::Kew => {
                self.kew.take().unwrap().kill().await.unwrap();
                let kew = self.plan.kew(self.kew_address).await.unwrap();
                assert_eq!(kew.fact, self.connection_string);
                self.kew = Some(kew);
            }
            Victim::Web => {
                self.web.take().unwrap().kill().await.unwrap();
                self.web = Some(self.start_web().await);
            }
            Victim::Worker => {
                let instance = u32::try_from(chance.below(WORKERS.into())).unwrap();
                let place = instance as usize;
                self.workers[place].take().unwrap().kill().await.unwrap();
                self.workers[place] = Some(self.start_worker(instance).await);
            }
            Victim::Postgres => {
                let server = self.postgres.as_mut().unwrap();
                server.crash();
                server.restart().await;
            }
        }
    }

    /// Stops all in order. Each must end well, in time.
    pub(crate) async fn stop(mut self) {
        let mut programs = vec![self.web.take()];
        programs.append(&mut self.workers);
        programs.push(self.kew.take());
        for program in programs.into_iter().flatten() {
            let name = program.name().to_owned();
            let status = program.stop().await.unwrap();
            assert!(status.success(), "{name}: {status}");
        }
    }
}
