//! A log in memory. What survives a restart is a value that openings share.
//!
//! Its owner can be fenced: a job of the owner compares the epoch under the lock that it writes under. It has no files,
//! and nothing of it fails. An altered one makes a mistake that a promise of the contract forbids.

mod agreement;
mod followed;
mod kept;
mod local;
mod mistake;
mod others;
mod owned;
mod snapshot;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kew_log::{FollowedLog, LogEnd, LogId, LogSource, PageChoice};

use self::agreement::Alone;
pub(crate) use self::agreement::{Agreed, Agreement, Placed, Renewal, Renewed};
pub(crate) use self::followed::MemoryFollower;
pub(crate) use self::kept::{FIRST_POSITION, Kept, Stored};
pub use self::mistake::Mistake;
pub use self::others::Others;

/// Sizes of a log in memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryOptions {
    /// How much a job of a follower reads, unless one batch or page is larger.
    pub piece_size_bytes: u64,
    /// How much room a job prepares, unless a batch needs more.
    pub prepared_bytes: u64,
    /// The least room for a batch.
    pub room_bytes_min: u64,
    /// A reservation looks whether another owner has begun. Otherwise only jobs do.
    pub looks_when_reserving: bool,
    /// Commits wait for [other machines](Others), and an idle owner beats this often.
    pub heartbeat_ms: Option<u64>,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            piece_size_bytes: 1 << 20,
            prepared_bytes: 4 << 20,
            room_bytes_min: 192 << 10,
            looks_when_reserving: false,
            heartbeat_ms: None,
        }
    }
}

/// A log in memory: what survives. Clones are the same log.
#[derive(Clone)]
pub struct MemorySource {
    copy: Arc<Shared>,
    others: Arc<Others>,
}

/// A copy of a log: what all of its openings share.
pub(crate) struct Shared {
    kept: Mutex<Kept>,
    options: MemoryOptions,
    mistake: Option<Mistake>,
    /// How many jobs have run, for a mistake.
    runs: AtomicU64,
}

impl MemorySource {
    /// An empty log.
    pub fn new(options: MemoryOptions) -> Self {
        Self::with(options, None)
    }

    /// An empty log that makes a mistake.
    pub fn altered(options: MemoryOptions, mistake: Mistake) -> Self {
        Self::with(options, Some(mistake))
    }

    /// The other machines that commits wait for.
    pub fn others(&self) -> &Others {
        &self.others
    }

    fn with(options: MemoryOptions, mistake: Option<Mistake>) -> Self {
        Self {
            copy: Arc::new(Shared::new(options, mistake)),
            others: Arc::default(),
        }
    }
}

impl Shared {
    /// An empty copy.
    pub(crate) fn new(options: MemoryOptions, mistake: Option<Mistake>) -> Self {
        Self {
            kept: Mutex::default(),
            options,
            mistake,
            runs: AtomicU64::default(),
        }
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing is half done where a thread can panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }
}

/// Of the content checksums. There is one log in a source.
pub(crate) fn log_id() -> LogId {
    LogId::default()
}

impl LogSource for MemorySource {
    fn follow(&self, _after: Option<&LogEnd>, pages: Box<dyn PageChoice>) -> Box<dyn FollowedLog> {
        let alone = Alone::new(Arc::clone(&self.others));
        let copy = Arc::clone(&self.copy);
        Box::new(MemoryFollower::new(copy, Arc::new(alone), pages))
    }

    fn unit_bytes(&self) -> u64 {
        1
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySource")
            .field("options", &self.copy.options)
            .field("mistake", &self.copy.mistake)
            .finish_non_exhaustive()
    }
}
