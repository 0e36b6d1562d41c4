//! Power cuts of the shipped binary: unsynced data is lost after each kill.
//!
//! A plain kill proves little, because the page cache survives it. Here `preload/unsynced.c` is
//! between the server and the kernel: writes wait in the process until their file is synced, some
//! reach the disk early, in part and out of order, and names that were not synced are undone after
//! the kill. The binary is the shipped one. The rest is the kill loop.
//!
//! `KEW_POWER_CUTS` sets how many there are, and `KEW_BUS_POWER_CUTS` how many of a server that
//! serves both protocols at once. The seed decides which writes reach the disk, not when.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kew_client::PutOptions;

use crate::bus_load::BusLoad;
use crate::load::{self, Ending, Load, Random, Style, from_environment, stop_in_order};
use crate::preload;
use crate::server::{Server, show};

const CUTS_DEFAULT: u64 = 20;
const BUS_CUTS_DEFAULT: u64 = 5;

/// Once in so many rounds the power fails again during the recovery.
const ROUNDS_TO_A_CUT_START: u64 = 3;

/// A directory on a disk that loses unsynced data.
pub(crate) struct Disk {
    pub(crate) place: tempfile::TempDir,
    library: PathBuf,
    undone: u64,
}

impl Disk {
    /// `None` if this machine cannot build the library.
    pub(crate) fn new() -> Option<Self> {
        let place = tempfile::tempdir().expect("a temporary directory");
        let library = preload::build("unsynced", place.path())?;
        fs::create_dir(place.path().join("trash")).expect("writable");
        Some(Self {
            place,
            library,
            undone: 0,
        })
    }

    fn journal(&self) -> PathBuf {
        self.place.path().join("journal")
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.place.path().join("data")
    }

    fn arrange(&self, command: &mut Command, seed: u64) {
        command.arg("serve").arg("--data-dir").arg(self.data_dir());
        command.args(["--queue-listen", "127.0.0.1:0"]);
        self.put_under(command, seed);
    }

    /// Puts the disk under a command.
    pub(crate) fn put_under(&self, command: &mut Command, seed: u64) {
        command.env("LD_PRELOAD", &self.library);
        command.env("UNSYNCED_UNDER", self.data_dir());
        command.env("UNSYNCED_JOURNAL", self.journal());
        command.env("UNSYNCED_TRASH", self.place.path().join("trash"));
        command.env("UNSYNCED_SEED", seed.to_string());
    }

    fn start(&self, seed: u64) -> Server {
        Server::start_with(|command| self.arrange(command, seed))
    }

    /// Cuts the power.
    fn cut(&mut self, server: Server, random: &mut Random) {
        server.kill();
        self.lose_names(random);
    }

    /// The process has ended: names return to their synced state, or part of the way.
    pub(crate) fn lose_names(&mut self, random: &mut Random) {
        let Ok(journal) = fs::read_to_string(self.journal()) else {
            // It ended during its first instructions.
            return;
        };
        // An incomplete line was not carried out.
        let whole = journal.rfind('\n').map_or("", |end| &journal[..end]);
        let mut pending: Vec<Name<'_>> = Vec::new();
        for line in whole.lines() {
            let name = Name::parse(line);
            match name {
                Name::Synced { directory } => pending.retain(|name| !name.is_in(directory)),
                _ => pending.push(name),
            }
        }
        let kept = match random.below(3) {
            0 => random.below(pending.len() as u64 + 1),
            _ => 0,
        };
        let kept = usize::try_from(kept).expect("an index");
        for name in pending.iter().skip(kept).rev() {
            name.undo();
            self.undone += 1;
        }
        fs::remove_file(self.journal()).expect("it was read");
    }
}

/// A line of the journal.
enum Name<'a> {
    Created {
        path: &'a Path,
    },
    /// `kept` is what had the new name before, or nothing.
    Renamed {
        from: &'a Path,
        to: &'a Path,
        kept: &'a Path,
    },
    Removed {
        path: &'a Path,
        kept: &'a Path,
    },
    Synced {
        directory: &'a Path,
    },
}

impl<'a> Name<'a> {
    fn parse(line: &'a str) -> Self {
        let parts: Vec<&str> = line.split('\t').collect();
        match parts[..] {
            ["created", path, ..] => Self::Created {
                path: Path::new(path),
            },
            ["renamed", from, to, kept] => Self::Renamed {
                from: Path::new(from),
                to: Path::new(to),
                kept: Path::new(kept),
            },
            ["removed", path, kept, _] => Self::Removed {
                path: Path::new(path),
                kept: Path::new(kept),
            },
            ["synced", directory, ..] => Self::Synced {
                directory: Path::new(directory),
            },
            _ => panic!("not a line of the journal: {line}"),
        }
    }

    fn is_in(&self, directory: &Path) -> bool {
        let path = match self {
            Self::Created { path } | Self::Removed { path, .. } => path,
            Self::Renamed { to, .. } => to,
            Self::Synced { .. } => return false,
        };
        path.parent() == Some(directory)
    }

