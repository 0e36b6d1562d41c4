//! An admitted request: authentic, allowed, and with valid names.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use hyper::header::{
    HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use kew_broker::{Answer, Epoch, Rejection};
use kew_engine::storage::{Metadata, StorageCommand, StorageOutcome, StorageRefusal};
use kew_engine::{Command, EntityName, Outcome, Refusal, Token};
use kew_http_front::HostError;
use kew_listen::Barred;
use kew_principals::InForce;
use tokio::time;

use crate::accounts::{Account, Accounts};
use crate::address::{Address, Resource, Style, check_queue_name};
use crate::api::Shared;
use crate::auth::{
    self, Authentic, Caller, Credentials, DelegationFields, Policy, Principal, Roles, Who,
};
use crate::cors::CorsRule;
use crate::deletions::Deletions;
use crate::error::Error;
use crate::id::parse_message_id;
use crate::metadata;
use crate::origin::Origin;
use crate::parameter;
use crate::properties::{Change, Properties, PropertyStore};
use crate::public_key;
use crate::query::Query;
use crate::reply::Reply;
use crate::route::{self, Operation};
use crate::spelling::Spellings;
use crate::version::{Version, X_MS_VERSION};

/// Headers that make a request conditional. Queues have no value to compare with, and ignoring a
/// condition would do something that the client did not ask for.
const CONDITIONS: [HeaderName; 4] = [
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
];

/// An admitted request.
pub(crate) struct Request<'a> {
    shared: &'a Shared,
    pub(crate) operation: Operation,
    method: &'a Method,
    pub(crate) version: Version,
    pub(crate) query: Query<'a>,
    pub(crate) headers: &'a HeaderMap,
    spellings: &'a Spellings,
    /// How long the operation may take.
    timeout: Duration,
    origin: &'a Origin,
    host: &'a str,
    account: &'a Account,
    /// The epoch of the accounts that it was judged by: it is not carried out in another one.
    epoch: Option<Epoch>,
    /// Its sender; `None` if it needs no credential.
    principal: Option<Principal>,
    address: Address<'a>,
}

/// Why a request was not admitted.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: Error,
    /// Whether its sender is known to have a key.
    pub(crate) is_authentic: bool,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self {
            error,
            is_authentic: false,
        }
    }
}

impl<'a> Request<'a> {
    /// Admits a request, or returns what is wrong with it. `spellings` are those of its head.
    ///
    /// The order of the checks is the protocol's: URI and verb, version, authentication,
    /// authorization, names, timeout, headers. The operation then checks the query, the body and
    /// what exists.
    pub(crate) async fn admit(
        shared: &'a Shared,
        accounts: &'a InForce<Accounts>,
        origin: &'a Origin,
        head: &'a Parts,
        spellings: &'a Spellings,
    ) -> Result<Self, Refused> {
        let mut query = Query::parse(head.uri.query())?;
        let host = host(head)?;
        let path = head.uri.path();
        let address = Address::parse(path, host, accounts)?;
        let operation = route::find(&head.method, &address.resource, &query)?;
        let version = version(&head.headers, &query)?;
        route::check_version(operation, &head.method, version)?;
        let account = accounts
            .find(address.account)
            .ok_or(Error::ResourceNotFound)?;
        if account.is_well_known() && !origin.may_use_public_key {
            shared.note_barred(origin, Barred::Listener, "");
            return Err(Error::ResourceNotFound.into());
        }
        if operation == Operation::PreflightRequest {
            // A browser sends no credential here, and the queue need not exist.
            return Ok(Self {
                shared,
                operation,
                method: &head.method,
                version,
                timeout: parameter::timeout(&query)?,
                query,
                headers: &head.headers,
                spellings,
                origin,
                host,
                account,
                epoch: accounts.epoch(),
                principal: None,
                address,
            });
        }
        let credentials = Credentials {
            method: head.method.as_str(),
            path,
            query: &query,
            headers: &head.headers,
            version,
            address: &address,
            account,
            now: shared.now(),
            clock_skew_max: shared.limits.clock_skew_max,
            origin,
            issuers: &shared.issuers,
        };
        let Authentic { who, plus } = auth::authenticate(&credentials)?;
        let principal = match who {
            Who::Principal(principal) => principal,
            Who::HolderOf(link) => {
                let epoch = accounts.epoch();
                let policy = stored_policy(shared, epoch, &credentials, &link.id).await?;
                link.resolve(policy, &credentials)?
            }
        };
        if account.is_well_known()
            && principal.is_known_by_key()
            && let Err(barred) = public_key::judge(shared, head, &address)
        {
            // It is rare, and must not make every connection's future larger.
            Box::pin(public_key::refuse(shared, origin, head, account, barred)).await?;
        }
        // Only an authenticated client learns of it.
        if account.is_disabled() {
            return Err(Refused {
                error: Error::AccountIsDisabled,
                is_authentic: true,
            });
        }
        let timeout =
            check_authentic(&principal, operation, &credentials).map_err(|error| Refused {
                error,
                is_authentic: true,
            })?;
        query.set_plus(plus);
        Ok(Self {
            shared,
            operation,
            method: &head.method,
            version,
            query,
            headers: &head.headers,
            spellings,
            timeout,
            origin,
            host,
            account,
            epoch: accounts.epoch(),
            principal: Some(principal),
            address,
        })
    }

