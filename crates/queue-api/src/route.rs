//! The operation of a request, from a table of verb, resource and selector.
//!
//! The table is complete: other requests are refused, and a rule for all operations can be tested
//! by walking it.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use hyper::Method;

use crate::address::Resource;
use crate::error::Error;
use crate::query::Query;
use crate::version::Version;

/// An operation of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    ListQueues,
    CreateQueue,
    DeleteQueue,
    GetQueueMetadata,
    SetQueueMetadata,
    GetQueueAcl,
    SetQueueAcl,
    GetServiceProperties,
    SetServiceProperties,
    GetServiceStats,
    /// Sent by browsers, for any resource and without a credential.
    PreflightRequest,
    PutMessage,
    GetMessages,
    PeekMessages,
    ClearMessages,
    UpdateMessage,
    DeleteMessage,
    GetUserDelegationKey,
}

impl Operation {
    /// Whether it only reads. The secondary of an account allows nothing else. Get Messages does
    /// not only read: it hides the messages that it returns.
    pub(crate) const fn is_read(self) -> bool {
        match self {
            Self::ListQueues
            | Self::GetQueueMetadata
            | Self::GetQueueAcl
            | Self::GetServiceProperties
            | Self::GetServiceStats
            | Self::PreflightRequest
            | Self::PeekMessages => true,
            Self::CreateQueue
            | Self::DeleteQueue
            | Self::SetQueueMetadata
            | Self::SetQueueAcl
            | Self::SetServiceProperties
            | Self::PutMessage
            | Self::GetMessages
            | Self::ClearMessages
            | Self::UpdateMessage
            | Self::DeleteMessage
            | Self::GetUserDelegationKey => false,
        }
    }

    /// The first version that has the operation.
    pub(crate) const fn since(self) -> Version {
        match self {
            Self::UpdateMessage | Self::GetServiceProperties | Self::SetServiceProperties => {
                Version::V2011_08_18
            }
            Self::GetUserDelegationKey => Version::V2025_07_05,
            Self::GetQueueAcl | Self::SetQueueAcl => Version::V2012_02_12,
            Self::GetServiceStats => Version::V2013_08_15,
            // Introduced in 2013-08-15, but a browser's preflight names no version.
            Self::PreflightRequest
            | Self::ListQueues
            | Self::CreateQueue
            | Self::DeleteQueue
            | Self::GetQueueMetadata
            | Self::SetQueueMetadata
            | Self::PutMessage
            | Self::GetMessages
            | Self::PeekMessages
            | Self::ClearMessages
            | Self::DeleteMessage => Version::OLDEST,
        }
    }
}

/// The verbs that operations use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Delete,
    Get,
    Head,
    Post,
    Put,
}

/// Every verb, in the order of an `Allow` header.
const VERBS: [Verb; 5] = [Verb::Delete, Verb::Get, Verb::Head, Verb::Post, Verb::Put];

impl Verb {
    const fn name(self) -> &'static str {
        match self {
            Self::Delete => "DELETE",
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }
}

/// The kind of resource in a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Service,
    Queue,
    Messages,
    Message,
}

/// The part of the query that selects among the operations of a verb and a resource: `comp`, or
/// `peekonly` for reading messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selector {
    /// No selector.
    None,
    /// `comp=list`
    List,
    /// `comp=metadata`
    Metadata,
    /// `comp=acl`
    Acl,
    /// `comp=properties`
    Properties,
    /// `comp=stats`
    Stats,
    /// `peekonly`, and not false.
    Peek,
    /// `comp=userdelegationkey`
    UserDelegationKey,
    /// A `comp` that does not exist in the protocol.
    Unknown,
}

/// One row: this verb on this kind of resource with this selector is this operation.
struct Route(Verb, Kind, Selector, Operation);

