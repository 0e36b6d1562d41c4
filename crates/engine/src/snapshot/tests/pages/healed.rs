//! A page that says something else than its messages: a start takes what the messages say.

use super::{DIRECTORY, ENTITY, HEADS, Queue, body, place};
use crate::effect::{Bodies, Was};
use crate::storage::Effect;
use crate::vocabulary::BodyLocation;

/// A message ends, and its effect says that its body was shorter.
fn delete_wrongly(queue: &mut Queue, number: u64) {
    let sent = BodyLocation {
        length: 60,
        ..body(number)
    };
    let ended = Effect::Ended {
        at: place(number),
        was: Was::default(),
        bodies: Bodies {
            sent,
            overlays: Vec::new(),
        },
        source_length: None,
    };
    queue.effects(std::iter::once(ended));
}

#[test]
fn a_start_counts_anew_what_wrong_effects_have_counted() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..3000);
    queue.snapshot();
    assert_eq!(queue.store.restored().healed_runs(), 0);
    delete_wrongly(&mut queue, 5);
    delete_wrongly(&mut queue, 2000);
    queue.snapshot();
    queue.state = queue.store.restored();
    assert_eq!(queue.state.healed_runs(), 2);
    queue.state.check_live_bytes();
    // The next snapshot says what is right.
    assert_eq!(queue.snapshot(), [DIRECTORY]);
    assert_eq!(queue.store.restored().healed_runs(), 0);
    queue.check();
    // Changes behind it are as usual.
    queue.lease(7..9);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    queue.check();
}
