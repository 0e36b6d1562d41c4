//! The server's part of a backup: it keeps the files in their place while the command copies them.
//!
//! `POST /v1/backup` changes the connection to lines of JSON ([`lines`]). The files are kept as long as the
//! connection lasts and the command makes progress. The server gives them up when its disk gets full.

pub(crate) mod lines;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kew_broker::{BackupPin, BackupRefused, Broker};
use kew_log::{BeginBackupError, DataDir};
use kew_metrics::{Family, Unit};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, WriteHalf,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval, timeout};

use self::lines::{Begun, CommandLine, LINE_SIZE_BYTES_MAX, PROTOCOL, ServerLine};
use super::{Failure, Record};

/// How long a command may be without progress. Checking a copied snapshot of many gigabytes is one step.
const PROGRESS_TIME_MAX: Duration = Duration::from_secs(300);

/// How long the connection may take to change its protocol, and a line to be written.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the free space is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// With less than a tenth of the disk free, no space is kept for a backup.
const FREE_PARTS_MIN: u64 = 10;

/// What a server needs to keep files for backups.
#[derive(Clone)]
pub(crate) struct Backups {
    broker: Broker,
    /// An absolute path. `None` with `--ephemeral`.
    data_dir: Option<PathBuf>,
    seen: Arc<Seen>,
    stopping: watch::Receiver<bool>,
}

/// What the metrics report.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The time of the state in the last whole backup, in milliseconds since 1970-01-01 UTC; 0 for none.
    last_at_ms: AtomicU64,
    /// How many backups are in progress: 0 or 1.
    in_progress: AtomicU64,
}

impl Seen {
    /// Reads the note that an earlier run has left.
    pub(crate) fn open(data_dir: Option<&Path>) -> Arc<Self> {
        let seen = Self::default();
        let last = data_dir.map(DataDir::last_backup);
        match last.transpose() {
            Ok(last) => seen.note(last.flatten().unwrap_or(UNIX_EPOCH)),
            Err(error) => tracing::warn!(%error, "cannot read when the last backup was taken"),
        }
        Arc::new(seen)
    }

    fn note(&self, taken_at: SystemTime) {
        self.last_at_ms.store(ms(taken_at), Ordering::Relaxed);
    }

    /// The metrics about backups.
    pub(crate) fn metrics(&self) -> Vec<Family> {
        let age = Family::gauge(
            "kew_backup_age",
            Unit::Seconds,
            "Time since the state of the last whole backup",
        );
        let in_progress = Family::gauge(
            "kew_backups_in_progress",
            Unit::None,
            "Backups in progress, 0 or 1",
        );
        let age = match self.last_at_ms.load(Ordering::Relaxed) {
            0 => age,
            at => {
                let since = Duration::from_millis(ms(SystemTime::now()).saturating_sub(at));
                age.amount(Vec::new(), since.as_secs_f64())
            }
        };
        let count = self.in_progress.load(Ordering::Relaxed);
        vec![age, in_progress.count(Vec::new(), count)]
    }
}

