//! A state from what is left of the pages of a damaged snapshot.
//!
//! Each page is used by itself, as far as that is possible. A run without its page has the messages that lie in its
//! directory, and the numbers of the others are known. A page without its directory has messages that may be gone: they are
//! kept. What is restored is written as a whole next, so pages are not noted.

use std::collections::{BTreeMap, BTreeSet};

use super::pages::service;
use super::restore_pages::{Decoded, DecodedPage, RestoringPages, error};
use crate::bus::pages::use_session_numbers;
use crate::bus::{subscriptions_of_rules, use_rule_numbers};
use crate::shared::HEADS_BITS;
use crate::state::State;
use crate::table::{
    MessageState, NumberedMessage, PageHead, PagedMessage, PagedRun, without_directory,
};
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::elements::incarnation;
use crate::vocabulary::{Incarnation, PageNumber, Place, Service};

/// What has come of a damaged snapshot.
#[derive(Debug, Default)]
pub(super) struct Partial {
    directory: Option<Directory>,
    /// Messages of which nothing but the number is left.
    lost: Vec<Place>,
}

/// A directory page, and the pages that have come of its runs, by index.
#[derive(Debug)]
struct Directory {
    head: PageHead,
    runs: Vec<PagedRun>,
    pages: BTreeMap<u64, Vec<PagedMessage>>,
}

impl Directory {
    fn awaits(&self, head: PageHead, index: u64) -> bool {
        let mut runs = self.runs.iter();
        self.head.is_of_same_runs(head) && runs.any(|run| run.has_page && run.index == index)
    }
}

impl DecodedPage {
    /// The entity that it has messages, sessions, ids or rules of. `None` for a page of entities themselves.
    pub fn entity(&self) -> Option<Incarnation> {
        match &self.0 {
            Decoded::Directory(head, _)
            | Decoded::Run(head, ..)
            | Decoded::Damaged(Some((head, _)), _) => Some(head.entity),
            Decoded::Ids(entity, _) => Some(*entity),
            Decoded::Sessions(bytes) | Decoded::Rules(bytes) => {
                incarnation(&mut Reader::new(bytes)).ok()
            }
            Decoded::Heads(_) | Decoded::Damaged(None, _) => None,
        }
    }

    /// The topic whose rules it has, with their subscriptions.
    pub fn topic(&self) -> Option<(Incarnation, BTreeSet<Incarnation>)> {
        let Decoded::Rules(bytes) = &self.0 else {
            return None;
        };
        let mut r = Reader::new(bytes);
        let topic = incarnation(&mut r).ok()?;
        Some((topic, subscriptions_of_rules(&mut r)))
    }

    fn messages(&self) -> impl Iterator<Item = &PagedMessage> {
        let (runs, messages) = match &self.0 {
            Decoded::Directory(_, runs) => (&**runs, &[][..]),
            Decoded::Run(.., messages) | Decoded::Damaged(_, messages) => (&[][..], &**messages),
            Decoded::Ids(..) | Decoded::Heads(_) | Decoded::Sessions(_) | Decoded::Rules(_) => {
                (&[][..], &[][..])
            }
        };
        runs.iter().flat_map(PagedRun::here).chain(messages)
    }

    /// Whether it has what only Service Bus has.
    pub fn is_of_bus(&self) -> bool {
        let is_of_bus = |(_, record, side): &PagedMessage| {
            let is_state = matches!(
                record.state,
                MessageState::Deferred | MessageState::Scheduled
            );
            // Messages of Queue Storage have nothing of what few have.
            let is_moved = record.cause.is_some() || side.is_some();
            is_state || is_moved || record.session != 0
        };
        let has_parts = matches!(
            self.0,
            Decoded::Ids(..) | Decoded::Sessions(_) | Decoded::Rules(_)
        );
        has_parts || self.messages().any(is_of_bus)
    }

    /// Whether it has what no sub-queue has: rules, or messages that are no dead letters.
    pub fn is_of_no_sub_queue(&self) -> bool {
        let has_rules = matches!(self.0, Decoded::Rules(_));
        has_rules || self.messages().any(|(_, record, _)| record.cause.is_none())
    }
}

impl RestoringPages {
    /// Of a snapshot that is damaged: pages may be missing. What is there is restored.
    pub fn partial() -> Self {
        Self {
            partial: Some(Box::default()),
            ..Self::default()
        }
    }

    /// The messages that were there, and of which nothing is left, since the last call.
    pub fn take_lost(&mut self) -> Vec<Place> {
        let partial = self.partial.as_mut();
        partial.map_or_else(Vec::new, |partial| std::mem::take(&mut partial.lost))
    }
}

