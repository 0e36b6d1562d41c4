//! Principals of both services: accounts of Queue Storage and authorization rules of Service Bus.
//!
//! A principal has a name and two keys. Clients sign with either key, so an administrator can replace
//! one key while clients use the other. [`Principals`] is the one place that changes principals. It makes
//! one change at a time: first durable, then in force. What is in force was read in the present epoch of the log: see
//! [`Served`].
//!
//! This crate knows no protocol, no quota and no right. Each front end describes its own principals with
//! [`Kind`]: how they are stored, their other settings, and the snapshot that requests are judged by.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod error;
mod key;
mod served;
mod store;

pub use error::PrincipalError;
pub use key::{InvalidKey, Key, NoRandomBytes, Secret, WhichKey};
pub use served::{InForce, Served};
pub use store::{Kind, Principals, Step};
