//! Why a log cannot be opened.

use thiserror::Error;

use crate::LogPosition;
use crate::format::FORMAT_VERSION;
use crate::pages::ManifestError;
use crate::replay::BoxError;
use crate::storage::IoFailure;

/// Why a log cannot be opened. Nothing in its directory was modified, unless the storage failed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The storage failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
    /// Data that was durable is damaged or missing.
    #[error("{file} is damaged at byte {offset}: {what}")]
    Corrupt {
        /// The file's name in the log's directory.
        file: String,
        /// The offset in the file.
        offset: u64,
        /// The damage.
        what: String,
    },
    /// A newer Kew has written here.
    #[error(
        "{file} has format version {found}, and this version of Kew reads versions up to {supported}"
    )]
    NewerFormat {
        /// The file's name in the log's directory.
        file: String,
        /// The version of its format.
        found: u32,
        /// The newest version that can be read.
        supported: u32,
    },
    /// The owner of the events rejected the contents of the log.
    #[error("cannot replay what lies at log position {position}: {source}")]
    Replay {
        /// The position of the record or the snapshot.
        position: LogPosition,
        /// The owner's error.
        source: BoxError,
    },
    /// The disk is full, and no ballast could make room.
    #[error("the disk is full: a start needs {needed_bytes} free bytes")]
    NoSpace {
        /// The size of the new segment.
        needed_bytes: u64,
        /// The storage's error.
        source: IoFailure,
    },
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
}

impl OpenError {
    /// Whether it is damage: the same is wrong each time that it is read.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Corrupt { .. } => true,
            Self::Io(failure) => failure.is_bad_sector(),
            Self::NewerFormat { .. }
            | Self::Replay { .. }
            | Self::NoSpace { .. }
            | Self::Options(_) => false,
        }
    }

    pub(crate) fn corrupt(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Self::Corrupt {
            file: file.to_owned(),
            offset,
            what: what.into(),
        }
    }
}

pub(crate) fn manifest_error(error: ManifestError) -> OpenError {
    match error {
        ManifestError::Io(failure) => OpenError::Io(failure),
        ManifestError::Damaged(damage) => {
            OpenError::corrupt(&damage.file, damage.offset, damage.what)
        }
        ManifestError::OtherLog(file) => {
            let what = "the snapshot is of another log than the newest segment";
            OpenError::corrupt(&file, 0, what)
        }
        ManifestError::Newer { file, found } => OpenError::NewerFormat {
            file,
            found,
            supported: FORMAT_VERSION,
        },
        ManifestError::Restore(position, source) => OpenError::Replay { position, source },
    }
}
