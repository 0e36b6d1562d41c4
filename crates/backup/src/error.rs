//! Why a backup or a restore failed.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use kew_log::{Damage, OpenError};
use thiserror::Error;

/// An error of the caller, kept as the source of the operation's own.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why a backup was not taken, or cannot be used.
#[derive(Debug, Error)]
pub enum BackupError {
    /// The file system failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// Its file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The files to copy are damaged.
    #[error("the source is damaged: {file} at byte {offset}: {what}")]
    SourceDamaged {
        /// The file's name.
        file: String,
        /// The offset in it.
        offset: u64,
        /// The damage.
        what: String,
    },
    /// A file has the name of the plan and is another one: it was used again.
    #[error("{file} is not the file of the plan any more")]
    SourceReplaced {
        /// The file's name.
        file: String,
    },
    /// A file is shorter than it was when its size was looked up.
    #[error("{file} ends at byte {offset}, and must have {size_bytes} bytes")]
    EndsEarly {
        /// The file's name or path.
        file: String,
        /// Where it ends.
        offset: u64,
        /// The size that it must have.
        size_bytes: u64,
    },
    /// The new backup has replaced the one before, and it is not known whether that survives a loss of power.
    #[error("the new backup is complete, but may be lost when the power fails: {source}")]
    NotSynced {
        /// What failed then.
        source: Box<BackupError>,
    },
    /// The log cannot be read, for another reason than damage.
    #[error("cannot read the log")]
    Source(#[source] OpenError),
    /// What was read back is not what was written.
    #[error(
        "the copy {} does not have the bytes that were written: check the disk of the backup",
        path.display()
    )]
    CopyDamaged {
        /// The file.
        path: PathBuf,
    },
    /// The directory holds something else.
    #[error(
        "{} is not empty and is not a backup of Kew; it holds {entry}: name an empty directory",
        path.display()
    )]
    NotABackup {
        /// The directory.
        path: PathBuf,
        /// One of its entries.
        entry: String,
    },
    /// It is the backup of another data directory.
    #[error(
        "{} holds a backup of the data directory with id {found}, and this one has id {given}: \
         name another directory for this backup",
        path.display()
    )]
    OtherSource {
        /// The directory.
        path: PathBuf,
        /// The id in its manifest.
        found: String,
        /// The id of the directory to back up.
        given: String,
    },
    /// Another process uses it.
    #[error("another process uses the backup {}", path.display())]
    InUse {
        /// The directory of the backup.
        path: PathBuf,
    },
    /// Without a manifest it is not whole.
    #[error(
        "{} has no whole backup: it has no {}; run kew backup to its end",
        path.display(),
        crate::destination::MANIFEST
    )]
    Unfinished {
        /// The directory.
        path: PathBuf,
    },
    /// The manifest is not one that Kew wrote.
    #[error("the manifest {} is damaged: {what}", path.display())]
    DamagedManifest {
        /// The file.
        path: PathBuf,
        /// The error in it.
        what: String,
    },
    /// A newer Kew has written it.
    #[error(
        "the backup {} has format {found}, and this version of Kew reads formats up to {supported}: \
         use a newer version",
        path.display()
    )]
    NewerFormat {
        /// The manifest.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that can be read.
        supported: u32,
    },
    /// Some of its files are not as they were written.
    #[error(
        "the backup is damaged in {} places, the first: {} at byte {}: {}",
        damage.len(),
        damage[0].file,
        damage[0].offset,
        damage[0].what
    )]
    Damaged {
        /// All damage, at least one. The files are named as in the backup.
        damage: Vec<Damage>,
    },
    /// The caller ended it.
    #[error("{0}")]
    Ended(BoxError),
}

impl BackupError {
    /// Whether there was no space.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } if matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ))
    }

    /// A source that ends early is damaged.
    pub(crate) fn of_short_source(self) -> Self {
        match self {
            Self::EndsEarly {
                file,
                offset,
                size_bytes,
            } => Self::SourceDamaged {
                file,
                offset,
                what: format!("the file ends here, and must have {size_bytes} bytes"),
            },
            other => other,
        }
    }

    pub(crate) fn of_source(error: OpenError) -> Self {
        match error {
            OpenError::Corrupt { file, offset, what } => Self::SourceDamaged { file, offset, what },
            other @ (OpenError::Io(_)
            | OpenError::NewerFormat { .. }
            | OpenError::Replay { .. }
            | OpenError::NoSpace { .. }
            | OpenError::Options(_)) => Self::Source(other),
        }
    }
}

pub(crate) fn failed(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> BackupError + use<> {
    let path = path.to_owned();
    move |source| BackupError::Io {
        action,
        path,
        source,
    }
}
