//! Failing calls: every error of the operating system at every storage call of a workload.

use std::fmt::Write as _;

use kew_broker::OpenPartitionError;
use kew_log::{Fault, FaultyStorage, OpenError, Repeat};

use super::clients::Clients;
use super::failure::{Failure, guard};
use super::host::Host;
use super::setting::{Setting, violation};
use super::step::{Step, create_queue};
use super::tape::{Call, Tape};
use super::workload::{Act, Workload, WorkloadKind, wait};
use crate::checker::Violation;
use crate::random::Stream;

/// What was tried, and the results.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultCounts {
    /// Workloads that were run.
    pub workloads: u64,
    /// Storage calls of all workloads. Each failed in every possible way.
    pub calls: u64,
    /// Workloads with one fault: a call, an error, and whether it stays.
    pub points: u64,
    /// The partition stopped.
    pub stopped: u64,
    /// Workloads on a disk that is full from some act on.
    pub full_disks: u64,
    /// It was busy for lack of space, served reads and deletes, and continued when there was space.
    pub out_of_space: u64,
    /// It could not be opened until the fault was gone.
    pub not_opened: u64,
    /// The fault had no visible effect, as required for interruptions and short writes.
    pub invisible: u64,
    /// A body could not be read, or the failed call was not needed.
    pub harmless: u64,
    /// Bodies that workloads have moved without a fault.
    pub moved: u64,
    /// Workloads with a fault in which bodies were moved.
    pub moved_with_fault: u64,
}

impl FaultCounts {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.workloads += other.workloads;
        self.calls += other.calls;
        self.points += other.points;
        self.full_disks += other.full_disks;
        self.stopped += other.stopped;
        self.out_of_space += other.out_of_space;
        self.not_opened += other.not_opened;
        self.invisible += other.invisible;
        self.harmless += other.harmless;
        self.moved += other.moved;
        self.moved_with_fault += other.moved_with_fault;
    }
}

/// Runs one workload with every error at every call that it makes, once and from then on.
pub fn fail_every_call(
    seed: u64,
    kind: WorkloadKind,
    workload: u64,
    trace: bool,
) -> Result<FaultCounts, Box<Failure>> {
    let case = fault_case(kind, workload);
    let workload = Workload::draw(&mut Stream::new(seed, &case), kind);
    fail_calls_of(workload, seed, &case, trace)
}

/// Runs a workload in which bodies are moved, with every error at every call that it makes.
pub fn fail_every_call_of_moves(
    setting: Setting,
    seed: u64,
    trace: bool,
) -> Result<FaultCounts, Box<Failure>> {
    let case = move_fault_case(setting);
    let entropy = Stream::new(seed, &case).next();
    let workload = Workload::of_moves(setting, entropy);
    fail_calls_of(workload, seed, &case, trace)
}

/// The name of such a workload, for running only that.
pub fn move_fault_case(setting: Setting) -> String {
    format!("faults/{}", setting.name)
}

fn fail_calls_of(
    workload: Workload,
    seed: u64,
    case: &str,
    trace: bool,
) -> Result<FaultCounts, Box<Failure>> {
    guard(case, seed, |place| {
        let mut trial = Trial {
            workload,
            random: Stream::new(seed, &format!("{case}/disks")),
            counts: FaultCounts::default(),
            place,
            trace,
        };
        trial.run()?;
        Ok(trial.counts)
    })
}

/// The name of a workload, for running only that.
pub fn fault_case(kind: WorkloadKind, workload: u64) -> String {
    match kind {
        WorkloadKind::Storage => format!("faults/{workload}"),
        WorkloadKind::WithBus => format!("faults/bus-{workload}"),
        WorkloadKind::WithTopics => format!("faults/topics-{workload}"),
    }
}

/// The fault of a run.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Nothing,
    Call(Planned),
    /// No file can grow, from the act with this index on.
    FullDisk(usize),
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    call: usize,
    fault: Fault,
    repeat: Repeat,
}

