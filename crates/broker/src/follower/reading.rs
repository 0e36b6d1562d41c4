//! The half of a follower that reads: it chooses the pages to read, and decodes.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kew_engine::{DecodedPage, Event};
use kew_log::{
    Batch, BoxError, FollowError, FollowedLog, LogPosition, LogSource, OwnedLog, PageChoice,
    PageContent, PageNumber, Piece, Progress, Recovery,
};

use super::{Rebuild, decode, refused};
use crate::broker::lock;

/// A log that is read.
pub(super) struct Reading {
    log: Box<dyn FollowedLog>,
    progress: Progress,
    /// The pages that were decoded, because which ones are read depends on what is on them.
    decoded: Pages,
}

type Pages = Arc<Mutex<VecDeque<DecodedPage>>>;

/// What was read.
pub(super) struct Read {
    /// What a state takes, in order.
    pub(super) steps: Vec<Step>,
    /// What is wrong behind that.
    pub(super) failed: Option<FollowError>,
}

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

    /// Carries out the next job. There is one until the log is owned, once it was promoted, or has failed.
    pub(super) fn step(&mut self) -> Read {
        let job = self.log.next_job();
        let job = job.expect("a log has a job until it is owned");
        let mut outcome = job.run();
        let pieces = outcome.take_followed();
        let pages = mem::take(&mut *lock(&self.decoded));
        let mut read = Read {
            steps: Vec::with_capacity(pieces.len()),
            failed: None,
        };
        let decoded = read.decode(pieces, pages);
        let completed = self.log.complete(outcome);
        // What was read lies before the place where reading has failed.
        match decoded.and(completed) {
            Ok(progress) => self.progress = progress,
            Err(error) => read.failed = Some(error),
        }
        read
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

impl Read {
    fn decode(
        &mut self,
        pieces: Vec<Piece>,
        mut pages: VecDeque<DecodedPage>,
    ) -> Result<(), FollowError> {
        for piece in pieces {
            let step = match piece {
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
                    let mut events = Vec::new();
                    let told = batches.iter().try_for_each(|it| tell(it, &mut events));
                    self.steps.push(Step::Events(events));
                    told?;
                    continue;
                }
            };
            self.steps.push(step);
        }
        Ok(())
    }
}

fn tell(batch: Batch<'_>, events: &mut Vec<(LogPosition, Told)>) -> Result<(), FollowError> {
    for event in batch.events() {
        let told = match Event::needs_state(event) {
            true => Told::Bytes(Bytes::copy_from_slice(event)),
            false => {
                let decoded = Event::decode(event);
                let decoded = decoded.map_err(|error| refused(batch.record, error.into()))?;
                Told::Event(decoded, event.len())
            }
        };
        events.push((batch.record, told));
    }
    Ok(())
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
