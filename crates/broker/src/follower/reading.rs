//! What the jobs of a follower do: they read, choose the pages to read, and decode.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kew_engine::{DecodedPage, Event};
use kew_log::{
    Batch, BoxError, Job, JobOutcome, LogPosition, PageChoice, PageContent, PageNumber, Piece,
};

use super::{Rebuild, Refused, decode};
use crate::broker::lock;

/// What a state takes.
pub(super) enum Step {
    Begin,
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

/// Makes jobs that read also decode.
#[derive(Default)]
pub(super) struct Reader {
    /// The pages of the job that is out. Which ones are read depends on what is on them.
    decoded: Arc<Mutex<VecDeque<DecodedPage>>>,
}

impl Reader {
    /// For the log: which pages are read.
    pub(super) fn choosing(&self, how: Rebuild) -> impl PageChoice + use<> {
        Choosing {
            how,
            decoded: Arc::clone(&self.decoded),
            next: VecDeque::new(),
        }
    }

    /// A job that decodes what `job` reads.
    pub(super) fn decoding(&self, job: Job) -> Job {
        let decoded = Arc::clone(&self.decoded);
        Job::load(move || {
            let mut outcome = job.run();
            let pieces = outcome.take_followed();
            let mut read = Read {
                outcome,
                steps: Vec::with_capacity(pieces.len()),
                refused: None,
            };
            let pages = mem::take(&mut *lock(&decoded));
            read.refused = read.decode(pieces, pages).err();
            read
        })
    }
}

/// What a job has read.
pub(super) struct Read {
    /// For the log.
    pub(super) outcome: JobOutcome,
    pub(super) steps: Vec<Step>,
    /// What cannot be decoded behind these.
    pub(super) refused: Option<Refused>,
}

impl Read {
    fn decode(
        &mut self,
        pieces: Vec<Piece>,
        mut pages: VecDeque<DecodedPage>,
    ) -> Result<(), Refused> {
        for piece in pieces {
            let step = match piece {
                Piece::Begin => Step::Begin,
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

fn tell(batch: Batch<'_>, events: &mut Vec<(LogPosition, Told)>) -> Result<(), Refused> {
    for event in batch.events() {
        let told = match Event::needs_state(event) {
            true => Told::Bytes(Bytes::copy_from_slice(event)),
            false => {
                let decoded = Event::decode(event);
                let decoded =
                    decoded.map_err(|error| Refused::event(batch.record, error.into()))?;
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
    decoded: Arc<Mutex<VecDeque<DecodedPage>>>,
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
