//! Large and grouped messages: the data lies in an object store, and the message refers to it.
//!
//! - [`ClaimCheck::check_in`] turns [`Content`] into the body of a message. Small data travels in the message; large
//!   data is compressed and stored, and the message has its name, length and hash.
//! - [`ClaimCheck::check_out`] turns the body of a message into its content. It checks length and hash, and returns no
//!   more than it is allowed to.
//! - [`ClaimCheck::release`] removes the object after the settlement of its message, and [`ClaimCheck::sweep`] removes
//!   objects that no message refers to any more. [`ClaimCheck::keep`] keeps the object of a message that is buried.
//! - A [`Group`] puts several messages into one.
//! - [`ClaimStore`] is the store: a folder, memory, or any store of `object_store`.
//!
//! With the feature `worker`, `Checked` and `CheckedGroup` are codecs of `kew-worker`
//! that do all of it at the right time. Without it the crate knows no queue and no listener. `docs/claim-check.md`
//! describes the messages and objects for other languages.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod check;
mod codec;
mod content;
mod envelope;
mod error;
mod group;
mod name;
mod options;
mod store;
mod sweep;
#[cfg(feature = "worker")]
mod worker;

pub use check::{Claim, ClaimCheck, Incoming, Outgoing};
pub use content::{Body, Content};
pub use envelope::CONTENT_TYPE;
pub use error::{Error, ErrorKind};
pub use group::Group;
pub use options::ClaimCheckOptions;
pub use store::ClaimStore;
pub use sweep::Swept;
#[cfg(feature = "worker")]
pub use worker::{CLAIM_DAMAGED, CLAIM_MISSING, CLAIM_TOO_LARGE, Checked, CheckedGroup};

/// The stores of the clouds, and the trait behind all of them.
pub use object_store;
