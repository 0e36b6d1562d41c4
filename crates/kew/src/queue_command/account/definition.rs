//! The definition of a queue as the service has it, and as a line of an export.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_client::AccessPolicy;
use serde_json::Value as Json;

use crate::portable::{Policy, StorageDefinition};
use crate::queue_values::metadata_pair;

pub(super) fn definition_of(
    metadata: &[(String, String)],
    policies: &[AccessPolicy],
) -> StorageDefinition {
    let ms = |time: Option<SystemTime>| {
        let ms = time?.duration_since(UNIX_EPOCH).ok()?.as_millis();
        u64::try_from(ms).ok()
    };
    let metadata = metadata.iter();
    let policies = policies.iter().map(|it| Policy {
        id: it.id.clone(),
        start_ms: ms(it.start),
        expiry_ms: ms(it.expiry),
        permissions: it.permissions.clone(),
    });
    StorageDefinition {
        metadata: metadata
            .map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect(),
        access_policies: policies.collect(),
    }
}

/// The metadata of a definition; or what is wrong with it.
pub(super) fn metadata_of(it: &StorageDefinition) -> Result<Vec<(String, String)>, String> {
    let pair = |(name, value): (&String, &Json)| {
        let value = value.as_str();
        let value = value.ok_or_else(|| format!("the metadata {name:?} is not a text"))?;
        metadata_pair(&format!("{name}={value}"))
            .map_err(|what| format!("the metadata {name:?}: {what}"))
    };
    it.metadata.iter().map(pair).collect()
}

pub(super) fn policies_of(it: &StorageDefinition) -> Vec<AccessPolicy> {
    let time = |ms: Option<u64>| ms.map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
    let policies = it.access_policies.iter().map(|it| AccessPolicy {
        id: it.id.clone(),
        start: time(it.start_ms),
        expiry: time(it.expiry_ms),
        permissions: it.permissions.clone(),
    });
    policies.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_comes_back() {
        let metadata = [("a".to_owned(), "b".to_owned())];
        let policies = [AccessPolicy {
            id: "p".to_owned(),
            start: None,
            expiry: Some(UNIX_EPOCH + Duration::from_millis(1_795_219_200_500)),
            permissions: Some("r".to_owned()),
        }];
        let definition = definition_of(&metadata, &policies);
        assert_eq!(metadata_of(&definition).unwrap(), metadata);
        assert_eq!(policies_of(&definition), policies);
    }

    #[test]
    fn wrong_metadata_is_named() {
        let with = |name: &str, value: Json| {
            let metadata = [(name.to_owned(), value)].into_iter().collect();
            let definition = StorageDefinition {
                metadata,
                ..StorageDefinition::default()
            };
            metadata_of(&definition).unwrap_err()
        };
        assert!(with("a", 7.into()).contains("\"a\" is not a text"));
        assert!(with("1a", "x".into()).contains("begins with a letter"));
    }
}
