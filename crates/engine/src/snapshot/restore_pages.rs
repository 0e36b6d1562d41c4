//! A state from pages.
//!
//! Pages come in the order in which a snapshot plans them: heads first, and the runs of a directory right behind it.

use std::collections::VecDeque;

use super::pages::{PartKind, kind, reads_version, service};
use super::restore_left::Partial;
use crate::bus::pages as bus;
use crate::bus::{ReadBlock, restore_rules};
use crate::queues::Queue;
use crate::state::State;
use crate::table::{CountUnit, Group, PageHead, PagedMessage, PagedRun, directory, run_of_page};
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::elements::incarnation;
use crate::vocabulary::{Incarnation, PageNumber};

/// A directory page whose runs are being restored: each with its page, as soon as that comes.
#[derive(Debug)]
pub(super) struct Directory {
    page: PageNumber,
    head: PageHead,
    /// Those that are left.
    runs: VecDeque<PagedRun>,
    first_run: u64,
    /// Whether it stays as it is: the restored runs are as it says, and no others are in their place.
    is_as_told: bool,
}

impl Directory {
    /// Whether the page of this run comes next.
    fn awaits(&self, index: u64) -> bool {
        let next = self.runs.front();
        next.is_some_and(|run| run.has_page && run.index == index)
    }
}

/// A page, decoded. That needs no state, so another thread can do it.
#[derive(Debug)]
pub struct DecodedPage(pub(super) Decoded);

#[derive(Debug)]
pub(super) enum Decoded {
    Directory(PageHead, Vec<PagedRun>),
    Run(PageHead, u64, Vec<PagedMessage>),
    /// What is left of one of these. None of it if not even its first group can be read.
    Damaged(Option<(PageHead, u64)>, Vec<PagedMessage>),
    Ids(Incarnation, ReadBlock),
    /// These are small, and are decoded into the state.
    Heads(Vec<u8>),
    Sessions(Vec<u8>),
    Rules(Vec<u8>),
}

impl DecodedPage {
    /// Decodes a page of that kind.
    pub fn decode(kind: u8, groups: &[&[u8]]) -> Result<Self, DecodeError> {
        let first = groups.split_first();
        let first = first.and_then(|(first, rest)| Some((first.split_first()?, rest)));
        let Some(((version, first), rest)) = first.filter(|((it, _), _)| reads_version(kind, **it))
        else {
            return Err(error("page version that is not known"));
        };
        if kind == kind::RUN {
            let groups = std::iter::once(first).chain(rest.iter().copied());
            let (head, index, messages) = run_of_page(groups)?;
            return Ok(Self(Decoded::Run(head, index, messages)));
        }
        if !rest.is_empty() {
            return Err(error("page with another number of groups"));
        }
        let bytes = first;
        if kind != kind::DIRECTORY {
            let kind = PartKind::of(kind);
            let kind = kind.ok_or_else(|| error("kind of a page that is not known"))?;
            return Self::part(kind, bytes);
        }
        let mut r = Reader::new(bytes);
        let (head, runs) = directory(&mut r, *version)?;
        r.finish()?;
        Ok(Self(Decoded::Directory(head, runs)))
    }

    /// Decodes what is left of the page of a run: those of its groups that can be read.
    pub fn decode_damaged(kind: u8, groups: &[Option<&[u8]>]) -> Result<Self, DecodeError> {
        let Some((Some(first), rest)) = groups.split_first() else {
            return Ok(Self(Decoded::Damaged(None, Vec::new())));
        };
        let (first, rest) = (*first, rest.iter().flatten().copied());
        let groups: Vec<&[u8]> = std::iter::once(first).chain(rest).collect();
        let Self(Decoded::Run(head, index, left)) = Self::decode(kind, &groups)? else {
            return Err(error("damaged page that is not that of a run"));
        };
        Ok(Self(Decoded::Damaged(Some((head, index)), left)))
    }

