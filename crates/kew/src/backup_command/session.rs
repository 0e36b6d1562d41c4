//! A connection to a server that keeps files. A thread reports on it until the backup ends, so that the server knows
//! that the command is alive, however long a step takes: syncing, checking or replaying a snapshot of many gigabytes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::admin::Failure;
use crate::admin::backup::lines::{Begun, CommandLine, PATH, PROTOCOL, ServerLine};

/// How long the server may take to answer a line.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the command reports to the server. The server waits far longer for a report.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A server keeps the files while this exists.
pub(super) struct Session {
    begun: Begun,
    shared: Arc<Shared>,
    reporter: Option<Reporter>,
}

/// What the reporting thread shares with the one that copies.
struct Shared {
    stream: Mutex<BufReader<UnixStream>>,
    done_bytes: AtomicU64,
    /// Why the files are not kept any more.
    given_up: OnceLock<String>,
}

/// Reports until it is dropped.
struct Reporter {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    /// Begins a backup.
    pub(super) fn begin(stream: UnixStream) -> Result<Self> {
        Self::begin_with(stream, REPORT_INTERVAL)
    }

    fn begin_with(stream: UnixStream, interval: Duration) -> Result<Self> {
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
        let begun = match read_line(&mut stream).context(unanswered)? {
            ServerLine::Begun(begun) => begun,
            ServerLine::Noted => bail!("the server sent an unexpected answer"),
            ServerLine::Failed(failure) => bail!("{}", failure.message),
        };
        let shared = Arc::new(Shared {
            stream: Mutex::new(stream),
            done_bytes: AtomicU64::new(0),
            given_up: OnceLock::new(),
        });
        let reporter = Reporter::start(&shared, interval)?;
        Ok(Self {
            begun,
            shared,
            reporter: Some(reporter),
        })
    }

    pub(super) fn begun(&self) -> &Begun {
        &self.begun
    }

    /// Notes progress, which the next report has. Fails if the files are not kept any more, as far as that is known.
    pub(super) fn note(&self, done_bytes: u64) -> Result<()> {
        self.shared.done_bytes.store(done_bytes, Ordering::Relaxed);
        match self.shared.given_up.get() {
            None => Ok(()),
            Some(why) => Err(anyhow!("{why}")),
        }
    }

    /// Asks the server. Fails if the files are not kept any more.
    pub(super) fn check(&self) -> Result<()> {
        self.shared.report();
        self.note(self.shared.done_bytes.load(Ordering::Relaxed))
    }

    /// Tells the server that the backup is whole. Also a server that has given up the files notes that.
    pub(super) fn note_whole(&mut self, size_bytes: u64, copied_bytes: u64) -> Result<()> {
        self.reporter = None;
        let mut stream = self.shared.lock();
        send(
            &mut stream,
            &CommandLine::Whole {
                size_bytes,
                copied_bytes,
            },
        )?;
        match read_line(&mut stream)? {
            ServerLine::Noted => return Ok(()),
            // It crossed with our line, whose answer follows.
            ServerLine::Failed(_) => {}
            ServerLine::Begun(_) => bail!("the server sent an unexpected answer"),
        }
        match read_line(&mut stream)? {
            ServerLine::Noted => Ok(()),
            ServerLine::Begun(_) => bail!("the server sent an unexpected answer"),
            ServerLine::Failed(failure) => bail!("{}", failure.message),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BufReader<UnixStream>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports progress, unless the server has given up.
    fn report(&self) {
        let mut stream = self.lock();
        if self.given_up.get().is_some() {
            return;
        }
        let done_bytes = self.done_bytes.load(Ordering::Relaxed);
        // The server may have closed its side after a last line, which says why.
        let _ = send(&mut stream, &CommandLine::Progress { done_bytes });
        let why = match read_line(&mut stream) {
            Ok(ServerLine::Noted) => return,
            Ok(ServerLine::Failed(failure)) => failure.message,
            Ok(ServerLine::Begun(_)) => "the server sent an unexpected answer".into(),
            Err(error) => format!(
                "the server has ended, or does not answer; run kew backup again to continue: {error:#}"
            ),
        };
        // Only this function sets it, under the lock.
        let _ = self.given_up.set(why);
    }
}

impl Reporter {
    fn start(shared: &Arc<Shared>, interval: Duration) -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let shared = Arc::clone(shared);
        let report = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                shared.report();
            }
        };
        let builder = thread::Builder::new().name("kew-backup-report".into());
        let thread = builder.spawn(report).context("cannot start a thread")?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It does not panic, and if it did, nothing depends on it.
            let _ = thread.join();
        }
    }
}

fn send(stream: &mut BufReader<UnixStream>, line: &CommandLine) -> Result<()> {
    let mut json = serde_json::to_vec(line)?;
    json.push(b'\n');
    Ok(stream.get_mut().write_all(&json)?)
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use kew_log::{BackupPlan, LogPosition};

    use super::*;

    /// A server for one session, that sends what it is told and passes on the lines that it receives.
    struct Fake {
        stream: BufReader<UnixStream>,
    }

    impl Fake {
        fn send(&mut self, line: &ServerLine) {
            let mut json = serde_json::to_vec(line).unwrap();
            json.push(b'\n');
            self.stream.get_mut().write_all(&json).unwrap();
        }

        fn receive(&mut self) -> String {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            line
        }
    }

    fn begin() -> (Session, Fake) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut fake = Fake {
            stream: BufReader::new(theirs),
        };
        let accept = thread::spawn(move || {
            while fake.receive() != "\r\n" {}
            let head = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
            fake.stream.get_mut().write_all(head).unwrap();
            fake.send(&ServerLine::Begun(Begun {
                plan: BackupPlan {
                    position: LogPosition::new(4096),
                    snapshot: None,
                    pages: Vec::new(),
                    segments: Vec::new(),
                },
                data_dir: PathBuf::from("/data"),
                taken_at_ms: 1,
            }));
            fake
        });
        let session = Session::begin_with(ours, Duration::from_millis(1)).unwrap();
        (session, accept.join().unwrap())
    }

    /// A step without any progress can last for as long as it needs.
    #[test]
    fn a_session_reports_also_without_progress() {
        let (session, mut fake) = begin();
        session.note(7).unwrap();
        for _ in 0..3 {
            while !fake.receive().contains("\"done_bytes\":7") {
                fake.send(&ServerLine::Noted);
            }
            fake.send(&ServerLine::Noted);
        }
        drop(session);
    }

    #[test]
    fn a_server_that_gives_up_ends_the_work_and_still_learns_of_its_end() {
        let (mut session, mut fake) = begin();
        assert!(fake.receive().contains("progress"));
        fake.send(&ServerLine::Failed(Failure::new("full", "no space")));
        let error = session.check().unwrap_err();
        assert_eq!(error.to_string(), "no space");
        assert_eq!(session.note(9).unwrap_err().to_string(), "no space");
        let note = thread::spawn(move || session.note_whole(9, 5));
        assert_eq!(
            fake.receive(),
            "{\"whole\":{\"size_bytes\":9,\"copied_bytes\":5}}\n"
        );
        fake.send(&ServerLine::Noted);
        note.join().unwrap().unwrap();
    }

    #[test]
    fn a_lost_server_is_noticed_between_two_steps() {
        let (session, fake) = begin();
        drop(fake);
        let error = session.check().unwrap_err().to_string();
        assert!(error.contains("the server has ended"), "{error}");
    }
}
