//! The order of the parts: each may import only those below it.

use std::path::Path;

use kew_layers::{Layers, broken};

/// The parts from the ground up. The two profiles know nothing of each other. Tests may use everything.
const LAYERS: Layers<'_> = Layers {
    order: &[
        &["vocabulary"],
        &["shared"],
        &["table"],
        &["effect"],
        &["catalogue"],
        &["queues"],
        &["storage", "bus"],
        &["moves"],
        &["command", "outcome", "event"],
        &["state"],
        &[
            "describe", "overview", "snapshot", "repair", "bodies", "wire",
        ],
        &["turn", "migrate"],
    ],
    free: &["tests"],
};

#[test]
fn no_part_imports_one_above_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let all = broken(&source, "crate", LAYERS);
    assert!(all.is_empty(), "{all:#?}");
}
