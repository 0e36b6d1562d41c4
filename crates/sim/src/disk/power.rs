//! Power cuts: every short sequence, cut at every storage call, with every kind of disk that the
//! cut can leave; then a second cut during recovery.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kew_log::FaultyStorage;

use super::clients::Clients;
use super::failure::{Failure, guard};
use super::host::{Host, Point};
use super::setting::{Setting, violation};
use super::step::Step;
use super::tape::{Fork, Tape};
use crate::checker::Violation;
use crate::random::Stream;

/// Nearly every bug of recovery shows with three operations or fewer.
const LENGTH_MAX: usize = 3;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The root of every choice.
    pub seed: u64,
    /// How many disks are drawn at each call, in addition to the fixed ones.
    pub drawn: u32,
    /// One in this many disks gets a second cut at one call of its recovery.
    pub again_one_in: u64,
    /// And one in this many at every call of it.
    pub again_everywhere_one_in: u64,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct PowerCounts {
    /// Sequences that were run.
    pub sequences: u64,
    /// Calls at which the power went off, with the disk changed since the one before.
    pub calls: u64,
    /// Disks that were opened and checked after a power cut; those of one call all differ.
    pub disks: u64,
    /// Processes that were killed, keeping the page cache, with a power cut after the next process
    /// had shown its state.
    pub kills: u64,
    /// Disks after a second power cut, during or directly after a recovery.
    pub second_cuts: u64,
    /// Disks on which a torn tail was cut.
    pub tails_cut: u64,
    /// Disks where recovery copied records that might not be durable.
    pub tails_copied: u64,
    /// Retired segments that were in use again when the sequence began.
    pub reused: u64,
    /// Bodies that the last step has moved to the log's end.
    pub moved: u64,
}

impl PowerCounts {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.sequences += other.sequences;
        self.calls += other.calls;
        self.disks += other.disks;
        self.kills += other.kills;
        self.second_cuts += other.second_cuts;
        self.tails_cut += other.tails_cut;
        self.tails_copied += other.tails_copied;
        self.reused += other.reused;
        self.moved += other.moved;
    }
}

/// All sequences of one to three steps over every kind of step.
pub fn sequences() -> Vec<Vec<Step>> {
    let mut all: Vec<Vec<Step>> = Vec::new();
    let mut longest = vec![Vec::new()];
    for _ in 0..LENGTH_MAX {
        longest = longest
            .iter()
            .flat_map(|begun: &Vec<Step>| {
                Step::ALL.map(|step| begun.iter().copied().chain([step]).collect())
            })
            .collect();
        all.extend(longest.iter().cloned());
    }
    all
}

/// Sequences of steps for bus queues: all of one and two, and those of three that begin with a sent
/// or received message and continue with the most frequent steps.
pub fn sequences_of_bus() -> Vec<Vec<Step>> {
    let ones = || Step::OF_BUS.into_iter();
    let twos = || ones().flat_map(|one| ones().map(move |two| vec![one, two]));
    let begins = [Step::BusSend, Step::BusReceive];
    let rests = || twos().filter(|rest| rest.iter().all(|step| step.is_frequent()));
    let threes = begins.into_iter().flat_map(|first| {
        rests().map(move |rest| [first].into_iter().chain(rest).collect::<Vec<_>>())
    });
    ones()
        .map(|one| vec![one])
        .chain(twos())
        .chain(threes)
        .collect()
}

/// Sequences for worlds in which bodies are moved: by the last step, after a step that may change what there is to move.
pub fn sequences_of_moves() -> Vec<Vec<Step>> {
    let before = [
        Step::Receive,
        Step::Update,
        Step::Delete,
        Step::Clear,
        Step::Snapshot,
    ];
    let before = before.into_iter().map(|step| vec![step]);
    let all = [Vec::new()].into_iter().chain(before);
    all.map(|steps| steps.into_iter().chain([Step::Tidy]).collect())
        .collect()
}

/// Plays a sequence and cuts the power at every storage call of its last step.
///
/// The calls of the earlier steps belong to the shorter sequence that this one begins with. So
/// every call of every sequence is covered.
pub fn cut_power(
    setting: Setting,
    steps: &[Step],
    cut: Cut,
    trace: bool,
) -> Result<PowerCounts, Box<Failure>> {
    let names: Vec<String> = steps.iter().map(Step::to_string).collect();
    let case = format!("power/{}/{}", setting.name, names.join(","));
    guard(&case, cut.seed, |place| {
        let mut trial = Trial {
            setting,
            cut,
            random: Stream::new(cut.seed, &case),
            counts: PowerCounts::default(),
            place,
            trace,
        };
        trial.run(steps)?;
        Ok(trial.counts)
    })
}

struct Trial<'a> {
    setting: Setting,
    cut: Cut,
    random: Stream,
    counts: PowerCounts,
    place: &'a mut String,
    trace: bool,
}

/// Which pending writes survive the power cut.
#[derive(Clone, Copy, Debug)]
enum Left {
    Nothing,
    NamesOnly,
    ContentOnly,
    Everything,
    /// Sectors and pages in any order, names in any order: by chance.
    Drawn,
}

