//! Runs `kew` as a process and waits for its output.
//!
//! `verdict` judges the whole log and the exit status of every process.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kew_client::{QueueAccount, QueueClient, QueueOptions, Retry};
use queue_load::{Client, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Endpoint};
use rustix::process::{Pid, Signal, kill_process};

use crate::verdict::{Ending, faults};

/// How long a server may take to become ready, or to end after a request to stop.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running server. Dropping it kills it; a failing test shows what it logged.
pub(crate) struct Server {
    child: Child,
    facts: BTreeMap<String, Vec<String>>,
    lines: Receiver<String>,
    log: Log,
    expected_errors: Vec<&'static str>,
    tolerated_errors: Vec<&'static str>,
    is_judged: bool,
}

/// The well-known account at an address.
pub(crate) fn account_at(address: SocketAddr) -> QueueAccount {
    let text = format!(
        "AccountName={DEVELOPMENT_ACCOUNT};AccountKey={DEVELOPMENT_KEY};\
         QueueEndpoint=http://{address}/{DEVELOPMENT_ACCOUNT}"
    );
    QueueAccount::parse(&text).expect("a usable connection string")
}

/// A client on one connection that tries nothing again. It waits long: a test may stop the server for a while.
pub(crate) fn queue_client(account: QueueAccount) -> QueueClient {
    let options = QueueOptions {
        timeout: 20 * PATIENCE,
        retry: Retry {
            retries: 0,
            ..Retry::default()
        },
        connections_max: 1,
        // Lists of a few queues have several pages.
        page_size: 7,
        ..QueueOptions::default()
    };
    QueueClient::new(account, options).expect("plain HTTP needs no set-up")
}

/// How a command ended, or a server that did not become ready.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) log: String,
}

impl Server {
    /// Starts a server on a free port and waits until it is ready.
    pub(crate) fn start(data_dir: &Path) -> Self {
        Self::start_with(|command| {
            command.arg("serve").arg("--data-dir").arg(data_dir);
            command.args(["--queue-listen", "127.0.0.1:0"]);
        })
    }

    /// Starts a server as `arrange` says and waits until it is ready.
    pub(crate) fn start_with(arrange: impl FnOnce(&mut Command)) -> Self {
        match Self::try_start_with(arrange) {
            Ok(server) => server,
            Err(ended) => panic!(
                "kew ended before it was ready: {}\n{}",
                ended.status, ended.log
            ),
        }
    }

    /// Starts a server as `arrange` says; returns when it is ready or has ended.
    pub(crate) fn try_start_with(arrange: impl FnOnce(&mut Command)) -> Result<Self, Ended> {
        let mut server = Self::spawn(arrange);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match server.lines.recv_timeout(left) {
                Ok(line) => {
                    if server.note(&line) {
                        return Ok(server);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(server.judge(Ending::WithACode));
                }
                Err(RecvTimeoutError::Timeout) => panic!("kew was not ready in {PATIENCE:?}"),
            }
        }
    }

