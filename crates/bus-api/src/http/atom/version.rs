//! What a version of the management API knows about queues.

use crate::http::answers::HttpError;
use crate::http::call::Head;

use super::asked::Asked;
use super::described::description_name;

/// The first version in which queues have a `MaxMessageSizeInKilobytes`.
const MESSAGE_SIZE_SINCE: &str = "2021-05";

/// The version that a request names. Any is accepted; a request without one gets the newest.
#[derive(Clone, Copy, Debug)]
pub(super) struct ApiVersion<'a>(Option<&'a str>);

impl<'a> ApiVersion<'a> {
    pub(super) fn of(head: &'a Head) -> Self {
        Self(head.parameter("api-version"))
    }

    /// Whether queues have a maximum message size in this version. Versions are years and months,
    /// so their order is that of their texts.
    pub(super) fn has_message_size(self) -> bool {
        self.0.is_none_or(|version| version >= MESSAGE_SIZE_SINCE)
    }

    /// Refuses a description with properties that the version does not know.
    ///
    /// Source: the service's answers to the Python SDK's tests of version 2017-04.
    pub(super) fn check(self, asked: &Asked) -> Result<(), HttpError> {
        if self.has_message_size() || asked.max_message_size_kilobytes.is_none() {
            return Ok(());
        }
        let version = self.0.unwrap_or_default();
        let name = description_name(asked.kind);
        Err(HttpError::bad_request(format!(
            "The entity description of type '{name}' has unsupported properties for \
             api-version '{version}' in the request. Try including the correct api-version query string \
             in the request."
        )))
    }
}
