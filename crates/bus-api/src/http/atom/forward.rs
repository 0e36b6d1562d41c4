//! The destinations that queues and subscriptions forward to, and whether the caller may set them.
//!
//! A destination is a queue or topic of this namespace, as a name or an absolute address. A caller that
//! forwards messages to it must also manage it: SDKs send a token for it in a separate header.
//!
//! Source: Service Bus, *Chaining entities with autoforwarding*.

use hyper::header::HOST;
use kew_listen::ServerNames;
use percent_encoding::percent_decode_str;

use super::asked::Asked;
use crate::authorization::bad_token::BadToken;
use crate::authorization::rights::Right;
use crate::authorization::sas::SignedToken;
use crate::ground::address::is_queue_name;
use crate::ground::lookup::is_queue;
use crate::http::answers::HttpError;
use crate::http::call::{Call, Head};
use crate::shared::Shared;

/// The names of the destinations, in their given spelling.
#[derive(Debug, Default)]
pub(super) struct Targets {
    pub(super) forward_to: Option<String>,
    pub(super) forward_dead_letters_to: Option<String>,
}

impl Asked {
    /// The queues or topics that its addresses refer to.
    pub(super) fn targets(&self, names: &ServerNames, head: &Head) -> Result<Targets, HttpError> {
        let target = |element, address: &Option<String>| match address {
            Some(address) => name_in(names, head, element, address).map(Some),
            None => Ok(None),
        };
        Ok(Targets {
            forward_to: target("ForwardTo", &self.forward_to)?,
            forward_dead_letters_to: target(
                "ForwardDeadLetteredMessagesTo",
                &self.forward_dead_letters_to,
            )?,
        })
    }
}

/// The name in an address. Its host must be a name of this server, or the host of the request.
/// Otherwise another namespace's entity would be confused with one of ours.
fn name_in(
    names: &ServerNames,
    head: &Head,
    element: &str,
    address: &str,
) -> Result<String, HttpError> {
    let invalid = |reason: &str| {
        HttpError::bad_request(format!("{element} is '{address}', and must be {reason}."))
    };
    let own = head.header(HOST).unwrap_or_default();
    let mut path = address;
    // Java's client writes https and its host before an address that an answer showed to it.
    while let Some((scheme, rest)) = path.split_once("://")
        && !scheme.contains('/')
    {
        let (authority, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let is_own = host_of(authority).eq_ignore_ascii_case(host_of(own));
        if !is_own && !names.has(authority) {
            let reason = format!(
                "an address in this namespace, which is '{}', or at a name that the server was \
                 given with --server-name",
                host_of(own)
            );
            return Err(invalid(&reason));
        }
        path = rest.split_once('?').map_or(rest, |(path, _)| path);
    }
    let name = percent_decode_str(path).decode_utf8_lossy();
    let name = name.trim_matches('/');
    if is_queue_name(&name.to_lowercase()) {
        Ok(name.to_owned())
    } else {
        Err(invalid(
            "the name or the absolute address of a queue or topic",
        ))
    }
}

/// A host without its port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Refuses destinations that the caller does not manage.
pub(super) async fn check_targets(
    shared: &Shared,
    call: &Call,
    targets: &Targets,
) -> Result<(), HttpError> {
    let forward_to = (&targets.forward_to, "ServiceBusSupplementaryAuthorization");
    let forward_dead_letters_to = (
        &targets.forward_dead_letters_to,
        "ServiceBusDlqSupplementaryAuthorization",
    );
    for (target, header) in [forward_to, forward_dead_letters_to] {
        let Some(target) = target else { continue };
        let path = target.to_lowercase();
        let is_allowed = match call.head.header(header) {
            Some(token) => manages(shared, &call.head, token, &path).await?,
            // One token for the whole namespace is enough.
            None if call.grant.allows(Right::Manage, &path) => true,
            None => {
                return Err(HttpError::unauthorized(format!(
                    "MissingToken: The authorization header {header} was not found. It must have a \
                     token for '{target}'."
                ))
                .with_sub_code(40_100));
            }
        };
        if !is_allowed {
            return Err(HttpError::unauthorized(format!(
                "Unauthorized: 'Manage' claim(s) are required to forward messages. Resource: \
                 '{target}'."
            ))
            .with_sub_code(40_100));
        }
    }
    Ok(())
}

/// Whether a token allows managing a queue. JavaScript signs only the host, without a scheme: that
/// means the whole namespace, if it is a name of this server, with any spelling. The name of an
/// existing queue is not such a host.
async fn manages(shared: &Shared, head: &Head, token: &str, path: &str) -> Result<bool, HttpError> {
    match shared.authority.grant_of(token, path, head.origin).await {
        Ok(grant) => Ok(grant.allows(Right::Manage, path)),
        Err(BadToken::Elsewhere { granted, asked }) => {
            let is_bare = SignedToken::read(token).is_ok_and(|token| token.is_bare);
            let is_host = is_bare && shared.names.has(&granted);
            if !is_host || is_queue(&shared.broker, &granted).await? {
                return Err(BadToken::Elsewhere { granted, asked }.into());
            }
            let grant = shared
                .authority
                .grant_of(token, &granted, head.origin)
                .await?;
            Ok(grant.owner.is_none() && grant.rights.has(Right::Manage))
        }
        Err(error) => Err(error.into()),
    }
}
