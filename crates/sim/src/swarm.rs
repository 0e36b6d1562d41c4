//! What a seed's world is like: features and fault rates are drawn anew for each, some switched
//! off, so that rare combinations get their turn.

use kew_broker::PartitionOptions;
use kew_log::LogOptions;

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
    pub(crate) kill_per_mille: u32,
    pub(crate) power_cut_per_mille: u32,
    pub(crate) clock_jump_per_mille: u32,
    /// How often a waiting job is carried out rather than something else done.
    pub(crate) disk_speed_per_mille: u32,
    pub(crate) segment_size_first_bytes: u64,
    pub(crate) snapshot_after_bytes: u64,
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
    pub(crate) set_metadata: u64,
    pub(crate) clear: u64,
    pub(crate) delete_queue: u64,
    pub(crate) create_queue: u64,
}

impl Swarm {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut r = Stream::new(seed, "swarm");
        Self {
            clients: 1 + r.index(12),
            queues: 1 + r.index(3),
            weights: Weights {
                send: 4 + r.below(12),
                receive: 2 + r.below(10),
                peek: maybe(&mut r, 4),
                update: maybe(&mut r, 8),
                delete: maybe(&mut r, 10),
                read: maybe(&mut r, 4),
                set_metadata: maybe(&mut r, 2),
                clear: u64::from(r.happens(300)),
                delete_queue: u64::from(r.happens(300)),
                create_queue: 1,
            },
            body_size_max: [16, 200, 1500][r.index(3)],
            time_to_live_per_mille: [0, 100, 600][r.index(3)],
            stale_receipt_per_mille: [0, 100, 300][r.index(3)],
            kill_per_mille: [0, 2, 10][r.index(3)],
            power_cut_per_mille: [0, 2, 10, 20][r.index(4)],
            clock_jump_per_mille: [0, 5][r.index(2)],
            disk_speed_per_mille: [100, 400, 800][r.index(3)],
            segment_size_first_bytes: [32 * 1024, 64 * 1024, 256 * 1024][r.index(3)],
            snapshot_after_bytes: [4 * 1024, 20 * 1024, 100 * 1024][r.index(3)],
        }
    }

    /// A world without chance: one queue, one client, no faults of its own.
    pub(crate) fn plain() -> Self {
        Self {
            clients: 1,
            queues: 1,
            kill_per_mille: 0,
            power_cut_per_mille: 0,
            clock_jump_per_mille: 0,
            segment_size_first_bytes: 32 * 1024,
            snapshot_after_bytes: u64::MAX,
            ..Self::draw(0)
        }
    }

    pub(crate) fn partition_options(&self) -> PartitionOptions {
        PartitionOptions {
            log: LogOptions {
                segment_size_first_bytes: self.segment_size_first_bytes,
                segment_size_max_bytes: self.segment_size_first_bytes * 2,
                batch_size_max_bytes: 16 * 1024,
                turn_space_min_bytes: 6 * 1024,
                settlement_reserve_bytes: 4 * 1024,
                recent_bytes_max: 8 * 1024,
                ..LogOptions::default()
            },
            command_size_bytes_max: 3 * 1024,
            snapshot_after_bytes: self.snapshot_after_bytes,
            tick_budget: 8,
        }
    }
}

/// A weight that is switched off in one world out of four.
fn maybe(r: &mut Stream, max: u64) -> u64 {
    if r.happens(250) { 0 } else { 1 + r.below(max) }
}