impl Planned {
    /// Every possible fault of a call. An endless interruption is not a real error; several in a
    /// row are.
    fn all(call: usize, kind: Call) -> impl Iterator<Item = Self> {
        let faults: &[Fault] = match kind {
            Call::Write => &[Fault::Eio, Fault::Enospc, Fault::ShortWrite, Fault::Eintr],
            Call::Create => &[Fault::Eio, Fault::Enospc, Fault::Emfile, Fault::Eintr],
            Call::Rename => &[Fault::Eio, Fault::Enospc, Fault::Eintr],
            Call::Read => &[Fault::Eio, Fault::Emfile, Fault::Eintr],
            Call::Other => &[Fault::Eio, Fault::Eintr],
            Call::Sync => &[Fault::Eio],
        };
        faults.iter().flat_map(move |fault| {
            [Repeat::Once, Repeat::Sticky].map(|repeat| Self {
                call,
                fault: *fault,
                repeat,
            })
        })
    }

    fn inject(self, disk: &FaultyStorage) {
        let count = self.call as u64;
        if self.fault == Fault::Eintr && self.repeat == Repeat::Sticky {
            for again in 0..5 {
                disk.fail_after(count + again, self.fault, Repeat::Once);
            }
        } else {
            disk.fail_after(count, self.fault, self.repeat);
        }
    }

    fn is_invisible(self) -> bool {
        matches!(self.fault, Fault::ShortWrite | Fault::Eintr)
    }
}

/// How a workload went.
struct Played {
    host: Host,
    calls: Vec<Call>,
    was_not_opened: bool,
    /// A start has told the operator of something.
    was_warned: bool,
    /// At its end, or at the end of an earlier process.
    has_stopped: bool,
    /// How many bodies all processes have moved.
    moved: u64,
}

struct Trial<'a> {
    workload: Workload,
    random: Stream,
    counts: FaultCounts,
    place: &'a mut String,
    trace: bool,
}

