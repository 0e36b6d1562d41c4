//! Announcements as messages of Service Bus, over queues and over a topic.

use std::time::Duration;

use kew_client::{DeletingReceiver, Message};

use super::{Announcement, Heard};
use crate::error::SourceError;

/// The subject of each announcement.
pub(super) const SUBJECT: &str = "work detected";

/// A queue or subscription that no listener has used for so long is deleted: the shortest time that the service accepts.
pub(super) const AUTO_DELETE: Duration = Duration::from_mins(5);

/// How long an announcement waits for its listener: longer than [`AUTO_DELETE`], so that the queue of a listener that
/// does not receive is either deleted by the service or shows it.
pub(super) const TIME_TO_LIVE: Duration = Duration::from_mins(10);

/// How long a send may take, so that a slow one holds up nothing.
pub(super) const SEND_MAX: Duration = Duration::from_secs(10);

/// The message of an announcement.
pub(super) fn message_of(announcement: &Announcement) -> Message {
    // Its types cannot fail: strings and a number.
    let body = serde_json::to_vec(announcement).unwrap_or_default();
    Message {
        subject: Some(SUBJECT.to_owned()),
        content_type: Some("application/json".to_owned()),
        time_to_live: Some(TIME_TO_LIVE),
        ..Message::new(body)
    }
}

/// Waits for the next announcement.
pub(super) async fn next(receiver: Option<&mut DeletingReceiver>) -> Result<Heard, SourceError> {
    let not_ready = || SourceError::refused("the announcements are not ready");
    let received = receiver.ok_or_else(not_ready)?.receive().await?;
    // One that cannot be read is of another program.
    let read = serde_json::from_slice(&received.body()).ok();
    Ok(read.map_or(Heard::Missed, Heard::Work))
}
