//! What the fuzz harnesses share: bytes that look right, and a gauge of memory.
//!
//! Random bytes seldom get past a checksum. So [`forge`] writes segments and snapshots after
//! `crates/log/FORMAT.md`, with right checksums around whatever a harness puts inside, and
//! [`mutate`] changes bytes that were right. [`gauge`] shows that no decoder allocates by a length
//! that it has not checked. The harnesses are in `tests/it`.

pub mod forge;
pub mod gauge;
pub mod golden;
pub mod mutate;

// cargo-bolero builds the tests of this library too, and a fuzzer's runtime comes with bolero.
#[cfg(test)]
use bolero as _;