    fn part(kind: PartKind, bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self(match kind {
            PartKind::Heads => Decoded::Heads(bytes.to_vec()),
            PartKind::Sessions => Decoded::Sessions(bytes.to_vec()),
            PartKind::Rules => Decoded::Rules(bytes.to_vec()),
            PartKind::Ids => {
                let mut r = Reader::new(bytes);
                let entity = incarnation(&mut r)?;
                let block = bus::id_block(&mut r)?;
                r.finish()?;
                Decoded::Ids(entity, block)
            }
        }))
    }

    /// For each run's page that follows this one, in order, whether a start can pass over it. The start counts live bytes in
    /// that unit: with another one, it has to count each body.
    pub fn pages_to_pass_over(&self, unit: CountUnit) -> impl Iterator<Item = bool> {
        self.plain_pages(unit, |_| true)
    }

    /// The same of a start that reads all pages but those of which messages were set aside: they are damaged.
    pub fn damaged_pages_to_pass_over(&self, unit: CountUnit) -> impl Iterator<Item = bool> {
        self.plain_pages(unit, PagedRun::has_quarantined)
    }

    /// The unit in which a directory counts live bytes.
    pub fn count_unit(&self) -> Option<CountUnit> {
        match &self.0 {
            Decoded::Directory(head, _) => Some(head.unit),
            Decoded::Run(..)
            | Decoded::Damaged(..)
            | Decoded::Ids(..)
            | Decoded::Heads(_)
            | Decoded::Sessions(_)
            | Decoded::Rules(_) => None,
        }
    }

    /// Likewise, whether a start can do without what is damaged on it. See [`Self::decode_damaged`].
    pub fn pages_that_can_be_damaged(&self, unit: CountUnit) -> impl Iterator<Item = bool> {
        self.run_pages(unit, |_, run| run.can_be_damaged())
    }

    fn plain_pages(
        &self,
        unit: CountUnit,
        is_passed_over: impl Fn(&PagedRun) -> bool,
    ) -> impl Iterator<Item = bool> {
        let is_plain = |head: &PageHead, run: &PagedRun| run.is_plain(head.length);
        self.run_pages(unit, move |head, run| {
            is_plain(head, run) && is_passed_over(run)
        })
    }

    /// What is true of the runs of a directory that have pages, if its spreads are in that unit.
    fn run_pages(
        &self,
        unit: CountUnit,
        is_true: impl Fn(&PageHead, &PagedRun) -> bool,
    ) -> impl Iterator<Item = bool> {
        let (head, runs) = match &self.0 {
            Decoded::Directory(head, runs) => (Some(head), runs.as_slice()),
            Decoded::Run(..)
            | Decoded::Damaged(..)
            | Decoded::Ids(..)
            | Decoded::Heads(_)
            | Decoded::Sessions(_)
            | Decoded::Rules(_) => (None, &[][..]),
        };
        let head = head.filter(|head| head.unit == unit);
        let paged = runs.iter().filter(|run| run.has_page);
        paged.map(move |run| head.is_some_and(|head| is_true(head, run)))
    }
}

/// Pages on their way into a state that began empty.
#[derive(Debug, Default)]
pub struct RestoringPages {
    pub(super) directory: Option<Directory>,
    /// The pages of heads: each change to an entity takes its mark away, so they get theirs last.
    pub(super) heads: Vec<(u8, u64, PageNumber)>,
    /// What is left of a damaged snapshot: pages may be missing.
    pub(super) partial: Option<Box<Partial>>,
    /// Above so many bytes of records, runs whose pages are read keep few records in memory.
    pub(super) resident_bytes: Option<u64>,
    /// Whether what is on the next page stays in memory.
    pub(super) keeps_next: bool,
    /// The groups of damaged pages that lack messages, each with its page.
    pub(super) damaged: Vec<(Group, PageNumber)>,
}

impl RestoringPages {
    /// Keeps what is on the next page in memory: the page may be lost soon.
    pub fn keep_next(&mut self) {
        self.keeps_next = true;
    }

