//! The message of a test that the machine cannot run.

use std::io::Write as _;

/// Reports that a test cannot run here, because something must be installed or allowed.
///
/// With `KEW_STRICT=1`, and in continuous integration (`CI=true`), the test fails instead. The line
/// begins with `SKIPPED`, so that the gate can count it, and is printed even if the test passes.
#[track_caller]
pub(crate) fn skip(test: &str, why: &str, remedy: &str) {
    let is_set = |name: &str, value: &str| std::env::var(name).is_ok_and(|is| is == value);
    assert!(
        !is_set("KEW_STRICT", "1") && !is_set("CI", "true"),
        "{test} cannot run: {why}: {remedy}"
    );
    // One write, so that no other test prints in between. The line feed comes first because another
    // line may be open.
    let line = format!("\nSKIPPED {test}: {why}: {remedy}\n");
    // If standard output is closed, only the exit status remains.
    let _ = std::io::stdout().write_all(line.as_bytes());
}
