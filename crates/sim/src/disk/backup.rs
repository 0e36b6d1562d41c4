//! Backups of a log: every call fails, and the power goes off in every call. Restores show what is there then.

use std::fmt::Write as _;

use kew_backup::{BackupError, Taken};
use kew_engine::Timestamp;
use kew_log::{Fault, FaultyStorage, Repeat, plan_backup};

use super::clients::Clients;
use super::contents::{Contents, after_power_cuts, faults_of, other};
use super::failure::{Failure, guard};
use super::host::Host;
use super::setting::{Setting, violation};
use super::step::Step;
use super::tape::Tape;
use crate::backups::{self, restored, unnoted};
use crate::checker::Violation;
use crate::random::Stream;
use crate::seam;

mod rot;

pub use rot::{BackupRotCounts, backup_rot_case, rot_backup};

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackupCounts {
    /// Calls that failed.
    pub failed_calls: u64,
    /// How many of these backups were refused.
    pub failed: u64,
    /// Disks after a power cut.
    pub disks: u64,
}

impl BackupCounts {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.failed_calls += other.failed_calls;
        self.failed += other.failed;
        self.disks += other.disks;
    }
}

/// The worlds whose backups are tried: of Queue Storage and with bus queues, and both without messages in memory.
pub const BACKED_UP: [Setting; 4] = {
    let [bus, .., bus_cold] = Setting::WITH_BUS;
    [Setting::RECYCLED, Setting::COLD, bus, bus_cold]
};

/// The name of a world, for running only that.
pub fn backup_case(setting: Setting) -> String {
    format!("backup/{}", setting.name)
}

/// Takes backups of a log under every fault, and restores them. One call in `one_in` meets so many of all kinds of faults,
/// and a power cut.
pub fn back_up(
    setting: Setting,
    seed: u64,
    faults_per_call: u64,
    one_in: u64,
) -> Result<BackupCounts, Box<Failure>> {
    guard(&backup_case(setting), seed, |place| {
        let world = World::prepare(setting, seed)?;
        world.check_clients(seed)?;
        let World { first, source, .. } = world;
        let (empty, earlier) = (FaultyStorage::new(), FaultyStorage::new());
        taken(&first, &earlier)?;
        let options = setting.options();
        let holds = [&first, &source].map(|disk| Contents::of(disk, options.clone()));
        let [at_first, in_the_end] = holds;
        let mut trial = Trial {
            setting,
            holds: [at_first?, in_the_end?],
            source,
            targets: [empty, earlier],
            random: Stream::new(seed, "backup"),
            counts: BackupCounts::default(),
            one_in,
            place,
        };
        trial.fail_calls(faults_per_call)?;
        trial.cut_power()?;
        Ok(trial.counts)
    })
}

/// A log at two times, and what its clients know in the end.
struct World {
    setting: Setting,
    first: FaultyStorage,
    source: FaultyStorage,
    clients: Clients,
    now: Timestamp,
}

impl World {
    fn prepare(setting: Setting, seed: u64) -> Result<Self, Violation> {
        let mut host = setting.prepare(seed)?;
        host.set(setting.plain());
        let first = host.tape().disk().kill();
        for step in [Step::Send, Step::SendDelayed, Step::Snapshot, Step::Send] {
            host.play(step)?;
        }
        if setting.has_bus {
            for step in BUS_STEPS {
                host.play(step)?;
            }
        }
        host.play(Step::Mark)?;
        host.carry_out_later()?;
        Ok(Self {
            setting,
            first,
            source: host.tape().disk().kill(),
            clients: host.known()?,
            now: host.now(),
        })
    }

    /// Clients find in a restored backup what they have left.
    fn check_clients(&self, seed: u64) -> Result<(), Violation> {
        let to = FaultyStorage::new();
        taken(&self.source, &to)?;
        let restored = restored(&to).map_err(|error| violation("a whole backup", &error))?;
        let (tape, clients) = (Tape::new(restored), self.clients.clone());
        let opened = Host::open(tape, self.setting.plain(), clients, self.now, seed);
        let mut host = opened.map_err(|not| violation("a restored backup", &not.error))?;
        host.drain()?;
        host.use_once()
    }
}

/// What bus queues have in the end, beside what they have at first: locks, dead letters, schedules and copies.
const BUS_STEPS: [Step; 10] = [
    Step::BusSend,
    Step::BusSendScheduled,
    Step::BusPublish,
    Step::BusReceive,
    Step::BusAbandon,
    Step::BusSession,
    Step::BusSession,
    Step::Snapshot,
    Step::BusSend,
    Step::BusPublish,
];

