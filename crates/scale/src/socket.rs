//! A local socket on which the running agent says what it has seen, and why it acted or did not.
//!
//! Each connection gets one text and its end. Nothing is read from it, so nothing can be changed. Only the agent's own
//! user can connect.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use crate::memory::{Memory, Told};

/// Both sides have this time for a text.
const PATIENCE: Duration = Duration::from_secs(5);
/// From an error of the listener to the next try.
const PAUSE: Duration = Duration::from_millis(100);
/// What a text may have, in bytes. Forty decisions have a few thousand.
const TEXT_MAX: u64 = 1 << 20;

/// The first line of a text.
const WHOLE: &str = "kew-scale 1 whole\n";
const PARTIAL: &str = "kew-scale 1 partial\n";

/// A socket that answers. When it is dropped, its file is removed.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens at a path, in the place of the socket of an agent that has ended. Needs a runtime.
    ///
    /// # Errors
    ///
    /// If nothing can listen there.
    pub fn open(path: &Path) -> io::Result<Self> {
        // It comes to its place with its rights, so that nobody else connects meanwhile.
        let new = path.with_extension("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        fs::rename(&new, path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }

    /// Answers with what an agent remembers, until it is dropped.
    pub async fn answer(self, group: &str, memory: &Memory) -> Infallible {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    // One that does not read gets no more.
                    let _ = timeout(PATIENCE, write(stream, &memory.tell(group))).await;
                }
                Err(error) => {
                    tracing::debug!(group, "no operator was answered: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The next agent takes its place in any case.
        let _ = fs::remove_file(&self.path);
    }
}

async fn write(mut stream: UnixStream, told: &Told) -> io::Result<()> {
    let first = if told.is_whole { WHOLE } else { PARTIAL };
    stream.write_all(first.as_bytes()).await?;
    stream.write_all(told.text.as_bytes()).await?;
    stream.shutdown().await
}

/// Asks the agent that listens at a path.
///
/// # Errors
///
/// If none answers in time, or something else does.
pub async fn ask(path: &Path) -> io::Result<Told> {
    let asked = timeout(PATIENCE, read(path)).await;
    asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn read(path: &Path) -> io::Result<Told> {
    let mut all = String::new();
    let stream = UnixStream::connect(path).await?;
    stream.take(TEXT_MAX).read_to_string(&mut all).await?;
    let whole = all.strip_prefix(WHOLE).map(|text| (true, text));
    let told = whole.or_else(|| Some((false, all.strip_prefix(PARTIAL)?)));
    let (is_whole, text) = told.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Told {
        is_whole,
        text: text.to_owned(),
    })
}
