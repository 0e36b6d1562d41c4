//! What a snapshot consists of, and its parts as bytes.
//!
//! Parts are planned from what is shared, and encoded one by one when they are written, on any thread. Nothing
//! spans two parts.

use std::sync::Arc;

use crate::bus::snapshot as bus;
use crate::bus::snapshot::{SessionChunk, SharedBusQueue};
use crate::bus::{BusRule, IdBlock, Kept, put_part};
use crate::queues::snapshot::{SharedQueue, put_messages};
use crate::shared::groups;
use crate::state::SnapshotHead;
use crate::storage::Stored;
use crate::table::{Run, SharedRuns};
use crate::vocabulary::Incarnation;

/// A part has as many messages, sessions or ids as so many runs have numbers, or a few more. The last one may have
/// fewer.
const RUNS_PER_PART: u64 = 8;

/// A part has rules of so many bytes, or the last one of them reaches beyond.
const RULES_SIZE_BYTES: u64 = 64 * 1024;

/// The state at one position of the log, shared with the partition that goes on.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) head: SnapshotHead,
    pub(super) queues: Vec<SharedQueue>,
    pub(super) bus_queues: Vec<SharedBusQueue>,
}

impl Snapshot {
    pub(super) fn new(
        head: SnapshotHead,
        queues: Vec<SharedQueue>,
        bus_queues: Vec<SharedBusQueue>,
    ) -> Self {
        Self {
            head,
            queues,
            bus_queues,
        }
    }

    /// Plans the parts, in the order in which they must be restored. Takes a step for each run and each small
    /// part. All records are in memory.
    pub fn plan(self) -> SnapshotParts {
        let at_least = RUNS_PER_PART * self.head.run_length.as_u64();
        let mut parts: Vec<Part> = self.head.encode().into_iter().map(Part::Encoded).collect();
        for queue in self.queues {
            plan_head(&queue, &mut parts);
            plan_messages(&queue, at_least, Messages::Stored, &mut parts);
        }
        for queue in self.bus_queues {
            plan_bus_queue(queue, at_least, &mut parts);
        }
        SnapshotParts(parts)
    }
}

fn plan_head(queue: &SharedQueue, parts: &mut Vec<Part>) {
    parts.extend(queue.head.iter().cloned().map(Part::Encoded));
}

fn plan_messages(queue: &SharedQueue, at_least: u64, of: Messages, parts: &mut Vec<Part>) {
    let messages = message_groups(&queue.runs, at_least).into_iter();
    parts.extend(messages.map(|runs| Part::Messages(queue.incarnation, runs, of.clone())));
}

fn plan_bus_queue(queue: SharedBusQueue, at_least: u64, parts: &mut Vec<Part>) {
    let SharedBusQueue {
        queue,
        sessions,
        ids,
        rules,
    } = queue;
    let incarnation = queue.incarnation;
    plan_head(&queue, parts);
    let numbers = sessions.iter().flat_map(|chunk| chunk.iter());
    let numbers: Arc<[u64]> = numbers.map(|(number, _)| *number).collect();
    let chunks = grouped(&sessions, |chunk| chunk.len() as u64, at_least);
    let chunks = chunks.into_iter();
    parts.extend(chunks.map(|chunks| Part::Sessions(incarnation, chunks)));
    let blocks = ids.blocks();
    let blocks = grouped(&blocks, |block| block.len() as u64, at_least).into_iter();
    parts.extend(blocks.map(|blocks| Part::Ids(incarnation, blocks)));
    plan_messages(&queue, at_least, Messages::Bus(numbers), parts);
    let sources = message_groups(&queue.runs, at_least).into_iter();
    let sources = sources.filter(|runs| runs.iter().any(|run| run.has_sources()));
    parts.extend(sources.map(|runs| Part::Sources(incarnation, runs)));
    // Behind the messages: without those, rules that are retired would go.
    let rules = rules.iter().flat_map(|chunk| chunk.iter());
    let rules: Vec<Arc<BusRule>> = rules.map(|(_, rule)| Arc::clone(rule)).collect();
    let rules = grouped(&rules, |it| it.snapshot_size_bytes_max(), RULES_SIZE_BYTES).into_iter();
    parts.extend(rules.map(|rules| Part::Rules(incarnation, rules)));
}

/// Consecutive runs that share a part.
fn message_groups(shared: &SharedRuns, at_least: u64) -> Vec<Vec<Arc<Run>>> {
    let runs = shared.iter().flat_map(|chunk| chunk.iter());
    let runs: Vec<Arc<Run>> = runs.map(|(_, run)| run.clone()).collect();
    grouped(&runs, |run| run.live_count(), at_least)
}

fn grouped<T: Clone>(all: &[T], count: impl Fn(&T) -> u64, at_least: u64) -> Vec<Vec<T>> {
    let groups = groups(all.iter().map(count), at_least);
    let groups = groups.into_iter().filter_map(|group| all.get(group));
    groups.map(<[T]>::to_vec).collect()
}

/// The service of messages.
#[derive(Clone, Debug)]
enum Messages {
    Stored,
    /// With the numbers of the sessions that the queue has.
    Bus(Arc<[u64]>),
}

/// A part, and what it is made of.
#[derive(Debug)]
enum Part {
    Encoded(Vec<u8>),
    Messages(Incarnation, Vec<Arc<Run>>, Messages),
    Sessions(Incarnation, Vec<SessionChunk>),
    Ids(Incarnation, Vec<IdBlock>),
    Sources(Incarnation, Vec<Arc<Run>>),
    Rules(Incarnation, Vec<Arc<BusRule>>),
}

/// The parts of a snapshot. Each is encoded when it is asked for.
#[derive(Debug, Default)]
pub struct SnapshotParts(Vec<Part>);

impl SnapshotParts {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Passes on all parts.
    pub fn pass(&self, mut part: impl FnMut(&[u8])) {
        let mut out = Vec::new();
        for index in 0..self.count() {
            out.clear();
            self.put(index, &mut out);
            part(&out);
        }
    }

    /// Appends the bytes of a part.
    pub fn put(&self, index: usize, out: &mut Vec<u8>) {
        match self.0.get(index) {
            Some(Part::Encoded(bytes)) => out.extend_from_slice(bytes),
            Some(Part::Messages(queue, runs, Messages::Stored)) => {
                put_messages::<Stored>(out, *queue, runs, |_| false);
            }
            Some(Part::Messages(queue, runs, Messages::Bus(sessions))) => {
                let has_session = |number: u32| sessions.binary_search(&number.into()).is_ok();
                put_messages::<Kept>(out, *queue, runs, has_session);
            }
            Some(Part::Sessions(queue, chunks)) => bus::put_sessions(out, *queue, chunks),
            Some(Part::Ids(queue, blocks)) => bus::put_ids(out, *queue, blocks),
            Some(Part::Sources(queue, runs)) => bus::put_sources(out, *queue, runs),
            Some(Part::Rules(topic, rules)) => put_part(out, *topic, rules),
            None => {}
        }
    }
}
