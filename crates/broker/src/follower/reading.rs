//! The half of a follower that reads: it chooses the pages to read, and decodes.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kew_engine::{DecodedPage, Event};
use kew_log::{
    Batches, BoxError, FollowError, FollowedLog, LogPosition, LogSource, OwnedLog, PageChoice,
    PageContent, PageNumber, Piece, Progress, Recovery,
};

use super::{Rebuild, decode, refused};
use crate::broker::lock;

/// How many events a step has at most, and about how many bytes of the log. A batch can have many more, and a decoded
/// event takes much more than it has in the log.
const STEP_EVENTS: usize = 1024;
const STEP_SIZE_BYTES: usize = 128 * 1024;

/// A log that is read.
pub(super) struct Reading {
    log: Box<dyn FollowedLog>,
    progress: Progress,
    /// The pages that were decoded, because which ones are read depends on what is on them.
    decoded: Pages,
}

type Pages = Arc<Mutex<VecDeque<DecodedPage>>>;

/// What a state takes.
pub(super) enum Step {
    Begin,
    SnapshotBegin(LogPosition),
    Part(Bytes),
    Page {
        number: PageNumber,
        decoded: DecodedPage,
        is_at_risk: bool,
    },
    PassedOver(PageNumber),
    SnapshotEnd,
    Events(Vec<(LogPosition, Told)>),
}

pub(super) enum Told {
    /// With how many bytes it takes.
    Event(Event, usize),
    /// Of an earlier version.
    Bytes(Bytes),
}

impl Reading {
    pub(super) fn begin(source: &dyn LogSource, how: Rebuild) -> Self {
        let decoded = Pages::default();
        let choosing = Choosing {
            how,
            decoded: Arc::clone(&decoded),
            next: VecDeque::new(),
        };
        Self {
            log: source.follow(None, Box::new(choosing)),
            progress: Progress::Behind,
            decoded,
        }
    }

    /// How far the log was read.
    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// Carries out the next job, and lets `take` take what it has read, also if something is wrong behind it.
    ///
    /// # Panics
    ///
    /// If there is none: the log is owned, has failed, or was read and is not promoted.
    pub(super) fn step<E: From<FollowError>>(
        &mut self,
        take: impl FnMut(Step) -> Result<(), E>,
    ) -> Result<(), E> {
        let job = self.log.next_job();
        let job = job.expect("a log has a job until it is owned");
        let mut outcome = job.run();
        let pieces = outcome.take_followed();
        let pages = mem::take(&mut *lock(&self.decoded));
        let taken = decode_pieces(pieces, pages, take);
        let completed = self.log.complete(outcome);
        taken?;
        self.progress = completed?;
        Ok(())
    }

    /// Makes this process the owner of the log, all of which was read.
    pub(super) fn promote(&mut self) {
        let epoch = self.log.seen().epoch.next();
        self.log.promote(epoch);
    }

    pub(super) fn own(self) -> (Box<dyn OwnedLog>, Recovery) {
        self.log.own()
    }
}

fn decode_pieces<E: From<FollowError>>(
    pieces: Vec<Piece>,
    mut pages: VecDeque<DecodedPage>,
    mut take: impl FnMut(Step) -> Result<(), E>,
) -> Result<(), E> {
    for piece in pieces {
        take(match piece {
            Piece::Begin => Step::Begin,
            Piece::SnapshotBegin(position) => Step::SnapshotBegin(position),
            Piece::Part(part) => Step::Part(part),
            Piece::Page {
                number,
                content: _,
                is_at_risk,
            } => Step::Page {
                number,
                decoded: pages.pop_front().expect("each page was noted"),
                is_at_risk,
            },
            Piece::PassedOver(page) => Step::PassedOver(page),
            Piece::SnapshotEnd => Step::SnapshotEnd,
            Piece::Batches(batches) => {
                decode_batches(&batches, &mut take)?;
                continue;
            }
        })?;
    }
    Ok(())
}

/// What lies before an event that cannot be decoded is taken.
fn decode_batches<E: From<FollowError>>(
    batches: &Batches,
    take: &mut impl FnMut(Step) -> Result<(), E>,
) -> Result<(), E> {
    let (mut events, mut size_bytes) = (Vec::new(), 0);
    for batch in batches.iter() {
        for event in batch.events() {
            let told = match tell(event) {
                Ok(told) => told,
                Err(source) => {
                    take(Step::Events(events))?;
                    return Err(refused(batch.record, source).into());
                }
            };
            events.push((batch.record, told));
            size_bytes += event.len();
            if events.len() == STEP_EVENTS || size_bytes >= STEP_SIZE_BYTES {
                take(Step::Events(mem::take(&mut events)))?;
                size_bytes = 0;
            }
        }
    }
    take(Step::Events(events))
}

fn tell(event: &[u8]) -> Result<Told, BoxError> {
    Ok(match Event::needs_state(event) {
        true => Told::Bytes(Bytes::copy_from_slice(event)),
        false => Told::Event(Event::decode(event)?, event.len()),
    })
}

/// Passes over the pages of runs whose directories say enough.
struct Choosing {
    how: Rebuild,
    decoded: Pages,
    /// Whether the next pages are passed over.
    next: VecDeque<bool>,
}

impl PageChoice for Choosing {
    fn begin(&mut self) {
        self.next.clear();
        lock(&self.decoded).clear();
    }

    fn note(&mut self, _: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        let page = decode(content)?;
        let Rebuild {
            unit,
            resident_bytes,
        } = self.how;
        match resident_bytes {
            Some(_) => self.next.extend(page.pages_to_pass_over(unit)),
            None => self.next.extend(page.damaged_pages_to_pass_over(unit)),
        }
        lock(&self.decoded).push_back(page);
        Ok(())
    }

    fn passes_over(&mut self, _: PageNumber) -> bool {
        self.next.pop_front().unwrap_or_default()
    }
}
