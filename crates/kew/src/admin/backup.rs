//! The server's part of a backup: it keeps the files in their place while the command copies them.
//!
//! `POST /v1/backup` changes the connection to lines of JSON ([`lines`]). The files are kept as long as the
//! connection lasts and the command sends a line from time to time. The server gives them up when its disk gets full.

pub(crate) mod lines;
mod seen;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kew_broker::{BackupRefused, Broker};
use kew_log::{BeginBackupError, DataDir};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite,
    AsyncWriteExt as _, BufReader,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, timeout};

use self::lines::{Begun, CommandLine, LINE_SIZE_BYTES_MAX, PROTOCOL, ServerLine};
pub(crate) use self::seen::Seen;
use self::seen::{Held, ms};
use super::{Failure, Record};

/// How long a command may send nothing. It reports every second, whatever it does: one that is silent was stopped.
/// The connection of one that was killed is closed at once.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// How long the connection may take to change its protocol, and a line to be written.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the free space is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// With less than a tenth of the disk free, and less than this, no space is kept for a backup. A share by itself
/// would refuse backups of large disks that are fuller, with room for days. The amount has room for what a server
/// writes between two looks, for a snapshot of tens of millions of messages, and for the segments meanwhile.
const FREE_PARTS_MIN: u64 = 10;
const FREE_BYTES_MIN: u64 = 4 << 30;

/// What a server needs to keep files for backups.
#[derive(Clone)]
pub(crate) struct Backups {
    broker: Broker,
    /// An absolute path. `None` with `--ephemeral`.
    data_dir: Option<PathBuf>,
    seen: Arc<Seen>,
    stopping: watch::Receiver<bool>,
}

impl Backups {
    pub(crate) fn new(
        broker: Broker,
        data_dir: Option<&Path>,
        seen: Arc<Seen>,
        stopping: watch::Receiver<bool>,
    ) -> Result<Self> {
        Ok(Self {
            broker,
            data_dir: data_dir.map(std::path::absolute).transpose()?,
            seen,
            stopping,
        })
    }

    /// Begins a backup, and answers the request that asks for it. The rest happens in a task of its own.
    pub(super) async fn begin(
        &self,
        request: Request<Incoming>,
        by: &str,
    ) -> Result<Response<Full<Bytes>>, Failure> {
        let begun = self.try_begin(&request).await;
        let record = |detail: String| Record {
            what: detail,
            is_audited: true,
            ..Record::default()
        };
        let (held, begun) = match begun {
            Ok(begun) => begun,
            Err(failure) => {
                record("begin a backup".into()).write(by, Some(&failure));
                return Err(failure);
            }
        };
        record(format!(
            "begin a backup, up to log position {}",
            begun.plan.position
        ))
        .write(by, None);
        let (backups, by) = (self.clone(), by.to_owned());
        let upgrade = hyper::upgrade::on(request);
        tokio::spawn(async move {
            match keep(backups, held, begun, upgrade).await {
                Ok(whole) => record(format!("end a backup: {whole}")).write(&by, None),
                Err(failure) => record("end a backup".into()).write(&by, Some(&failure)),
            }
        });
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
        Ok(response)
    }

    async fn try_begin(&self, request: &Request<Incoming>) -> Result<(Held, Begun), Failure> {
        let upgrade = request.headers().get(UPGRADE);
        if upgrade.is_none_or(|protocol| protocol != PROTOCOL) {
            let text = format!("the request must have the header upgrade: {PROTOCOL}");
            return Err(Failure::new("invalid", text));
        }
        let Some(data_dir) = self.data_dir.clone() else {
            let text = "a server with --ephemeral has nothing on a disk to back up";
            return Err(Failure::new("refused", text));
        };
        if data_dir.to_str().is_none() {
            let text = "the path of the data directory is not UTF-8; stop the server, and run kew backup again";
            return Err(Failure::new("refused", text));
        }
        let taken_at_ms = ms(SystemTime::now());
        let pin = self.broker.begin_backup().await.map_err(refused)?;
        let begun = Begun {
            plan: pin.plan().clone(),
            data_dir,
            taken_at_ms,
        };
        Ok((Held::new(pin, &self.seen), begun))
    }
}

