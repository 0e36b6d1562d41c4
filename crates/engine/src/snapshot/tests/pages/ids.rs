//! Remembered ids as pages.

use super::{DIRECTORY, HEADS, Queue};
use crate::snapshot::pages::{PAGE_VERSION, kind};
use crate::snapshot::{PageBytes, RestoringPages};
use crate::state::State;
use crate::vocabulary::codec::put_varint;
use crate::vocabulary::column::put_column;
use crate::vocabulary::elements::put_time;
use crate::vocabulary::{Incarnation, PageNumber, Timestamp};

pub(in crate::snapshot::tests) const BUS_QUEUE: u64 = 5;

/// A bus queue with a window, and its two sub-queues.
const BUS_PARTS: [&[u8]; 3] = [
    b" \x01\x05\x02\x02ns\x04jobs\x01\x00\xe0\xd4\x03\x0a\xff\xff\xff\xff\xff\xff\xff\xff\
      \xff\x01\x01\x01\xa0\x9c\x01\x00\xe0\xa7\x12\x00\x01\x04dead\x03\xe8\x07d\x04text\
      \xe9\x07\xe9\x07\xe9\x07\xca\x01\x01",
    b" \x01\x06\x02\x02ns\x15jobs/$deadletterqueue\x02\x05\xe0\xd4\x03\x0a\xff\xff\xff\xff\
      \xff\xff\xff\xff\xff\x01\x01\x01\xa0\x9c\x01\x00\xe0\xa7\x12\x00\x01\x04dead\x03\xe8\
      \x07d\x04text\xe9\x07\xe9\x07\xe9\x07\x01\x00",
    b" \x01\x07\x02\x02ns\x1fjobs/$transfer/$deadletterqueue\x03\x05\xe0\xd4\x03\x0a\xff\
      \xff\xff\xff\xff\xff\xff\xff\xff\x01\x01\x01\xa0\x9c\x01\x00\xe0\xa7\x12\x00\x01\x04\
      dead\x03\xe8\x07d\x04text\xe9\x07\xe9\x07\xe9\x07\x01\x00",
];

/// With ids that were seen a millisecond after each other, from a time on.
pub(in crate::snapshot::tests) fn remember(queue: &mut Queue, from_ms: u64, count: u64) {
    for part in BUS_PARTS {
        queue.state.restore(part).unwrap();
    }
    let mut ids = vec![0x22, 1, 5];
    for number in 0..count {
        ids.extend_from_slice(&u128::from(number).to_be_bytes());
        put_time(&mut ids, Timestamp::from_ms(from_ms + number));
    }
    queue.state.restore(&ids).unwrap();
}

fn forget_before(queue: &mut Queue, ms: u64) {
    let there = queue
        .state
        .bus
        .get_mut(&Incarnation::new(BUS_QUEUE))
        .unwrap();
    there.duplicates.keep_from(Timestamp::from_ms(ms));
}

fn known(state: &State) -> Vec<(u128, Timestamp)> {
    state.bus[&Incarnation::new(BUS_QUEUE)]
        .duplicates
        .iter()
        .collect()
}

#[test]
fn ids_that_are_dropped_stay_on_the_page_of_their_block() {
    let mut queue = Queue::new();
    remember(&mut queue, 10_000, 3000);
    assert_eq!(queue.snapshot(), [HEADS, kind::IDS, kind::IDS, kind::IDS]);
    assert_eq!(queue.snapshot(), []);
    for ms in [
        10_100, 10_101, // The first block goes, and a part of the second one.
        11_500, // The second one goes as a whole.
        12_048,
    ] {
        forget_before(&mut queue, ms);
        assert_eq!(queue.snapshot(), [HEADS], "{ms}");
        assert_eq!(queue.snapshot(), [], "{ms}");
        assert_eq!(known(&queue.store.restored()), known(&queue.state));
    }
    assert_eq!(known(&queue.state).len(), 952);
    assert!(!queue.store.pages.iter().any(|it| it.1.kind == DIRECTORY));
}

/// Each would move all that were restored before.
#[test]
fn ids_whose_times_fall_are_refused() {
    let at = |ms: u64| (Timestamp::from_ms(ms), u128::from(ms));
    let page = |ids: &[(Timestamp, u128)]| {
        let mut bytes = vec![PAGE_VERSION, 5];
        put_varint(&mut bytes, ids.len() as u64);
        let times: Vec<u64> = ids.iter().map(|(at, _)| at.as_ms()).collect();
        put_column(&mut bytes, &times);
        for (_, hash) in ids {
            bytes.extend_from_slice(&hash.to_be_bytes());
        }
        PageBytes {
            kind: kind::IDS,
            groups: vec![bytes],
        }
    };
    let restored = |pages: &[PageBytes]| {
        let mut queue = Queue::new();
        remember(&mut queue, 0, 0);
        let mut restoring = RestoringPages::default();
        pages.iter().try_for_each(|page| {
            let number = PageNumber::new(1);
            let groups = [&page.groups[0][..]];
            (queue.state).restore_page(&mut restoring, number, page.kind, &groups)
        })
    };
    assert!(restored(&[page(&[at(1), at(5)]), page(&[at(5), at(6)])]).is_ok());
    assert!(restored(&[page(&[at(5), at(1)])]).is_err());
    assert!(restored(&[page(&[at(1), at(5)]), page(&[at(4), at(6)])]).is_err());
}
