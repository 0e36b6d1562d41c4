//! A state that is rebuilt of what a log has.
//!
//! If there is a limit for records in memory, the pages of runs are passed over, as far as their directories say all that
//! the state needs of them. Then what a start takes and needs does not grow with the backlog.

use std::mem;

use kew_engine::{CountUnit, DecodedPage, Event, Group, RestoringPages, State};
use kew_log::{BoxError, FollowError, LogPosition, PageContent, PageNumber, Replay};
use kew_planted::{Seam, pass};

use super::reading::{Step, Told};
use super::refused;

/// How a state is rebuilt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rebuild {
    /// The unit of live bytes.
    pub(crate) unit: CountUnit,
    /// The limit for records in memory. Without one, all pages are read but those that may be damaged.
    pub(crate) resident_bytes: Option<u64>,
}

impl Rebuild {
    /// Half of the limit is left for what the log brings.
    fn restoring(self) -> RestoringPages {
        let limit = self.resident_bytes;
        limit.map_or_else(RestoringPages::default, |bytes| {
            RestoringPages::within(bytes / 2)
        })
    }
}

/// Rebuilds a state.
pub(crate) struct Replayed {
    pub(crate) state: State,
    how: Rebuild,
    restoring: RestoringPages,
    /// The groups of pages that are damaged in both copies. Their messages are to be set aside.
    pub(crate) damaged: Vec<(Group, kew_engine::PageNumber)>,
    /// Where the snapshot lies.
    snapshot: LogPosition,
    /// How many effects came after the snapshot.
    pub(crate) effect_count: u64,
    /// By how much pages have grown at most because of the events that came after it.
    pub(crate) growth_bytes: u64,
}

impl Replayed {
    /// Everything is read.
    pub(crate) fn whole(unit: CountUnit) -> Self {
        Self::new(Rebuild {
            unit,
            resident_bytes: None,
        })
    }

    pub(super) fn new(how: Rebuild) -> Self {
        Self {
            state: State::counting_in(how.unit),
            how,
            restoring: how.restoring(),
            damaged: Vec::new(),
            snapshot: LogPosition::default(),
            effect_count: 0,
            growth_bytes: 0,
        }
    }

    /// Takes the next step.
    pub(super) fn take(&mut self, step: Step) -> Result<(), FollowError> {
        let restored = match step {
            Step::Begin => {
                self.begin();
                Ok(())
            }
            Step::SnapshotBegin(position) => {
                self.snapshot = position;
                Ok(())
            }
            Step::Part(part) => self.restore(&part),
            Step::Page {
                number,
                decoded,
                is_at_risk,
            } => {
                if is_at_risk {
                    // Nothing leaves memory whose page lies in a file with damage.
                    self.restoring.keep_next();
                }
                self.restore_page(number, decoded)
            }
            Step::Damaged(page, decoded) => self.restore_page(page, decoded),
            Step::PassedOver(page) => self.pass_over(page),
            Step::SnapshotEnd => self.end_pages(),
            Step::Events(events) => return self.take_events(events),
        };
        restored.map_err(|source| refused(self.snapshot, source))
    }

    fn take_events(&mut self, events: Vec<(LogPosition, Told)>) -> Result<(), FollowError> {
        for (record, told) in events {
            match told {
                Told::Event(event, size_bytes) => self.apply(record, event, size_bytes),
                Told::Bytes(bytes) => {
                    let taken = self.take_bytes(record, &bytes);
                    taken.map_err(|source| refused(record, source))?;
                }
            }
        }
        Ok(())
    }

    fn take_bytes(&mut self, record: LogPosition, bytes: &[u8]) -> Result<(), BoxError> {
        let event = self.read_event(bytes)?;
        self.apply(record, event, bytes.len());
        Ok(())
    }

    fn restore(&mut self, part: &[u8]) -> Result<(), BoxError> {
        Ok(self.state.restore(part)?)
    }

    fn restore_page(&mut self, page: PageNumber, decoded: DecodedPage) -> Result<(), BoxError> {
        let page = to_engine(page);
        let restored = (self.state).restore_decoded(&mut self.restoring, page, decoded);
        Ok(restored?)
    }

    fn pass_over(&mut self, page: PageNumber) -> Result<(), BoxError> {
        let page = to_engine(page);
        Ok((self.state).restore_passed_over(&mut self.restoring, page)?)
    }

    fn end_pages(&mut self) -> Result<(), BoxError> {
        self.damaged = self.restoring.take_damaged();
        Ok(self.state.finish_pages(mem::take(&mut self.restoring))?)
    }

    /// A log of the format before can hold events of earlier versions. They are read with what messages were before them:
    /// such a log has no pages, so nothing was passed over.
    fn read_event(&self, bytes: &[u8]) -> Result<Event, BoxError> {
        if Event::needs_state(bytes) && self.state.may_be_cold() {
            return Err("an event of an earlier version comes after pages".into());
        }
        Ok(self.state.read_event(bytes)?)
    }

    /// Applies an event that takes so many bytes.
    fn apply(&mut self, record: LogPosition, event: Event, size_bytes: usize) {
        self.effect_count += event.effect_count() as u64;
        self.growth_bytes += event.growth_bytes(size_bytes as u64);
        pass(Seam::Replayed, (record, event), |(_, event)| {
            self.state.apply(event);
        });
        // Nobody waits for a replay: what was cleared must not stay until its end.
        drop(self.state.take_waste());
    }
}

/// Without a follower: all pages are read, and nothing leaves memory.
impl Replay for Replayed {
    fn begin(&mut self) {
        *self = Self::new(self.how);
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        self.restore(part)
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        self.restore_page(page, decode(content)?)
    }

    fn snapshot_end(&mut self) -> Result<(), BoxError> {
        self.end_pages()
    }

    fn event(&mut self, record: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        self.take_bytes(record, event)
    }
}

/// The number of a page, as the engine knows it.
pub(crate) fn to_engine(page: PageNumber) -> kew_engine::PageNumber {
    kew_engine::PageNumber::new(page.as_u64())
}

/// Decodes a page of a snapshot.
pub(crate) fn decode(page: &PageContent) -> Result<DecodedPage, BoxError> {
    let groups: Vec<&[u8]> = page.groups().collect();
    Ok(DecodedPage::decode(page.kind, &groups)?)
}
