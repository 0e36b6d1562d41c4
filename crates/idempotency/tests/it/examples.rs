//! The examples run.

#[path = "../../examples/outbox.rs"]
mod outbox;
#[path = "../../examples/transfer.rs"]
mod transfer;

#[test]
fn outbox_runs() {
    outbox::main().unwrap();
}

#[test]
fn transfer_runs() {
    transfer::main().unwrap();
}