    /// Starts a server and does not wait for it.
    pub(crate) fn spawn(arrange: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kew"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KEW_") {
                command.env_remove(name);
            }
        }
        arrange(&mut command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("kew was built with this test");
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        Self {
            child,
            facts: BTreeMap::new(),
            lines: read_lines(stdout),
            log: Log::collect(stderr),
            expected_errors: Vec::new(),
            tolerated_errors: Vec::new(),
            is_judged: false,
        }
    }

    /// By its end the server must log an error with this text. Any other error fails the test.
    pub(crate) fn expect_error(&mut self, text: &'static str) {
        self.expected_errors.push(text);
    }

    /// The server may log an error with this text: whether it does depends on the moment.
    pub(crate) fn tolerate_error(&mut self, text: &'static str) {
        self.tolerated_errors.push(text);
    }

    /// The values of a fact that was printed before the server was ready.
    pub(crate) fn facts(&self, name: &str) -> &[String] {
        self.facts.get(name).map_or(&[], Vec::as_slice)
    }

    /// The printed addresses of Queue Storage: one for each line or item.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.facts("KEW_QUEUE_LISTEN")
            .iter()
            .flat_map(|value| value.split([',', ' ']))
            .map(|address| address.parse().expect("an address and a port"))
            .collect()
    }

    /// The account in the printed connection string.
    pub(crate) fn account(&self) -> QueueAccount {
        let printed = self.facts("KEW_QUEUE_CONNECTION_STRING");
        let text = printed
            .first()
            .expect("a ready server prints its connection string");
        QueueAccount::parse(text).expect("a usable connection string")
    }

    /// A client on one connection, as an application has it. It tries nothing again, so that every outcome is seen.
    pub(crate) fn queue_client(&self) -> QueueClient {
        queue_client(self.account())
    }

    /// The endpoint in the printed connection string.
    pub(crate) fn endpoint(&self) -> Arc<Endpoint> {
        let printed = self.facts("KEW_QUEUE_CONNECTION_STRING");
        let text = printed
            .first()
            .expect("a ready server prints its connection string");
        Arc::new(Endpoint::from_connection_string(text).expect("a usable connection string"))
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.endpoint())
    }

    /// Waits until each of these was logged, and returns the log so far.
    ///
    /// The log comes through a separate pipe: a line can arrive after the answer that it was
    /// written before. So a test must wait for the lines that it expects before it judges the log.
    pub(crate) fn log_with(&self, expected: &[&str]) -> String {
        self.log.wait_for(expected)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is ours");
    }

    /// The peak of the server's resident memory, in KiB.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("it runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
        peak.and_then(|peak| peak.parse().ok())
            .expect("a number of KiB")
    }

    /// Kills the server like a crash, and waits until it has ended.
    pub(crate) fn kill(self) {
        self.end_by(Signal::KILL);
    }

    /// Kills a command like a crash, unless it has just ended by itself.
    pub(crate) fn kill_if_it_runs(mut self) {
        self.signal(Signal::KILL);
        self.wait();
        let status = self.child.wait().expect("our own child");
        let ending = match status.code() {
            Some(_) => Ending::WithACode,
            None => Ending::By(Signal::KILL),
        };
        self.judge(ending);
    }

    /// Waits until a command has ended by itself, or was killed by what is between it and the system. Returns whether it
    /// was killed.
    pub(crate) fn ends_killed(mut self) -> bool {
        self.wait();
        let status = self.child.wait().expect("our own child");
        let is_killed = status.code().is_none();
        self.judge(match is_killed {
            true => Ending::By(Signal::KILL),
            false => Ending::InOrder,
        });
        is_killed
    }

    /// Waits until a command has failed by itself, and checks that it said why.
    pub(crate) fn fails_with(mut self, text: &str) {
        self.wait();
        let ended = self.judge(Ending::WithACode);
        assert!(
            !ended.status.success() && ended.log.contains(text),
            "{ended:?}"
        );
    }

    /// Asks the server to stop, waits until it has ended cleanly, and returns its log.
    pub(crate) fn terminate(self) -> String {
        self.stop(Signal::TERM)
    }

    /// The same by a signal of one's choice.
    pub(crate) fn stop(mut self, signal: Signal) -> String {
        self.signal(signal);
        self.wait();
        self.judge(Ending::InOrder).log
    }

    /// Ends the server with a signal that it cannot or does not handle, and returns its log.
    pub(crate) fn end_by(mut self, signal: Signal) -> String {
        self.signal(signal);
        self.wait();
        self.judge(Ending::By(signal)).log
    }

    /// Waits until the server closes its output, which it does when it ends.
    fn wait(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("kew did not end in {PATIENCE:?}"),
            }
        }
    }

    /// Keeps the fact in a line of output; `true` if it is the last one.
    fn note(&mut self, line: &str) -> bool {
        let Some((name, value)) = line.split_once('=') else {
            return false;
        };
        let value = value
            .strip_prefix('\'')
            .and_then(|value| value.strip_suffix('\''))
            .unwrap_or(value);
        let values = self.facts.entry(name.to_owned()).or_default();
        values.push(value.to_owned());
        name == "KEW_READY"
    }

    /// The only place where a process is judged: checks its exit status and its whole log. Its
    /// output is closed, or it was killed, so it is about to end.
    fn judge(&mut self, ending: Ending) -> Ended {
        self.is_judged = true;
        let status = self.child.wait().expect("our own child");
        let log = self.log.finish();
        let (expected, tolerated) = (&self.expected_errors, &self.tolerated_errors);
        let faults = faults(status, &log, ending, expected, tolerated);
        if !faults.is_empty() || std::thread::panicking() {
            let from = log.floor_char_boundary(log.len().saturating_sub(8 * 1024));
            show(&format!("--- kew logged:\n{}\n---", &log[from..]));
        }
        if !faults.is_empty() {
            let said = format!("kew did not end well: {}", faults.join("; "));
            // A second panic would end the whole run.
            if std::thread::panicking() {
                show(&said);
            } else {
                panic!("{said}");
            }
        }
        Ended { status, log }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.is_judged {
            // An error means that it has ended already, which the judgement reports.
            let _ = self.child.kill();
            self.judge(Ending::By(Signal::KILL));
        }
    }
}

