//! Seeds that once broke a promise, or that go through many rare states.

use crate::support::run;

#[test]
fn seeds_that_failed_once_hold() {
    let mut seeds = 0;
    for line in include_str!("../../regressions.txt").lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next().and_then(|word| word.parse().ok());
        let (Some(seed), Some(operations)) = (number(), number()) else {
            panic!("not a seed, a number of operations, and why: {line}");
        };
        assert!(words.next().is_some(), "why is missing: {line}");
        run(seed, operations);
        seeds += 1;
    }
    assert!(seeds > 0);
}
