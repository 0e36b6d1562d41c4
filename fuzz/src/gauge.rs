//! Counts the memory of a thread, to detect allocations by unchecked lengths.

#![expect(
    unsafe_code,
    reason = "an allocator needs it, and this one only counts and forwards"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocator of the harnesses: the system's, with a count for each thread.
pub struct Gauge;

thread_local! {
    /// Bytes that this thread has allocated and not freed. Negative if it frees memory of other
    /// threads.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    /// The peak of that count.
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(change: i64) {
    // A thread that is ending has no counters any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX / 4)
}

// SAFETY: every call is forwarded to the system's allocator unchanged, and the counting uses only
// thread-local cells, which need no allocation.
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

/// Runs something and checks that this thread never allocated more than `bytes_max` additional
/// bytes.
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
        "{taken} bytes of memory were allocated, {bytes_max} are allowed"
    );
    result
}
