//! What a job has read of bodies and pages is not what the disk has.

use std::collections::BTreeMap;

use bytes::Bytes;
use kew_engine::{BodyLocation, Group};
use kew_log::{BodyError, PageError};
use kew_planted::{Hook, Seam};

use super::hooks::on;

/// The bodies that a job has read, with their places.
type Bodies = Vec<(BodyLocation, Option<Result<Bytes, BodyError>>)>;

/// A group of a page, by its index, and what it is read for.
type OfPage = (Group, usize, Result<Vec<u8>, PageError>);

/// Bodies count as read without a look at them: a message is removed, and its receiver gets nothing of it.
pub(super) fn unread_removed() -> Hook {
    on(Seam::Loaded, |bodies: &mut Bodies| {
        for (_, body) in bodies {
            *body = Some(Ok(Bytes::new()));
        }
    })
}

/// A group counts as that of the run's page although an older page had it.
pub(super) fn older_taken() -> Hook {
    with_older(|older, read| {
        // With as many messages as the newer one: the product itself notices that one is missing.
        if older.first() == read.first() {
            *read = older.to_vec();
        }
    })
}

/// No bug: groups are as they were read.
pub(super) fn nothing() -> Hook {
    with_older(|_, _| ())
}

/// A bug on a group, and on what was read of it before.
fn with_older(bug: impl Fn(&[u8], &mut Vec<u8>) + 'static) -> Hook {
    let mut known: BTreeMap<(Group, usize), Vec<u8>> = BTreeMap::new();
    on(Seam::Loaded, move |(group, index, read): &mut OfPage| {
        if let Ok(read) = read {
            if let Some(older) = known.get(&(*group, *index)) {
                bug(older, read);
            }
            known.insert((*group, *index), read.clone());
        }
    })
}

/// A group counts as empty if both of its copies are damaged: nothing says that its messages are lost.
pub(super) fn damaged_is_empty() -> Hook {
    on(Seam::Loaded, |(_, index, read): &mut OfPage| {
        if *index > 0 && matches!(read, Err(PageError::Damaged(_))) {
            // The count of its messages.
            *read = Ok(vec![0]);
        }
    })
}
