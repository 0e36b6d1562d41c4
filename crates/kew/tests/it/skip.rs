//! What a test says when the machine cannot run it.

use std::io::Write as _;

/// Says that a test cannot run here, for want of something that is to be installed or allowed.
///
/// Under `KEW_STRICT=1`, and in continuous integration (`CI=true`), the test fails instead. The line begins with
/// `SKIPPED`, so that the gate can count it, and is not captured with the output of a test that passes.
#[track_caller]
pub(crate) fn skip(test: &str, why: &str, remedy: &str) {
    let is_set = |name: &str, value: &str| std::env::var(name).is_ok_and(|is| is == value);
    assert!(
        !is_set("KEW_STRICT", "1") && !is_set("CI", "true"),
        "{test} cannot run: {why}: {remedy}"
    );
    // In one write, so that no other test prints in between. It begins a line where another one may be open.
    let line = format!("\nSKIPPED {test}: {why}: {remedy}\n");
    // Who does not listen hears of it by the exit status alone.
    let _ = std::io::stdout().write_all(line.as_bytes());
}
