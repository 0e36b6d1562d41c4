//! `kew queue watch`: counts and rates, again and again.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use super::client::{Client, ServiceError};
use super::failure::Failure;
use super::note;
use super::output::{Align, Output, printable, rfc3339, table};
use super::queues::count_of;
use crate::queue_args::WatchArgs;

/// A shorter interval would cause load without more information.
pub(crate) const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// How long requests in progress may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

/// Moves to the top left, and clears the screen from there.
const HOME: &[u8] = b"\x1b[H\x1b[J";

/// One look at all queues, as JSON on a line.
#[derive(Serialize)]
struct LookReport<'a> {
    time: String,
    queues: &'a [Row],
}

/// The observed state of a queue.
#[derive(Serialize)]
struct Row {
    queue: String,
    /// `None` if the queue does not exist.
    approximate_message_count: Option<u64>,
    /// Growth per second since the last look; `None` at the first.
    growth_per_second: Option<f64>,
}

/// The previous look.
#[derive(Default)]
struct Past {
    at: Option<Instant>,
    counts: BTreeMap<String, u64>,
}

pub(super) fn watch(client: &Client, args: &WatchArgs, output: &mut Output) -> Result<(), Failure> {
    if args.interval < INTERVAL_MIN {
        return Err(Failure::Usage("--interval must be at least 100ms".into()));
    }
    let end = end_signal()?;
    let mut past = Past::default();
    let mut looks = 0;
    loop {
        match look(client, args, &mut past) {
            Ok(rows) => show(&rows, args, output)?,
            // If a server restarts, watching continues. If it never answered, the command ends.
            Err(error) if looks > 0 && error.is_temporary() => note(&error.to_string()),
            Err(error) => return Err(error.into()),
        }
        output.flush()?;
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        match end.recv_timeout(args.interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Receives a signal when SIGINT or SIGTERM arrives. Then a request gets only a short time to end.
pub(crate) fn end_signal() -> Result<Receiver<()>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (sender, receiver) = channel();
    let signals = {
        let _context = runtime.enter();
        let kind = tokio::signal::unix::SignalKind::terminate();
        tokio::signal::unix::signal(kind)?
    };
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let mut signals = signals;
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = signals.recv() => {}
            }
        });
        // There is no receiver if the watch has ended by itself.
        let _ = sender.send(());
        std::thread::sleep(GRACE);
        std::process::exit(0);
    });
    Ok(receiver)
}

fn look(client: &Client, args: &WatchArgs, past: &mut Past) -> Result<Vec<Row>, ServiceError> {
    let mut names = args.names.clone();
    if names.is_empty() {
        for page in client.queues(&args.prefix, false) {
            names.extend(page?.into_iter().map(|queue| queue.name));
        }
    }
    let mut counts = BTreeMap::new();
    let mut seen = Vec::with_capacity(names.len());
    for name in names {
        let count = count_of(client, &name)?;
        if let Some(count) = count {
            counts.insert(name.clone(), count);
        }
        seen.push((name, count));
    }
    let now = Instant::now();
    let seconds = past.at.map(|at| now.duration_since(at).as_secs_f64());
    let rows = seen
        .into_iter()
        .map(|(queue, count)| Row {
            growth_per_second: growth(past.counts.get(&queue).copied(), count, seconds),
            approximate_message_count: count,
            queue,
        })
        .collect();
    *past = Past {
        at: Some(now),
        counts,
    };
    Ok(rows)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate for people, rounded to a tenth"
)]
pub(crate) fn growth(before: Option<u64>, now: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    let rate = (now? as f64 - before? as f64) / seconds?.max(0.001);
    Some((rate * 10.0).round() / 10.0)
}

fn show(rows: &[Row], args: &WatchArgs, output: &mut Output) -> Result<(), Failure> {
    let time = rfc3339(SystemTime::now());
    if output.json {
        return Ok(output.object(&LookReport { time, queues: rows })?);
    }
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    let columns = [
        ("QUEUE", Align::Left),
        ("MESSAGES", Align::Right),
        ("GROWTH/S", Align::Right),
    ];
    draw(&time, args.interval, &columns, &cells, output)
}

/// Shows one look: a table that fills the terminal, or a line for each queue.
pub(crate) fn draw(
    time: &str,
    interval: Duration,
    columns: &[(&str, Align)],
    cells: &[Vec<String>],
    output: &mut Output,
) -> Result<(), Failure> {
    if !output.to_terminal {
        for cells in cells {
            output.line(&format!("{time}  {}", printable(&cells.join("  "))))?;
        }
        return Ok(());
    }
    let lines = table(columns, cells);
    // Two lines are for the title and for queues that do not fit, one for the cursor.
    let room = terminal_height().saturating_sub(3).max(2);
    output.bytes(HOME)?;
    let interval = interval.as_millis();
    output.line(&format!("{time}, every {interval} ms, Ctrl-C ends"))?;
    for line in lines.iter().take(room) {
        output.line(line)?;
    }
    if lines.len() > room {
        output.line(&format!("and {} more", lines.len() - room))?;
    }
    Ok(())
}

fn terminal_height() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(24, |size| usize::from(size.ws_row))
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let count = self.approximate_message_count;
        let growth = self.growth_per_second;
        vec![
            self.queue.clone(),
            count.map_or_else(|| "not there".into(), |count| count.to_string()),
            growth.map_or_else(|| "-".into(), |growth| format!("{growth:+.1}")),
        ]
    }
}
