//! `kew queue sas`: a URL that carries its permissions.

use std::time::{Duration, SystemTime};

use kew_client::{QueueAccount, QueueSas};
use serde::Serialize;

use super::failure::Failure;
use super::output::{Output, rfc3339};
use crate::queue_args::SasArgs;

#[derive(Serialize)]
struct Report<'a> {
    url: &'a str,
    expires: &'a str,
}

pub(super) fn sas(
    account: &QueueAccount,
    args: &SasArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    // The last year of the service must have four digits, as its time format does.
    let longest = Duration::from_secs(100 * 366 * 86_400);
    if args.expiry.is_zero() || args.expiry > longest {
        return Err(Failure::Usage(
            "--expiry must be longer than 0 and at most 36600d".into(),
        ));
    }
    let expires = rfc3339(SystemTime::now() + args.expiry);
    let url = account
        .signed_url(&QueueSas {
            queue: args.name.as_deref(),
            permissions: args.permissions.as_deref(),
            expiry: &expires,
            https_only: args.https_only,
        })
        .map_err(|error| Failure::Usage(error.to_string()))?;
    if output.json {
        return Ok(output.object(&Report {
            url: url.expose(),
            expires: &expires,
        })?);
    }
    Ok(output.line(url.expose())?)
}