    /// The groups of which both copies are damaged, each with its page: what they had is to be set aside soon. A session may
    /// have had some of them, and is without them already.
    pub fn take_damaged(&mut self) -> Vec<(Group, PageNumber)> {
        std::mem::take(&mut self.damaged)
    }

    /// Keeps about so many bytes of records in memory, of runs whose pages are read.
    pub fn within(resident_bytes: u64) -> Self {
        Self {
            resident_bytes: Some(resident_bytes),
            ..Self::default()
        }
    }
}

impl State {
    /// Adds a page to a state that began empty and that has the parts.
    pub fn restore_page(
        &mut self,
        restoring: &mut RestoringPages,
        page: PageNumber,
        kind: u8,
        groups: &[&[u8]],
    ) -> Result<(), DecodeError> {
        self.restore_decoded(restoring, page, DecodedPage::decode(kind, groups)?)
    }

    /// The same, of a page that was decoded elsewhere.
    pub fn restore_decoded(
        &mut self,
        restoring: &mut RestoringPages,
        page: PageNumber,
        decoded: DecodedPage,
    ) -> Result<(), DecodeError> {
        if restoring.partial.is_some() {
            return self.restore_left(restoring, page, decoded);
        }
        let is_kept = std::mem::take(&mut restoring.keeps_next);
        let resident_bytes = restoring.resident_bytes;
        let resident_bytes = resident_bytes.map(|most| if is_kept { u64::MAX } else { most });
        if let Decoded::Run(head, index, messages) = decoded.0 {
            let run = (head, index, messages);
            return self.restore_run(restoring, page, run, resident_bytes);
        }
        if let Decoded::Damaged(head, left) = decoded.0 {
            return self.restore_damaged(restoring, page, head, left);
        }
        if restoring.directory.is_some() {
            return Err(error("page that is not that of the next run"));
        }
        match decoded.0 {
            Decoded::Run(..) | Decoded::Damaged(..) => Ok(()),
            Decoded::Directory(head, runs) => self.restore_directory(restoring, page, head, runs),
            Decoded::Ids(entity, block) => self.restore_ids(page, resident_bytes, (entity, block)),
            Decoded::Heads(bytes) => self.restore_heads(restoring, page, &bytes),
            Decoded::Sessions(bytes) => self.restore_sessions(page, &bytes),
            Decoded::Rules(bytes) => self.restore_rules(page, &bytes),
        }
    }

    fn restore_run(
        &mut self,
        restoring: &mut RestoringPages,
        page: PageNumber,
        (head, index, messages): (PageHead, u64, Vec<PagedMessage>),
        resident_bytes: Option<u64>,
    ) -> Result<(), DecodeError> {
        let Some(directory) = &mut restoring.directory else {
            return Err(error("run without its directory"));
        };
        if !head.is_of_same_runs(directory.head) || !directory.awaits(index) {
            return Err(error("page that is not that of the next run"));
        }
        self.restore_next(directory, Some((page, messages)), resident_bytes)?;
        self.restore_pageless(restoring)
    }

    /// Adds the next run of a directory, whose page was not read: [`DecodedPage::pages_to_pass_over`] has said so.
    pub fn restore_passed_over(
        &mut self,
        restoring: &mut RestoringPages,
        page: PageNumber,
    ) -> Result<(), DecodeError> {
        let directory = restoring.directory.as_mut();
        let is_plain = |it: &&mut Directory| {
            let next = it.runs.front();
            next.is_some_and(|run| run.is_plain(it.head.length))
        };
        let directory = directory.filter(is_plain);
        let Some(directory) = directory.filter(|it| it.head.unit == self.count_unit()) else {
            return Err(error("page that cannot be passed over"));
        };
        if let Some(run) = directory.runs.pop_front() {
            let (catalogue, head) = (&mut self.catalogue, directory.head);
            let restored = match self.storage.contains_key(&head.entity) {
                true => (self.storage).restore_cold(catalogue, (head, &run), page),
                false => (self.bus).restore_cold(catalogue, (head, &run), page),
            };
            restored.map_err(error)?;
        }
        self.restore_pageless(restoring)
    }