impl State {
    /// The service of an entity that is not there, of which there is a page, as far as that shows here.
    pub fn service_of_page(
        &self,
        restoring: &RestoringPages,
        page: &DecodedPage,
    ) -> Option<Service> {
        let entity = page.entity();
        let group = entity.map(|entity| entity.as_u64() >> HEADS_BITS);
        let has_heads = |of: u8| {
            let mut heads = restoring.heads.iter();
            heads.any(|(service, other, _)| (*service, Some(*other)) == (of, group))
        };
        // If the heads of one service are there, the entity is one of the other service.
        let (has_stored, has_bus) = (has_heads(service::STORAGE), has_heads(service::BUS));
        let is_of_known = entity.is_some_and(|it| self.bus.is_of_known_queue(it));
        let is_bus = page.is_of_bus()
            || is_of_known
            || (has_stored && !has_bus)
            || (self.storage.is_empty() && !self.bus.is_empty() && !has_bus);
        match is_bus {
            true => Some(Service::ServiceBus),
            false => (has_bus && !has_stored).then_some(Service::QueueStorage),
        }
    }

    /// Adds a page of a damaged snapshot. An error says that it, or one before it, cannot be used.
    pub(super) fn restore_left(
        &mut self,
        restoring: &mut RestoringPages,
        page: PageNumber,
        decoded: DecodedPage,
    ) -> Result<(), DecodeError> {
        let Some(partial) = &mut restoring.partial else {
            return Ok(());
        };
        let (head, index, messages) = match decoded.0 {
            Decoded::Run(head, index, messages)
            | Decoded::Damaged(Some((head, index)), messages) => (head, index, messages),
            Decoded::Damaged(None, _) => return Ok(()),
            Decoded::Directory(head, runs) => {
                let completed = self.complete_pages(restoring);
                if let Some(partial) = &mut restoring.partial {
                    let pages = BTreeMap::new();
                    partial.directory = Some(Directory { head, runs, pages });
                }
                return completed;
            }
            Decoded::Ids(entity, block) => {
                let completed = self.complete_pages(restoring);
                return completed.and(self.restore_ids(page, None, (entity, block)));
            }
            Decoded::Heads(bytes) => {
                let completed = self.complete_pages(restoring);
                return completed.and(self.restore_heads(restoring, page, &bytes));
            }
            Decoded::Sessions(bytes) => {
                let completed = self.complete_pages(restoring);
                self.use_session_numbers(&bytes)?;
                return completed.and(self.restore_sessions(page, &bytes));
            }
            Decoded::Rules(bytes) => {
                let completed = self.complete_pages(restoring);
                self.use_rule_numbers(&bytes)?;
                return completed.and(self.restore_rules(page, &bytes));
            }
        };
        let directory = partial.directory.as_mut();
        if let Some(directory) = directory.filter(|it| it.awaits(head, index)) {
            directory.pages.insert(index, messages);
            return Ok(());
        }
        let completed = self.complete_pages(restoring);
        let messages = without_directory(head.length, index, messages);
        let restored = messages.ok_or_else(|| error("run out of range"));
        completed.and(restored.and_then(|messages| self.add_left(head.entity, messages)))
    }

    fn use_session_numbers(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut r = Reader::new(bytes);
        match self.bus.get_mut(&incarnation(&mut r)?) {
            Some(queue) => use_session_numbers(queue, &mut r),
            None => Ok(()),
        }
    }

    fn use_rule_numbers(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut r = Reader::new(bytes);
        let queue = self.bus.get_mut(&incarnation(&mut r)?);
        if let Some(topic) = queue.and_then(|queue| queue.topic.as_mut()) {
            use_rule_numbers(topic, &mut r);
        }
        Ok(())
    }

    /// Adds what has come of the last directory. No more pages of its runs come.
    pub fn complete_pages(&mut self, restoring: &mut RestoringPages) -> Result<(), DecodeError> {
        let Some(partial) = &mut restoring.partial else {
            return Ok(());
        };
        let Some(mut directory) = partial.directory.take() else {
            return Ok(());
        };
        let head = directory.head;
        let mut all = Vec::new();
        for run in &directory.runs {
            let page = directory.pages.remove(&run.index).unwrap_or_default();
            let (left, missing) = run.left(head.length, page);
            let missing = missing.into_iter().map(|number| Place {
                entity: head.entity,
                number,
            });
            partial.lost.extend(missing);
            all.extend(left);
        }
        if let Some(last) = partial.lost.last() {
            self.storage.use_number(last.entity, last.number);
            self.bus.use_number(last.entity, last.number);
        }
        self.add_left(head.entity, all)
    }

    fn add_left(
        &mut self,
        entity: Incarnation,
        messages: Vec<NumberedMessage>,
    ) -> Result<(), DecodeError> {
        let catalogue = &mut self.catalogue;
        if self.storage.contains_key(&entity) {
            self.storage.restore_left(catalogue, entity, messages);
        } else if self.bus.contains_key(&entity) {
            self.bus.restore_left(catalogue, entity, messages);
        } else {
            return Err(error("messages of a queue that is not there"));
        }
        Ok(())
    }
}
