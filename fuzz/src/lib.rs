//! Shared code of the fuzz harnesses: bytes that look valid, and a gauge of memory.
//!
//! Random bytes seldom pass a checksum. So [`forge`] writes segments and snapshots from
//! `crates/log/FORMAT.md`, with right checksums around a harness's content, and [`mutate`] changes
//! valid bytes. [`gauge`] shows that no decoder allocates by an unchecked length. The harnesses are
//! in `tests/it`.

pub mod forge;
pub mod gauge;
pub mod golden;
pub mod mutate;

// cargo-bolero builds the tests of this library too, and a fuzzer's runtime comes with bolero.
#[cfg(test)]
use bolero as _;
