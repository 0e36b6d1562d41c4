//! One harness for every parser of bytes from a disk, from clients and from servers.
//!
//! Each is an ordinary test: it runs its corpus and a bounded number of random inputs. The same
//! harness runs under a coverage-guided fuzzer: see `docs/reliability.md`. None may panic, and none
//! may use more memory than its input explains.

mod amqp;
mod amqp_connection;
mod bus;
mod client;
mod configuration;
mod directory;
mod documents;
mod door;
mod engine;
mod files;
mod filter;
mod frames;
mod overlays;
mod shared_access;
mod sharing;
mod tokens;
mod wire;

#[path = "../../../crates/client/src/http/xml.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "only the part of the client that reads answers is used"
)]
mod client_xml;
#[path = "../../../crates/kew/src/serve_args.rs"]
mod serve_args;
#[path = "../../../crates/kew/src/settings.rs"]
#[expect(
    dead_code,
    reason = "only the part of the binary that reads the settings is used"
)]
mod settings;

/// Every harness counts the memory of its thread.
#[global_allocator]
static GAUGE: kew_fuzz::gauge::Gauge = kew_fuzz::gauge::Gauge;

/// How many random inputs a harness tries in an ordinary test, unless `BOLERO_RANDOM_ITERATIONS`
/// says otherwise.
const INPUTS: usize = 20_000;

/// The size of an input, at most.
const INPUT_SIZE_MAX: usize = 2048;

/// The memory of a decoder besides its input.
const MEMORY_BASE_BYTES: usize = 64 << 10;

/// A directory for files that are rewritten for every input: in memory, if possible.
fn scratch() -> tempfile::TempDir {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.expect("a temporary directory")
}

#[test]
fn the_gauge_notices_unchecked_lengths() {
    let taken = |size: usize| {
        std::panic::catch_unwind(|| kew_fuzz::gauge::within(MEMORY_BASE_BYTES, || vec![1u8; size]))
    };
    assert!(taken(MEMORY_BASE_BYTES).is_ok());
    assert!(taken(MEMORY_BASE_BYTES + 1).is_err());
}