    /// Adds the next run of a directory, with what is left of its page:
    /// [`DecodedPage::pages_that_can_be_damaged`] has said that this is enough.
    fn restore_damaged(
        &mut self,
        restoring: &mut RestoringPages,
        page: PageNumber,
        of: Option<(PageHead, u64)>,
        left: Vec<PagedMessage>,
    ) -> Result<(), DecodeError> {
        let unit = self.count_unit();
        let directory = restoring.directory.as_mut();
        let directory = directory.filter(|it| it.head.unit == unit);
        let next = directory.and_then(|it| Some((it.head, it.runs.pop_front()?)));
        let can_be_damaged = |run: &PagedRun| run.can_be_damaged();
        let Some((head, run)) = next.filter(|(_, run)| can_be_damaged(run)) else {
            return Err(error("page that cannot be damaged"));
        };
        if of.is_some_and(|(of, index)| !of.is_of_same_runs(head) || index != run.index) {
            return Err(error("page that is not that of the next run"));
        }
        let catalogue = &mut self.catalogue;
        let lost = match self.storage.contains_key(&head.entity) {
            true => (self.storage).restore_damaged(catalogue, (head, &run), page, left),
            false => (self.bus).restore_damaged(catalogue, (head, &run), page, left),
        };
        let lost = lost.map_err(error)?;
        restoring
            .damaged
            .extend(lost.into_iter().map(|group| (group, page)));
        self.restore_pageless(restoring)
    }

    fn restore_directory(
        &mut self,
        restoring: &mut RestoringPages,
        page: PageNumber,
        head: PageHead,
        runs: Vec<PagedRun>,
    ) -> Result<(), DecodeError> {
        if head.length != self.catalogue.run_length {
            return Err(error("runs of another length"));
        }
        let is_new = match self.storage.contains_key(&head.entity) {
            true => self.storage.is_new_directory(head.entity, &runs),
            false => self.bus.is_new_directory(head.entity, &runs),
        };
        restoring.directory = Some(Directory {
            page,
            head,
            first_run: runs.first().map_or(0, |run| run.index),
            is_as_told: is_new.map_err(error)?,
            runs: runs.into(),
        });
        self.restore_pageless(restoring)
    }

    /// Adds the next run of a directory.
    fn restore_next(
        &mut self,
        directory: &mut Directory,
        page: Option<(PageNumber, Vec<PagedMessage>)>,
        resident_bytes: Option<u64>,
    ) -> Result<(), DecodeError> {
        let Some(run) = directory.runs.pop_front() else {
            return Ok(());
        };
        let (catalogue, head) = (&mut self.catalogue, directory.head);
        let restored = match self.storage.contains_key(&head.entity) {
            true => (self.storage).restore_run(catalogue, (head, &run), page, resident_bytes),
            false => (self.bus).restore_run(catalogue, (head, &run), page, resident_bytes),
        };
        directory.is_as_told &= restored.map_err(error)?;
        Ok(())
    }

    /// Adds the next runs that have no page, and ends the directory if none is left.
    fn restore_pageless(&mut self, restoring: &mut RestoringPages) -> Result<(), DecodeError> {
        let Some(directory) = &mut restoring.directory else {
            return Ok(());
        };
        while directory.runs.front().is_some_and(|run| !run.has_page) {
            self.restore_next(directory, None, restoring.resident_bytes)?;
        }
        if directory.runs.is_empty() {
            let (head, run, page) = (directory.head, directory.first_run, directory.page);
            match (
                directory.is_as_told,
                self.storage.contains_key(&head.entity),
            ) {
                (true, true) => self.storage.keep_directory(head.entity, run, page),
                (true, false) => self.bus.keep_directory(head.entity, run, page),
                (false, _) => {}
            }
            restoring.directory = None;
        }
        Ok(())
    }

