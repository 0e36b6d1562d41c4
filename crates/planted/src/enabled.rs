//! What plants bugs. It is compiled for the simulation alone.

use std::any::Any;
use std::cell::{Cell, RefCell};

use super::{Bug, Seam};

/// Marks a binary that contains the bugs: look for these bytes in it.
#[used]
static MARKER: [u8; 35] = *b"kew-planted: bugs are compiled in!\n";

/// A planted bug: alters values at the seams that concern it. What [`pass`] carries comes as a list of one value,
/// and what is in the list afterwards goes on.
pub type Hook = Box<dyn FnMut(Seam, &mut dyn Any)>;

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Whether this bug is planted on this thread.
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether any bug is planted on this thread.
pub fn is_any_planted() -> bool {
    PLANTED.get().is_some() || has_hook()
}

/// Does something with each of the values that a value has become at a seam.
pub fn pass<T: Any>(seam: Seam, value: T, mut work: impl FnMut(T)) {
    if !has_hook() {
        return work(value);
    }
    let mut values = vec![value];
    alter(seam, &mut values);
    values.into_iter().for_each(work);
}

/// The same for a borrowed value.
pub fn pass_ref<T: Any + Clone>(seam: Seam, value: &T, mut work: impl FnMut(&T)) {
    match has_hook() {
        true => pass(seam, value.clone(), |value| work(&value)),
        false => work(value),
    }
}

fn has_hook() -> bool {
    HOOK.with_borrow(Option::is_some)
}

/// Lets the planted bug alter a value.
pub fn alter<T: Any>(seam: Seam, value: &mut T) {
    HOOK.with_borrow_mut(|hook| {
        if let Some(hook) = hook {
            hook(seam, value);
        }
    });
}

/// Runs `work` with this bug planted on this thread.
pub fn with<T>(bug: Bug, work: impl FnOnce() -> T) -> T {
    let _uproot = Uproot(PLANTED.replace(Some(bug)), HOOK.take());
    work()
}

/// Runs `work` with a bug at seams planted on this thread.
pub fn with_hook<T>(hook: Hook, work: impl FnOnce() -> T) -> T {
    let _uproot = Uproot(PLANTED.take(), HOOK.replace(Some(hook)));
    work()
}

/// Restores what was planted before, also when the work panics.
struct Uproot(Option<Bug>, Option<Hook>);

impl Drop for Uproot {
    fn drop(&mut self) {
        PLANTED.set(self.0);
        HOOK.set(self.1.take());
    }
}
