//! Measures what messages take in memory, and how long operations take: `orders memory STATE [MESSAGES]`, or
//! `orders time [BACKLOG [CASE]]`. It is the engine alone: no log and no network.
//!
//! `memory` fills a queue with messages in a state and prints the bytes that the process has grown by, for each
//! message. `time` prints the least time of each operation beside a backlog, with both services. To compare two
//! versions, run their binaries in turn and take the least of each.

#![expect(clippy::print_stdout, reason = "it exists for its output")]

mod orders {
    pub(crate) mod bus;
    pub(crate) mod partition;
    pub(crate) mod storage;
    pub(crate) mod time;
}

use kew_engine::Timestamp;
use kew_engine::bus::{BusQueueOptions, ReceiveMode};

use self::orders::partition::{Failure, Partition};
use self::orders::{bus, storage, time};

/// The allocator of the product.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many messages come in one command.
const AT_ONCE: usize = 1000;

const STATES: &str =
    "storage, storage-leased, ready, ttl, scheduled, locked, deferred, session, sessions, ids";

/// The resident memory of this process, in bytes.
fn resident_bytes() -> Result<usize, Failure> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let resident = pages.split(' ').nth(1).ok_or("no resident pages")?;
    Ok(resident.parse::<usize>()? * 4096)
}

/// Fills a queue with messages in a state.
fn fill(p: &mut Partition, state: &str, count: usize) -> Result<(), Failure> {
    if state.starts_with("storage") {
        storage::create(p)?;
        for _ in 0..count {
            storage::send(p)?;
        }
        if state == "storage-leased" {
            for _ in 0..count.div_ceil(32) {
                storage::receive(p, 32)?;
                p.pass();
            }
        }
        return Ok(());
    }
    let day_ms = 86_400_000;
    let options = BusQueueOptions {
        size_bytes_max: 1 << 50,
        requires_session: state.starts_with("session"),
        duplicate_window_ms: (state == "ids").then_some(day_ms),
        ..BusQueueOptions::default()
    };
    bus::create(p, options)?;
    let sessions = if state == "sessions" { count / 10 } else { 1 };
    for first in (0..count).step_by(AT_ONCE) {
        let numbers = first..count.min(first + AT_ONCE);
        let messages = numbers.map(|number| {
            let mut message = bus::message();
            match state {
                "ttl" => message.time_to_live_ms = Some(day_ms),
                // Not in the order of their times.
                "scheduled" => {
                    let later_ms = day_ms + (number as u64 * 611_953) % day_ms;
                    message.scheduled_at = Some(p.now().plus_ms(later_ms));
                }
                "session" | "sessions" => {
                    let session = number % sessions.max(1);
                    message.session = Some(format!("session-{session}").into());
                }
                "ids" => message.message_id = Some(format!("message {number}").into()),
                _ => {}
            }
            message
        });
        let messages = messages.collect();
        bus::send(p, messages)?;
        p.pass();
    }
    if let "locked" | "deferred" = state {
        for _ in 0..count.div_ceil(AT_ONCE) {
            let locks = bus::receive(p, AT_ONCE, ReceiveMode::PeekLock, None)?;
            if state == "deferred" {
                bus::settle(
                    p,
                    locks,
                    &kew_engine::bus::Disposition::Defer { overlay: None },
                )?;
            }
            p.pass();
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next();
    match what.as_deref() {
        Some("memory") => {
            let state = arguments.next().ok_or(STATES)?;
            let count = arguments.next().map_or(Ok(1_000_000), |it| it.parse())?;
            let mut p = Partition::new(Timestamp::from_ms(1_000_000), false)?;
            let before = resident_bytes()?;
            fill(&mut p, &state, count)?;
            p.trim();
            let grown = resident_bytes()?.saturating_sub(before);
            assert_eq!(
                p.message_count(),
                count as u64,
                "a state that is not known: {STATES}"
            );
            let each = grown as f64 / count.max(1) as f64;
            println!(
                "{state}: {each:.1} bytes a message, {:.1} MB",
                grown as f64 / 1e6
            );
        }
        Some("time") => {
            let backlog = arguments.next().map_or(Ok(1000), |it| it.parse())?;
            time::run(backlog, &arguments.next().unwrap_or_default())?;
        }
        _ => return Err("expected: memory STATE [MESSAGES], or time [BACKLOG [CASE]]".into()),
    }
    Ok(())
}
