//! The state as pages: what a snapshot writes if what did not change is to be left where it is.
//!
//! A piece of the state is a page: the heads of entities whose incarnations follow each other, some sessions, a block of
//! remembered ids, the directory of up to 64 runs, a run, or some rules. A piece that did not change since its page was written has
//! a mark, and is not encoded. Which pieces there are, and in which order they are restored, follows from the state.
//!
//! The first byte of a page is a version: a page of an earlier version may stay named for years.

use std::sync::Arc;

use super::Snapshot;
use crate::bus::pages as bus;
use crate::bus::snapshot::{SessionChunk, SharedBusQueue};
use crate::bus::{IdBlock, RuleChunk, put_rules};
use crate::queues::snapshot::SharedQueue;
use crate::shared::{Chunk, HEADS_BITS, HeadMarks, Mark};
use crate::table::{
    CountUnit, DIRECTORY_VERSION, PageHead, RecordsAt, Run, RunLength, put_directory, run_page,
};
use crate::vocabulary::codec::{put_bytes, put_varint};
use crate::vocabulary::{Incarnation, PageNumber};

pub(super) mod kind {
    pub(in crate::snapshot) const HEADS: u8 = 1;
    pub(in crate::snapshot) const SESSIONS: u8 = 2;
    pub(in crate::snapshot) const IDS: u8 = 3;
    pub(in crate::snapshot) const DIRECTORY: u8 = 4;
    pub(in crate::snapshot) const RUN: u8 = 5;
    pub(in crate::snapshot) const RULES: u8 = 6;

    /// All kinds, with those of pages of messages.
    #[cfg(test)]
    pub(in crate::snapshot) const ALL: [u8; 2 + super::PartKind::ALL.len()] =
        [DIRECTORY, RUN, HEADS, SESSIONS, IDS, RULES];
}

/// What a page is of that has no messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Heads,
    Sessions,
    Ids,
    Rules,
}

impl PartKind {
    pub(super) const ALL: [Self; 4] = [Self::Heads, Self::Sessions, Self::Ids, Self::Rules];

    pub(super) fn code(self) -> u8 {
        match self {
            Self::Heads => kind::HEADS,
            Self::Sessions => kind::SESSIONS,
            Self::Ids => kind::IDS,
            Self::Rules => kind::RULES,
        }
    }

    /// The kind with that code, if it has no messages.
    pub(super) fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// What the first group of a page begins with, but for directories.
pub(super) const PAGE_VERSION: u8 = 1;

/// What the first group of a page of a kind begins with.
fn version(kind: u8) -> u8 {
    match kind {
        kind::DIRECTORY => DIRECTORY_VERSION,
        _ => PAGE_VERSION,
    }
}

/// Whether that version of a page can be read: each up to today's.
pub(super) fn reads_version(kind: u8, found: u8) -> bool {
    (1..=version(kind)).contains(&found)
}

/// The entities of a service, as heads name it.
pub(super) mod service {
    pub(in crate::snapshot) const STORAGE: u8 = 1;
    pub(in crate::snapshot) const BUS: u8 = 2;
}

/// A page: its kind, and groups of bytes that can be read one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageBytes {
    /// What it is a page of.
    pub kind: u8,
    /// Its groups.
    pub groups: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Piece {
    Heads {
        service: u8,
        group: u64,
        mark: Option<Arc<Mark>>,
        heads: Vec<Vec<u8>>,
    },
    Sessions(Incarnation, SessionChunk),
    Ids(Incarnation, IdBlock),
    Directory(Incarnation, Arc<Chunk<Arc<Run>>>),
    /// A run of the directory before it, which says that it has a page.
    Run(Incarnation, Arc<Run>),
    Rules(Incarnation, RuleChunk),
}

/// The pieces of a snapshot. Each is encoded when it is asked for.
#[derive(Debug)]
pub struct SnapshotPages {
    parts: Vec<Vec<u8>>,
    pieces: Vec<Piece>,
    length: RunLength,
    unit: CountUnit,
}

impl Snapshot {
    /// Whether the runs of all entities have the partition's length. If a repair has lost that, they do not until the next
    /// start: then only a whole snapshot can be restored.
    pub fn fits_pages(&self) -> bool {
        let bus = self.bus_queues.iter().map(|it| &it.queue);
        let mut queues = self.queues.iter().chain(bus);
        queues.all(|queue| {
            let run = queue.runs.first().and_then(|chunk| chunk.first());
            run.is_none_or(|(_, run)| run.length() == self.head.run_length)
        })
    }

