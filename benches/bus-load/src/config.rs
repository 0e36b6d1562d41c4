//! A configuration file of the emulator, with the queues of this program.

use serde_json::{Value, json};

use crate::many::entity;

/// The queues `bench`, `bench-sessions`, and `entities` more.
pub(crate) fn config(entities: u32) -> Value {
    let lock = "PT1M";
    let plain = |name: &str| json!({"Name": name, "Properties": {"LockDuration": lock}});
    let sessions = json!({
        "Name": "bench-sessions",
        "Properties": {"LockDuration": lock, "RequiresSession": true},
    });
    let mut queues = vec![plain("bench"), sessions];
    queues.extend((0..entities).map(|number| plain(&entity(number))));
    json!({"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": queues}]}})
}
