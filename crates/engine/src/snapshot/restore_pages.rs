//! A state from pages.
//!
//! Pages come in the order in which a snapshot plans them: heads first, and the runs of a directory right behind it.

use super::pages::{PAGE_VERSION, kind, service};
use super::restore_left::Partial;
use crate::bus::pages as bus;
use crate::queues::Queue;
use crate::state::State;
use crate::table::{PageHead, PagedMessage, PagedRun, directory, run_of_page};
use crate::vocabulary::PageNumber;
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::elements::incarnation;

/// A directory page whose runs' pages are awaited.
#[derive(Debug)]
pub(super) struct Directory {
    page: PageNumber,
    head: PageHead,
    runs: Vec<PagedRun>,
    /// Those of the first runs that have one.
    pages: Vec<(PageNumber, Vec<PagedMessage>)>,
}

impl Directory {
    /// The run whose page comes next.
    fn awaited(&self) -> Option<&PagedRun> {
        let mut paged = self.runs.iter().filter(|run| run.has_page);
        paged.nth(self.pages.len())
    }
}

/// A page, decoded. That needs no state, so another thread can do it.
#[derive(Debug)]
pub struct DecodedPage(pub(super) Decoded);

#[derive(Debug)]
pub(super) enum Decoded {
    Directory(PageHead, Vec<PagedRun>),
    Run(PageHead, u64, Vec<PagedMessage>),
    /// Small ones of another kind.
    Bytes(u8, Vec<u8>),
}

impl DecodedPage {
    /// Decodes a page of that kind.
    pub fn decode(kind: u8, groups: &[&[u8]]) -> Result<Self, DecodeError> {
        let Some(([PAGE_VERSION, first @ ..], rest)) = groups.split_first() else {
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
            return Ok(Self(Decoded::Bytes(kind, bytes.to_vec())));
        }
        let mut r = Reader::new(bytes);
        let (head, runs) = directory(&mut r)?;
        r.finish()?;
        Ok(Self(Decoded::Directory(head, runs)))
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
        if let Decoded::Run(head, index, messages) = decoded.0 {
            return self.restore_run(restoring, page, (head, index), messages);
        }
        if restoring.directory.is_some() {
            return Err(error("page that is not that of the next run"));
        }
        match decoded.0 {
            Decoded::Run(..) => Ok(()),
            Decoded::Directory(head, runs) => {
                restoring.directory = Some(Directory {
                    page,
                    head,
                    runs,
                    pages: Vec::new(),
                });
                self.restore_if_whole(restoring)
            }
            Decoded::Bytes(kind, bytes) => self.restore_bytes(restoring, page, kind, &bytes),
        }
    }

    pub(super) fn restore_bytes(
        &mut self,
        restoring: &mut RestoringPages,
        page: PageNumber,
        kind: u8,
        bytes: &[u8],
    ) -> Result<(), DecodeError> {
        let mut r = Reader::new(bytes);
        match kind {
            kind::HEADS => restoring.heads.push(self.restore_heads(page, &mut r)?),
            kind::SESSIONS => self.restore_sessions(page, &mut r)?,
            kind::IDS => self.restore_ids(&mut r)?,
            _ => return Err(r.error("kind of a page that is not known")),
        }
        r.finish()
    }

    fn restore_run(
        &mut self,
        restoring: &mut RestoringPages,
        page: PageNumber,
        (head, index): (PageHead, u64),
        messages: Vec<PagedMessage>,
    ) -> Result<(), DecodeError> {
        let Some(directory) = &mut restoring.directory else {
            return Err(error("run without its directory"));
        };
        let is_awaited = directory.awaited().is_some_and(|run| run.index == index);
        if head != directory.head || !is_awaited {
            return Err(error("page that is not that of the next run"));
        }
        directory.pages.push((page, messages));
        self.restore_if_whole(restoring)
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
        for (service, group, page) in restoring.heads {
            match service {
                service::STORAGE => self.storage.mark_heads(group, page),
                _ => self.bus.mark_heads(group, page),
            }
        }
        Ok(())
    }

    fn restore_heads(
        &mut self,
        page: PageNumber,
        r: &mut Reader<'_>,
    ) -> Result<(u8, u64, PageNumber), DecodeError> {
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
        restored.map(|()| (service, group, page))
    }

    fn restore_sessions(
        &mut self,
        page: PageNumber,
        r: &mut Reader<'_>,
    ) -> Result<(), DecodeError> {
        let incarnation = incarnation(r)?;
        let Some(queue) = self.bus.get_mut(&incarnation) else {
            return Err(r.error("sessions of a bus queue that is not there"));
        };
        let live = &mut self.catalogue.live;
        if let Some(number) = bus::restore_sessions(queue, r, live)? {
            queue.backlog.sessions.keep_page(number, page);
        }
        queue.settle(&mut self.catalogue, incarnation);
        Ok(())
    }

    fn restore_ids(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let incarnation = incarnation(r)?;
        let Some(queue) = self.bus.get_mut(&incarnation) else {
            return Err(r.error("ids of a bus queue that is not there"));
        };
        bus::restore_ids(queue, r)?;
        queue.settle(&mut self.catalogue, incarnation);
        Ok(())
    }

    /// Adds the runs of the directory, once all of their pages are there.
    fn restore_if_whole(&mut self, restoring: &mut RestoringPages) -> Result<(), DecodeError> {
        let directory = restoring.directory.take_if(|it| it.awaited().is_none());
        let Some(directory) = directory else {
            return Ok(());
        };
        let Directory {
            page,
            head,
            runs,
            pages,
        } = directory;
        if head.length != self.catalogue.run_length {
            return Err(error("runs of another length"));
        }
        let catalogue = &mut self.catalogue;
        let restored = if self.storage.contains_key(&head.entity) {
            self.storage
                .restore_runs(catalogue, page, head, runs, pages)
        } else {
            self.bus.restore_runs(catalogue, page, head, runs, pages)
        };
        restored.map_err(error)
    }
}

pub(super) fn error(what: &'static str) -> DecodeError {
    Reader::new(&[]).error(what)
}
