//! The world of a seed: features and fault rates are drawn anew for each, and some are switched
//! off, so that rare combinations occur.

use std::sync::Arc;

use kew_broker::{AdmissionLimits, PartitionOptions, ResidentLimit, Share};
use kew_engine::{DUE_BUDGET, Resident, RunLength};
use kew_log::{LogOptions, PageOptions};
use kew_log_contract::{LinkOptions, MemoryOptions, ModelOptions};

use crate::bus::BusSwarm;
use crate::bus::rules::Numbered;
use crate::random::Stream;

/// The parameters of one world.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub(crate) clients: usize,
    pub(crate) queues: usize,
    pub(crate) weights: Weights,
    pub(crate) body_size_max: u64,
    pub(crate) time_to_live_per_mille: u32,
    pub(crate) stale_receipt_per_mille: u32,
    pub(crate) faults: FaultRates,
    pub(crate) commands_max: usize,
    /// How often a waiting job is carried out instead of something else.
    pub(crate) disk_speed_per_mille: u32,
    pub(crate) segment_size_first_bytes: u64,
    pub(crate) batch_size_max_bytes: u64,
    pub(crate) ballast_size_bytes: u64,
    pub(crate) snapshot_after_bytes: u64,
    pub(crate) snapshot_after_effects: u64,
    pub(crate) gather_steps: u64,
    /// How many sources the commands come from. One keeps the order of all.
    pub(crate) sources: u64,
    /// What each takes of a turn before the others are served.
    pub(crate) share: Share,
    /// How many numbers share a run. Nearly always few, so that messages reach the edges of runs.
    pub(crate) run_length: RunLength,
    /// How many due events of a bus queue a command on it carries out first.
    pub(crate) due_budget: u32,
    /// How often the scrub reads a piece, per mille of steps. There is none at 0, nor if the log is replicated.
    pub(crate) scrub_per_mille: u32,
    /// How long after the beginning of a pass the next one begins.
    pub(crate) scrub_interval_ms: u64,
    /// How often records of messages are taken out of memory, per mille of turns.
    pub(crate) cold_per_mille: u32,
    /// How many records may stay in memory, if that is limited.
    pub(crate) resident_records_max: Option<u64>,
    /// Messages that are due later than this leave the order by time with their records.
    pub(crate) far_ms: u64,
    /// From how much on commands wait for memory.
    pub(crate) memory_slack_bytes: u64,
    /// How often a backup is begun, per mille of steps. There is none at 0, nor if the log is replicated.
    pub(crate) backup_per_mille: u32,
    /// The settings for bus queues, if there are any.
    pub(crate) bus: Option<BusSwarm>,
    /// Those of a replicated log, if it is one. Otherwise it has segments on a disk.
    pub(crate) model: Option<ModelSwarm>,
}

/// The properties of a replicated log and its members.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelSwarm {
    pub(crate) options: ModelOptions,
    /// How often a former owner acts instead of the owner.
    pub(crate) former_per_mille: u32,
}

/// How often each kind of operation is chosen, relative to the others.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    pub(crate) send: u64,
    pub(crate) receive: u64,
    pub(crate) peek: u64,
    pub(crate) update: u64,
    pub(crate) delete: u64,
    pub(crate) read: u64,
    pub(crate) list: u64,
    pub(crate) set_metadata: u64,
    pub(crate) clear: u64,
    pub(crate) delete_queue: u64,
    pub(crate) create_queue: u64,
    pub(crate) set_policies: u64,
    pub(crate) properties: u64,
    pub(crate) accounts: u64,
}

/// How often each fault strikes: per mille of steps, 0 where it is switched off.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultRates {
    pub(crate) kill: u32,
    pub(crate) power_cut: u32,
    /// Per mille of recoveries.
    pub(crate) crash_in_recovery: u32,
    pub(crate) failed_call: u32,
    pub(crate) full_disk: u32,
    pub(crate) slow_disk: u32,
    pub(crate) damaged_snapshot: u32,
    pub(crate) clock_jump: u32,
    pub(crate) suspension: u32,
    pub(crate) give_up: u32,
    pub(crate) fence: u32,
}