/// Every supported operation.
const ROUTES: [Route; 19] = [
    // The three with nearly all traffic come first.
    Route(
        Verb::Post,
        Kind::Messages,
        Selector::None,
        Operation::PutMessage,
    ),
    Route(
        Verb::Get,
        Kind::Messages,
        Selector::None,
        Operation::GetMessages,
    ),
    Route(
        Verb::Delete,
        Kind::Message,
        Selector::None,
        Operation::DeleteMessage,
    ),
    Route(
        Verb::Get,
        Kind::Messages,
        Selector::Peek,
        Operation::PeekMessages,
    ),
    Route(
        Verb::Delete,
        Kind::Messages,
        Selector::None,
        Operation::ClearMessages,
    ),
    Route(
        Verb::Put,
        Kind::Message,
        Selector::None,
        Operation::UpdateMessage,
    ),
    Route(
        Verb::Get,
        Kind::Service,
        Selector::List,
        Operation::ListQueues,
    ),
    Route(
        Verb::Put,
        Kind::Queue,
        Selector::None,
        Operation::CreateQueue,
    ),
    Route(
        Verb::Delete,
        Kind::Queue,
        Selector::None,
        Operation::DeleteQueue,
    ),
    Route(
        Verb::Get,
        Kind::Queue,
        Selector::Metadata,
        Operation::GetQueueMetadata,
    ),
    Route(
        Verb::Head,
        Kind::Queue,
        Selector::Metadata,
        Operation::GetQueueMetadata,
    ),
    Route(
        Verb::Put,
        Kind::Queue,
        Selector::Metadata,
        Operation::SetQueueMetadata,
    ),
    Route(
        Verb::Post,
        Kind::Service,
        Selector::UserDelegationKey,
        Operation::GetUserDelegationKey,
    ),
    Route(
        Verb::Get,
        Kind::Queue,
        Selector::Acl,
        Operation::GetQueueAcl,
    ),
    Route(
        Verb::Head,
        Kind::Queue,
        Selector::Acl,
        Operation::GetQueueAcl,
    ),
    Route(
        Verb::Put,
        Kind::Queue,
        Selector::Acl,
        Operation::SetQueueAcl,
    ),
    Route(
        Verb::Get,
        Kind::Service,
        Selector::Properties,
        Operation::GetServiceProperties,
    ),
    Route(
        Verb::Put,
        Kind::Service,
        Selector::Properties,
        Operation::SetServiceProperties,
    ),
    Route(
        Verb::Get,
        Kind::Service,
        Selector::Stats,
        Operation::GetServiceStats,
    ),
];

/// The operation asked for.
///
/// Refuses with `InvalidHttpVerb` or, with the allowed verbs, `UnsupportedHttpVerb`; and for `comp`
/// with `MissingRequiredQueryParameter` or `InvalidQueryParameterValue`.
pub(crate) fn find(
    method: &Method,
    resource: &Resource<'_>,
    query: &Query<'_>,
) -> Result<Operation, Error> {
    let kind = match resource {
        Resource::Service => Kind::Service,
        Resource::Queue(_) => Kind::Queue,
        Resource::Messages(_) => Kind::Messages,
        Resource::Message(..) => Kind::Message,
    };
    let verb = match method.as_str() {
        "DELETE" => Verb::Delete,
        "GET" => Verb::Get,
        "HEAD" => Verb::Head,
        "POST" => Verb::Post,
        "PUT" => Verb::Put,
        "OPTIONS" => return Ok(Operation::PreflightRequest),
        "CONNECT" | "MERGE" | "PATCH" | "TRACE" => return Err(unsupported_verb(kind)),
        _ => return Err(Error::InvalidHttpVerb),
    };
    let selector = selector(kind, query);
    if (verb, kind, selector) == (Verb::Put, Kind::Messages, Selector::None) {
        // A put of the 2008 dialect, which `check_version` checks. No `Allow` names it.
        return Ok(Operation::PutMessage);
    }
    let row = ROUTES
        .iter()
        .find(|Route(v, k, s, _)| *v == verb && *k == kind && *s == selector);
    match row {
        Some(Route(
            _,
            Kind::Service,
            Selector::Properties | Selector::Stats | Selector::UserDelegationKey,
            operation,
        )) => check_restype(query).map(|()| *operation),
        Some(Route(.., operation)) => Ok(*operation),
        None => Err(refuse(verb, kind, selector, query)),
    }
}

