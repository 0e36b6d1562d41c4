//! A local socket on which the running agent says what it has seen, and why it acted or did not.
//!
//! Each connection gets one text and its end. Nothing is read from it, so nothing can be changed. Only the agent's own
//! user and root are answered. What is no socket of an agent is never replaced or removed.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
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

const ROOT: u32 = 0;

/// The first line of a text.
const WHOLE: &str = "kew-scale 1 whole\n";
const PARTIAL: &str = "kew-scale 1 partial\n";

/// A socket that answers. When it is dropped, its file is removed.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    file: FileId,
}

/// Which file it is, whatever its name: its device and its number there.
type FileId = (u64, u64);

fn id(file: &Metadata) -> FileId {
    (file.dev(), file.ino())
}

impl Socket {
    /// Listens at a path, in the place of the socket of an agent.
    ///
    /// # Errors
    ///
    /// If nothing can listen there, or something else is there.
    pub async fn open(path: &Path) -> io::Result<Self> {
        may_replace(path).await?;
        // It comes to its place at once, with its rights.
        let (listener, new) = bind_beside(path)?;
        let opened = || {
            fs::set_permissions(&new, Permissions::from_mode(0o600))?;
            let file = id(&fs::symlink_metadata(&new)?);
            fs::rename(&new, path)?;
            Ok(file)
        };
        match opened() {
            Ok(file) => Ok(Self {
                listener,
                path: path.to_owned(),
                file,
            }),
            Err(error) => {
                // The first error says more.
                let _ = fs::remove_file(&new);
                Err(error)
            }
        }
    }

    /// Answers with what an agent remembers, until it is dropped.
    pub async fn answer(self, group: &str, memory: &Memory) -> Infallible {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let peer = stream.peer_cred().map(|it| it.uid());
                    if !peer.is_ok_and(|peer| is_answered(peer, own_user())) {
                        continue;
                    }
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
        // Another agent may have taken its place.
        if fs::symlink_metadata(&self.path).is_ok_and(|it| id(&it) == self.file) {
            // The next agent takes its place in any case.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether nothing is at the path, or the socket of an agent of this user that runs or has ended.
async fn may_replace(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let refused = |why| Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    if !found.file_type().is_socket() {
        return refused("a file is there that is no socket");
    }
    if found.uid() != own_user() {
        return refused("a socket of another user is there");
    }
    match ask(path).await {
        Ok(_) => Ok(()),
        // The program that listened has ended.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(_) => refused("another program listens there"),
    }
}

/// Listens at a new name in the same directory.
fn bind_beside(path: &Path) -> io::Result<(UnixListener, PathBuf)> {
    let mut tries = 0;
    loop {
        let mut random = [0; 3];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let [a, b, c] = random;
        let mut name = OsString::from(path);
        // The limit of paths of sockets has room for it.
        name.push(format!(".{a:02x}{b:02x}{c:02x}"));
        let new = PathBuf::from(name);
        tries += 1;
        match UnixListener::bind(&new) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < 10 => {}
            bound => return Ok((bound?, new)),
        }
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether the agent of a user answers another one.
fn is_answered(peer: u32, own: u32) -> bool {
    peer == own || peer == ROOT
}

/// Whether a user believes the agent of another one. Root asks the agents of all users.
fn is_believed(peer: u32, own: u32) -> bool {
    is_answered(peer, own) || own == ROOT
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
    if !is_believed(stream.peer_cred()?.uid(), own_user()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.take(TEXT_MAX).read_to_string(&mut all).await?;
    let whole = all.strip_prefix(WHOLE).map(|text| (true, text));
    let told = whole.or_else(|| Some((false, all.strip_prefix(PARTIAL)?)));
    let (is_whole, text) = told.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Told {
        is_whole,
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_user_and_root_are_answered_and_believed() {
        for (peer, own, answered, believed) in [
            (7, 7, true, true),
            (0, 7, true, true),
            (8, 7, false, false),
            (7, 0, false, true),
        ] {
            assert_eq!(is_answered(peer, own), answered, "{peer} asks {own}");
            assert_eq!(is_believed(peer, own), believed, "{own} asks {peer}");
        }
    }
}
