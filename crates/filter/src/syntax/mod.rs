//! The text of a rule: words, grammar, tree.

mod lexer;
mod parser;
pub(crate) mod tree;

pub use parser::Parameters;
pub(crate) use parser::{escape_of, parse_action, parse_filter, pattern_of};
