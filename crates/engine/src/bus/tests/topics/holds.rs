//! Bodies of copies whose lender a gap has hidden.

use super::*;
use crate::vocabulary::Place;

impl Partition {
    fn holds_in(&self, name: &str) -> Vec<Hold> {
        let of = self.state.catalogue.find(&subscription(name)).unwrap();
        let messages = self.state.bus[&of].backlog.messages();
        messages.map(|message| message.body.hold()).collect()
    }
}

#[test]
fn a_borrower_counts_a_body_whose_lender_is_lost() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b", "c"]);
    p.publish(vec![text("one"), text("two")]).unwrap();
    let all_of = |hold| vec![hold; 2];
    assert_eq!(p.holds_in("a"), all_of(Hold::Lends));
    let size_bytes = p.view(&topic()).counts.size_bytes;
    let entity = p.state.catalogue.find(&subscription("a")).unwrap();
    let number = SequenceNumber::FIRST;
    p.cold = None;
    let ended = p.state.ended(Place { entity, number }).unwrap();
    p.state.apply(Event {
        at: p.now,
        fact: ended,
    });
    p.state.complete_holds();
    assert_eq!(p.holds_in("a"), [Hold::Lends]);
    assert_eq!(p.holds_in("b"), [Hold::Lends, Hold::Borrows]);
    assert_eq!(p.holds_in("c"), all_of(Hold::Borrows));
    assert_eq!(
        p.view(&topic()).counts.size_bytes,
        size_bytes - OVERHEAD_BYTES
    );
    p.state.check_live_bytes();
    // Nothing is left to do.
    p.state.complete_holds();
    assert_eq!(p.holds_in("b"), [Hold::Lends, Hold::Borrows]);
}
