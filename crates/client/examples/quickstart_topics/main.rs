//! The program that docs/quickstart-topics.md shows. `conformance/examples/run` checks that it is the same.

#![expect(clippy::print_stdout, reason = "it prints what it receives")]

include!("program.rs");
