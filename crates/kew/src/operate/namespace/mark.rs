//! The mark of an entity that an import has created and not finished.
//!
//! It is the entity's metadata, until the import gives the entity its own at the end, together with its status and its
//! forwarding. So a repeated import knows after a kill which entities are its own, and changes no others.

use kew_client::{Filter, NewRule, RuleSettings};

/// The metadata of such an entity, and the name of the first rule of such a subscription.
pub(super) const UNFINISHED: &str = "kew-import-unfinished";

/// Whose an entity is that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// An import has created it, and not finished it.
    Import,
    /// Its settings stay: others have created it, or an import that is finished.
    Other,
}

impl Owner {
    pub(super) fn of(metadata: &Option<String>) -> Self {
        match is_marked(metadata) {
            true => Self::Import,
            false => Self::Other,
        }
    }
}

/// The metadata of an entity that an import creates.
pub(super) fn mark() -> Option<String> {
    Some(UNFINISHED.to_owned())
}

pub(super) fn is_marked(metadata: &Option<String>) -> bool {
    metadata.as_deref() == Some(UNFINISHED)
}

/// The metadata for a line, which has no mark.
pub(super) fn without_mark(metadata: &Option<String>) -> Option<String> {
    let metadata = metadata.as_ref();
    let metadata = metadata.filter(|it| !it.is_empty() && *it != UNFINISHED);
    metadata.cloned()
}

/// The metadata of a line; or what is wrong with it.
pub(super) fn metadata_of_line(metadata: &Option<String>) -> Result<Option<String>, String> {
    match is_marked(metadata) {
        true => Err(format!(
            "user_metadata is {UNFINISHED:?}, and must be another text: an import uses it meanwhile"
        )),
        false => Ok(metadata.clone()),
    }
}

/// The rule that a subscription begins with. It selects nothing, and prevents the rule that selects all.
pub(super) fn first_rule() -> NewRule {
    NewRule {
        name: UNFINISHED.to_owned(),
        settings: RuleSettings {
            filter: Filter::False,
            ..RuleSettings::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_has_the_mark() {
        let other = Some("of ours".to_owned());
        assert_eq!(without_mark(&mark()), None);
        assert_eq!(without_mark(&Some(String::new())), None);
        assert_eq!(without_mark(&other), other);
        assert_eq!(metadata_of_line(&other), Ok(other));
        let error = metadata_of_line(&mark()).unwrap_err();
        assert!(error.contains("must be another text"), "{error}");
    }
}