fn refused(error: BackupRefused) -> Failure {
    match error {
        BackupRefused::Log(BeginBackupError::Busy) => Failure::new(
            "busy",
            "another backup of this server is in progress; wait for its end, or stop that command",
        ),
        BackupRefused::Log(BeginBackupError::Full) => Failure::new(
            "full",
            "the disk of the data directory is full, and a backup would keep files that can be removed; free \
             space on the disk, then try again",
        ),
        BackupRefused::Log(BeginBackupError::NoFiles) => Failure::new(
            "unsupported",
            "the log of this server has no files to back up",
        ),
        BackupRefused::NotOwner => not_owner(),
        BackupRefused::Log(BeginBackupError::Ended(_)) | BackupRefused::Stopped => Failure::new(
            "stopped",
            "the server has stopped; start it again, or back up its data directory without it",
        ),
    }
}

/// Keeps the files of a pin until the command has ended. Returns what it has copied.
async fn keep(
    backups: Backups,
    held: Held,
    begun: Begun,
    upgrade: OnUpgrade,
) -> Result<String, Failure> {
    let Ok(Ok(upgraded)) = timeout(PATIENCE, upgrade).await else {
        return Err(gone());
    };
    attend(backups, held, begun, TokioIo::new(upgraded)).await
}

/// The same, of a connection that has changed its protocol.
async fn attend<S: AsyncRead + AsyncWrite + Send + 'static>(
    backups: Backups,
    held: Held,
    begun: Begun,
    stream: S,
) -> Result<String, Failure> {
    let (read, mut write) = tokio::io::split(stream);
    let taken_at = UNIX_EPOCH + Duration::from_millis(begun.taken_at_ms);
    let data_dir = begun.data_dir.clone();
    let told = send(&mut write, &ServerLine::Begun(begun)).await;
    told.map_err(|()| gone())?;
    let (sender, mut lines) = mpsc::channel(1);
    let reader = tokio::spawn(read_lines(BufReader::new(read), sender));
    let _reader = AbortOnDrop(reader);
    let mut kept = Kept {
        stopping: backups.stopping.clone(),
        data_dir: data_dir.clone(),
        held,
        heard_at: Instant::now(),
    };
    let whole = match until_whole(&mut kept, &mut lines, &mut write).await {
        Ok(whole) => whole,
        Err(failure) => {
            // Before the command learns of it, so that it can begin again at once.
            drop(kept);
            let line = ServerLine::Failed(Failure::new(&failure.error, &*failure.message));
            if send(&mut write, &line).await.is_err() {
                return Err(failure);
            }
            // The command may have copied everything by now: then the backup is whole, and its time counts.
            match whole_after_all(&mut lines, backups.stopping.clone()).await {
                Some(whole) => whole,
                None => return Err(failure),
            }
        }
    };
    note_whole(&backups.seen, data_dir, taken_at).await;
    let _ = send(&mut write, &ServerLine::Noted).await;
    Ok(whole)
}

/// Answers reports until the backup is whole, or until the files cannot be kept any more.
async fn until_whole<W: AsyncWrite + Unpin>(
    kept: &mut Kept,
    lines: &mut mpsc::Receiver<CommandLine>,
    write: &mut W,
) -> Result<String, Failure> {
    loop {
        let line = tokio::select! {
            line = lines.recv() => line.ok_or_else(gone)?,
            failure = kept.given_up() => return Err(failure),
        };
        kept.heard_at = Instant::now();
        match line {
            CommandLine::Progress { .. } => {
                let told = send(write, &ServerLine::Noted).await;
                told.map_err(|()| gone())?;
            }
            whole @ CommandLine::Whole { .. } => return Ok(text_of(&whole)),
        }
    }
}

/// Waits for the end of a command that has lost its files. `None` if its backup is not whole.
async fn whole_after_all(
    lines: &mut mpsc::Receiver<CommandLine>,
    mut stopping: watch::Receiver<bool>,
) -> Option<String> {
    loop {
        let line = tokio::select! {
            line = lines.recv() => line?,
            _ = stopping.wait_for(|stopping| *stopping) => return None,
        };
        match line {
            CommandLine::Progress { .. } => {}
            whole @ CommandLine::Whole { .. } => return Some(text_of(&whole)),
        }
    }
}

