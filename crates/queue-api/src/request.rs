//! A request that was let in: authentic, allowed, and its names in order.

use std::sync::Arc;

use hyper::Version as HttpVersion;
use hyper::header::{
    HOST, HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
};
use hyper::http::request::Parts;
use kew_broker::Answer;
use kew_engine::{Command, EntityName, Metadata, Outcome, Token};
use tokio::time;

use crate::address::{Address, Resource, Style, check_queue_name};
use crate::api::Shared;
use crate::auth::{self, Credentials};
use crate::error::Error;
use crate::id::parse_message_id;
use crate::metadata;
use crate::parameter;
use crate::query::Query;
use crate::route::{self, Operation};
use crate::spelling::Spellings;
use crate::version::Version;

/// Headers that make a request conditional. Queues have nothing to compare with, and to ignore a
/// condition would be to do what was not asked.
const CONDITIONS: [HeaderName; 4] = [
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
];

/// A request that was let in.
pub(crate) struct Request<'a> {
    shared: &'a Shared,
    pub(crate) operation: Operation,
    pub(crate) version: Version,
    pub(crate) query: &'a Query<'a>,
    pub(crate) headers: &'a HeaderMap,
    spellings: Option<&'a Spellings>,
    host: &'a str,
    account: &'a Arc<str>,
    address: Address<'a>,
}

impl<'a> Request<'a> {
    /// Lets a request in, or says what is wrong with it.
    ///
    /// The order of the checks is the protocol's: URI and verb, version, authentication,
    /// authorization, names, headers. The operation goes on with the query, the body and what
    /// exists.
    pub(crate) fn admit(
        shared: &'a Shared,
        head: &'a Parts,
        query: &'a Query<'a>,
        version: Result<Version, Error>,
    ) -> Result<Self, Error> {
        let host = host(head)?;
        let path = head.uri.path();
        let address = Address::parse(path, host, &shared.accounts)?;
        let operation = route::find(&head.method, &address.resource, query)?;
        let version = version?;
        if version < operation.since() {
            return Err(Error::FeatureVersionMismatch);
        }
        let account = shared
            .accounts
            .find(address.account)
            .ok_or(Error::ResourceNotFound)?;
        let principal = auth::authenticate(&Credentials {
            method: head.method.as_str(),
            path,
            query,
            headers: &head.headers,
            version,
            address: &address,
            account,
            now: shared.now(),
            clock_skew_max: shared.limits.clock_skew_max,
        })?;
        if !principal.may(operation) || (address.secondary && !operation.is_read()) {
            return Err(Error::InsufficientAccountPermissions);
        }
        if let Some(queue) = address.resource.queue() {
            check_queue_name(queue)?;
        }
        if CONDITIONS
            .iter()
            .any(|name| head.headers.contains_key(name))
        {
            return Err(Error::ConditionHeadersNotSupported);
        }
        Ok(Self {
            shared,
            operation,
            version,
            query,
            headers: &head.headers,
            spellings: head.extensions.get(),
            host,
            account: account.name(),
            address,
        })
    }

    pub(crate) fn account(&self) -> &Arc<str> {
        self.account
    }

    /// The queue that is addressed. Its name is in order.
    pub(crate) fn queue(&self) -> Result<EntityName, Error> {
        let name = self.address.resource.queue().ok_or(Error::InvalidUri)?;
        Ok(EntityName::storage_queue(self.account.clone(), name))
    }

    /// The message that is addressed. An id of another form belongs to no message.
    pub(crate) fn message(&self) -> Result<Token, Error> {
        match &self.address.resource {
            Resource::Message(_, id) => parse_message_id(id).ok_or(Error::MessageNotFound),
            Resource::Service | Resource::Queue(_) | Resource::Messages(_) => {
                Err(Error::InvalidUri)
            }
        }
    }

    /// The metadata in the headers.
    pub(crate) fn metadata(&self) -> Result<Metadata, Error> {
        metadata::from_headers(self.headers, self.spellings, self.version)
    }

    /// The address of the account's queue service as this client reaches it, ending in a slash.
    pub(crate) fn endpoint(&self) -> String {
        match self.address.style {
            Style::Host => format!("http://{}/", self.host),
            Style::Path => format!("http://{}/{}/", self.host, self.account),
        }
    }

    /// Has the command carried out, within the time that the request gives it.
    ///
    /// After `OperationTimedOut` and `InternalError` the command may have been carried out or not.
    pub(crate) async fn submit(&self, command: Command) -> Result<Answer, Error> {
        let limit = parameter::timeout(self.query)?;
        match time::timeout(limit, self.shared.broker.submit(command)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(rejection)) => Err(Error::of_rejection(rejection, self.version)),
            Err(_) => Err(Error::OperationTimedOut),
        }
    }

    /// What to answer when the broker's answer is to another question: the fault is ours.
    pub(crate) fn unexpected(&self, outcome: &Outcome) -> Error {
        tracing::error!(operation = ?self.operation, ?outcome, "the broker answered something else");
        Error::InternalError
    }
}

/// The host that the client asks, with its port.
fn host(head: &Parts) -> Result<&str, Error> {
    if let Some(authority) = head.uri.authority() {
        return Ok(authority.as_str());
    }
    let mut values = head.headers.get_all(HOST).iter();
    let (first, second) = (values.next(), values.next());
    match (first, second) {
        (None, _) if head.version == HttpVersion::HTTP_10 => Ok("localhost"),
        (None, _) => Err(Error::MissingRequiredHeader { name: "Host" }),
        (Some(host), None) => host.to_str().map_err(|_| Error::InvalidHeaderValue {
            name: "Host",
            value: String::from_utf8_lossy(host.as_bytes()).into(),
        }),
        (Some(host), Some(_)) => Err(Error::InvalidHeaderValue {
            name: "Host",
            value: String::from_utf8_lossy(host.as_bytes()).into(),
        }),
    }
}
