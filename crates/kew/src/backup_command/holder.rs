//! Who keeps the files while they are copied: the server that uses the data directory, or the lock on it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use kew_backup::{BoxError, Taken};
use kew_log::{BackupPlan, DataDir, DataDirError, Inspection, plan_backup};

use crate::admin::Failure;
use crate::admin::backup::lines::{Begun, CommandLine, PATH, PROTOCOL, ServerLine};
use crate::admin::client::Connection;
use crate::{settings, start_error};

/// How long the server may take to answer a line.
const PATIENCE: Duration = Duration::from_secs(60);

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
            Self::Server(session) => &session.begun.data_dir,
            Self::Directory { path, .. } => path,
        }
    }

    pub(super) fn plan(&self) -> &BackupPlan {
        match self {
            Self::Server(session) => &session.begun.plan,
            Self::Directory { plan, .. } => plan,
        }
    }

    /// The time of the plan.
    pub(super) fn taken_at(&self) -> SystemTime {
        match self {
            Self::Server(session) => UNIX_EPOCH + Duration::from_millis(session.begun.taken_at_ms),
            Self::Directory { taken_at, .. } => *taken_at,
        }
    }

    /// Reports progress to the server. Fails if the files are not kept any more.
    pub(super) fn tell(&mut self, done_bytes: u64) -> Result<(), BoxError> {
        match self {
            Self::Server(session) => session
                .exchange(&CommandLine::Progress { done_bytes })
                .map_err(|error| error.into_boxed_dyn_error()),
            Self::Directory { .. } => Ok(()),
        }
    }

    /// Fails if the files are not kept any more.
    pub(super) fn check(&mut self) -> Result<()> {
        match self {
            Self::Server(session) => session.exchange(&CommandLine::Progress { done_bytes: 0 }),
            Self::Directory { .. } => Ok(()),
        }
    }

    /// Notes that the backup is whole.
    pub(super) fn note_whole(&mut self, taken: &Taken) -> Result<()> {
        let noted = match self {
            Self::Server(session) => session.exchange(&CommandLine::Whole {
                size_bytes: taken.manifest.size_bytes(),
                copied_bytes: taken.copied_bytes,
            }),
            Self::Directory { path, taken_at, .. } => {
                DataDir::note_backup(path, *taken_at).map_err(Error::new)
            }
        };
        noted.context("the backup is whole, but its time could not be noted in the data directory")
    }
}

/// A connection to a server that keeps files.
pub(super) struct Session {
    stream: BufReader<UnixStream>,
    begun: Begun,
}

impl Session {
    fn begin(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut stream = BufReader::new(stream);
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: kew\r\nconnection: upgrade\r\nupgrade: {PROTOCOL}\r\n\
             content-length: 0\r\n\r\n"
        );
        let unanswered = "the server did not answer the request for a backup";
        stream
            .get_mut()
            .write_all(head.as_bytes())
            .context(unanswered)?;
        let status = read_head(&mut stream).context(unanswered)?;
        if status == 404 {
            bail!(
                "the server is of an older version, which takes no backups: stop it, then run this again"
            );
        }
        if status != 101 {
            let mut body = String::new();
            stream.read_line(&mut body).context(unanswered)?;
            let failure: Failure =
                serde_json::from_str(&body).context("the answer cannot be read")?;
            bail!("{}", failure.message);
        }
        match read_line(&mut stream).context(unanswered)? {
            ServerLine::Begun(begun) => Ok(Self { stream, begun }),
            ServerLine::Noted => bail!("the server sent an unexpected answer"),
            ServerLine::Failed(failure) => bail!("{}", failure.message),
        }
    }

    /// Sends a line. Fails if the files are not kept any more, with the reason.
    fn exchange(&mut self, line: &CommandLine) -> Result<()> {
        let mut json = serde_json::to_vec(line)?;
        json.push(b'\n');
        // The server may have closed its side after a last line, which says why.
        let _ = self.stream.get_mut().write_all(&json);
        let answer = read_line(&mut self.stream).context(
            "the server has ended, or does not answer; run kew backup again to continue",
        )?;
        match answer {
            ServerLine::Noted => Ok(()),
            ServerLine::Begun(_) => bail!("the server sent an unexpected answer"),
            ServerLine::Failed(failure) => bail!("{}", failure.message),
        }
    }
}

/// Reads the head of an answer. Returns its status.
fn read_head(stream: &mut BufReader<UnixStream>) -> Result<u16> {
    let mut status = None;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            bail!("the connection was closed");
        }
        let line = line.trim_end();
        if status.is_none() {
            status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
        }
        if line.is_empty() {
            return status.context("the answer has no status");
        }
    }
}

fn read_line(stream: &mut BufReader<UnixStream>) -> Result<ServerLine> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        bail!("the connection was closed");
    }
    serde_json::from_str(&line).context("the server's answer cannot be read")
}