fn ms(time: SystemTime) -> u64 {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
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
        let (pin, begun) = match begun {
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
            let seen = Arc::clone(&backups.seen);
            seen.in_progress.store(1, Ordering::Relaxed);
            let ended = keep(backups, pin, begun, upgrade).await;
            seen.in_progress.store(0, Ordering::Relaxed);
            match ended {
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

    async fn try_begin(&self, request: &Request<Incoming>) -> Result<(BackupPin, Begun), Failure> {
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
        Ok((pin, begun))
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
        BackupRefused::Log(BeginBackupError::Failed(_)) | BackupRefused::Stopped => Failure::new(
            "stopped",
            "the server has stopped; start it again, or back up its data directory without it",
        ),
    }
}

/// Keeps the files of a pin until the command has ended. Returns what it has copied.
async fn keep(
    backups: Backups,
    pin: BackupPin,
    begun: Begun,
    upgrade: OnUpgrade,
) -> Result<String, Failure> {
    let gone = || Failure::new("gone", "the command has ended before the backup was whole");
    let Ok(Ok(upgraded)) = timeout(PATIENCE, upgrade).await else {
        return Err(gone());
    };
    let (read, mut write) = tokio::io::split(TokioIo::new(upgraded));
    let (taken_at_ms, data_dir) = (begun.taken_at_ms, begun.data_dir.clone());
    send(&mut write, &ServerLine::Begun(begun))
        .await
        .map_err(|()| gone())?;
    let (sender, mut lines) = mpsc::channel(1);
    let reader = tokio::spawn(read_lines(BufReader::new(read), sender));
    let mut kept = Kept {
        stopping: backups.stopping.clone(),
        data_dir,
        pin,
        done_bytes: 0,
        progress_at: Instant::now(),
    };
    let ended = loop {
        let line = tokio::select! {
            line = lines.recv() => line.ok_or_else(gone),
            failure = kept.given_up() => Err(failure),
        };
        match line {
            Ok(CommandLine::Progress { done_bytes }) => {
                kept.note_progress(done_bytes);
                if send(&mut write, &ServerLine::Noted).await.is_err() {
                    break Err(gone());
                }
            }
            Ok(CommandLine::Whole {
                size_bytes,
                copied_bytes,
            }) => {
                let taken_at = UNIX_EPOCH + Duration::from_millis(taken_at_ms);
                note_whole(&backups.seen, kept.data_dir.clone(), taken_at).await;
                let _ = send(&mut write, &ServerLine::Noted).await;
                break Ok(format!(
                    "{size_bytes} bytes, of which {copied_bytes} were copied"
                ));
            }
            Err(failure) => {
                let line = ServerLine::Failed(Failure::new(&failure.error, &*failure.message));
                let _ = send(&mut write, &line).await;
                break Err(failure);
            }
        }
    };
    reader.abort();
    ended
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
    pin: BackupPin,
    done_bytes: u64,
    progress_at: Instant,
}

impl Kept {
    fn note_progress(&mut self, done_bytes: u64) {
        if done_bytes > self.done_bytes {
            self.done_bytes = done_bytes;
            self.progress_at = Instant::now();
        }
    }

    /// Returns when the files are not kept any more, and why.
    async fn given_up(&mut self) -> Failure {
        let mut ticks = interval(LOOK_INTERVAL);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = self.stopping.wait_for(|stopping| *stopping) => return stopped(),
            }
            match self.pin.held_bytes().await {
                // A partition that has stopped holds nothing either.
                None if *self.stopping.borrow() => return stopped(),
                None => return full(),
                Some(held_bytes) if held_bytes > 0 && is_nearly_full(&self.data_dir) => {
                    return full();
                }
                Some(_) => {}
            }
            if self.progress_at.elapsed() > PROGRESS_TIME_MAX {
                let seconds = PROGRESS_TIME_MAX.as_secs();
                return Failure::new(
                    "timeout",
                    format!(
                        "the backup made no progress for {seconds} s; run kew backup again to continue"
                    ),
                );
            }
        }
    }
}

fn full() -> Failure {
    Failure::new(
        "full",
        "the disk of the data directory has less than 10 % free, and the server needs the space of files that \
         were kept for this backup; free space on the disk, then run kew backup again to continue",
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
    // Some file systems answer with nothing but zeros.
    found.f_blocks > 0 && found.f_bavail < found.f_blocks / FREE_PARTS_MIN
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

async fn send(write: &mut WriteHalf<TokioIo<Upgraded>>, line: &ServerLine) -> Result<(), ()> {
    let mut json = serde_json::to_vec(line).expect("plain structures can be written as JSON");
    json.push(b'\n');
    let written = timeout(PATIENCE, write.write_all(&json)).await;
    written.map_err(drop)?.map_err(drop)
}
