//! Who may do what.
//!
//! - `rights`: what there is to be allowed, and rules with their keys; `operation`: the right that each operation
//!   needs;
//! - `sas`, `bad_token`: signatures of rules; `grant`: what one credential allows; `credential`: what a client has
//!   shown; `grants`: what all credentials of a connection allow;
//! - `description`: what is stored with a queue besides its settings, with its rules; `rules`: the rules in the
//!   log, as a kind of principals;
//! - `authority`: judges credentials; `put_token`: those that a client puts to the node `$cbs`.

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