fn selector(kind: Kind, query: &Query<'_>) -> Selector {
    match kind {
        Kind::Messages => match query.value("peekonly") {
            None => Selector::None,
            Some(value) if value.eq_ignore_ascii_case("false") => Selector::None,
            Some(_) => Selector::Peek,
        },
        Kind::Message => Selector::None,
        Kind::Service | Kind::Queue => {
            let Some(comp) = query.value("comp") else {
                return Selector::None;
            };
            let is = |name: &&str| comp.eq_ignore_ascii_case(name);
            if is(&"metadata") {
                Selector::Metadata
            } else if is(&"list") {
                Selector::List
            } else if is(&"acl") {
                Selector::Acl
            } else if is(&"properties") {
                Selector::Properties
            } else if is(&"stats") {
                Selector::Stats
            } else if is(&"userdelegationkey") {
                Selector::UserDelegationKey
            } else {
                Selector::Unknown
            }
        }
    }
}

/// Checks that a version has the operation with this verb.
///
/// Refuses with `FeatureVersionMismatch`, and with `UnsupportedHttpVerb` a put of a message's bare
/// bytes from 2009-09-19 on.
pub(crate) fn check_version(
    operation: Operation,
    method: &Method,
    version: Version,
) -> Result<(), Error> {
    if version < operation.since() {
        return Err(Error::FeatureVersionMismatch);
    }
    if is_raw_put(operation, method) && version >= Version::V2009_09_19 {
        return Err(unsupported_verb(Kind::Messages));
    }
    Ok(())
}

/// Whether the whole body is the message, without an envelope: a put of the 2008 dialect.
pub(crate) fn is_raw_put(operation: Operation, method: &Method) -> bool {
    operation == Operation::PutMessage && method == Method::PUT
}

/// `restype`, which is `service` for requests to the service itself and not to its queues.
fn check_restype(query: &Query<'_>) -> Result<(), Error> {
    const NAME: &str = "restype";
    match query.value(NAME) {
        None => Err(Error::MissingRequiredQueryParameter { name: NAME }),
        Some(value) if value.eq_ignore_ascii_case("service") => Ok(()),
        Some(value) => Err(Error::invalid_query(
            NAME,
            value,
            "The value is not service.",
        )),
    }
}

/// Why there is no such route: the verb if the resource never allows it, otherwise the selector.
fn refuse(verb: Verb, kind: Kind, selector: Selector, query: &Query<'_>) -> Error {
    let comp = query.value("comp").unwrap_or_default();
    match selector {
        _ if !verbs_of(kind).any(|allowed| allowed == verb) => unsupported_verb(kind),
        // Reading is the only operation on messages with a selector.
        Selector::Peek => Error::invalid_query(
            "peekonly",
            query.value("peekonly").unwrap_or_default(),
            "Only messages that are read can be peeked at.",
        ),
        Selector::None => Error::MissingRequiredQueryParameter { name: "comp" },
        Selector::List
        | Selector::Metadata
        | Selector::Acl
        | Selector::Properties
        | Selector::Stats
        | Selector::UserDelegationKey
        | Selector::Unknown => {
            Error::invalid_query("comp", comp, "The resource has no such component.")
        }
    }
}

fn unsupported_verb(kind: Kind) -> Error {
    let names: Vec<_> = verbs_of(kind).map(Verb::name).collect();
    Error::UnsupportedHttpVerb {
        allowed: names.join(", ").into(),
    }
}

fn verbs_of(kind: Kind) -> impl Iterator<Item = Verb> {
    VERBS
        .into_iter()
        .filter(move |verb| ROUTES.iter().any(|Route(v, k, ..)| v == verb && *k == kind))
}