impl Swarm {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut r = Stream::new(seed, "swarm");
        let mut sources = Stream::new(seed, "sources swarm");
        let mut gathering = Stream::new(seed, "gathering");
        let mut scrub = Stream::new(seed, "scrub swarm");
        let clients = [1, 3, 8, 12, 40][r.index(5)];
        Self {
            clients,
            queues: 1 + r.index(3),
            weights: Weights::draw(&mut r, seed),
            body_size_max: [16, 200, 1500][r.index(3)],
            time_to_live_per_mille: [0, 100, 600][r.index(3)],
            stale_receipt_per_mille: [0, 100, 300][r.index(3)],
            faults: FaultRates::draw(seed),
            // In one world out of three the limit of commands is too low for all clients.
            commands_max: if r.happens(330) {
                4 + clients / 2
            } else {
                1000
            },
            disk_speed_per_mille: [100, 400, 800][r.index(3)],
            segment_size_first_bytes: [16 * 1024, 32 * 1024, 64 * 1024][r.index(3)],
            batch_size_max_bytes: [6 * 1024, 16 * 1024, 48 * 1024][r.index(3)],
            snapshot_after_bytes: [4 * 1024, 16 * 1024, 48 * 1024][r.index(3)],
            snapshot_after_effects: [40, 300, u64::MAX]
                [Stream::new(seed, "snapshot swarm").index(3)],
            ballast_size_bytes: [0, 16 * 1024, 64 * 1024][r.index(3)],
            gather_steps: [1, 100, 25_000][gathering.index(3)],
            sources: [1, 2, 5][sources.index(3)],
            share: Share {
                commands: [1, 3, 64][sources.index(3)],
                size_bytes: [300, 64 * 1024][sources.index(2)],
                steps: [8, 3125][sources.index(2)],
            },
            run_length: draw_run_length(seed),
            due_budget: [8, DUE_BUDGET, DUE_BUDGET][Stream::new(seed, "due budget").index(3)],
            scrub_per_mille: [0, 20, 150][scrub.index(3)],
            scrub_interval_ms: [0, 100, 5_000][scrub.index(3)],
            cold_per_mille: [0, 20, 300, 1000][Stream::new(seed, "cold swarm").index(4)],
            resident_records_max: [None, Some(0), Some(4), Some(64)]
                [Stream::new(seed, "resident swarm").index(4)],
            far_ms: [0, 1000, 60_000, 3_600_000][Stream::new(seed, "far swarm").index(4)],
            memory_slack_bytes: [0, 2048, 1 << 20][Stream::new(seed, "memory slack").index(3)],
            backup_per_mille: draw_backups(seed),
            bus: None,
            model: None,
        }
    }

    /// A world in which members own a replicated log in turn.
    pub(crate) fn draw_model(seed: u64) -> Self {
        Self::draw(seed).on_model(seed)
    }

    /// The same with bus queues.
    pub(crate) fn draw_bus_model(seed: u64) -> Self {
        Self::draw_bus(seed).on_model(seed)
    }

    /// The same with topics.
    pub(crate) fn draw_topics_model(seed: u64) -> Self {
        Self::draw_topics(seed).on_model(seed)
    }

    fn on_model(self, seed: u64) -> Self {
        let mut r = Stream::new(seed, "model swarm");
        Self {
            faults: self.faults.clone().of_members(&mut r),
            model: Some(ModelSwarm::draw(&mut r)),
            scrub_per_mille: 0,
            backup_per_mille: 0,
            ..self
        }
    }

    /// A world with bus queues. Their commands reserve room for all due work before them, so
    /// segments and batches have to be larger.
    pub(crate) fn draw_bus(seed: u64) -> Self {
        let mut r = Stream::new(seed, "bus log");
        let plain = Self::draw(seed);
        let bus = BusSwarm::draw(seed);
        Self {
            queues: if bus.share_per_mille < 1000 {
                plain.queues
            } else {
                0
            },
            clients: plain.clients.min(12),
            segment_size_first_bytes: [96 * 1024, 128 * 1024, 256 * 1024][r.index(3)],
            batch_size_max_bytes: [48 * 1024, 64 * 1024][r.index(2)],
            snapshot_after_bytes: [16 * 1024, 48 * 1024, 128 * 1024][r.index(3)],
            // One check gives due work and a command only so many turns, and none of them may wait for memory.
            memory_slack_bytes: 1 << 20,
            bus: Some(bus),
            ..plain
        }
    }

    /// A world with topics, and no storage queues.
    pub(crate) fn draw_topics(seed: u64) -> Self {
        let bus = Self::draw_bus(seed);
        Self {
            queues: 0,
            bus: Some(BusSwarm::draw_topics(seed)),
            // What actions may change takes room, too.
            segment_size_first_bytes: 2 * bus.segment_size_first_bytes,
            ..bus
        }
    }

    /// How many copies of messages a command makes at once, if that is not what is usual.
    pub(crate) fn copies_at_once(&self) -> Option<u64> {
        let topics = self.bus.as_ref().and_then(|bus| bus.topics.as_ref());
        topics.and_then(|topics| topics.copies_at_once)
    }

    /// How many copies a topic may owe, if that is not what is usual.
    fn copies_owed_max(&self) -> Option<u64> {
        let topics = self.bus.as_ref().and_then(|bus| bus.topics.as_ref());
        topics.and_then(|topics| topics.copies_owed_max)
    }

    pub(crate) fn partition_options(&self) -> PartitionOptions {
        let usual = PartitionOptions::default();
        let kib = |without: u64, with: u64| 1024 * if self.bus.is_some() { with } else { without };
        PartitionOptions {
            log: LogOptions {
                segment_size_first_bytes: self.segment_size_first_bytes,
                segment_size_max_bytes: self.segment_size_first_bytes * 2,
                batch_size_max_bytes: self.batch_size_max_bytes,
                turn_space_min_bytes: kib(6, 32),
                settlement_reserve_bytes: kib(4, 16),
                recent_bytes_max: 8 * 1024,
                ballast_size_bytes: self.ballast_size_bytes,
                pages: small_pages(),
                ..LogOptions::default()
            },
            snapshot_after_bytes: self.snapshot_after_bytes,
            snapshot_after_effects: self.snapshot_after_effects,
            tick_budget: 4,
            due_budget: self.due_budget,
            copies_at_once: self.copies_at_once().unwrap_or(usual.copies_at_once),
            copies_owed_max: self.copies_owed_max().unwrap_or(usual.copies_owed_max),
            run_length: self.run_length,
            gather_steps: self.gather_steps,
            // Planted bugs and faults concern the thread of the simulation.
            replays_beside: false,
            resident_limit: ResidentLimit::of(
                self.resident_records_max
                    .map(|records| Resident::of_records(records).size_bytes()),
            ),
            memory_slack_bytes: self.memory_slack_bytes,
            far_ms: self.far_ms,
            // The world is the driver, and has a rate of its own.
            scrub_bytes_per_second: u64::from(self.scrub_per_mille),
            scrub_interval_ms: self.scrub_interval_ms,
            format: Arc::new(Numbered),
        }
    }

    /// Whether a command carries out everything that is due in its queue first. Otherwise it does so for as much as on
    /// a full disk.
    pub(crate) fn carries_out_all_due(&self) -> bool {
        self.due_budget >= DUE_BUDGET
    }

    pub(crate) fn admission_limits(&self) -> AdmissionLimits {
        AdmissionLimits {
            commands_max: self.commands_max,
            ..AdmissionLimits::default()
        }
    }
}

