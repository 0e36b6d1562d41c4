//! The log: it makes events durable.
//!
//! A [`SegmentLog`] takes batches of events and bodies, makes them durable in order, and replays them at the next
//! open. Its owner has it as an [`OwnedLog`], and does not know of which kind it is. It knows nothing of messages:
//! entries are opaque bytes. It starts no thread and blocks only in [`SegmentLog::open`]. All other blocking work is a
//! [`Job`], which any thread may run.
//!
//! It promises that everything before [`SegmentLog::durable`] survives a crash of the process and a loss of power.
//! Damage to it is noticed and named, never skipped. Data that was not durable is shown whole or not at all.
//! `FORMAT.md` describes every byte and the rules of recovery.

mod backup;
mod ballast;
mod batch;
mod claims;
mod data_dir;
mod format;
mod inspect;
mod job;
mod log;
mod options;
mod pages;
mod piece;
mod places;
mod position;
mod proof;
mod reader;
mod recovery;
mod replay;
mod salvage;
mod scrub;
mod sealed;
mod seam;
mod segment;
mod snapshot;
mod storage;
mod survey;
mod v1;
mod walk;

pub use backup::{
    BackupPlan, PlannedPages, PlannedSegment, ReplayEnd, check_file, check_pages, identity,
    mend_pages, pages_of, plan_backup, remove, replay,
};
pub use batch::{BatchBuilder, MovedBytes};
pub use data_dir::{DataDir, DataDirError, Inspection, Migrating, Restoring};
pub use inspect::{
    Damage, PageFileReport, Report, SegmentReport, SegmentState, SnapshotReport, inspect, verify,
};
pub use job::{Job, JobKind, JobOutcome};
pub use log::{BeginBackupError, LogSpace, PinId, SegmentLog, SegmentSource, SegmentSpan};
pub use options::{BATCH_SIZE_BYTES_MAX, LogOptions};
pub use pages::{
    GroupReader, ManifestError, PageAppender, PageContent, PageDamage, PageError, PageFileDamage,
    PageLeft, PageNumber, PageOptions, PagePlace, PageReader, PageStore, PageTable, PagesRead,
    PagesToRead, PlannedSnapshot, ReadManifest, ReadPage, Restored, SnapshotContent, SnapshotForm,
    TablePage, ToDrain, WriteManifest, WrittenManifest, read_manifest, read_table, remove_pairs,
};
pub use position::{BodyLocation, Epoch, LogId, LogPosition};
pub use reader::body::{Body, BodyError};
pub use recovery::{OpenError, Recovery, TailCut};
pub use replay::{BoxError, Replay};
pub use salvage::{Base, Gap, Rebuilt, Rescue, Salvage};
pub use scrub::{Scrub, ScrubCursor, ScrubDamage, Scrubbed};
pub use sealed::Sealed;
pub use seam::{
    AllPages, AppendError, Batch, Batches, BeginSnapshotError, BootTime, FollowError, FollowedLog,
    FullLimits, LiveBytes, LocalLog, LogEnd, LogFiles, LogHealth, LogLimits, LogSource, LogState,
    Need, OwnedLog, PageChoice, Piece, Progress, Reservation, ReserveError, Seen, SnapshotStatus,
    Tidied, Urgency, VictimEnd,
};
pub use snapshot::SnapshotError;
pub use storage::{
    Action, Fault, FaultyStorage, FileStorage, Folder, IoFailure, MemoryStorage, Repeat, Storage,
    StorageFile, create_directory,
};
pub use v1::{FirstFormatBody, FirstFormatLog};