impl Trial<'_> {
    fn run(&mut self) -> Result<(), Violation> {
        let plan = format!("{:?}", self.workload);
        self.note(format_args!("without a fault, {plan}"));
        let plain = self.play(Trouble::Nothing)?;
        if self.trace {
            for line in plain.host.clients.transcript() {
                self.note(format_args!("{line:.300}"));
            }
        }
        let calls = plain.calls.clone();
        let transcript = plain.host.clients.transcript().to_vec();
        self.counts.moved = plain.moved;
        self.check_aftermath(plain.host)?;
        self.counts.workloads = 1;
        self.counts.calls = calls.len() as u64;
        for (call, kind) in calls.into_iter().enumerate() {
            for planned in Planned::all(call, kind) {
                self.note(format_args!("{planned:?} ({kind:?})"));
                self.counts.points += 1;
                let played = self.play(Trouble::Call(planned))?;
                self.counts.moved_with_fault += u64::from(played.moved > 0);
                self.judge(planned, &played, &transcript)?;
                self.check_aftermath(played.host)?;
            }
        }
        for act in 0..self.workload.acts.len() {
            self.note(format_args!("the disk is full from act {act} on"));
            self.counts.full_disks += 1;
            let mut played = self.play(Trouble::FullDisk(act))?;
            if played.was_not_opened {
                self.counts.not_opened += 1;
            } else {
                let used = use_full_disk(&mut played.host);
                if self.trace {
                    for line in played.host.clients.transcript() {
                        self.note(format_args!("{line:.200}"));
                    }
                }
                used?;
                self.counts.out_of_space += 1;
            }
            self.check_aftermath(played.host)?;
        }
        Ok(())
    }

    /// Runs the workload as far as possible.
    fn play(&self, trouble: Trouble) -> Result<Played, Violation> {
        let Workload {
            setting,
            entropy,
            acts,
        } = &self.workload;
        let mut host = setting.prepare(*entropy)?;
        host.clients.write_transcript();
        let tape = host.tape().clone();
        let before = tape.calls().len();
        if let Trouble::Call(planned) = trouble {
            planned.inject(tape.disk());
        }
        let (mut was_not_opened, mut has_stopped, mut was_warned) = (false, false, false);
        let mut moved = 0;
        for (index, act) in acts.iter().enumerate() {
            if host.partition().is_stopped() {
                break;
            }
            if matches!(trouble, Trouble::FullDisk(from) if from == index) {
                let used = tape.disk().used_bytes();
                tape.disk().set_capacity_bytes(Some(used));
            }
            match act {
                Act::Play(step) => host.play(*step)?,
                Act::Wait => wait(&mut host)?,
                Act::Restart { is_clean } => {
                    host.end(*is_clean)?;
                    has_stopped |= host.partition().is_stopped();
                    // The next process begins to count anew.
                    was_warned |= host.partition().unmoved_count() > 0;
                    moved += host.partition().moved_count();
                    let now = host.now();
                    let epoch = entropy.wrapping_add(index as u64);
                    host = match host.restart(epoch) {
                        Ok(next) => next,
                        Err(not) if is_of_the_disk(trouble, &not.error) => {
                            was_not_opened = true;
                            heal(tape.disk());
                            let salt = epoch.wrapping_add(1000);
                            Host::open(tape.clone(), *setting, not.clients, now, salt)
                                .map_err(|not| violation("without the fault", &not.error))?
                        }
                        Err(not) => return Err(violation("at a restart", &not.error)),
                    };
                    was_warned |= !host.recovery().warnings.is_empty();
                }
            }
        }
        let calls = tape.calls().split_off(before);
        has_stopped |= host.partition().is_stopped();
        Ok(Played {
            moved: moved + host.partition().moved_count(),
            has_stopped,
            host,
            calls,
            was_not_opened,
            was_warned,
        })
    }

    fn judge(
        &mut self,
        planned: Planned,
        played: &Played,
        transcript: &[String],
    ) -> Result<(), Violation> {
        let clients = &played.host.clients;
        if planned.is_invisible() {
            let changed = clients
                .transcript()
                .iter()
                .zip(transcript)
                .find(|(now, before)| now != before);
            if changed.is_some() || clients.transcript().len() != transcript.len() {
                return Err(Violation {
                    promise: "interruptions and short writes are invisible",
                    seen: format!("{changed:?}"),
                });
            }
            self.counts.invisible += 1;
        } else if planned.fault == Fault::Emfile && played.has_stopped {
            return Err(Violation {
                promise: "without descriptors the log goes on",
                seen: "it has stopped".to_owned(),
            });
        } else if played.has_stopped {
            self.counts.stopped += 1;
        } else if played.was_not_opened {
            self.counts.not_opened += 1;
        } else if clients.busy() > 0 {
            self.counts.out_of_space += 1;
        } else if matches!(planned.fault, Fault::Enospc | Fault::Emfile)
            || played.was_warned
            || clients.unread() > 0
            || played.host.tape().failed_page_reads() > 0
            || played.host.partition().unmoved_count() > 0
        {
            self.counts.harmless += 1;
        } else {
            return Err(Violation {
                promise: "failures are noticed",
                seen: "a call failed, and everything went on".to_owned(),
            });
        }
        Ok(())
    }

    /// The promises hold: for clients that continue, for the next process, and after a power cut.
    fn check_aftermath(&mut self, mut host: Host) -> Result<(), Violation> {
        if host.partition().is_stopped() {
            check_stopped(&mut host)?;
        } else {
            // Space for settlements is kept: a full disk can be drained.
            host.play(Step::Peek)?;
        }
        let clients = host.known()?;
        let disk = host.tape().disk().clone();
        heal(&disk);
        let (killed, random) = (disk.kill(), &mut self.random);
        let cut = disk.crash(&mut |end| random.below_u32(end.max(1)));
        self.reopen(&host, killed.kill(), clients.clone())?;
        self.reopen(&host, cut, clients.clone())?;
        // What the next process shows must not be lost with the page cache that it read.
        let mut shown = self.open(&host, killed, clients)?;
        shown.play(Step::Peek)?;
        let clients = shown.known()?;
        let lost = shown.tape().disk().crash(&mut |_| 0);
        self.reopen(&shown, lost, clients)?;
        if !host.partition().is_stopped() {
            wait(&mut host)?;
            wait(&mut host)?;
            host.use_once()?;
            host.drain()?;
        }
        Ok(())
    }

    fn reopen(
        &mut self,
        host: &Host,
        disk: FaultyStorage,
        clients: Clients,
    ) -> Result<(), Violation> {
        let mut host = self.open(host, disk, clients)?;
        host.drain()?;
        host.use_once()
    }

    fn open(
        &mut self,
        host: &Host,
        disk: FaultyStorage,
        clients: Clients,
    ) -> Result<Host, Violation> {
        let setting = self.workload.setting.plain();
        let entropy = self.random.next();
        Host::open(Tape::new(disk), setting, clients, host.now(), entropy)
            .map_err(|not| violation("after the fault", &not.error))
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

/// No command succeeds any more, not even a read.
fn check_stopped(host: &mut Host) -> Result<(), Violation> {
    for step in [Step::Send, Step::Peek, Step::CreateQueue] {
        let (asked, stopped) = (host.clients.asked(), host.clients.stopped());
        host.play(step)?;
        if host.clients.stopped() - stopped < host.clients.asked() - asked {
            return Err(Violation {
                promise: "a partition that has stopped answers nothing",
                seen: format!("{step} was answered"),
            });
        }
    }
    Ok(())
}

fn is_of_the_disk(trouble: Trouble, error: &OpenPartitionError) -> bool {
    let is_full = matches!(error, OpenPartitionError::Log(OpenError::NoSpace { .. }));
    match trouble {
        Trouble::Nothing => false,
        Trouble::FullDisk(_) => is_full,
        Trouble::Call(_) => {
            is_full
                || matches!(
                    error,
                    OpenPartitionError::Log(OpenError::Io(_)) | OpenPartitionError::Commit(_)
                )
        }
    }
}

fn heal(disk: &FaultyStorage) {
    disk.clear_faults();
    disk.set_capacity_bytes(None);
}

/// The least log space of a message of the scripts, with its events.
const MESSAGE_SIZE_BYTES_MIN: u64 = 400;

/// Sends until there is no space, and then reads and deletes, which must still work.
fn use_full_disk(host: &mut Host) -> Result<(), Violation> {
    let broken = |seen: String| {
        Err(Violation {
            promise: "a full disk can be drained",
            seen,
        })
    };
    let busy = host.clients.busy();
    // As many as fit into the active segment and the prepared one.
    let segment_size_bytes = host.setting().options().log.segment_size_max_bytes;
    let count = 2 * segment_size_bytes / MESSAGE_SIZE_BYTES_MIN;
    for _ in 0..count {
        // The queue may not exist; if it cannot be created again, there is nothing to fill.
        host.ask(create_queue())?;
        host.play(Step::Send)?;
        if host.clients.busy() > busy || host.partition().is_stopped() {
            break;
        }
    }
    if host.partition().is_stopped() {
        let state = host.partition().log().health().state;
        return broken(format!("it stopped: {state:?}"));
    }
    if host.clients.busy() == busy {
        return broken(format!("{count} messages found room on a full disk"));
    }
    let (peek, delete) = (Step::Peek, Step::Delete);
    let of_bus = [Step::BusPeek, Step::BusComplete, Step::BusComplete];
    let of_bus = of_bus.iter().filter(|_| host.setting().has_bus);
    let steps: Vec<Step> = [peek, delete, delete, peek]
        .iter()
        .chain(of_bus)
        .copied()
        .collect();
    for step in steps {
        if step == Step::Delete && host.clients.last_held().is_none()
            || step == Step::BusComplete && !host.clients.bus_known().has_lock()
        {
            continue;
        }
        let busy = host.clients.busy();
        let setting = host.setting();
        host.set(setting.plain());
        host.play(step)?;
        host.set(setting);
        if host.clients.busy() > busy || host.partition().is_stopped() {
            return broken(format!("{step} was refused"));
        }
    }
    Ok(())
}