    /// Plans the parts, which are small and restored first, and the pages, in the order in which they are restored.
    /// Takes a step for each run and each entity.
    pub fn plan_pages(self) -> SnapshotPages {
        let (length, unit) = (self.head.run_length, self.head.unit);
        let [stored_marks, bus_marks] = self.head.head_marks.clone();
        let mut queues = self.queues;
        let mut bus_queues = self.bus_queues;
        let mut pieces = Vec::new();
        let stored = queues.iter_mut().map(heads_of);
        plan_heads(service::STORAGE, stored, &stored_marks, &mut pieces);
        let bus = bus_queues.iter_mut().map(|it| heads_of(&mut it.queue));
        plan_heads(service::BUS, bus, &bus_marks, &mut pieces);
        queues.iter().for_each(|it| plan_runs(it, &mut pieces));
        bus_queues.iter().for_each(|it| plan_bus(it, &mut pieces));
        SnapshotPages {
            parts: self.head.encode(),
            pieces,
            length,
            unit,
        }
    }
}

/// The parts of a queue itself, out of it.
fn heads_of(queue: &mut SharedQueue) -> (Incarnation, Vec<Vec<u8>>) {
    (queue.incarnation, std::mem::take(&mut queue.head))
}

fn plan_heads(
    service: u8,
    queues: impl Iterator<Item = (Incarnation, Vec<Vec<u8>>)>,
    marks: &HeadMarks,
    pieces: &mut Vec<Piece>,
) {
    for (incarnation, parts) in queues {
        let group = incarnation.as_u64() >> HEADS_BITS;
        match pieces.last_mut() {
            Some(Piece::Heads {
                service: last_service,
                group: last_group,
                heads,
                ..
            }) if (*last_service, *last_group) == (service, group) => heads.extend(parts),
            Some(_) | None => pieces.push(Piece::Heads {
                service,
                group,
                mark: marks.get(&group).cloned(),
                heads: parts,
            }),
        }
    }
}

fn plan_runs(queue: &SharedQueue, pieces: &mut Vec<Piece>) {
    for chunk in &queue.runs {
        pieces.push(Piece::Directory(queue.incarnation, Arc::clone(chunk)));
        let paged = chunk.iter().map(|(_, run)| run);
        let paged = paged.filter(|run| run.records_at() != RecordsAt::Directory);
        pieces.extend(paged.map(|run| Piece::Run(queue.incarnation, Arc::clone(run))));
    }
}

fn plan_bus(queue: &SharedBusQueue, pieces: &mut Vec<Piece>) {
    let incarnation = queue.queue.incarnation;
    let sessions = queue.sessions.iter().cloned();
    pieces.extend(sessions.map(|chunk| Piece::Sessions(incarnation, chunk)));
    let blocks = queue.ids.blocks().into_iter();
    pieces.extend(blocks.map(|block| Piece::Ids(incarnation, block)));
    plan_runs(&queue.queue, pieces);
    // Behind the messages: without those, rules that are retired would go.
    let rules = queue.rules.iter().cloned();
    pieces.extend(rules.map(|chunk| Piece::Rules(incarnation, chunk)));
}

impl SnapshotPages {
    /// The parts that are written each time.
    pub fn parts(&self) -> &[Vec<u8>] {
        &self.parts
    }

