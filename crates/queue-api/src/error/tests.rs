//! Refusals and rejections on the wire.

use super::*;
use kew_engine::storage::StorageRefusal;

fn check(refusal: Refusal, version: Version, status: u16, code: &str) {
    let wire = Error::of_rejection(Rejection::Refused(refusal), version).wire();
    assert_eq!((wire.status.as_u16(), wire.code), (status, code));
}

#[test]
fn refusals_and_rejections() {
    let newest = Version::NEWEST;
    let queue = || "q".into();
    check(
        Refusal::Storage(StorageRefusal::QueueNotFound { queue: queue() }),
        newest,
        404,
        "QueueNotFound",
    );
    check(
        Refusal::Storage(StorageRefusal::QueueAlreadyExists { queue: queue() }),
        newest,
        409,
        "QueueAlreadyExists",
    );
    check(
        Refusal::Storage(StorageRefusal::MessageNotFound),
        newest,
        404,
        "MessageNotFound",
    );
    check(
        Refusal::Storage(StorageRefusal::PopReceiptMismatch),
        newest,
        404,
        "MessageNotFound",
    );
    check(
        Refusal::Storage(StorageRefusal::PopReceiptMismatch),
        Version::V2009_09_19,
        404,
        "MessageNotFound",
    );
    check(
        Refusal::Storage(StorageRefusal::PopReceiptMismatch),
        Version::OLDEST,
        400,
        "PopReceiptMismatch",
    );
    check(
        Refusal::Storage(StorageRefusal::HiddenBeyondExpiry {
            visibility_timeout_seconds: 5,
            time_to_live_seconds: 5,
        }),
        newest,
        400,
        "InvalidQueryParameterValue",
    );
    check(
        Refusal::Storage(StorageRefusal::BodyTooLarge {
            size_bytes: 2,
            limit_bytes: 1,
        }),
        newest,
        413,
        "RequestBodyTooLarge",
    );
    check(
        Refusal::Storage(StorageRefusal::AccountQuotaExceeded {
            account: "acct".into(),
            limit: QuotaLimit::Queues,
            needed: 2,
            allowed: 1,
        }),
        newest,
        403,
        "AccountQuotaExceeded",
    );
    check(Refusal::AlreadyInitialized, newest, 500, "InternalError");
    for (rejection, status, code) in [
        (Rejection::Busy, 503, "ServerBusy"),
        (Rejection::Full, 503, "ServerBusy"),
        (Rejection::NotOwner, 503, "ServerBusy"),
        (Rejection::Stopped, 500, "InternalError"),
        (Rejection::Unknown, 500, "OperationTimedOut"),
    ] {
        let wire = Error::of_rejection(rejection, newest).wire();
        assert_eq!((wire.status.as_u16(), wire.code), (status, code));
    }
}

#[test]
fn a_full_disk_is_named_in_the_text() {
    let wire = Error::of_rejection(Rejection::Full, Version::NEWEST).wire();
    assert!(wire.message.contains("disk of the server is full"));
}

#[test]
fn details_of_a_refusal() {
    let refusal = Refusal::Storage(StorageRefusal::HiddenBeyondExpiry {
        visibility_timeout_seconds: 7,
        time_to_live_seconds: 5,
    });
    let mut shown = String::new();
    Error::of_rejection(Rejection::Refused(refusal), Version::NEWEST)
        .details(|name, text| shown.push_str(&format!("{name}={text};")));
    assert_eq!(
        shown,
        "QueryParameterName=visibilitytimeout;QueryParameterValue=7;\
         Reason=messagettl must be greater than visibilitytimeout;"
    );
}
