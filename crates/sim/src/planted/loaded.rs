//! What a job has read of bodies is not what the disk has.

use bytes::Bytes;
use kew_engine::BodyLocation;
use kew_log::BodyError;
use kew_planted::{Hook, Seam};

use super::hooks::on;

/// The bodies that a job has read, with their places.
type Bodies = Vec<(BodyLocation, Option<Result<Bytes, BodyError>>)>;

/// Bodies count as read without a look at them: a message is removed, and its receiver gets nothing of it.
pub(super) fn unread_removed() -> Hook {
    on(Seam::Loaded, |bodies: &mut Bodies| {
        for (_, body) in bodies {
            *body = Some(Ok(Bytes::new()));
        }
    })
}
