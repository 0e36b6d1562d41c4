//! Bit rot: damage to every kind of file of a partition that was closed cleanly.
//!
//! Worlds are closed with a mark, which lies in a file of its own, so that no single damage destroys the
//! last batch together with all proof of it. Without a mark the format declares one case
//! ambiguous: only [`damage_tail`] shows that.
//!
//! A world has storage queues, or Service Bus queues and a topic, too: what is special about them is in `topics`.

mod active;
mod aside;
mod counts;
mod damage;
mod judge;
mod moved;

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use kew_broker::OpenPartitionError;
use kew_engine::Timestamp;
use kew_log::FaultyStorage;

use super::answers::Contents;
use super::clients::Clients;
use super::failure::{Failure, guard};
use super::host::Host;
use super::setting::{Setting, violation};
use super::step::Step;
use super::tape::Tape;
use super::topics;
use super::workload::{Act, Workload, WorkloadKind, wait};
use crate::checker::Violation;
use crate::random::Stream;
use crate::seam::files_of;

pub use active::{ActiveCounts, active_rot_case, rot_active};
pub use aside::{AsideCounts, aside_case, set_aside};
pub use counts::RotCounts;
pub use moved::{moved_rot_case, rot_moved};

const SECTOR_SIZE: usize = 512;
const PAGE_SIZE: usize = 4096;

/// How much of the log before its end counts as its last acknowledged batches.
const LAST_BATCHES_BYTES: usize = 5000;

/// Damages the partition of one world in `injections` ways, one after the other.
pub fn rot(
    seed: u64,
    kind: WorkloadKind,
    world: u64,
    injections: u64,
    trace: bool,
) -> Result<RotCounts, Box<Failure>> {
    let case = rot_case(kind, world);
    guard(&case, seed, |place| {
        let mut random = Stream::new(seed, &case);
        let closed = Closed::draw(&mut random, kind)?;
        let mut counts = RotCounts {
            worlds: 1,
            ..RotCounts::default()
        };
        for number in 0..injections {
            let Some(damage) = closed.damage(&mut random) else {
                continue;
            };
            place.clear();
            let _ = write!(place, "injection {number}, {damage}");
            if trace {
                use std::io::Write as _;
                let _ = writeln!(std::io::stdout(), "{place}");
            }
            closed.check(&damage, random.next(), &mut counts)?;
        }
        Ok(counts)
    })
}

/// The name of a world, for running only that.
pub fn rot_case(kind: WorkloadKind, world: u64) -> String {
    match kind {
        WorkloadKind::Storage => format!("rot/{world}"),
        WorkloadKind::WithBus => format!("rot/bus-{world}"),
        WorkloadKind::WithTopics => format!("rot/topics-{world}"),
    }
}

/// The result of damage in the last acknowledged batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailDamage {
    /// The start is refused.
    Refused,
    /// The batch is cut as a torn tail, and reported; everything before it is there.
    Cut,
}

/// Acknowledges two messages, perhaps marks the log, and flips one bit of the second.
///
/// Without the mark, nothing on the disk shows that the batch was ever complete: the format says
/// so, and only this test shows it.
pub fn damage_tail(seed: u64, is_marked: bool) -> Result<TailDamage, Box<Failure>> {
    guard("rot/tail", seed, |place| {
        let setting = Setting::ALL[0];
        let mut host = setting.prepare(seed)?;
        host.play(Step::Send)?;
        let (file, offset) = end_of(&host);
        let offset = offset as u64;
        host.play(Step::Send)?;
        let mut clients = host.known()?;
        if is_marked {
            host.play(Step::Mark)?;
        }
        let disk = host.tape().disk().kill();
        disk.flip(&file, offset + 300, 0x10);
        let _ = write!(place, "one bit of {file} at {}", offset + 300);
        clients.excuse_last();
        let mut host = match Host::open(Tape::new(disk), setting, clients, host.now(), seed) {
            Ok(host) => host,
            Err(not) => {
                let named = OpenPartitionError::to_string(&not.error);
                assert!(named.contains(&format!("{file} is damaged at byte {offset}")));
                return Ok(TailDamage::Refused);
            }
        };
        let cut = host
            .recovery()
            .tail_cut
            .clone()
            .expect("what is cut is named");
        assert_eq!((cut.file, cut.offset), (file, offset));
        // The next message gets the id of the lost one, so none is missing.
        host.drain()?;
        Ok(TailDamage::Cut)
    })
}

