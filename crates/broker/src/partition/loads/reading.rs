//! What a job reads of pages, on its thread, and what becomes of it.

use std::any::Any;

use kew_engine::bus::Unread;
use kew_engine::{Group, GroupRead, GroupToRead, PageNumber, Slots};
use kew_log::{GroupReader, PageError, PagesRead, PagesToRead};
use kew_planted::{Seam, alter};

use crate::partition::bodies::ReadBodies;
use crate::partition::known_pages::page_to_log;

/// What a job has read.
pub(in crate::partition) enum Loaded {
    Groups(GroupsRead, PagesRead),
    /// Groups that no command had asked for.
    Ahead(GroupsRead, PagesRead),
    /// Groups of runs whose pages are to be written again.
    ToWarm(GroupsRead, PagesRead),
    Bodies(ReadBodies),
}

type GroupsRead = Vec<(Group, Slots, Read)>;

/// What became of a group.
pub(in crate::partition) enum Read {
    Group(GroupRead),
    /// There was no file descriptor. It is read later.
    NotNow,
    /// The disk has bad sectors in both copies, it says: that may pass, and is not known to be damage.
    BadSectors,
    /// The bytes of both copies are damaged.
    Damaged(PageNumber),
    Failed(Unread),
}

/// What a job has read, as it passes a seam.
pub(super) fn as_read<R: Any>(mut read: R) -> R {
    alter(Seam::Loaded, &mut read);
    read
}

pub(super) fn read_groups(
    pages: PagesToRead,
    groups: Vec<(Slots, GroupToRead)>,
) -> (GroupsRead, PagesRead) {
    pages.read(|reader| {
        let read = |(slots, to_read): (Slots, GroupToRead)| {
            (to_read.group(), slots, read_group(reader, &to_read))
        };
        groups.into_iter().map(read).collect()
    })
}

fn read_group(reader: &mut GroupReader<'_>, to_read: &GroupToRead) -> Read {
    let page = page_to_log(to_read.page());
    let read = |index| as_read((to_read.group(), index, reader.group(page, index))).2;
    let groups = to_read.groups().map(read);
    match groups.collect::<Result<Vec<_>, _>>() {
        Ok(groups) => match to_read.decode(&groups) {
            Ok(read) => Read::Group(read),
            Err(error) => {
                tracing::error!(%error, "a page is not what it should be");
                Read::Failed(Unread::Lost)
            }
        },
        Err(PageError::Io(failure)) if failure.is_no_descriptor() => Read::NotNow,
        Err(PageError::Io(failure)) => {
            let is_bad_sector = failure.is_bad_sector();
            tracing::warn!(error = %failure, "a page cannot be read: commands that need its messages or ids are to be tried again");
            match is_bad_sector {
                true => Read::BadSectors,
                false => Read::Failed(Unread::Now),
            }
        }
        Err(error @ PageError::Damaged(_)) => {
            tracing::error!(%error, "a page cannot be read: commands that need its messages or ids are refused");
            match reader.has_both_files(page) {
                true => Read::Damaged(to_read.page()),
                false => Read::Failed(Unread::Lost),
            }
        }
        Err(error @ PageError::Newer { .. }) => {
            tracing::error!(%error, "a page cannot be read: commands that need its messages or ids are refused");
            // The version that has written them reads them.
            Read::Failed(Unread::Now)
        }
    }
}
