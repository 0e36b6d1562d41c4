//! Shared code of the suites: numbers from the environment, all cores, and the case to replay.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub(crate) fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

pub(crate) fn seed() -> u64 {
    number("KEW_DISK_SEED", 1)
}

/// Whether to run this case: all run unless one is being replayed.
pub(crate) fn is_wanted(case: &str) -> bool {
    replayed().is_none_or(|wanted| wanted == case)
}

pub(crate) fn replayed() -> Option<String> {
    std::env::var("KEW_DISK_CASE").ok()
}

/// Runs `work` for 0..count on all cores, and folds the results.
pub(crate) fn on_all_cores<S: Default + Send>(
    count: usize,
    work: impl Fn(usize) -> S + Sync,
    add: impl Fn(&mut S, &S) + Sync,
) -> S {
    let next = AtomicUsize::new(0);
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let worker = || {
            let mut sum = S::default();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return sum;
                }
                add(&mut sum, &work(index));
            }
        };
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        let mut all = S::default();
        for worker in workers {
            add(&mut all, &worker.join().expect("its message is above"));
        }
        all
    })
}