    pub(crate) fn account(&self) -> &Arc<str> {
        self.account.name()
    }

    /// The user who sent the request. Other senders are refused.
    pub(crate) fn caller(&self) -> Result<&Caller, Error> {
        match &self.principal {
            Some(Principal::Bearer(caller)) => Ok(caller),
            Some(
                Principal::AccountOwner | Principal::AccountSas(_) | Principal::QueueSas { .. },
            )
            | None => Err(Error::InternalError),
        }
    }

    /// The value of the user delegation key for these fields.
    pub(crate) fn delegation_key(&self, made_for: &DelegationFields<'_>, roles: Roles) -> [u8; 32] {
        made_for.value(self.account, self.account.primary(), roles.delegated())
    }

    /// The addressed queue. Its name is valid.
    pub(crate) fn queue(&self) -> Result<EntityName, Error> {
        let name = self.address.resource.queue().ok_or(Error::InvalidUri)?;
        Ok(EntityName::storage_queue(self.account().clone(), name))
    }

    /// The addressed message and the receipt, if both are in Kew's form.
    ///
    /// If one is not, the queue is looked up anyway: a missing queue is reported first.
    pub(crate) async fn held_message(
        &self,
        receipt: Result<Token, Error>,
    ) -> Result<(Token, Token), Error> {
        let held = receipt.and_then(|receipt| Ok((self.message()?, receipt)));
        if held.is_err() {
            let queue = self.queue()?;
            self.submit(Command::Storage(StorageCommand::ReadQueue { queue }))
                .await?;
        }
        held
    }

    /// The addressed message. An id of another form belongs to no message.
    fn message(&self) -> Result<Token, Error> {
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
        let scheme = if self.origin.is_secure {
            "https"
        } else {
            "http"
        };
        match self.address.style {
            Style::Host => format!("{scheme}://{}/", self.host),
            Style::Path => format!("{scheme}://{}/{}/", self.host, self.account()),
        }
    }

    /// Whether its sender is authenticated.
    pub(crate) fn is_authentic(&self) -> bool {
        self.operation != Operation::PreflightRequest
    }

    pub(crate) fn is_of_secondary(&self) -> bool {
        self.address.secondary
    }

    /// Whether the body is the bytes of a message, without an envelope.
    pub(crate) fn is_raw_put(&self) -> bool {
        route::is_raw_put(self.operation, self.method)
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.shared.now()
    }

    /// The names that are still reserved.
    pub(crate) fn deletions(&self) -> &Deletions {
        &self.shared.deletions
    }

    /// Carries out the command, within the time limit of the request.
    ///
    /// After `OperationTimedOut` and `InternalError` the command may have been carried out or not.
    pub(crate) async fn submit(&self, command: Command) -> Result<Answer, Error> {
        let submitted = self.shared.broker.submit_within(self.epoch, command);
        self.in_time(async {
            submitted
                .await
                .map_err(|rejection| Error::of_rejection(rejection, self.version))
        })
        .await
    }

    /// The properties of the account's queue service.
    pub(crate) async fn properties(&self) -> Result<Properties, Error> {
        let read = PropertyStore::read(&self.shared.broker, self.epoch, self.account.name());
        self.in_time(read).await
    }

    /// Changes the properties of the account's queue service. Errors are those of `submit`.
    pub(crate) async fn change_properties(&self, change: Change) -> Result<(), Error> {
        let Shared {
            properties, broker, ..
        } = self.shared;
        self.in_time(properties.change(broker, self.epoch, self.account.name(), change))
            .await
    }

    /// The account's rules for browsers.
    pub(crate) async fn cors_rules(&self) -> Result<Arc<[CorsRule]>, Error> {
        let Shared {
            properties, broker, ..
        } = self.shared;
        self.in_time(properties.rules(broker, self.account.name()))
            .await
    }

    /// Waits no longer than the request allows.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match time::timeout(self.timeout, work).await {
            Ok(result) => result,
            Err(_) => Err(Error::OperationTimedOut),
        }
    }

    /// Refuses with `ServerBusy` if there is no room for an answer of that size. Called before a
    /// command that cannot be undone.
    pub(crate) fn check_room(&self, size_bytes: usize) -> Result<(), Error> {
        Ok(self.shared.front.budget.check_room(size_bytes)?)
    }

    /// The answer with a document, which counts in the budget until it is written, or `ServerBusy`.
    pub(crate) fn reply(&self, document: BytesMut) -> Result<Reply, Error> {
        let mut share = self.shared.front.budget.share();
        share.grow(document.capacity())?;
        let reply = Reply::xml(StatusCode::OK, document).with_no_cache();
        Ok(reply.holding(share))
    }

    /// The error if the broker's answer does not fit the command, which is a bug.
    pub(crate) fn unexpected(&self, outcome: &Outcome) -> Error {
        // Only its kind: an outcome contains receipts.
        let answered = kind(outcome);
        tracing::error!(operation = ?self.operation, answered, "the broker answered something else");
        Error::InternalError
    }
}

