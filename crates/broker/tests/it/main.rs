//! The partition on a failing disk, and the broker with its threads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ahead;
mod backup;
mod broker;
mod bus;
mod bus_full_disk;
mod bus_repair;
mod changes;
mod cold;
mod cold_ids;
mod cold_pages;
mod damaged;
mod doors;
mod due;
mod fairness;
mod far;
mod first_format;
mod first_version;
mod forwards;
mod full_disk_cold;
mod held;
mod maintenance;
mod metrics;
mod opening;
mod owners;
mod pages;
mod partition;
mod passed_over;
mod quarantined;
mod repair;
mod resident;
mod resident_bus;
mod scrub;
mod scrub_cold;
mod shared_bodies;
mod support;
mod topics;
mod transactions;
mod unread;
mod wakes;
mod warming;