    /// Undoes it, unless the kill came before it was carried out.
    fn undo(&self) {
        match self {
            Self::Created { path } if path.exists() => fs::remove_file(path),
            Self::Renamed { from, to, kept } if to.exists() && !from.exists() => {
                let back = fs::rename(to, from);
                match kept.exists() {
                    true => back.and_then(|()| fs::hard_link(kept, to)),
                    false => back,
                }
            }
            Self::Removed { path, kept } if kept.exists() && !path.exists() => {
                fs::hard_link(kept, path)
            }
            _ => Ok(()),
        }
        .expect("no other process uses it");
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_power_cuts() {
    let cuts = from_environment("KEW_POWER_CUTS").unwrap_or(CUTS_DEFAULT);
    let Some(disk) = Disk::new() else {
        return;
    };
    let seed = load::seed();
    load::run(power_cut_loop(disk, cuts, seed));
}

async fn power_cut_loop(mut disk: Disk, cuts: u64, seed: u64) {
    let mut load = Load::new(seed, &Style::default());
    let mut server = disk.start(seed);
    load.create_queues(&server).await;
    let (mut cut, mut round) = (0, 0);
    while cut < cuts {
        round += 1;
        load.begin(&server.account(), Ending::Unanswered);
        let count = 200 + load.random.below(2000);
        load.acknowledged(count).await;
        disk.cut(server, &mut load.random);
        load.server_is_gone().await;
        cut += 1;
        if round % ROUNDS_TO_A_CUT_START == 0 {
            let seed = load.random.next();
            let starting = Server::spawn(|command| disk.arrange(command, seed));
            // This is not a wait: the moment of the cut is what varies.
            std::thread::sleep(Duration::from_millis(load.random.below(100)));
            disk.cut(starting, &mut load.random);
            cut += 1;
        }
        server = disk.start(load.random.next());
        load.check(&server).await;
    }
    load.empty_at_last(&server).await;
    stop_in_order(server).await;
    show(&format!(
        "power_cuts={cut} rounds={round} names_undone={}",
        disk.undone
    ));
    load.show_report();
    load.ledger.assert_tried();
}

#[test]
fn nothing_acknowledged_in_either_protocol_is_lost_by_power_cuts() {
    let cuts = from_environment("KEW_BUS_POWER_CUTS").unwrap_or(BUS_CUTS_DEFAULT);
    let Some(disk) = Disk::new() else {
        return;
    };
    let seed = load::seed();
    load::run(cut_both(disk, cuts, seed));
}

async fn cut_both(mut disk: Disk, cuts: u64, seed: u64) {
    let config = BusLoad::write_config(disk.place.path());
    let start = |disk: &Disk, seed| {
        Server::start_with(|command| {
            disk.arrange(command, seed);
            command.args(BusLoad::arguments(&config));
        })
    };
    let mut load = Load::new(seed, &Style::default());
    let mut bus = BusLoad::new(seed);
    let mut server = start(&disk, seed);
    load.create_queues(&server).await;
    for _ in 0..cuts {
        load.begin(&server.account(), Ending::Unanswered);
        bus.begin(&server);
        let count = 100 + load.random.below(800);
        load.acknowledged(count).await;
        disk.cut(server, &mut load.random);
        load.server_is_gone().await;
        bus.server_is_gone().await;
        server = start(&disk, load.random.next());
        load.check(&server).await;
        bus.check(&server).await;
    }
    load.empty_at_last(&server).await;
    bus.empty_at_last(&server).await;
    stop_in_order(server).await;
    show(&format!("power_cuts_of_both={cuts}"));
    load.show_report();
    bus.show_report();
}

#[test]
fn a_disk_that_lies_about_syncs_is_detected() {
    let Some(mut disk) = Disk::new() else {
        return;
    };
    let mut random = Random::new(1);
    load::run(async {
        // On an honest disk the messages survive the cut.
        let server = disk.start(1);
        let client = server.queue_client();
        client.create_queue("honest", &[]).await.expect("created");
        for _ in 0..20 {
            let put = client.put("honest", "text", PutOptions::default()).await;
            put.expect("put");
        }
        disk.cut(server, &mut random);
        let lying = Server::start_with(|command| {
            disk.arrange(command, 2);
            command.env("UNSYNCED_LIES", "1");
        });
        let client = lying.queue_client();
        let honest = client.queue_properties("honest").await.expect("it exists");
        assert_eq!(honest.approximate_message_count, 20);

        // On a lying disk they do not: so the loop above would notice a missing sync.
        for _ in 0..20 {
            let put = client.put("honest", "text", PutOptions::default()).await;
            put.expect("put");
        }
        disk.cut(lying, &mut random);
        let again = Server::try_start_with(|command| disk.arrange(command, 3));
        if let Ok(server) = again {
            let honest = server.queue_client().queue_properties("honest").await;
            let count = honest.map_or(0, |honest| honest.approximate_message_count);
            assert!(count < 40, "the library dropped nothing");
        }
    });
}
