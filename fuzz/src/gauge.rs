//! Counts the memory that a thread takes, so that a length that nobody checked shows.

#![expect(
    unsafe_code,
    reason = "an allocator cannot be written without, and it only counts and passes on"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocator of the harnesses: the system's, with a count for each thread.
pub struct Gauge;

thread_local! {
    /// Bytes that this thread has taken and not given back. Below zero if it frees for others.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    /// The highest that the count has been.
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(change: i64) {
    // A thread that is ending has nothing to count with, and nothing to count.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX / 4)
}

// SAFETY: every call is passed on to the system's allocator unchanged, and the counting touches
// only cells of the thread, which need no memory of their own.
unsafe impl GlobalAlloc for Gauge {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps the rules of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller keeps the rules of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: the caller keeps the rules of `realloc`.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// Runs something and checks that this thread never held more than so many bytes more.
///
/// Only where [`Gauge`] is the global allocator.
///
/// # Panics
///
/// If it held more.
pub fn within<T>(bytes_max: usize, run: impl FnOnce() -> T) -> T {
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let result = run();
    let taken = PEAK.with(Cell::get) - before;
    assert!(
        taken <= signed(bytes_max),
        "{taken} bytes of memory were taken, {bytes_max} are allowed"
    );
    result
}
