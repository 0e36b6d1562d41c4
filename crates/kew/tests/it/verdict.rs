//! The rules for every server and every command under test, however it ends: it does not panic, it
//! logs only errors that its test expects, and it exits with the right status.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rustix::process::Signal;

/// How a process should end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// Cleanly.
    InOrder,
    /// By this signal, which the test sent, and not earlier by itself.
    By(Signal),
    /// With an exit code, which its test looks at.
    WithACode,
}

/// The exit code of a Rust program whose main thread panicked.
const CODE_OF_A_PANIC: i32 = 101;

impl Ending {
    fn is(self, status: ExitStatus) -> bool {
        match self {
            Self::InOrder => status.success(),
            Self::By(signal) => status.signal() == Some(signal.as_raw()),
            Self::WithACode => status.code().is_some_and(|code| code != CODE_OF_A_PANIC),
        }
    }
}

/// The faults of a process that has ended; none if all is well. An expected error must be in the
/// log, and a tolerated one may be.
pub(crate) fn faults(
    status: ExitStatus,
    log: &str,
    ending: Ending,
    expected_errors: &[&str],
    tolerated_errors: &[&str],
) -> Vec<String> {
    let mut faults = Vec::new();
    if !ending.is(status) {
        faults.push(format!("it ended with {status} and not {ending:?}"));
    }
    for line in log.lines() {
        let mut known_errors = expected_errors.iter().chain(tolerated_errors);
        let is_expected = known_errors.any(|text| line.contains(text));
        if line.contains("panicked at") || (is_error(line) && !is_expected) {
            faults.push(format!("it logged: {line}"));
        }
    }
    for text in expected_errors {
        if !log
            .lines()
            .any(|line| is_error(line) && line.contains(text))
        {
            faults.push(format!("it logged no error with {text:?}"));
        }
    }
    faults
}

/// Whether a line is an event of the level `ERROR`, in either form of the log.
fn is_error(line: &str) -> bool {
    let level = line.split_whitespace().nth(1);
    level == Some("ERROR") || (line.starts_with('{') && line.contains("\"level\":\"ERROR\""))
}

const FINE: &str = "2026-11-22T22:49:09.123456Z  INFO stopped\n";
const FULL: &str = "2026-11-22T22:49:09.123456Z ERROR the disk is full: messages can be received\n";
const FULL_IN_JSON: &str = "{\"timestamp\":\"2026-11-22T22:49:09Z\",\"level\":\"ERROR\",\"message\":\"the disk is full\"}\n";
const PANIC: &str = "thread 'partition-0' (17) panicked at crates/broker/src/runner.rs:1:1:\nno\n";

#[test]
fn a_process_that_ends_as_it_should_has_no_faults() {
    let by_a_kill = ExitStatus::from_raw(Signal::KILL.as_raw());
    let with_2 = ExitStatus::from_raw(2 << 8);
    for (status, log, ending, expected) in [
        (ExitStatus::default(), FINE, Ending::InOrder, &[][..]),
        (ExitStatus::default(), FULL, Ending::InOrder, &["is full"]),
        (
            ExitStatus::default(),
            FULL_IN_JSON,
            Ending::InOrder,
            &["is full"],
        ),
        (by_a_kill, FINE, Ending::By(Signal::KILL), &[]),
        (with_2, "error: no such flag\n", Ending::WithACode, &[]),
        // A client's text is a value, not a level.
        (
            ExitStatus::default(),
            "20 INFO a client said \"ERROR\"\n",
            Ending::InOrder,
            &[],
        ),
    ] {
        assert_eq!(faults(status, log, ending, expected, &[]), [""; 0], "{log}");
        assert_eq!(faults(status, log, ending, &[], expected), [""; 0], "{log}");
    }
}

#[test]
fn panics_errors_and_other_ends_are_faults() {
    let by_a_kill = ExitStatus::from_raw(Signal::KILL.as_raw());
    let by_an_abort = ExitStatus::from_raw(Signal::ABORT.as_raw());
    let with_1 = ExitStatus::from_raw(1 << 8);
    let after_a_panic = ExitStatus::from_raw(CODE_OF_A_PANIC << 8);
    for (status, log, ending, expected) in [
        (with_1, FINE, Ending::InOrder, &[][..]),
        (by_a_kill, FINE, Ending::InOrder, &[]),
        (with_1, FINE, Ending::By(Signal::KILL), &[]),
        (by_an_abort, FINE, Ending::By(Signal::KILL), &[]),
        (by_an_abort, FINE, Ending::WithACode, &[]),
        (after_a_panic, FINE, Ending::WithACode, &[]),
        (ExitStatus::default(), FULL, Ending::InOrder, &[]),
        (ExitStatus::default(), FULL_IN_JSON, Ending::InOrder, &[]),
        (
            ExitStatus::default(),
            FULL,
            Ending::InOrder,
            &["is full", "TLS"],
        ),
        (by_a_kill, PANIC, Ending::By(Signal::KILL), &[]),
    ] {
        assert_eq!(faults(status, log, ending, expected, &[]).len(), 1, "{log}");
    }
}
