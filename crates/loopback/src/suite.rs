//! Runs the tests of a front end again, over a connection.

use std::env;
use std::process::Command;

use kew_broker::{AdmissionLimits, Broker};

/// Set for the tests that run over a connection.
const DOOR: &str = "KEW_TEST_DOOR";

/// The handle that a front end gets in a test: over a connection while [`run_again`] runs the test. To be called within a
/// runtime of Tokio.
pub fn handle_for_test(broker: Broker) -> Broker {
    match env::var_os(DOOR) {
        Some(_) => crate::connect(&broker, AdmissionLimits::default()).0,
        None => broker,
    }
}

/// Runs all tests of this program again, but those with these names, over a connection. The caller is one of them. Without
/// effect within such a run.
///
/// # Panics
///
/// If one of them fails, or fewer than `least` pass.
pub fn run_again(but: &[&str], least: usize) {
    if env::var_os(DOOR).is_some() {
        return;
    }
    let program = env::current_exe().expect("a test knows its program");
    let mut command = Command::new(program);
    command.env(DOOR, "bytes");
    for name in but {
        command.args(["--skip", name]);
    }
    let output = command.output().expect("a test can start itself");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "over a connection:\n{text}\n{errors}"
    );
    let passed = text.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(
        passed >= least,
        "only {passed} tests have run over a connection"
    );
}
