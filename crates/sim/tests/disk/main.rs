//! Power cuts, failing calls and bit rot, in the size for every change.
//!
//! `KEW_DISK_SEED` is the root of every choice. `KEW_DISK_STATES` (disks drawn at each call), `KEW_DISK_WORKLOADS`
//! (workloads whose every call fails), `KEW_DISK_INJECTIONS` (damages, a quarter as many with topics, an eighth with
//! bus queues, a tenth of records, a twentieth of those of bus queues, and a fortieth of backups and of bodies that moved)
//! and `KEW_DISK_FAULTS` (kinds of faults that each call of a migration and of a backup meets) make a run longer.
//! `KEW_DISK_CASE` replays one failed case, as its message says.

mod copies;
mod faults;
#[cfg(feature = "planted-bugs")]
mod planted;
mod power;
mod rot;
mod support;

// Disks are copied some hundred thousand times: it saves a tenth of the time.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;