fn text_of(line: &CommandLine) -> String {
    match line {
        CommandLine::Progress { done_bytes } => format!("{done_bytes} bytes so far"),
        CommandLine::Whole {
            size_bytes,
            copied_bytes,
        } => format!("{size_bytes} bytes, of which {copied_bytes} were copied"),
    }
}

fn gone() -> Failure {
    Failure::new("gone", "the command has ended before the backup was whole")
}

/// Ends a task with its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn note_whole(seen: &Seen, data_dir: PathBuf, taken_at: SystemTime) {
    seen.note(taken_at);
    let noted =
        tokio::task::spawn_blocking(move || DataDir::note_backup(&data_dir, taken_at)).await;
    if let Ok(Err(error)) = noted {
        tracing::warn!(%error, "cannot note the time of the backup, which a restart will forget");
    }
}

/// Files that are kept for a command.
struct Kept {
    stopping: watch::Receiver<bool>,
    data_dir: PathBuf,
    held: Held,
    /// When the command has sent its last line.
    heard_at: Instant,
}

impl Kept {
    /// Returns when the files are not kept any more, and why.
    async fn given_up(&mut self) -> Failure {
        let mut ticks = interval(LOOK_INTERVAL);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = self.stopping.wait_for(|stopping| *stopping) => return stopped(),
            }
            match self.held.held_bytes().await {
                // A partition that has stopped holds nothing either.
                None if *self.stopping.borrow() => return stopped(),
                None if self.held.is_left() => return not_owner(),
                None => return full(),
                Some(held_bytes) if held_bytes > 0 && is_nearly_full(&self.data_dir) => {
                    return full();
                }
                Some(_) => {}
            }
            if self.heard_at.elapsed() > SILENCE_MAX {
                let seconds = SILENCE_MAX.as_secs();
                return Failure::new(
                    "timeout",
                    format!(
                        "the command was stopped for more than {seconds} s; run kew backup again to continue"
                    ),
                );
            }
        }
    }
}

fn full() -> Failure {
    Failure::new(
        "full",
        "the disk of the data directory has less than 10 % and less than 4 GiB free, and the server needs \
         the space of files that were kept for this backup; free space on the disk, then run kew backup again to continue",
    )
}

fn not_owner() -> Failure {
    Failure::new(
        "not-owner",
        "another server owns the messages; back them up there",
    )
}

fn stopped() -> Failure {
    Failure::new(
        "stopped",
        "the server stops; run kew backup again to continue, also without a server",
    )
}

fn is_nearly_full(data_dir: &Path) -> bool {
    let Ok(found) = rustix::fs::statvfs(data_dir) else {
        return false;
    };
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    is_too_little(bytes(found.f_bavail), bytes(found.f_blocks))
}

fn is_too_little(free_bytes: u64, size_bytes: u64) -> bool {
    // Some file systems answer with nothing but zeros: then nothing is too little.
    free_bytes < (size_bytes / FREE_PARTS_MIN).min(FREE_BYTES_MIN)
}

/// Passes on lines until the command closes the connection, or sends something else.
async fn read_lines(mut read: impl AsyncBufRead + Unpin, lines: mpsc::Sender<CommandLine>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut read).take(LINE_SIZE_BYTES_MAX);
        let is_read = limited.read_until(b'\n', &mut line).await.is_ok();
        let sent = is_read.then(|| serde_json::from_slice(&line).ok());
        let Some(line) = sent.flatten() else {
            return;
        };
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

async fn send<W: AsyncWrite + Unpin>(write: &mut W, line: &ServerLine) -> Result<(), ()> {
    let mut json = serde_json::to_vec(line).expect("plain structures can be written as JSON");
    json.push(b'\n');
    let written = timeout(PATIENCE, write.write_all(&json)).await;
    written.map_err(drop)?.map_err(drop)
}