    /// Ends the restore. All pages have come.
    pub fn finish_pages(&mut self, restoring: RestoringPages) -> Result<(), DecodeError> {
        if restoring.partial.is_some() {
            // What is written of it next is written as a whole, so no piece has a page.
            return Ok(());
        }
        if restoring.directory.is_some() {
            return Err(error("directory without the pages of its runs"));
        }
        self.bus.check_rules(&self.catalogue).map_err(error)?;
        for (service, group, page) in restoring.heads {
            match service {
                service::STORAGE => self.storage.mark_heads(group, page),
                _ => self.bus.mark_heads(group, page),
            }
        }
        let unkept = self.bus.iter();
        let unkept = unkept.filter(|(_, queue)| queue.backlog.sessions.has_unkept());
        let unkept: Vec<Incarnation> = unkept.map(|(entity, _)| *entity).collect();
        unkept
            .into_iter()
            .for_each(|entity| self.end_damaged(entity));
        Ok(())
    }

    pub(super) fn restore_heads(
        &mut self,
        restoring: &mut RestoringPages,
        page: PageNumber,
        bytes: &[u8],
    ) -> Result<(), DecodeError> {
        let mut r = Reader::new(bytes);
        let service = r.u8()?;
        if ![service::STORAGE, service::BUS].contains(&service) {
            return Err(r.error("service that is not known"));
        }
        let group = r.varint()?;
        let mut restored = Ok(());
        while !r.is_empty() {
            // A repair uses the others.
            let next = self.restore(r.bytes()?);
            restored = restored.and(next);
        }
        restored?;
        restoring.heads.push((service, group, page));
        Ok(())
    }

    pub(super) fn restore_sessions(
        &mut self,
        page: PageNumber,
        bytes: &[u8],
    ) -> Result<(), DecodeError> {
        let mut r = Reader::new(bytes);
        let incarnation = incarnation(&mut r)?;
        let Some(queue) = self.bus.get_mut(&incarnation) else {
            return Err(r.error("sessions of a bus queue that is not there"));
        };
        let live = &mut self.catalogue.live;
        if let Some(number) = bus::restore_sessions(queue, &mut r, live)? {
            queue.backlog.sessions.keep_page(number, page);
        }
        queue.settle(&mut self.catalogue, incarnation);
        r.finish()
    }

    /// Adds the ids of a page. They come in the order of their times.
    pub(super) fn restore_ids(
        &mut self,
        page: PageNumber,
        resident_bytes: Option<u64>,
        (incarnation, block): (Incarnation, ReadBlock),
    ) -> Result<(), DecodeError> {
        let Some(queue) = self.bus.get_mut(&incarnation) else {
            return Err(error("ids of a bus queue that is not there"));
        };
        let block = queue.duplicates.restore_page(block, page).map_err(error)?;
        queue.settle(&mut self.catalogue, incarnation);
        let live = &mut self.catalogue.live;
        let is_full = resident_bytes.is_some_and(|most| live.resident().size_bytes() > most);
        if let Some(block) = block
            && is_full
        {
            queue.duplicates.evict(block);
            queue.count_ids(live);
        }
        Ok(())
    }

    pub(super) fn restore_rules(
        &mut self,
        page: PageNumber,
        bytes: &[u8],
    ) -> Result<(), DecodeError> {
        let mut r = Reader::new(bytes);
        let incarnation = incarnation(&mut r)?;
        let found = self.bus.get_mut(&incarnation);
        let Some(topic) = found.and_then(|it| it.topic.as_mut()) else {
            return Err(r.error("rules of a topic that is not there"));
        };
        if let Some(mark) = restore_rules(topic, &mut r)? {
            mark.set(page);
        }
        if let Some(queue) = self.bus.get_mut(&incarnation) {
            queue.settle(&mut self.catalogue, incarnation);
        }
        r.finish()
    }
}

pub(super) fn error(what: &'static str) -> DecodeError {
    Reader::new(&[]).error(what)
}
