//! Pages that processes have written which count bytes in different units of positions: a page says in which its own are.

use super::super::left;
use super::{DIRECTORY, ENTITY, HEADS, Queue, parts};
use crate::state::State;
use crate::table::CountUnit;

#[test]
fn runs_and_their_directory_can_be_of_two_units() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..3000);
    queue.snapshot();
    // The next start counts in another unit. The runs that do not change keep their pages.
    let other = || State::counting_in(CountUnit::at_most(1 << 16));
    queue.state = queue.store.restored_into(other());
    queue.lease(5..6);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    for state in [State::new(), other()] {
        let restored = queue.store.restored_into(state);
        assert_eq!(parts(&restored), parts(&queue.state));
        assert_eq!(restored.healed_runs(), 0);
        restored.check_live_bytes();
    }
    // A repair takes a run's page as that of its directory, too.
    queue.delete(1..4);
    queue.snapshot();
    left::check_whole(&queue, 4..3000);
}
