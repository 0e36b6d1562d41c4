//! Small XML documents, in and out, for both front ends.
//!
//! [`read`] makes a tree of a document from outside. Document types are refused, so the only
//! entities are the five of XML, and depth, elements and attributes are limited: no document costs
//! more than its length. Attributes are read only when they are asked for. [`put_text`] and its like write answers.
//! [`document`] has the checks for code that reads documents in another way.
//!
//! It knows no schema and no protocol. A fault in a document is an [`Error`], which each front end
//! writes in its own form.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test fails by panicking")
)]

pub mod document;
mod error;
mod tree;
mod write;

pub use error::Error;
pub use tree::{Element, parse, read};
pub use write::{DECLARATION, put_attribute, put_element, put_text};