impl ModelSwarm {
    fn draw(r: &mut Stream) -> Self {
        let lease_ms = [0, 300, 3_000][r.index(3)];
        Self {
            options: ModelOptions {
                copy: MemoryOptions {
                    piece_size_bytes: [2 << 10, 1 << 20][r.index(2)],
                    prepared_bytes: [64 << 10, 4 << 20][r.index(2)],
                    room_bytes_min: 48 << 10,
                    looks_when_reserving: r.happens(300),
                    heartbeat_ms: Some([200, 1_000][r.index(2)]),
                },
                link: LinkOptions {
                    once_in: [0, 3, 8][r.index(3)],
                    delay_us_max: [0, 2_000, 100_000][r.index(3)],
                },
                lease_ms,
                // All machines have one clock, so none is needed.
                margin_ms: [0, lease_ms / 10][r.index(2)],
            },
            former_per_mille: [20, 200, 500][r.index(3)],
        }
    }
}

/// Files of pages that end after a few snapshots, and are emptied.
pub(crate) fn small_pages() -> PageOptions {
    PageOptions {
        file_size_bytes: 24 * 1024,
        copied_bytes_max: 2 * 1024,
        pairs_max: 3,
    }
}

/// One world out of eight has backups.
fn draw_backups(seed: u64) -> u32 {
    let mut r = Stream::new(seed, "backup swarm");
    match r.below(8) {
        0 => [3, 20][r.index(2)],
        _ => 0,
    }
}