impl Trial<'_> {
    fn run(&mut self, steps: &[Step]) -> Result<(), Violation> {
        "before any power cut".clone_into(self.place);
        let mut host = self.setting.prepare(self.random.next())?;
        let Some((last, before)) = steps.split_last() else {
            return Ok(());
        };
        for step in before {
            host.play(*step)?;
        }
        self.counts.sequences = 1;
        self.counts.reused = host.tape().reused();
        host.record();
        let moved_before = host.partition().moved_count();
        host.play(*last)?;
        self.counts.moved += host.partition().moved_count() - moved_before;
        for point in host.into_points()? {
            self.counts.calls += 1;
            self.cut_at(&point)?;
        }
        Ok(())
    }

    fn cut_at(&mut self, point: &Point) -> Result<(), Violation> {
        let mut seen = BTreeSet::new();
        let always = [
            Left::Nothing,
            Left::NamesOnly,
            Left::ContentOnly,
            Left::Everything,
        ];
        let drawn = (0..self.cut.drawn).map(|_| Left::Drawn);
        for (number, left) in always.into_iter().chain(drawn).enumerate() {
            let disk = self.after(&point.disk, left);
            if !seen.insert(disk.fingerprint()) {
                continue;
            }
            self.note(format_args!(
                "power off before call {}, disk {number} ({left:?})",
                point.call
            ));
            self.counts.disks += 1;
            self.recover(point, disk)?;
        }
        self.note(format_args!("killed before call {}", point.call));
        self.counts.kills += 1;
        self.recover_from_kill(point)
    }

    fn after(&mut self, disk: &FaultyStorage, left: Left) -> FaultyStorage {
        let random = &mut self.random;
        // The first choice decides about names.
        let mut choices = 0;
        disk.crash(&mut |end| {
            choices += 1;
            match left {
                Left::Nothing => 0,
                Left::NamesOnly => u32::from(choices == 1),
                Left::ContentOnly => u32::from(choices > 1),
                Left::Everything => 1,
                Left::Drawn => random.below_u32(end.max(1)),
            }
        })
    }

    /// Opens a disk, perhaps with another power cut during that, and checks its content.
    fn recover(&mut self, point: &Point, disk: FaultyStorage) -> Result<(), Violation> {
        let everywhere = self.random.below(self.cut.again_everywhere_one_in) == 0;
        let again = everywhere || self.random.below(self.cut.again_one_in) == 0;
        let tape = Tape::new(disk);
        if again {
            tape.record();
        }
        let mut host = self.open(tape.clone(), point, &point.clients)?;
        let mut forks = tape.take_forks();
        tape.stop();
        self.count(&host);
        host.drain()?;
        host.use_once()?;
        if !everywhere && !forks.is_empty() {
            let index = self.random.index(forks.len());
            forks = vec![forks.swap_remove(index)];
        }
        forks
            .iter()
            .try_for_each(|fork| self.cut_again(point, fork))
    }

    fn cut_again(&mut self, point: &Point, fork: &Fork) -> Result<(), Violation> {
        let left = [
            Left::Nothing,
            Left::Everything,
            Left::NamesOnly,
            Left::ContentOnly,
            Left::Drawn,
            Left::Drawn,
        ][self.random.index(6)];
        let disk = self.after(&fork.disk, left);
        let length = self.place.len();
        let _ = write!(
            self.place,
            ", again before call {} of the recovery ({left:?})",
            fork.call
        );
        self.counts.second_cuts += 1;
        let mut host = self.open(Tape::new(disk), point, &point.clients)?;
        host.drain()?;
        self.place.truncate(length);
        Ok(())
    }

    /// What the next process has shown must not be lost with the page cache that it read.
    fn recover_from_kill(&mut self, point: &Point) -> Result<(), Violation> {
        let tape = Tape::new(point.disk.clone());
        tape.record();
        let mut host = self.open(tape.clone(), point, &point.clients)?;
        self.count(&host);
        let mut forks = tape.take_forks();
        tape.stop();
        host.play(Step::Peek)?;
        let clients = host.known()?;
        let disk = self.after(host.tape().disk(), Left::Nothing);
        self.counts.second_cuts += 1;
        self.place.push_str(", again after the recovery (Nothing)");
        let mut host = self.open(Tape::new(disk), point, &clients)?;
        host.drain()?;
        host.use_once()?;
        if !forks.is_empty() {
            let index = self.random.index(forks.len());
            self.cut_again(point, &forks.swap_remove(index))?;
        }
        Ok(())
    }

    fn open(&mut self, tape: Tape, point: &Point, clients: &Clients) -> Result<Host, Violation> {
        let entropy = self.random.next();
        let setting = self.setting.plain();
        Host::open(tape, setting, clients.clone(), point.now, entropy)
            .map_err(|not| violation("after a power cut", &not.error))
    }

    fn count(&mut self, host: &Host) {
        let recovery = host.recovery();
        self.counts.tails_cut += u64::from(recovery.tail_cut.is_some());
        self.counts.tails_copied += u64::from(recovery.records_copied > 0);
    }

    fn note(&mut self, place: std::fmt::Arguments<'_>) {
        self.place.clear();
        let _ = self.place.write_fmt(place);
        if self.trace {
            use std::io::Write as _;
            let _ = writeln!(std::io::stdout(), "{}", self.place);
        }
    }
}