/// Runs `kew` to its end and returns how it ended and its output.
pub(crate) fn run(arrange: impl FnOnce(&mut Command)) -> (Ended, String) {
    let mut server = Server::spawn(arrange);
    let deadline = Instant::now() + PATIENCE;
    let mut printed = String::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match server.lines.recv_timeout(left) {
            Ok(line) => printed.extend([line.as_str(), "\n"]),
            Err(RecvTimeoutError::Disconnected) => {
                return (server.judge(Ending::WithACode), printed);
            }
            Err(RecvTimeoutError::Timeout) => panic!("kew did not end in {PATIENCE:?}"),
        }
    }
}

/// Prints a line of a test's report, which is shown if the test fails or with --show-output.
#[expect(
    clippy::print_stdout,
    reason = "a test reports where its harness captures it"
)]
pub(crate) fn show(text: &str) {
    println!("{text}");
}

fn read_lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                // The test has its facts; the rest is read only so that the server never blocks.
            }
        }
    });
    receiver
}

/// The standard error of a server.
struct Log {
    read: Arc<LogRead>,
    reader: Option<JoinHandle<()>>,
}

/// The part that was read.
#[derive(Default)]
struct LogRead {
    so_far: Mutex<LogSoFar>,
    more: Condvar,
}

#[derive(Default)]
struct LogSoFar {
    text: Vec<u8>,
    is_all: bool,
}

impl LogRead {
    fn lock(&self) -> MutexGuard<'_, LogSoFar> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, bytes: &[u8]) {
        self.lock().text.extend_from_slice(bytes);
        self.more.notify_all();
    }

    fn end(&self) {
        self.lock().is_all = true;
        self.more.notify_all();
    }
}

impl Log {
    fn collect(mut stderr: ChildStderr) -> Self {
        let read = Arc::new(LogRead::default());
        let shared = Arc::clone(&read);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                shared.add(&buffer[..length]);
            }
            shared.end();
        });
        Self {
            read,
            reader: Some(reader),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.read.lock().text).into_owned()
    }

    fn wait_for(&self, expected: &[&str]) -> String {
        let is_missing = |so_far: &mut LogSoFar| {
            let text = String::from_utf8_lossy(&so_far.text);
            !so_far.is_all && !expected.iter().all(|part| text.contains(part))
        };
        let waited = self
            .read
            .more
            .wait_timeout_while(self.read.lock(), PATIENCE, is_missing);
        let (so_far, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&so_far.text).into_owned();
        drop(so_far);
        for part in expected {
            assert!(text.contains(part), "no {part:?} in the log:\n{text}");
        }
        text
    }

    /// Everything, once the process has ended.
    fn finish(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            // It ends with the pipe, which the process has closed.
            let _ = reader.join();
        }
        self.text()
    }
}