fn take(source: &FaultyStorage, to: &FaultyStorage) -> Result<Taken, BackupError> {
    let plan = plan_backup(&seam::Disk::new(source)).map_err(BackupError::Source)?;
    backups::take(source, &plan, to, &unnoted())
}

fn taken(source: &FaultyStorage, to: &FaultyStorage) -> Result<Taken, Violation> {
    take(source, to).map_err(|error| violation("a backup", &error))
}

struct Trial<'a> {
    setting: Setting,
    source: FaultyStorage,
    /// Of the earlier backup, and of the source.
    holds: [Contents; 2],
    /// Without a backup, and with the earlier one.
    targets: [FaultyStorage; 2],
    random: Stream,
    counts: BackupCounts,
    /// One call in so many is tried.
    one_in: u64,
    place: &'a mut String,
}

impl Trial<'_> {
    fn at(&mut self, place: impl std::fmt::Debug) {
        self.place.clear();
        let _ = write!(self.place, "{place:?}");
    }

    /// How many calls a backup makes of the source and of its target.
    fn calls(&self, target: &FaultyStorage) -> Result<[u64; 2], Violation> {
        let (source, to) = (self.source.kill(), target.kill());
        let before = [source.calls(), to.calls()];
        taken(&source, &to)?;
        Ok([source.calls() - before[0], to.calls() - before[1]])
    }

    /// The backup is restored with everything, also after a power cut.
    fn check(&mut self, target: &FaultyStorage) -> Result<(), Violation> {
        for after in after_power_cuts(target, &mut self.random) {
            let restored = restored(&after);
            let restored = restored.map_err(|error| violation("a whole backup", &error))?;
            let found = Contents::of(&restored, self.setting.options())?;
            found.check(&self.holds[1], self.place)?;
        }
        Ok(())
    }

    /// After an attempt that failed, the backup before is whole, or the new one is.
    fn check_unfinished(&self, index: usize, target: &FaultyStorage) -> Result<(), Violation> {
        let [earlier, all] = &self.holds;
        match restored(target) {
            Ok(restored) => {
                let found = Contents::of(&restored, self.setting.options())?;
                match found == *all || index == 1 && found == *earlier {
                    true => Ok(()),
                    false => Err(other("an unfinished backup holds something else")),
                }
            }
            Err(BackupError::Unfinished { .. }) if index == 0 => Ok(()),
            Err(error) => Err(violation("an unfinished backup", &error)),
        }
    }

    /// The next run continues, and makes it whole.
    fn check_next(&mut self, target: &FaultyStorage) -> Result<(), Violation> {
        taken(&self.source, target)?;
        self.check(target)
    }

    /// The calls to try of so many. Each is one of a few kinds in a row, so their number has no part in common with those.
    fn tried(&self, count: u64) -> impl Iterator<Item = u64> + use<> {
        let one_in = self.one_in;
        (0..count).filter(move |call| call.is_multiple_of(one_in))
    }

    fn fail_calls(&mut self, faults_per_call: u64) -> Result<(), Violation> {
        for index in 0..self.targets.len() {
            let counts = self.calls(&self.targets[index])?;
            for (disk, count) in counts.into_iter().enumerate() {
                for call in self.tried(count) {
                    for fault in faults_of(call, faults_per_call) {
                        self.at(("a failing call", index, disk, call, fault));
                        self.fail(index, disk, (call, fault))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn fail(&mut self, index: usize, disk: usize, at: (u64, Fault)) -> Result<(), Violation> {
        self.counts.failed_calls += 1;
        let (source, to) = (self.source.kill(), self.targets[index].kill());
        let failing = [&source, &to][disk];
        failing.fail_after(at.0, at.1, Repeat::Once);
        let taken = take(&source, &to);
        failing.clear_faults();
        if taken.is_ok() {
            return self.check(&to);
        }
        self.counts.failed += 1;
        self.check_unfinished(index, &to)?;
        self.check_next(&to)
    }

    fn cut_power(&mut self) -> Result<(), Violation> {
        for (index, target) in self.targets.clone().iter().enumerate() {
            let [_, count] = self.calls(target)?;
            for call in self.tried(count) {
                let to = target.kill();
                to.crash_after(call);
                // It may have done all that matters.
                let _ = take(&self.source, &to);
                for after in after_power_cuts(&to, &mut self.random) {
                    self.at(("a power cut", index, call));
                    self.counts.disks += 1;
                    self.check_unfinished(index, &after)?;
                    self.check_next(&after)?;
                }
            }
        }
        Ok(())
    }
}
