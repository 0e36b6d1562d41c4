//! What the programs share: their log, their start and their end, and the file in which each says what it does.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// The longest pause between tries of something that must succeed before the program can go on.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A program that has written nothing for so long does not run any more.
const SILENT_MAX: Duration = Duration::from_secs(5);

/// Logs to standard error. `RUST_LOG` chooses what, by default warnings.
pub fn start_log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
}

/// Prints a line. A reader that does not exist any more does not end the program.
pub fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Waits until the program is asked to stop.
pub async fn stop_requested() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Tries until it succeeds: what a program needs may start later than the program.
pub async fn until_done<T, E, F>(what: &str, mut attempt: impl FnMut() -> F) -> T
where
    E: Display,
    F: Future<Output = Result<T, E>>,
{
    let mut pause = Duration::from_millis(50);
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(error) => tracing::warn!(%error, ?pause, "cannot {what} yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// A number that no other program has, or zero if the system has no random numbers.
pub fn chance() -> u32 {
    getrandom::u32().unwrap_or_default()
}

/// The file in which a program says what it does. It is information only.
#[derive(Debug)]
pub struct Report {
    path: PathBuf,
    program: String,
}

impl Report {
    /// Of this process.
    pub fn new(data: &Path, program: &str) -> Self {
        let folder = folder(data);
        if let Err(error) = std::fs::create_dir_all(&folder) {
            tracing::warn!(%error, "the page will not show this program");
        }
        Self {
            path: folder.join(format!("{program}-{}.json", std::process::id())),
            program: program.to_owned(),
        }
    }

    /// Replaces it.
    pub fn write(&self, status: &Value) {
        let pid = std::process::id();
        let text = json!({ "program": self.program, "pid": pid, "status": status }).to_string();
        let new = self.path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.path));
        if let Err(error) = written {
            tracing::warn!(%error, "the page does not show this program");
        }
    }

    /// The program ends.
    pub fn remove(&self) {
        // The page stops showing it by itself.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn folder(data: &Path) -> PathBuf {
    data.join("programs")
}

/// What the programs say that run now.
pub fn reports(data: &Path) -> Vec<Value> {
    let Ok(entries) = std::fs::read_dir(folder(data)) else {
        return Vec::new();
    };
    let now = SystemTime::now();
    let read = |entry: io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        let at = path.metadata().ok()?.modified().ok()?;
        let is_new = now.duration_since(at).unwrap_or_default() < SILENT_MAX;
        let is_report = path.extension().is_some_and(|it| it == "json");
        let text = (is_new && is_report).then(|| std::fs::read(&path).ok())??;
        serde_json::from_slice(&text).ok()
    };
    let mut found: Vec<Value> = entries.filter_map(read).collect();
    found.sort_by_key(|it| it.to_string());
    found
}