    /// How many pages there are.
    pub fn page_count(&self) -> usize {
        self.pieces.len()
    }

    /// The page that has a piece as it is, if there is one.
    pub fn page(&self, index: usize) -> Option<PageNumber> {
        match self.pieces.get(index)? {
            Piece::Heads { mark, .. } => mark.as_ref()?.get(),
            Piece::Sessions(_, chunk) => chunk.mark().get(),
            // Its queue's head says which ids at its beginning are dropped.
            Piece::Ids(_, block) => block.mark().get(),
            Piece::Directory(_, chunk) => chunk.mark().get(),
            Piece::Rules(_, chunk) => chunk.mark().get(),
            Piece::Run(_, run) => match run.records_at() {
                RecordsAt::Page(page, _) => Some(page),
                RecordsAt::Directory | RecordsAt::NewPage => None,
            },
        }
    }

    /// Whether a piece can be encoded: what is cold is not in memory.
    pub fn can_encode(&self, index: usize) -> bool {
        match self.pieces.get(index) {
            Some(Piece::Run(_, run)) => !run.is_cold(),
            Some(Piece::Ids(_, block)) => !block.is_cold(),
            Some(
                Piece::Heads { .. } | Piece::Sessions(..) | Piece::Directory(..) | Piece::Rules(..),
            )
            | None => true,
        }
    }

    /// Encodes a piece.
    pub fn encode(&self, index: usize) -> Option<PageBytes> {
        let piece = self.pieces.get(index)?;
        let (kind, mut groups) = match piece {
            Piece::Heads {
                service,
                group,
                heads,
                ..
            } => (kind::HEADS, vec![put_heads(*service, *group, heads)]),
            Piece::Sessions(queue, chunk) => (
                kind::SESSIONS,
                vec![of_queue(*queue, |out| bus::put_sessions(out, chunk))],
            ),
            Piece::Ids(queue, block) => (
                kind::IDS,
                vec![of_queue(*queue, |out| bus::put_ids(out, block))],
            ),
            Piece::Directory(queue, chunk) => {
                let mut out = Vec::new();
                put_directory(&mut out, self.head(*queue), chunk);
                (kind::DIRECTORY, vec![out])
            }
            Piece::Run(queue, run) => (kind::RUN, run_page(self.head(*queue), run)),
            Piece::Rules(topic, chunk) => {
                let rules = chunk.iter().map(|(_, rule)| &**rule);
                (
                    kind::RULES,
                    vec![of_queue(*topic, |out| put_rules(out, rules))],
                )
            }
        };
        if let Some(first) = groups.first_mut() {
            first.insert(0, version(kind));
        }
        Some(PageBytes { kind, groups })
    }

    /// Notes the page that has a piece, now that it is durable and will stay.
    pub fn keep(&self, index: usize, page: PageNumber) {
        match self.pieces.get(index) {
            Some(Piece::Heads {
                mark: Some(mark), ..
            }) => mark.set(page),
            Some(Piece::Heads { mark: None, .. }) | None => {}
            Some(Piece::Sessions(_, chunk)) => chunk.mark().set(page),
            Some(Piece::Ids(_, block)) => block.mark().set(page),
            Some(Piece::Directory(_, chunk)) => chunk.mark().set(page),
            Some(Piece::Run(_, run)) => run.keep_page(page),
            Some(Piece::Rules(_, chunk)) => chunk.mark().set(page),
        }
    }

    fn head(&self, entity: Incarnation) -> PageHead {
        PageHead {
            entity,
            length: self.length,
            unit: self.unit,
        }
    }
}

fn put_heads(service: u8, group: u64, heads: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![service];
    put_varint(&mut out, group);
    heads.iter().for_each(|head| put_bytes(&mut out, head));
    out
}

fn of_queue(queue: Incarnation, put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, queue.as_u64());
    put(&mut out);
    out
}
