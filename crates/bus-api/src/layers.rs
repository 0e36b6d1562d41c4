//! The order of the parts: each may import only those before it.

use std::path::Path;

use kew_layers::{Layers, broken};

/// The parts from the ground up. A file or folder beside `lib.rs` is one of these.
const LAYERS: Layers<'_> = Layers {
    order: &[
        &["ground"],
        &["metrics"],
        &["memory"],
        &["messages"],
        &["authorization"],
        &["configuration"],
        &["definitions"],
        &["shared"],
        &["management"],
        &["connection"],
        &["http"],
        &["api"],
    ],
    free: &[],
};

/// The same within a client of AMQP: its links, its parts, the client itself, and its handlers.
const LAYERS_IN_CLIENT: Layers<'_> = Layers {
    order: &[
        &["patience"],
        &["links"],
        &["parts"],
        &["Client"],
        &["handlers"],
    ],
    free: &[],
};

#[test]
fn no_part_imports_one_above_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = broken(&source, "crate", LAYERS);
    let client = source.join("connection/client");
    all.extend(broken(
        &client,
        "crate::connection::client",
        LAYERS_IN_CLIENT,
    ));
    assert!(all.is_empty(), "{all:#?}");
}
