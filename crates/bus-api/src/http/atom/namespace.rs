//! Information on the namespace.

use hyper::StatusCode;
use kew_engine::Timestamp;
use kew_xml::put_element;

use super::document::{CONTENT_NAMESPACES, Entry, close, open};
use crate::authorization::operation::HttpOperation;
use crate::ground::constants::NAMESPACE;
use crate::http::answers::times::rfc3339;
use crate::http::answers::{Answer, HttpError};
use crate::http::call::Call;
use crate::shared::Shared;

/// The tier with the closest limits: messages of 1 MiB, and no quota of operations.
const SKU: &str = "Premium";
/// One, since there is one server.
const MESSAGING_UNITS: &str = "1";

/// Source: Service Bus, *Get namespace information*.
pub(super) fn read(shared: &Shared, call: &Call) -> Result<Answer, HttpError> {
    call.require(HttpOperation::ReadNamespace, &call.head.path)?;
    // A namespace has no creation time: it is as old as its server.
    let started_at = Timestamp::from_ms(shared.started_at_ms);
    let entry = Entry {
        title: NAMESPACE,
        path: call.head.path.as_str().into(),
        published_at: started_at,
        updated_at: started_at,
    };
    Ok(entry.answer(call, StatusCode::OK, |out| {
        open(out, "NamespaceInfo", CONTENT_NAMESPACES);
        put_element(out, "CreatedTime", &rfc3339(started_at));
        put_element(out, "MessagingSKU", SKU);
        put_element(out, "MessagingUnits", MESSAGING_UNITS);
        put_element(out, "ModifiedTime", &rfc3339(started_at));
        put_element(out, "Name", NAMESPACE);
        put_element(out, "NamespaceType", "Messaging");
        close(out, "NamespaceInfo");
    }))
}
