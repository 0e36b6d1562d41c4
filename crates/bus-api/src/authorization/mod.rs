//! Authorization: credentials, and the rights that they give.
//!
//! - `rights`: the rights, and rules with their keys; `operation`: the right that each operation needs;
//! - `sas`: signatures of rules; `bad_token`: why a credential is refused; `credential`: the credentials that clients
//!   have presented; `grant`: the rights of one credential; `grants`: those of all credentials of a connection;
//! - `description`: the data of a queue besides its settings, with its rules; `rules`: the rules in the log, as a
//!   kind of principals;
//! - `authority`: judges credentials; `put_token`: tokens that clients put to the node `$cbs`.

pub(crate) mod authority;
pub(crate) mod bad_token;
pub(crate) mod credential;
pub(crate) mod description;
pub(crate) mod grant;
pub(crate) mod grants;
pub(crate) mod operation;
pub(crate) mod put_token;
pub(crate) mod rights;
pub(crate) mod rules;
pub(crate) mod sas;
