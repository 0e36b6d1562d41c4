//! `kew bus sas`: a token that gives access for a time, and a connection string with it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::doors::find;
use crate::bus_tool_args::SasArgs;
use crate::queue_command::{Failure, Output, rfc3339};

/// The times of tokens have years of four digits in every SDK.
const EXPIRY_MAX: Duration = Duration::from_hours(36_600 * 24);

#[derive(Serialize)]
struct Report<'a> {
    connection_string: &'a str,
    token: &'a str,
    resource: &'a str,
    expires: &'a str,
}

/// What the token is for. The rule of an entity opens nothing else.
fn entity_of<'a>(
    wanted: Option<&'a str>,
    entity: Option<&'a str>,
) -> Result<Option<&'a str>, Failure> {
    let (Some(wanted), Some(entity)) = (wanted, entity) else {
        return Ok(wanted.or(entity));
    };
    let asked = wanted.trim_matches('/').to_lowercase();
    let sub_queue = asked.strip_prefix(&entity.to_lowercase());
    match sub_queue.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        true => Ok(Some(wanted)),
        false => Err(Failure::Usage(format!(
            "the connection string is for {entity} (EntityPath), and gives no rights for {wanted}"
        ))),
    }
}

/// Signs without any server. The namespace checks the token when it is used.
pub(super) fn sas(args: &SasArgs, output: &mut Output) -> Result<(), Failure> {
    if args.expiry.is_zero() || args.expiry > EXPIRY_MAX {
        return Err(Failure::Usage(
            "--expiry must be longer than 0 and at most 36600d".into(),
        ));
    }
    let namespace = find(args.connection_string.as_deref())?;
    let until = SystemTime::now() + args.expiry;
    let until_s = until
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let queue = entity_of(args.queue.as_deref(), namespace.entity())?;
    let delegation = namespace.delegate(queue, until_s).ok_or_else(|| {
        let message =
            "a token is signed with a key, and the connection string has no SharedAccessKey";
        Failure::Usage(message.into())
    })?;
    let (token, connection) = (
        delegation.token.expose(),
        delegation.connection_string.expose(),
    );
    if output.json {
        return Ok(output.object(&Report {
            connection_string: connection,
            token,
            resource: &delegation.resource,
            expires: &rfc3339(until),
        })?);
    }
    Ok(output.line(if args.token { token } else { connection })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_of_a_queue_signs_for_that_queue() {
        for (wanted, entity, expected) in [
            (None, None, None),
            (Some("a"), None, Some("a")),
            (None, Some("a"), Some("a")),
            (Some("A"), Some("a"), Some("A")),
            (
                Some("a/$deadletterqueue"),
                Some("a"),
                Some("a/$deadletterqueue"),
            ),
        ] {
            assert_eq!(entity_of(wanted, entity).unwrap(), expected);
        }
        for wanted in ["b", "ab", ""] {
            assert!(entity_of(Some(wanted), Some("a")).is_err(), "{wanted}");
        }
    }
}
