//! A broken promise, with everything that is needed to reproduce it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::checker::Violation;

/// A case that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The value of `KEW_DISK_CASE` for a replay.
    pub case: String,
    /// The value of `KEW_DISK_SEED` for a replay.
    pub seed: u64,
    /// Where in the case.
    pub place: String,
    /// The broken promise.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            case,
            seed,
            place,
            violation,
        } = self;
        write!(
            f,
            "{case}: {place}: {violation}\nreplay: KEW_DISK_CASE='{case}' KEW_DISK_SEED={seed} cargo test --profile gate -p kew-sim --test disk -- --nocapture"
        )
    }
}

/// Runs a case, which records its place; a panic breaks a promise too.
pub(super) fn guard<T>(
    case: &str,
    seed: u64,
    run: impl FnOnce(&mut String) -> Result<T, Violation>,
) -> Result<T, Box<Failure>> {
    let mut place = String::new();
    let result = catch_unwind(AssertUnwindSafe(|| run(&mut place)));
    let violation = match result {
        Ok(Ok(counts)) => return Ok(counts),
        Ok(Err(violation)) => violation,
        Err(panic) => Violation {
            promise: "no panic",
            seen: panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_else(|| "a panic without a message".to_owned()),
        },
    };
    Err(Box::new(Failure {
        case: case.to_owned(),
        seed,
        place,
        violation,
    }))
}
