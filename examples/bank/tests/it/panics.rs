//! A panic of Kew inside the test process ends the whole run: the runtime catches it, and a client sees only a closed
//! connection.

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
            let file = info.location().map_or("", |at| at.file());
            if file.starts_with("crates/") && file.contains("/src/") {
                // Not with a macro: their output is lost with the test.
                let _ = writeln!(std::io::stderr(), "the server under test panicked: {info}");
                std::process::abort();
            }
        }));
    });
}
