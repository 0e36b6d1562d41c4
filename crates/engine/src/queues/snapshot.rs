//! Queues as parts of a snapshot: a small head, and the messages in parts of bounded size.

use std::sync::Arc;

use super::{Profile, Queue, Queues};
use crate::catalogue::Catalogue;
use crate::table::{PageHead, PagedMessage, PagedRun, Record, Run, SharedRuns};
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

    /// Adds the runs of a directory page to a queue that is being restored, with the pages of those that have one.
    ///
    /// What a run counts for follows from its messages, whatever the page says: then a start heals it, and the next
    /// snapshot writes the page anew.
    pub(crate) fn restore_runs(
        &mut self,
        catalogue: &mut Catalogue,
        directory: PageNumber,
        head: PageHead,
        runs: Vec<PagedRun>,
        pages: Vec<(PageNumber, Vec<PagedMessage>)>,
    ) -> Result<(), &'static str> {
        let Some(queue) = self.get_mut(&head.entity) else {
            return Err("messages of a queue that is not there");
        };
        let (backlog, live) = (queue.backlog_mut(), &mut catalogue.live);
        let is_same_unit = live.unit() == head.unit;
        let is_new = backlog.table().is_new_directory(&runs);
        let mut healed = 0;
        let mut pages = pages.into_iter();
        for run in &runs {
            let (page, records) = match run.has_page {
                true => pages.next().map(|(page, records)| (Some(page), records)),
                false => Some((None, Vec::new())),
            }
            .ok_or("run without its page")?;
            let mut messages = run.messages(head.length, records);
            let is_new = backlog.restore(live, |profile| {
                let next = messages.next()?;
                // After wrong effects, a message may have outlived its session.
                Ok::<_, &str>(next.map(|(number, record, side)| {
                    let session = Some(record.session).filter(|it| profile.has_session(*it));
                    let session = session.unwrap_or_default();
                    (number, Record { session, ..record }, side)
                }))
            })?;
            if !is_new {
                return Err("message twice, or above its queue's next sequence number");
            }
            let is_as_told = backlog.table_mut().keep_page(run, page, is_same_unit);
            healed += u64::from(!is_as_told);
        }
        if let Some(run) = runs.first().filter(|_| is_new && healed == 0) {
            backlog.table().keep_directory(run.index, directory);
        }
        *catalogue.healed_runs += healed;
        queue.settle(catalogue, head.entity);
        Ok(())
    }
}