/// A request for every row, with the path below the account: rules for all operations are tested
/// with these.
#[cfg(test)]
pub(crate) fn examples() -> impl Iterator<Item = (Operation, &'static str, String)> {
    ROUTES.iter().map(|Route(verb, kind, selector, operation)| {
        let path = match kind {
            Kind::Service => "/",
            Kind::Queue => "/orders",
            Kind::Messages => "/orders/messages",
            Kind::Message => "/orders/messages/00112233-4455-6677-8899-aabbccddeeff",
        };
        let query = tests::query_of(*selector);
        (*operation, verb.name(), format!("{path}?{query}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn query_of(selector: Selector) -> &'static str {
        match selector {
            Selector::None => "timeout=30",
            Selector::List => "COMP=List&prefix=a",
            Selector::Metadata => "comp=meta%64ata",
            Selector::Peek => "numofmessages=1&peekonly=true",
            Selector::UserDelegationKey => "restype=service&comp=userdelegationkey",
            Selector::Acl => "comp=ACL",
            Selector::Properties => "restype=Service&comp=properties",
            Selector::Stats => "comp=stats&restype=service",
            Selector::Unknown => unreachable!(),
        }
    }

    fn find_in(method: &str, kind: Kind, query: &str) -> Result<Operation, Error> {
        let resource = match kind {
            Kind::Service => Resource::Service,
            Kind::Queue => Resource::Queue("q".into()),
            Kind::Messages => Resource::Messages("q".into()),
            Kind::Message => Resource::Message("q".into(), "1".into()),
        };
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        find(&method, &resource, &Query::parse(Some(query)).unwrap())
    }

    #[test]
    fn every_row_is_found() {
        for Route(verb, kind, selector, operation) in ROUTES {
            let query = query_of(selector);
            let found = find_in(verb.name(), kind, query);
            assert_eq!(found.ok(), Some(operation));
        }
    }

    #[test]
    fn a_verb_that_never_fits_names_those_that_do() {
        for (method, kind, expected) in [
            ("POST", Kind::Queue, "DELETE, GET, HEAD, PUT"),
            ("PATCH", Kind::Queue, "DELETE, GET, HEAD, PUT"),
            ("HEAD", Kind::Messages, "DELETE, GET, POST"),
            ("GET", Kind::Message, "DELETE, PUT"),
            ("DELETE", Kind::Service, "GET, POST, PUT"),
        ] {
            match find_in(method, kind, "") {
                Err(Error::UnsupportedHttpVerb { allowed }) => assert_eq!(&*allowed, expected),
                other => panic!("{method}: {other:?}"),
            }
        }
        assert!(matches!(
            find_in("BREW", Kind::Queue, ""),
            Err(Error::InvalidHttpVerb)
        ));
    }

    #[test]
    fn only_the_2008_dialect_puts_bare_bytes() {
        let operation = find_in("PUT", Kind::Messages, "messagettl=5").unwrap();
        assert_eq!(operation, Operation::PutMessage);
        for (method, version, expected) in [
            (Method::PUT, Version::OLDEST, "ok"),
            (Method::PUT, Version::V2009_09_19, "UnsupportedHttpVerb"),
            (Method::POST, Version::OLDEST, "ok"),
            (Method::POST, Version::NEWEST, "ok"),
        ] {
            let checked = check_version(operation, &method, version);
            let code = checked.map_or_else(|error| error.wire().code, |()| "ok");
            assert_eq!(code, expected, "{method} {version}");
        }
    }

    #[test]
    fn a_verb_that_sometimes_fits_blames_the_component() {
        assert!(matches!(
            find_in("GET", Kind::Queue, ""),
            Err(Error::MissingRequiredQueryParameter { name: "comp" })
        ));
        assert!(matches!(
            find_in("DELETE", Kind::Queue, "comp=metadata"),
            Err(Error::InvalidQueryParameterValue { name, .. }) if &*name == "comp"
        ));
        assert!(matches!(
            find_in("PUT", Kind::Queue, "comp=nonsense"),
            Err(Error::InvalidQueryParameterValue { name, .. }) if &*name == "comp"
        ));
        assert!(matches!(
            find_in("GET", Kind::Service, "comp=properties"),
            Err(Error::MissingRequiredQueryParameter { name: "restype" })
        ));
        assert!(matches!(
            find_in("GET", Kind::Service, "restype=queue&comp=stats"),
            Err(Error::InvalidQueryParameterValue { name, .. }) if &*name == "restype"
        ));
    }

    #[test]
    fn peeking_is_reading_messages() {
        for (query, expected) in [
            ("peekonly=false", Operation::GetMessages),
            ("peekonly=%66alse", Operation::GetMessages),
            ("peekonly=TRUE", Operation::PeekMessages),
            ("peekonly=t%72ue", Operation::PeekMessages),
            ("peekonly=perhaps", Operation::PeekMessages),
        ] {
            assert_eq!(find_in("GET", Kind::Messages, query).ok(), Some(expected));
        }
        // A malformed peek must never clear the queue.
        assert!(find_in("DELETE", Kind::Messages, "peekonly=true").is_err());
    }
}
