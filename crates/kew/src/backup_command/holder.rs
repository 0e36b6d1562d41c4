//! Who keeps the files while they are copied: the server that uses the data directory, or the lock on it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use kew_backup::{BoxError, Taken};
use kew_log::{BackupPlan, DataDir, DataDirError, Inspection, plan_backup};

use super::session::Session;
use crate::admin::client::Connection;
use crate::{settings, start_error};

/// Keeps the files of a plan in their place.
pub(super) enum Holder {
    Server(Session),
    Directory {
        path: PathBuf,
        plan: BackupPlan,
        taken_at: SystemTime,
        /// No server starts meanwhile.
        _lock: Inspection,
    },
}

impl Holder {
    /// Asks the server, or locks the directory if no server uses it.
    pub(super) fn find(data_dir: Option<PathBuf>, admin_socket: Option<PathBuf>) -> Result<Self> {
        if let (None, Some(socket)) = (&data_dir, &admin_socket) {
            return match Connection::open(socket)? {
                Some(server) => Session::begin(server.into_stream()).map(Self::Server),
                None => bail!("no server answers at {}", socket.display()),
            };
        }
        let path = settings::data_dir_or_default(data_dir)?;
        let socket = admin_socket.unwrap_or_else(|| path.join(settings::ADMIN_SOCKET));
        match Connection::open(&socket)? {
            Some(server) => Session::begin(server.into_stream()).map(Self::Server),
            None => Self::of_directory(path),
        }
    }

    fn of_directory(path: PathBuf) -> Result<Self> {
        let lock = DataDir::inspect(&path).map_err(|error| match error {
            DataDirError::InUse { .. } => anyhow!(
                "no server answers at {}, and the data directory {} is in use: if its server has its socket \
                 elsewhere, name it with --admin-socket",
                settings::ADMIN_SOCKET,
                path.display()
            ),
            error => Error::new(error).context(format!(
                "no server answers, and the data directory {} cannot be used",
                path.display()
            )),
        })?;
        let taken_at = SystemTime::now();
        let plan = plan_backup(lock.storage())
            .map_err(|error| start_error::explain_log(error, &path))
            .with_context(|| format!("cannot back up the data directory {}", path.display()))?;
        Ok(Self::Directory {
            path,
            plan,
            taken_at,
            _lock: lock,
        })
    }

    pub(super) fn data_dir(&self) -> &Path {
        match self {
            Self::Server(session) => &session.begun().data_dir,
            Self::Directory { path, .. } => path,
        }
    }

    pub(super) fn plan(&self) -> &BackupPlan {
        match self {
            Self::Server(session) => &session.begun().plan,
            Self::Directory { plan, .. } => plan,
        }
    }

    /// The time of the plan.
    pub(super) fn taken_at(&self) -> SystemTime {
        match self {
            Self::Server(session) => {
                UNIX_EPOCH + Duration::from_millis(session.begun().taken_at_ms)
            }
            Self::Directory { taken_at, .. } => *taken_at,
        }
    }

    /// Notes progress, for the server. Fails if it is known that the files are not kept any more.
    pub(super) fn note(&self, done_bytes: u64) -> Result<(), BoxError> {
        match self {
            Self::Server(session) => session
                .note(done_bytes)
                .map_err(|error| error.into_boxed_dyn_error()),
            Self::Directory { .. } => Ok(()),
        }
    }

    /// Fails if the files are not kept any more.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Server(session) => session.check(),
            Self::Directory { .. } => Ok(()),
        }
    }

    /// Notes that the backup is whole. If the server has ended meanwhile, the next one finds the note.
    pub(super) fn note_whole(&mut self, taken: &Taken) -> Result<()> {
        let size_bytes = taken.manifest.size_bytes();
        if let Self::Server(session) = self
            && session.note_whole(size_bytes, taken.copied_bytes).is_ok()
        {
            return Ok(());
        }
        let noted = DataDir::note_backup(self.data_dir(), self.taken_at());
        noted.context("the backup is whole, but its time could not be noted in the data directory")
    }
}
