//! Queues as parts of a snapshot: a small head, and the messages in parts of bounded size.

use std::sync::Arc;

use super::{Profile, Queue, Queues};
use crate::catalogue::Catalogue;
use crate::table::{Group, PageHead, PagedMessage, PagedRun, Record, Room, Run, SharedRuns};
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::elements::sequence_number;
use crate::vocabulary::{Incarnation, PageNumber};

/// The version of the parts of queues.
pub(crate) const VERSION: u8 = 1;

/// What a snapshot has of a queue of either service.
#[derive(Clone, Debug)]
pub(crate) struct SharedQueue {
    pub(crate) incarnation: Incarnation,
    /// The parts with the queue itself, which are small.
    pub(crate) head: Vec<Vec<u8>>,
    pub(crate) runs: SharedRuns,
}

/// How long it takes to share a queue, in steps of 20 ns, without its references: two steps for each.
const SHARE_STEPS: u64 = 30;

impl SharedQueue {
    /// How long sharing took, with so many references to what there is besides messages.
    pub(crate) fn steps(&self, references: usize) -> u64 {
        let head_bytes: usize = self.head.iter().map(Vec::len).sum();
        let references = references + self.runs.len();
        SHARE_STEPS + (head_bytes / 64 + references * 2) as u64
    }
}

/// Begins a part about a queue.
pub(crate) fn put_head(out: &mut Vec<u8>, kind: u8, incarnation: Incarnation) {
    out.extend_from_slice(&[kind, VERSION]);
    put_varint(out, incarnation.as_u64());
}

/// Puts the part with the messages of these runs. `has_session` says which sessions there are: after wrong effects,
/// a message may have outlived its session.
pub(crate) fn put_messages<P: Profile>(
    out: &mut Vec<u8>,
    incarnation: Incarnation,
    runs: &[Arc<Run>],
    has_session: impl Fn(u32) -> bool,
) {
    put_head(out, P::MESSAGES_PART, incarnation);
    for run in runs {
        for entry in run.entries() {
            let session = Some(entry.record.session).filter(|session| has_session(*session));
            put_varint(out, entry.number.as_u64());
            P::put_message(out, &entry, session.unwrap_or_default());
        }
    }
}

impl<Q: Queue> Queues<Q> {
    /// Adds the messages of a part to a queue that is being restored.
    pub(crate) fn restore_messages(
        &mut self,
        catalogue: &mut Catalogue,
        incarnation: Incarnation,
        r: &mut Reader<'_>,
    ) -> Result<(), DecodeError> {
        let Some(queue) = self.get_mut(&incarnation) else {
            return Err(r.error("messages of a queue that is not there"));
        };
        let backlog = queue.backlog_mut();
        let next = backlog.next();
        let is_new = backlog.restore(&mut catalogue.live, |profile| {
            if r.is_empty() {
                return Ok(None);
            }
            let number = sequence_number(r)?;
            if number >= next {
                return Err(r.error("message above its queue's next sequence number"));
            }
            let (record, side) = Q::Profile::message(r, number)?;
            if record.session != 0 && !profile.has_session(record.session) {
                return Err(r.error("message of a session that is not there"));
            }
            Ok(Some((number, record, side)))
        })?;
        if !is_new {
            return Err(r.error("message twice"));
        }
        queue.settle(catalogue, incarnation);
        Ok(())
    }

    /// Adds a run of a directory page to a queue that is being restored, with the page of the run if it has one. Returns
    /// whether the directory stays as it is.
    ///
    /// What a run counts for follows from its messages, whatever the directory says: then a start heals it, and the next
    /// snapshot writes the directory anew. A directory of an earlier version is written anew, too.
    pub(crate) fn restore_run(
        &mut self,
        catalogue: &mut Catalogue,
        (head, run): (PageHead, &PagedRun),
        page: Option<(PageNumber, Vec<PagedMessage>)>,
        resident_bytes: Option<u64>,
    ) -> Result<bool, &'static str> {
        let queue = self.get_mut(&head.entity).ok_or(NO_QUEUE)?;
        let (backlog, live) = (queue.backlog_mut(), &mut catalogue.live);
        let is_same_unit = live.unit() == head.unit;
        let (page, records) = page.unzip();
        let mut without_session = Vec::new();
        let mut messages = run.messages(head.length, records.unwrap_or_default());
        let is_new = backlog.restore(live, |profile| {
            let next = messages.next()?;
            Ok::<_, &str>(next.map(|(number, record, side)| {
                // After wrong effects, a message may have outlived its session. Then it is not as its page has it.
                if record.session == 0 || profile.has_session(record.session) {
                    return (number, record, side);
                }
                without_session.push(number);
                let session = 0;
                (number, Record { session, ..record }, side)
            }))
        })?;
        if !is_new {
            return Err(TAKEN);
        }
        let table = backlog.table_mut();
        if !table.restore_quarantined(run, is_same_unit, live) {
            return Err(TAKEN);
        }
        let is_as_told = table.keep_page(run, page, &without_session, is_same_unit);
        let room = match resident_bytes {
            None => Room::Unlimited,
            Some(bytes) if live.resident().size_bytes() <= bytes => Room::Left,
            Some(_) => Room::Used,
        };
        let keeps_page = table.settle_restored(run.index, room, live);
        *catalogue.healed_runs += u64::from(!is_as_told);
        queue.settle(catalogue, head.entity);
        let is_current = run.is_of_this_version() && without_session.is_empty();
        Ok(is_as_told && keeps_page && is_current)
    }

    /// Adds a run of a directory page to a queue that is being restored, and nothing of the run's page.
    pub(crate) fn restore_cold(
        &mut self,
        catalogue: &mut Catalogue,
        (head, run): (PageHead, &PagedRun),
        page: PageNumber,
    ) -> Result<(), &'static str> {
        let queue = self.get_mut(&head.entity).ok_or(NO_QUEUE)?;
        let restored = (queue.backlog_mut()).restore_cold(run, page, &mut catalogue.live);
        queue.settle(catalogue, head.entity);
        restored.then_some(()).ok_or(TAKEN)
    }

    /// Adds a run of a directory page, with what could be read of the run's damaged page. Returns the groups that lack a message.
    pub(crate) fn restore_damaged(
        &mut self,
        catalogue: &mut Catalogue,
        (head, run): (PageHead, &PagedRun),
        page: PageNumber,
        left: Vec<PagedMessage>,
    ) -> Result<Vec<Group>, &'static str> {
        let queue = self.get_mut(&head.entity).ok_or(NO_QUEUE)?;
        let (backlog, live) = (queue.backlog_mut(), &mut catalogue.live);
        let lost = backlog.restore_damaged((head.entity, run), page, left, live);
        queue.settle(catalogue, head.entity);
        lost
    }

    /// Whether these are runs of one directory page, and the first ones of theirs in their queue.
    pub(crate) fn is_new_directory(
        &self,
        entity: Incarnation,
        runs: &[PagedRun],
    ) -> Result<bool, &'static str> {
        let queue = self.get(&entity).ok_or(NO_QUEUE)?;
        Ok(queue.backlog().table().is_new_directory(runs))
    }

    /// Notes the page of the directory with a run.
    pub(crate) fn keep_directory(&self, entity: Incarnation, run: u64, directory: PageNumber) {
        if let Some(queue) = self.get(&entity) {
            queue.backlog().table().keep_directory(run, directory);
        }
    }
}

pub(super) const TAKEN: &str = "message twice, or above its queue's next sequence number";

const NO_QUEUE: &str = "messages of a queue that is not there";
