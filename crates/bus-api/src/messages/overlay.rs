//! Changes to the application properties of a stored message.

use std::collections::HashSet;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode, Map, Raw, Value};

/// A change to a message's application properties: an encoded map. Keys that are not strings are
/// left out: application properties have none.
pub(crate) fn overlay_of(properties: &Map) -> Option<Bytes> {
    let named = Map::build(|map| {
        for (key, value) in properties.iter() {
            if matches!(key.value(), Value::String(_) | Value::Symbol(_))
                && value.value() != Value::Null
            {
                map.entry(&key, &value);
            }
        }
    });
    if named.is_empty() {
        return None;
    }
    let mut out = BytesMut::new();
    overlaid(&Map::default(), &named).encode(&mut out);
    Some(out.freeze())
}

/// Properties with the values of another map in place of their own, and its new ones at the end.
pub(crate) fn overlaid(properties: &Map, overlay: &Map) -> Map {
    let name = |key: &Raw| key.value().as_str().map(str::to_owned);
    // Both may have thousands.
    let names: HashSet<String> = overlay.iter().filter_map(|(key, _)| name(&key)).collect();
    Map::build(|map| {
        let is_replaced = |key: &Raw| name(key).is_some_and(|name| names.contains(&name));
        for (key, value) in properties.iter().filter(|(key, _)| !is_replaced(key)) {
            map.entry(&key, &value);
        }
        for (key, value) in overlay.iter() {
            // Keys of application properties are strings, and those of annotations symbols.
            match key.value() {
                Value::Symbol(key) => map.entry(key.as_str(), &value),
                _ => map.entry(&key, &value),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use kew_amqp::codec::Symbol;

    use super::*;

    #[test]
    fn an_overlay_replaces_and_adds() {
        let old = Map::build(|map| {
            map.entry("a", &1);
            map.entry("b", &2);
        });
        let overlay = Map::build(|map| {
            map.entry(&Symbol::from_static("b"), &3);
            map.entry("c", &4);
        });
        let read: Vec<_> = overlaid(&old, &overlay)
            .iter()
            .map(|(key, value)| (key.value(), value.value()))
            .collect();
        let pair = |key: &str, value| (Value::String(key.into()), Value::Int(value));
        assert_eq!(read, [pair("a", 1), pair("b", 3), pair("c", 4)]);
    }
}
