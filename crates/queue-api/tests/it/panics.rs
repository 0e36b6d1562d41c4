//! A panic of a server inside the test process ends the whole run.
//!
//! The runtime and the server itself catch such a panic: the client sees a closed connection, or an
//! error of the server, and the test may expect either.

use std::io::Write as _;
use std::panic;
use std::sync::Once;

/// Called by every function that starts such a server.
pub(crate) fn fail_on_panics_of_the_server() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            usual(info);
            if info
                .location()
                .is_some_and(|at| is_of_the_server(at.file()))
            {
                // Not with a macro: their output is lost with the test.
                let _ = writeln!(std::io::stderr(), "the server under test panicked: {info}");
                std::process::abort();
            }
        }));
    });
}

/// Whether a file is one of ours and not a test.
fn is_of_the_server(file: &str) -> bool {
    file.starts_with("crates/") && file.contains("/src/")
}

#[test]
fn panics_of_tests_and_libraries_are_distinguished_from_the_servers() {
    assert!(is_of_the_server("crates/broker/src/runner.rs"));
    assert!(!is_of_the_server(file!()), "{}", file!());
    assert!(!is_of_the_server(
        "/home/a/.cargo/registry/src/index/tokio-1.0.0/src/lib.rs"
    ));
    // This is how the compiler names our files.
    assert!(file!().starts_with("crates/"), "{}", file!());
}
