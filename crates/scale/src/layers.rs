//! The order of the parts: each may import only those below it.

use std::path::Path;

use kew_layers::{Layers, broken};

/// The parts from the ground up.
const LAYERS: Layers<'_> = Layers {
    order: &[
        &["config"],
        &["observe", "act", "simulate", "memory"],
        &["agenda"],
        &["agent"],
        &["log", "socket", "record"],
    ],
    free: &["tests"],
};

#[test]
fn no_part_imports_one_above_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let all = broken(&source, "crate", LAYERS);
    assert!(all.is_empty(), "{all:#?}");
}
