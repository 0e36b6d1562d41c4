//! What the programs share: their log, their start and their end.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// The longest pause between tries of something that must succeed before the program can go on.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Logs to standard error. `RUST_LOG` chooses what, by default warnings.
pub fn start_log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
}

/// Prints a line. A reader that is gone does not end the program.
pub fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Waits until the program is asked to stop.
pub async fn stop_requested() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // The terminal was closed.
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

/// Tries until it succeeds: what a program needs may start later than the program. An error that does not pass by itself
/// is returned.
pub async fn until_done<T, E, F>(
    what: &str,
    mut attempt: impl FnMut() -> F,
    can_pass: fn(&E) -> bool,
) -> Result<T, E>
where
    E: Display,
    F: Future<Output = Result<T, E>>,
{
    let mut pause = Duration::from_millis(50);
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) if !can_pass(&error) => return Err(error),
            Err(error) => tracing::warn!(%error, ?pause, "cannot {what} yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
