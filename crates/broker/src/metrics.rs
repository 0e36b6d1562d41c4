//! Counters of a partition, and the metrics made of them.

mod queues;
mod scrub;
mod topics;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_engine::State;
use kew_log::Recovery;
use kew_metrics::{Counter, Family, HighWater, Histogram, Scale, Unit};

use self::queues::{bus_queue_families, queue_families};
use self::scrub::scrub_families;
use self::topics::topic_families;
use crate::overview::Status;
use crate::partition::TurnEnd;
use crate::{Broker, Rejection, Spent, Standing};

/// Upper bounds of how many commands share a batch.
const COMMANDS: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 512, 2048];

/// Counters that the runner and its threads write, each with a few atomic additions.
#[derive(Debug)]
pub(crate) struct Instruments {
    commit: Histogram,
    batch_bytes: Histogram,
    batch_commands: Histogram,
    appended_bytes: Counter,
    turns: Counter,
    turn: Histogram,
    turn_us_max: HighWater,
    turn_cpu: Histogram,
    turn_cpu_us_max: HighWater,
    snapshot_step: Histogram,
    snapshot_step_us_max: HighWater,
    snapshot_step_cpu: Histogram,
    snapshot_step_cpu_us_max: HighWater,
    /// Microseconds in which no command was decided, because of a segment and because of memory.
    waited_for_segment_us: Counter,
    waited_for_memory_us: Counter,
    snapshot: Histogram,
    snapshots_failed: Counter,
    /// Milliseconds since 1970-01-01 UTC; 0 for never.
    snapshot_at_ms: AtomicU64,
    pub(crate) refused_busy: Counter,
    pub(crate) refused_full: Counter,
    pub(crate) refused_stopped: Counter,
    pub(crate) refused_not_owner: Counter,
    /// Perhaps carried out.
    unknown: Counter,
    recovery: Duration,
    recovery_events: u64,
    /// Messages that expired during the last recovery: an earlier run, or another owner, has counted them.
    expired_before: AtomicU64,
}

impl Instruments {
    pub(crate) fn new(took: Duration, recovery: &Recovery, recovered: &State) -> Self {
        Self {
            commit: Histogram::of_latencies(),
            batch_bytes: Histogram::of_sizes(),
            batch_commands: Histogram::new(&COMMANDS, Scale::Plain),
            appended_bytes: Counter::new(),
            turns: Counter::new(),
            turn: Histogram::of_latencies(),
            turn_us_max: HighWater::new(),
            turn_cpu: Histogram::of_latencies(),
            turn_cpu_us_max: HighWater::new(),
            snapshot_step: Histogram::of_latencies(),
            snapshot_step_us_max: HighWater::new(),
            snapshot_step_cpu: Histogram::of_latencies(),
            snapshot_step_cpu_us_max: HighWater::new(),
            waited_for_segment_us: Counter::new(),
            waited_for_memory_us: Counter::new(),
            snapshot: Histogram::of_latencies(),
            snapshots_failed: Counter::new(),
            snapshot_at_ms: AtomicU64::new(0),
            refused_busy: Counter::new(),
            refused_full: Counter::new(),
            refused_stopped: Counter::new(),
            refused_not_owner: Counter::new(),
            unknown: Counter::new(),
            recovery: took,
            recovery_events: recovery.events_replayed,
            expired_before: AtomicU64::new(recovered.expired_count()),
        }
    }

    /// Notes a rejection of a command that was admitted.
    pub(crate) fn note_rejection(&self, rejection: &Rejection) {
        match rejection {
            Rejection::Full => self.refused_full.increment(),
            Rejection::NotOwner => self.refused_not_owner.increment(),
            Rejection::Unknown => self.unknown.increment(),
            Rejection::Refused(_)
            | Rejection::Busy
            | Rejection::Stopped
            | Rejection::ReadFailed => {}
        }
    }

    /// Notes that the log was opened anew.
    pub(crate) fn note_opening(&self, recovered: &State) {
        let count = recovered.expired_count();
        self.expired_before.store(count, Ordering::Relaxed);
    }

    /// Notes a turn that decided so many commands, how long it took without its commit, and the most processor time
    /// that it can have used.
    pub(crate) fn note_turn(&self, commands: usize, took: Duration, on_processor: Duration) {
        self.turns.increment();
        self.turn.observe_duration(took);
        self.turn_us_max.note(us_rounded_up(took));
        self.turn_cpu.observe_duration(on_processor);
        self.turn_cpu_us_max.note(us_rounded_up(on_processor));
        if commands > 0 {
            self.batch_commands.observe(commands as u64);
        }
    }