/// A partition that was closed cleanly: everything that its clients know is on the disk, and proven
/// durable.
struct Closed {
    kind: WorkloadKind,
    setting: Setting,
    disk: FaultyStorage,
    contents: Arc<Contents>,
    /// Former contents of the files, oldest first.
    past: Vec<Contents>,
    clients: Clients,
    now: Timestamp,
    /// The last segment, and the range of its last batches.
    last_segment: String,
    last_batches: Range<usize>,
    /// The segment before it, if a new one was just begun, and the range of its last batch and the
    /// roll.
    segment_end: Option<(String, Range<usize>)>,
}

impl Closed {
    fn draw(random: &mut Stream, kind: WorkloadKind) -> Result<Self, Violation> {
        let workload = Workload::draw(random, kind);
        Self::after(workload, kind, random)
    }

    fn after(
        workload: Workload,
        kind: WorkloadKind,
        random: &mut Stream,
    ) -> Result<Self, Violation> {
        let Workload {
            setting,
            entropy,
            acts,
        } = workload;
        let setting = setting.plain();
        let mut host = setting.prepare(entropy)?;
        let mut past = Vec::new();
        for (act, epoch) in acts.into_iter().zip(1..) {
            past.push(contents(host.tape().disk()));
            match act {
                Act::Play(step) => host.play(step)?,
                Act::Wait => wait(&mut host)?,
                Act::Restart { is_clean } => {
                    host.end(is_clean)?;
                    host = host
                        .restart(entropy.wrapping_add(epoch))
                        .map_err(|not| violation("at a restart", &not.error))?;
                }
            }
        }
        past.push(contents(host.tape().disk()));
        for _ in 0..random.below(3) {
            send_more(&mut host, kind)?;
        }
        past.push(contents(host.tape().disk()));
        Self::close(host, kind, past, random)
    }

    /// Closes a partition with a mark, and half of the time with a snapshot.
    fn close(
        mut host: Host,
        kind: WorkloadKind,
        past: Vec<Contents>,
        random: &mut Stream,
    ) -> Result<Self, Violation> {
        if kind == WorkloadKind::WithTopics && random.happens(700) {
            topics::WAITING
                .into_iter()
                .try_for_each(|it| host.play(it))?;
        }
        if random.happens(500) {
            host.play(Step::Snapshot)?;
        }
        // At least one batch follows, so that a mark is due; sometimes so many that a new segment
        // begins, whose records alone prove the end of the former one.
        let goes_on = random.happens(400);
        let mut segment_end = None;
        loop {
            let (file, end) = end_of(&host);
            send_more(&mut host, kind)?;
            if end_of(&host).0 != file {
                let begin = end.saturating_sub(LAST_BATCHES_BYTES / 2).max(PAGE_SIZE);
                segment_end = Some((file, begin..end + SECTOR_SIZE / 8));
            }
            if segment_end.is_some() || !goes_on {
                break;
            }
        }
        if random.happens(300) {
            host.play(Step::Snapshot)?;
        }
        let (last_segment, batches_end) = end_of(&host);
        host.end(true)?;
        let begin = batches_end
            .saturating_sub(LAST_BATCHES_BYTES)
            .max(PAGE_SIZE);
        let disk = host.tape().disk().kill();
        let contents = Arc::new(contents(&disk));
        let mut clients = host.known()?;
        clients.know_contents(Arc::clone(&contents));
        Ok(Self {
            kind,
            setting: host.setting(),
            contents,
            disk,
            past,
            clients,
            now: host.now(),
            last_segment,
            last_batches: begin..batches_end,
            segment_end,
        })
    }
}

/// Sends messages, to entities that certainly exist.
fn send_more(host: &mut Host, kind: WorkloadKind) -> Result<(), Violation> {
    let steps = match kind {
        WorkloadKind::Storage => [Step::CreateQueue, Step::Send],
        WorkloadKind::WithBus => [Step::BusSend, Step::BusPublish],
        WorkloadKind::WithTopics => [Step::BusPublish, Step::BusPublishMany],
    };
    steps.into_iter().try_for_each(|step| host.play(step))
}

/// The active segment, and the end of the log in it.
fn end_of(host: &Host) -> (String, usize) {
    let log = host.partition().log();
    let span = files_of(log)
        .segments()
        .last()
        .expect("a log has a segment");
    let offset = PAGE_SIZE as u64 + log.end().as_u64() - span.first.as_u64();
    let offset = usize::try_from(offset).expect("an offset in memory");
    (format!("segment-{:020}", span.number), offset)
}

fn contents(disk: &FaultyStorage) -> Contents {
    let names = disk.files().into_iter().map(|(name, _)| name);
    names
        .map(|name| {
            let content = disk.content(&name).expect("a name has its file");
            (name, content)
        })
        .collect()
}