const fn kind(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Storage(outcome) => kind_of_storage(outcome),
        Outcome::Initialized => "Initialized",
        Outcome::ServicePropertiesSet => "ServicePropertiesSet",
        Outcome::ServiceProperties(_) => "ServiceProperties",
        Outcome::AccountPut => "AccountPut",
        Outcome::AccountRemoved => "AccountRemoved",
        Outcome::Accounts(_) => "Accounts",
        Outcome::BodiesMoved { .. } => "BodiesMoved",
        Outcome::Quarantined(_) => "Quarantined",
        Outcome::Bus(_) => "Bus",
    }
}

const fn kind_of_storage(outcome: &StorageOutcome) -> &'static str {
    match outcome {
        StorageOutcome::QueueCreated => "QueueCreated",
        StorageOutcome::QueueUnchanged => "QueueUnchanged",
        StorageOutcome::QueueDeleted => "QueueDeleted",
        StorageOutcome::Queue(_) => "Queue",
        StorageOutcome::QueueMetadataSet => "QueueMetadataSet",
        StorageOutcome::Queues(_) => "Queues",
        StorageOutcome::Sent(_) => "Sent",
        StorageOutcome::Received(_) => "Received",
        StorageOutcome::Peeked(_) => "Peeked",
        StorageOutcome::Updated { .. } => "Updated",
        StorageOutcome::Deleted => "Deleted",
        StorageOutcome::Cleared => "Cleared",
        StorageOutcome::QueuePoliciesSet => "QueuePoliciesSet",
    }
}

/// The version of a request: that of its header; without one, that of a shared access signature in
/// its query.
///
/// Source: *Versioning for Azure Storage*.
fn version(headers: &HeaderMap, query: &Query<'_>) -> Result<Version, Error> {
    if let Some(named) = Version::named_in_query(headers, query) {
        return Ok(named);
    }
    Version::of_request(headers.get(X_MS_VERSION)).map_err(|value| Error::InvalidHeaderValue {
        name: "x-ms-version",
        value: String::from_utf8_lossy(value.as_bytes()).into(),
    })
}

/// Makes the checks after authentication, and returns how long the operation may take.
fn check_authentic(
    principal: &Principal,
    operation: Operation,
    credentials: &Credentials<'_>,
) -> Result<Duration, Error> {
    let address = credentials.address;
    principal.check(operation, credentials)?;
    if address.secondary && !operation.is_read() {
        return Err(Error::InsufficientAccountPermissions);
    }
    if let Some(queue) = address.resource.queue() {
        check_queue_name(queue)?;
    }
    let timeout = parameter::timeout(credentials.query)?;
    if CONDITIONS
        .iter()
        .any(|name| credentials.headers.contains_key(name))
    {
        return Err(Error::ConditionHeadersNotSupported);
    }
    Ok(timeout)
}

/// The stored access policy with that id of the addressed queue. It is read each time, so that a
/// removed policy no longer permits anything.
async fn stored_policy(
    shared: &Shared,
    within: Option<Epoch>,
    credentials: &Credentials<'_>,
    id: &str,
) -> Result<Option<Policy>, Error> {
    let Some(queue) = credentials.address.resource.queue() else {
        return Ok(None);
    };
    let command = Command::Storage(StorageCommand::ReadQueue {
        queue: EntityName::storage_queue(credentials.account.name().clone(), queue),
    });
    // An invalid one is refused after authentication.
    let timeout = parameter::timeout(credentials.query).unwrap_or(parameter::TIMEOUT_MAX);
    let answer = match time::timeout(timeout, shared.broker.submit_within(within, command)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(Rejection::Refused(Refusal::Storage(StorageRefusal::QueueNotFound { .. })))) => {
            return Ok(None);
        }
        Ok(Err(rejection)) => return Err(Error::of_rejection(rejection, credentials.version)),
        Err(_) => return Err(Error::OperationTimedOut),
    };
    match answer.outcome {
        Outcome::Storage(StorageOutcome::Queue(queue)) => {
            Ok(queue.policies.find(id).map(Policy::from))
        }
        other => {
            tracing::error!(
                answered = kind(&other),
                "the broker answered something else"
            );
            Err(Error::InternalError)
        }
    }
}

/// The host in the request, with its port.
pub(crate) fn host(head: &Parts) -> Result<&str, Error> {
    match kew_http_front::host(head) {
        Ok(host) => Ok(host.unwrap_or("localhost")),
        Err(HostError::Missing) => Err(Error::MissingRequiredHeader { name: "Host" }),
        Err(HostError::Invalid(host)) => Err(Error::InvalidHeaderValue {
            name: "Host",
            value: String::from_utf8_lossy(host.as_bytes()).into(),
        }),
    }
}

#[cfg(test)]
mod tests;
