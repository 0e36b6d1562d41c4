//! Push within a process.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::{Announce, Announcement, Announcements, Heard};
use crate::error::SourceError;

/// Announcements that a listener may be behind. One that is further behind looks into its queue once.
const BEHIND_MAX: usize = 64;

/// Announces work to the listeners of this process. Clones announce to the same listeners.
#[derive(Clone, Debug)]
pub struct LocalPush(broadcast::Sender<Announcement>);

impl LocalPush {
    /// Without listeners yet.
    pub fn new() -> Self {
        Self(broadcast::Sender::new(BEHIND_MAX))
    }

    /// What a listener hears from now on.
    pub fn subscribe(&self) -> LocalAnnouncements {
        LocalAnnouncements(self.0.subscribe())
    }
}

impl Default for LocalPush {
    fn default() -> Self {
        Self::new()
    }
}

impl Announce for LocalPush {
    /// Never fails, and waits for nothing.
    async fn announce(&self, announcement: &Announcement) -> Result<(), SourceError> {
        // Without listeners there is nobody to hear it.
        let _ = self.0.send(announcement.clone());
        Ok(())
    }
}

/// What one listener of this process hears.
#[derive(Debug)]
pub struct LocalAnnouncements(broadcast::Receiver<Announcement>);

impl Announcements for LocalAnnouncements {
    async fn ready(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn next(&mut self) -> Result<Heard, SourceError> {
        match self.0.recv().await {
            Ok(announcement) => Ok(Heard::Work(announcement)),
            Err(RecvError::Lagged(_)) => Ok(Heard::Missed),
            Err(RecvError::Closed) => {
                Err(SourceError::refused("nobody can announce work any more"))
            }
        }
    }
}