fn draw_run_length(seed: u64) -> RunLength {
    match Stream::new(seed, "run length").below(10) {
        0 => RunLength::DEFAULT,
        1 => RunLength::UNTOLD,
        _ => RunLength::TINY,
    }
}

impl Weights {
    fn draw(r: &mut Stream, seed: u64) -> Self {
        // Two worlds out of three have only the default account.
        let mut others = Stream::new(seed, "account weights");
        let has_accounts = others.happens(330);
        // In one world out of five queues are created and deleted all the time.
        let queues_come_and_go = r.happens(200);
        Self {
            send: 4 + r.below(12),
            receive: 2 + r.below(10),
            peek: maybe(r, 4),
            update: maybe(r, 8),
            delete: maybe(r, 10),
            read: maybe(r, 4),
            list: maybe(r, 2),
            set_metadata: maybe(r, 2),
            clear: u64::from(r.happens(300)),
            delete_queue: if queues_come_and_go {
                2
            } else {
                u64::from(r.happens(150))
            },
            create_queue: if queues_come_and_go { 4 } else { 1 },
            set_policies: maybe(&mut others, 2),
            properties: u64::from(others.happens(300)),
            accounts: u64::from(has_accounts),
        }
    }
}

impl FaultRates {
    fn draw(seed: u64) -> Self {
        let mut r = Stream::new(seed, "fault rates");
        // One world out of ten has no faults: some bugs need none, and show best without.
        if r.happens(100) {
            return Self::default();
        }
        Self {
            kill: [0, 1, 4][r.index(3)],
            power_cut: [0, 1, 4, 8][r.index(4)],
            crash_in_recovery: [0, 200, 500][r.index(3)],
            failed_call: [0, 0, 3][r.index(3)],
            full_disk: [0, 0, 4][r.index(3)],
            slow_disk: [0, 2][r.index(2)],
            damaged_snapshot: [0, 300][r.index(2)],
            clock_jump: [0, 5][r.index(2)],
            suspension: [0, 2][r.index(2)],
            give_up: [0, 10, 50][r.index(3)],
            fence: 0,
        }
    }

    /// Faults of members instead of those of a disk.
    fn of_members(self, r: &mut Stream) -> Self {
        Self {
            kill: self.kill,
            slow_disk: self.slow_disk,
            clock_jump: self.clock_jump,
            suspension: self.suspension,
            give_up: self.give_up,
            fence: [2, 5, 20][r.index(3)],
            ..Self::default()
        }
    }
}

/// A weight that is switched off in one world out of four.
fn maybe(r: &mut Stream, max: u64) -> u64 {
    if r.happens(250) { 0 } else { 1 + r.below(max) }
}
