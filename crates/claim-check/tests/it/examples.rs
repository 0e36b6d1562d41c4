//! The examples run.

#[path = "../../examples/claim_check.rs"]
mod claim_check;

#[test]
fn claim_check_runs() {
    claim_check::main().unwrap();
}
