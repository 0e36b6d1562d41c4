//! Signatures: of requests to Queue Storage, and shared access signatures of both services.

mod queue_sas;
mod sas_rule;
mod shared_key;

pub use queue_sas::{QueueSas, SasError};
pub use sas_rule::SasRule;
pub(crate) use shared_key::FEW;
pub use shared_key::{HttpRequest, SharedKey};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// What is not encoded in paths and queries.
pub(crate) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