    /// Notes what a step of a snapshot took.
    pub(crate) fn note_snapshot_step(&self, took: Spent) {
        self.snapshot_step.observe_duration(took.elapsed);
        self.snapshot_step_us_max.note(us_rounded_up(took.elapsed));
        self.snapshot_step_cpu.observe_duration(took.on_processor);
        self.snapshot_step_cpu_us_max
            .note(us_rounded_up(took.on_processor));
    }

    /// Notes how long commands have waited after a turn that could not decide them.
    pub(crate) fn note_wait(&self, end: TurnEnd, took: Duration) {
        let waited_us = match end {
            TurnEnd::WaitForJob => &self.waited_for_segment_us,
            TurnEnd::WaitForMemory => &self.waited_for_memory_us,
            TurnEnd::Done | TurnEnd::MoreToDecide | TurnEnd::MoreIsDue => return,
        };
        waited_us.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn note_commit(&self, took: Duration, size_bytes: u64) {
        self.commit.observe_duration(took);
        self.batch_bytes.observe(size_bytes);
        self.appended_bytes.add(size_bytes);
    }

    pub(crate) fn note_snapshot(&self, took: Duration, is_ok: bool) {
        if is_ok {
            self.snapshot.observe_duration(took);
            self.snapshot_at_ms.store(wall_ms(), Ordering::Relaxed);
        } else {
            self.snapshots_failed.increment();
        }
    }

    fn snapshot_age(&self) -> Option<Duration> {
        match self.snapshot_at_ms.load(Ordering::Relaxed) {
            0 => None,
            at => Some(Duration::from_millis(wall_ms().saturating_sub(at))),
        }
    }
}

fn wall_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since_epoch.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn none() -> kew_metrics::Labels {
    Vec::new()
}

fn label(name: &'static str, value: &str) -> kew_metrics::Labels {
    vec![(name, value.to_owned())]
}

impl Broker {
    /// The broker's metrics: the current state of its log and queues, and its counters.
    ///
    /// The `queues_max` queues with the most messages, of each protocol, have values of their own. All
    /// others are added up under the name `(other)`, which no queue can have. The queues are read in slices,
    /// and commands are served in between. If the partition does not answer within `patience`, because its
    /// disk hangs or it has stopped, the metrics leave out its part.
    pub async fn metrics(&self, queues_max: usize, patience: Duration) -> Vec<Family> {
        let (read, scrub) = tokio::join!(
            tokio::time::timeout(patience, self.read_queues(queues_max)),
            tokio::time::timeout(patience, self.known_damage()),
        );
        let read = read.ok().flatten();
        let scrub = scrub.ok().flatten();
        let (commands, standing) = self.shared.standing();
        let instruments = &self.shared.instruments;
        let mut families = log_families(instruments);
        families.extend(partition_families(
            instruments,
            commands,
            standing,
            read.is_some(),
        ));
        families.extend(snapshot_step_families(instruments));
        families.push(
            Family::counter(
                "kew_partition_wakeups",
                Unit::None,
                "Receivers of Service Bus queues that waited and were woken",
            )
            .count(none(), self.woken_count()),
        );
        families.extend(status_families(
            instruments,
            read.as_ref().map(|read| &read.status),
        ));
        families.extend(scrub_families(scrub.as_ref()));
        families.extend(queue_families(read.as_ref()));
        families.extend(bus_queue_families(read.as_ref()));
        families.extend(topic_families(read.as_ref()));
        families
    }
}

fn log_families(instruments: &Instruments) -> Vec<Family> {
    let age = Family::gauge(
        "kew_log_snapshot_age",
        Unit::Seconds,
        "Time since the last snapshot was written; nothing before the first since the start",
    );
    vec![
        Family::histogram(
            "kew_log_commit",
            Unit::Seconds,
            "Time to write a batch and sync it to the disk",
        )
        .observed(none(), instruments.commit.observed()),
        Family::histogram("kew_log_batch", Unit::Bytes, "Size of a commit")
            .observed(none(), instruments.batch_bytes.observed()),
        Family::histogram(
            "kew_log_batch_commands",
            Unit::None,
            "Commands that were decided in one turn and share a commit",
        )
        .observed(none(), instruments.batch_commands.observed()),
        Family::counter("kew_log_appended", Unit::Bytes, "Bytes made durable")
            .count(none(), instruments.appended_bytes.value()),
        Family::histogram(
            "kew_log_snapshot",
            Unit::Seconds,
            "Time to write a snapshot",
        )
        .observed(none(), instruments.snapshot.observed()),
        Family::counter(
            "kew_log_snapshots_failed",
            Unit::None,
            "Snapshots that could not be written",
        )
        .count(none(), instruments.snapshots_failed.value()),
        match instruments.snapshot_age() {
            Some(duration) => age.amount(none(), duration.as_secs_f64()),
            None => age,
        },
        Family::gauge(
            "kew_recovery",
            Unit::Seconds,
            "Time that the recovery at the start took",
        )
        .amount(none(), instruments.recovery.as_secs_f64()),
        Family::gauge(
            "kew_recovery_events",
            Unit::None,
            "Events that were replayed at the start",
        )
        .count(none(), instruments.recovery_events),
    ]
}

fn seconds(us: &Counter) -> f64 {
    Duration::from_micros(us.value()).as_secs_f64()
}

/// How long snapshots took on the partition's thread. To write them is the work of another one.
fn snapshot_step_families(instruments: &Instruments) -> [Family; 4] {
    let most = |us: &HighWater| Duration::from_micros(us.value()).as_secs_f64();
    [
        Family::histogram(
            "kew_partition_snapshot_step",
            Unit::Seconds,
            "Time that a step of a snapshot took on the partition's thread: its beginning, a piece of what it shares, or \
             its end",
        )
        .observed(none(), instruments.snapshot_step.observed()),
        Family::gauge(
            "kew_partition_snapshot_step_max",
            Unit::Seconds,
            "Longest step of a snapshot since the start",
        )
        .amount(none(), most(&instruments.snapshot_step_us_max)),
        Family::histogram(
            "kew_partition_snapshot_step_cpu",
            Unit::Seconds,
            "Processor time of a step of a snapshot",
        )
        .observed(none(), instruments.snapshot_step_cpu.observed()),
        Family::gauge(
            "kew_partition_snapshot_step_cpu_max",
            Unit::Seconds,
            "Most processor time of a step of a snapshot since the start",
        )
        .amount(none(), most(&instruments.snapshot_step_cpu_us_max)),
    ]
}

fn partition_families(
    instruments: &Instruments,
    commands: usize,
    standing: Standing,
    answered: bool,
) -> Vec<Family> {
    vec![
        Family::gauge(
            "kew_partition_state",
            Unit::None,
            "1 for the state that holds: ready, full (the disk is; messages can be received and \
             deleted only), following (another server owns the partition), stopped",
        )
        .state(&Standing::ALL.map(Standing::as_str), standing.as_str()),
        Family::gauge(
            "kew_partition_answered",
            Unit::None,
            "1 if the partition reported its queues and its log in time for this page",
        )
        .count(none(), u64::from(answered)),
        Family::gauge(
            "kew_partition_commands",
            Unit::None,
            "Commands that are admitted and not answered yet",
        )
        .count(none(), commands as u64),
        Family::counter(
            "kew_partition_refusals",
            Unit::None,
            "Commands refused because too much is under way (busy), the disk is full (full), or \
             the partition has stopped (stopped)",
        )
        .count(label("reason", "busy"), instruments.refused_busy.value())
        .count(label("reason", "full"), instruments.refused_full.value())
        .count(
            label("reason", "not_owner"),
            instruments.refused_not_owner.value(),
        )
        .count(
            label("reason", "stopped"),
            instruments.refused_stopped.value(),
        ),
        Family::counter(
            "kew_partition_unknown",
            Unit::None,
            "Commands of which it is not known whether they were carried out, because another server took over the \
             partition",
        )
        .count(none(), instruments.unknown.value()),
        Family::counter("kew_partition_turns", Unit::None, "Turns of the partition")
            .count(none(), instruments.turns.value()),
        Family::histogram(
            "kew_partition_turn",
            Unit::Seconds,
            "Time from the beginning of a turn until its answers are out, without its commit",
        )
        .observed(none(), instruments.turn.observed()),
        Family::gauge(
            "kew_partition_turn_max",
            Unit::Seconds,
            "Longest turn since the start, without its commit",
        )
        .amount(
            none(),
            Duration::from_micros(instruments.turn_us_max.value()).as_secs_f64(),
        ),
        Family::histogram(
            "kew_partition_turn_cpu",
            Unit::Seconds,
            "Processor time of a turn, at most: a turn of less than 1 ms counts as long as it took, a longer one perhaps with its commit",
        )
        .observed(none(), instruments.turn_cpu.observed()),
        Family::gauge(
            "kew_partition_turn_cpu_max",
            Unit::Seconds,
            "Most processor time of a turn since the start, perhaps with its commit",
        )
        .amount(
            none(),
            Duration::from_micros(instruments.turn_cpu_us_max.value()).as_secs_f64(),
        ),
        Family::counter(
            "kew_partition_waited",
            Unit::Seconds,
            "Time in which no command could be decided: the next segment of the log was being prepared \
             (segment), or records took twice their limit of memory while a snapshot was written \
             (memory)",
        )
        .amount(
            label("for", "memory"),
            seconds(&instruments.waited_for_memory_us),
        )
        .amount(
            label("for", "segment"),
            seconds(&instruments.waited_for_segment_us),
        ),
    ]
}

/// The part that only the partition knows. Empty if it did not answer.
fn status_families(instruments: &Instruments, status: Option<&Status>) -> Vec<Family> {
    let gauge = |name, unit, help, value: &dyn Fn(&Status) -> Option<u64>| {
        let family = Family::gauge(name, unit, help);
        match status.and_then(value) {
            Some(value) => family.count(none(), value),
            None => family,
        }
    };
    let mut segments = Family::gauge("kew_log_segments", Unit::None, "Segments of the log");
    let mut expired = Family::counter(
        "kew_messages_expired",
        Unit::None,
        "Messages removed because their time to live had passed",
    );
    let mut moved = Family::counter(
        "kew_log_moved",
        Unit::Bytes,
        "Bytes that were written again to free the rest of their segment",
    );
    let mut loads = Family::counter(
        "kew_partition_loads",
        Unit::None,
        "Groups of up to 128 messages whose records were read from the disk",
    );
    if let Some(status) = status {
        let space = &status.space;
        segments = segments
            .count(label("state", "live"), space.segments as u64)
            .count(label("state", "prepared"), u64::from(space.is_prepared))
            .count(label("state", "recycled"), space.recycled as u64);
        let before = instruments.expired_before.load(Ordering::Relaxed);
        let since_start = status.expired.saturating_sub(before);
        expired = expired.count(none(), since_start);
        moved = moved.count(none(), status.moved_bytes);
        loads = loads.count(none(), status.loaded);
    }
    vec![
        segments,
        expired,
        moved,
        loads,
        gauge(
            "kew_log_size",
            Unit::Bytes,
            "Size of all segments",
            &|status| Some(status.space.size_bytes),
        ),
        gauge(
            "kew_log_live",
            Unit::Bytes,
            "Bytes of the log that are still needed",
            &|status| Some(status.live_bytes),
        ),
        gauge(
            "kew_log_disk",
            Unit::Bytes,
            "Size of all files of the log",
            &|status| Some(status.space.disk_bytes),
        ),
        gauge(
            "kew_log_snapshot_size",
            Unit::Bytes,
            "What the last snapshot has written; nothing before the first since the start",
            &|status| status.space.snapshot_size_bytes,
        ),
        gauge(
            "kew_log_recent",
            Unit::Bytes,
            "Memory that holds recent bodies",
            &|status| Some(status.space.recent_bytes as u64),
        ),
        gauge(
            "kew_log_durable_position",
            Unit::None,
            "Position in the log up to which everything is durable",
            &|status| Some(status.durable),
        ),
        gauge(
            "kew_log_end_position",
            Unit::None,
            "Position in the log at which it ends",
            &|status| Some(status.end),
        ),
        gauge(
            "kew_partition_resident",
            Unit::Bytes,
            "Memory that holds records of messages, without their bodies, and remembered ids",
            &|status| Some(status.resident.size_bytes()),
        ),
        gauge(
            "kew_partition_cold_runs",
            Unit::None,
            "Runs of up to 1024 messages whose records may be on pages alone",
            &|status| Some(status.resident.cold_runs),
        ),
        gauge(
            "kew_partition_cold_id_blocks",
            Unit::None,
            "Blocks of 1024 ids, remembered to detect duplicates, that are on pages alone",
            &|status| Some(status.resident.cold_blocks),
        ),
        gauge(
            "kew_quarantined_messages",
            Unit::None,
            "Messages that are set aside because both copies of their records are damaged",
            &|status| Some(status.resident.quarantined),
        ),
        gauge(
            "kew_partition_answers_waiting",
            Unit::None,
            "Answers that wait until what they rest on is durable",
            &|status| Some(status.answers_waiting),
        ),
    ]
}

fn us_rounded_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}
