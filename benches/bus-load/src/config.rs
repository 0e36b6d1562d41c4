//! A configuration file of the emulator, with the queues and the topic of this program.

use serde_json::{Value, json};

use crate::ends::{COLOR, OTHER_COLOR, subscription};
use crate::many::entity;
use crate::options::Subscriptions;

/// The queues `bench`, `bench-sessions`, and `entities` more; and a topic, if it has subscriptions.
pub(crate) fn config(entities: u32, subscriptions: Subscriptions) -> Value {
    let lock = "PT1M";
    let plain = |name: &str| json!({"Name": name, "Properties": {"LockDuration": lock}});
    let sessions = json!({
        "Name": "bench-sessions",
        "Properties": {"LockDuration": lock, "RequiresSession": true},
    });
    let mut queues = vec![plain("bench"), sessions];
    queues.extend((0..entities).map(|number| plain(&entity(number))));
    let mut namespace = json!({"Name": "sbemulatorns", "Queues": queues});
    if let (Some(topics), true) = (namespace.as_object_mut(), subscriptions.subscriptions > 0) {
        topics.insert("Topics".into(), json!([topic(subscriptions)]));
    }
    json!({"UserConfig": {"Namespaces": [namespace]}})
}

fn topic(all: Subscriptions) -> Value {
    let has_rules = all.matching < all.subscriptions;
    let subscriptions = (0..all.subscriptions).map(|number| {
        let color = match number < all.matching {
            true => COLOR,
            false => OTHER_COLOR,
        };
        let filter = json!({"Properties": {"color": color}});
        let rule = json!({
            "Name": "color",
            "Properties": {"FilterType": "Correlation", "CorrelationFilter": filter},
        });
        let rules = if has_rules { vec![rule] } else { Vec::new() };
        json!({"Name": subscription(number), "Rules": rules})
    });
    json!({"Name": "bench-topic", "Subscriptions": subscriptions.collect::<Vec<_>>()})
}
