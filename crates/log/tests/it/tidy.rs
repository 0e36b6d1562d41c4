//! What a log asks of its owner so that space follows what is live, through the trait that an owner has.

use std::collections::BTreeMap;
use std::ops::Range;

use kew_log::{
    BootTime, Fault, FaultyStorage, LiveBytes, LocalLog, LogPosition, Repeat, SegmentSpan, Storage,
    Tidied, VictimEnd,
};

use crate::node::{Node, Told, of_size};

/// Small beside a segment, and large enough that a look takes no time.
const UNIT_BYTES: u64 = 1024;

/// Live bytes by position.
#[derive(Clone, Debug, Default)]
struct Bodies(BTreeMap<LogPosition, u64>);

impl LiveBytes for Bodies {
    fn bytes_in(&self, positions: Range<LogPosition>) -> u64 {
        self.0.range(positions).map(|(_, bytes)| bytes).sum()
    }

    fn unit_bytes(&self) -> u64 {
        UNIT_BYTES
    }

    fn units_around(&self, positions: Range<LogPosition>) -> Range<LogPosition> {
        let first = positions.start.as_u64() / UNIT_BYTES * UNIT_BYTES;
        let end = positions.end.as_u64().next_multiple_of(UNIT_BYTES);
        LogPosition::new(first)..LogPosition::new(end)
    }
}

/// Live bytes that are not to be counted.
struct NotAsked;

impl LiveBytes for NotAsked {
    fn bytes_in(&self, _: Range<LogPosition>) -> u64 {
        panic!("nothing is due")
    }
}

fn at_ms(ms: u64) -> BootTime {
    BootTime::ZERO.plus_ms(ms)
}

/// A log of many segments, whose first look is a second after this.
fn filled() -> (Node, Told) {
    let (mut node, mut told) = (Node::open(&FaultyStorage::new()).unwrap(), Told::default());
    assert_eq!(tidy(&mut node, 0, &NotAsked), Tidied::default());
    for _ in 0..100 {
        node.background().unwrap();
        node.send(5, &mut told).unwrap();
        node.commit(&mut told).unwrap();
    }
    node.background().unwrap();
    (node, told)
}

/// As an idle owner.
fn tidy(node: &mut Node, ms: u64, live: &dyn LiveBytes) -> Tidied {
    LocalLog::tidy(&mut node.log, at_ms(ms), live, true)
}

fn spans(node: &Node) -> Vec<SegmentSpan> {
    LocalLog::files(&node.log).unwrap().segments().collect()
}

/// Each segment has so many live bytes.
fn in_each(node: &Node, bytes: u64) -> Bodies {
    let spans = spans(node).into_iter();
    Bodies(spans.map(|span| (middle(span), bytes)).collect())
}

/// A position that shares no unit with another segment.
fn middle(span: SegmentSpan) -> LogPosition {
    let size_bytes = span.end.as_u64() - span.first.as_u64();
    span.first.plus(size_bytes / 2)
}

/// The units of a segment.
fn units(span: SegmentSpan) -> Range<LogPosition> {
    let first = span.first.as_u64() / UNIT_BYTES * UNIT_BYTES;
    let end = span.end.as_u64().next_multiple_of(UNIT_BYTES);
    LogPosition::new(first)..LogPosition::new(end)
}

#[test]
fn dead_segments_make_it_want_two_snapshots_and_then_it_rests() {
    let (mut node, mut told) = filled();
    let nothing = Bodies::default();
    let before = spans(&node).len();
    assert!(before > 5);
    let (mut snapshots, mut looks) = (0, 0);
    while let Some(at) = LocalLog::next_wake(&node.log) {
        looks += 1;
        assert!(looks < 100, "it looks forever");
        let tidied = LocalLog::tidy(&mut node.log, at, &nothing, true);
        assert_eq!(tidied.victim, None, "nothing is there to move");
        if tidied.wants_size {
            node.log.keep_for_draining(of_size(64 << 10));
        }
        if tidied.wants_snapshot {
            snapshots += 1;
            assert!(tidied.wants_size, "it is measured before each snapshot");
            assert!(LocalLog::begin_snapshot(&mut node.log, &nothing).unwrap());
            let content = Box::new(node.messages.content());
            node.log.write_snapshot(content);
        }
        node.commit(&mut told).unwrap();
        node.background().unwrap();
    }
    assert_eq!(snapshots, 2);
    assert_eq!(spans(&node).len(), 1);
    assert_eq!(node.log.space().recycled, 1, "one is kept for reuse");
}

#[test]
fn the_segment_with_the_smallest_share_is_the_victim_until_it_has_ended() {
    let (mut node, _) = filled();
    let mut live = in_each(&node, 1000);
    let least = spans(&node)[3];
    live.0.insert(middle(least), 10);
    let tidied = tidy(&mut node, 1000, &live);
    assert_eq!(tidied.victim, Some(units(least)));
    assert!(tidied.moved_share_per_mille == Some(500) && !tidied.wants_snapshot);
    // There is no other one meanwhile.
    let tidied = tidy(&mut node, 1250, &live);
    assert!(tidied.moved_share_per_mille.is_some() && tidied.victim.is_none());
    live.0.remove(&middle(least));
    LocalLog::end_victim(&mut node.log, VictimEnd::Emptied);
    let next = tidy(&mut node, 1250, &live).victim;
    assert!(next.is_some() && next != Some(units(least)));
}

/// Less than a tenth of the disk that is free, of what segments take or could take, is little. It is looked at when a
/// segment is prepared.
#[test]
fn moved_bodies_may_take_more_of_what_is_appended_while_little_of_the_disk_is_free() {
    let (mut node, mut told) = filled();
    let segments_bytes = |node: &Node| -> u64 {
        let sizes = spans(node).into_iter().map(|span| span.size_bytes);
        sizes.sum::<u64>() + (16 << 10)
    };
    // Space is between what is too much and what is far too much.
    let live = |node: &Node| {
        let live_bytes = (segments_bytes(node) - 5 * (8 << 10)) * 10 / 12;
        in_each(node, live_bytes / spans(node).len() as u64)
    };
    let bodies = live(&node);
    let usual = tidy(&mut node, 1000, &bodies).moved_share_per_mille;
    let usual = usual.unwrap();
    assert!((1..400).contains(&usual), "{usual}");
    // When the next segment has been prepared, so many bytes of the disk are free, by what segments take then.
    let mut share_with_free = |free_of: fn(u64) -> u64, ms| {
        let before = spans(&node).len();
        let free_bytes = free_of(segments_bytes(&node) + (16 << 10));
        while spans(&node).len() == before {
            node.send(1, &mut told).unwrap();
            node.commit(&mut told).unwrap();
            let used_bytes = u64::MAX / 2 - free_with(&node.storage, u64::MAX / 2);
            let capacity_bytes = used_bytes + (16 << 10) + free_bytes;
            node.storage.set_capacity_bytes(Some(capacity_bytes));
            node.background().unwrap();
        }
        assert_eq!(node.storage.free_bytes(), Some(free_bytes));
        let bodies = live(&node);
        let tidied = tidy(&mut node, ms, &bodies);
        tidied.moved_share_per_mille.unwrap()
    };
    // A ninth of what segments take is a tenth of that and itself.
    assert_eq!(share_with_free(|_| 0, 2000), 500);
    assert_eq!(share_with_free(|bytes| bytes / 9 - 2, 3000), 500);
    let share = share_with_free(|bytes| bytes / 9 + 2, 4000);
    assert!((1..400).contains(&share), "{share}");
    assert_eq!(share_with_free(|bytes| bytes / 9 - 2, 5000), 500);
}

fn free_with(storage: &FaultyStorage, capacity_bytes: u64) -> u64 {
    storage.set_capacity_bytes(Some(capacity_bytes));
    storage.free_bytes().unwrap()
}

#[test]
fn a_victim_with_a_body_that_cannot_be_read_is_not_chosen_again() {
    let (mut node, _) = filled();
    let live = in_each(&node, 10);
    let mut chosen = Vec::new();
    for _ in spans(&node) {
        chosen.extend(tidy(&mut node, 1000, &live).victim);
        LocalLog::end_victim(&mut node.log, VictimEnd::Unreadable);
    }
    let end = node.log.end();
    let mut closed: Vec<_> = spans(&node).into_iter().map(units).collect();
    closed.retain(|units| units.end <= end);
    chosen.sort_by_key(|units| units.start);
    assert_eq!(
        chosen, closed,
        "each one once, but not the one that is appended to"
    );
    assert_eq!(tidy(&mut node, 1_000_000, &live).victim, None);
}

#[test]
fn a_victim_that_rests_is_chosen_again_later() {
    let (mut node, _) = filled();
    let live = in_each(&node, 10);
    let victim = tidy(&mut node, 1000, &live).victim;
    LocalLog::end_victim(&mut node.log, VictimEnd::Paused);
    let mut others = Vec::new();
    while let Some(other) = tidy(&mut node, 1000, &live).victim {
        others.push(Some(other));
        LocalLog::end_victim(&mut node.log, VictimEnd::Unreadable);
    }
    assert!(others.len() > 3 && !others.contains(&victim));
    assert_eq!(LocalLog::next_wake(&node.log), Some(at_ms(11_000)));
    assert_eq!(tidy(&mut node, 11_000, &live).victim, victim);
    // Twice as long the second time.
    LocalLog::end_victim(&mut node.log, VictimEnd::Paused);
    tidy(&mut node, 11_000, &live);
    assert_eq!(LocalLog::next_wake(&node.log), Some(at_ms(31_000)));
}

#[test]
fn a_victim_that_was_given_up_is_chosen_again() {
    let (mut node, _) = filled();
    let live = in_each(&node, 10);
    let victim = tidy(&mut node, 1000, &live).victim;
    assert!(victim.is_some());
    LocalLog::end_victim(&mut node.log, VictimEnd::GivenUp);
    assert_eq!(tidy(&mut node, 1250, &live).victim, victim);
}

#[test]
fn before_its_time_it_does_nothing() {
    let (mut node, mut told) = filled();
    assert_eq!(LocalLog::next_wake(&node.log), Some(at_ms(1000)));
    assert_eq!(tidy(&mut node, 999, &NotAsked), Tidied::default());
    let live = in_each(&node, 1000);
    assert!(tidy(&mut node, 1000, &live).moved_share_per_mille.is_some());
    // A little later it looks again, if something was appended or not: a victim is being emptied.
    assert_eq!(LocalLog::next_wake(&node.log), Some(at_ms(1250)));
    node.send(1, &mut told).unwrap();
    assert_eq!(tidy(&mut node, 1249, &NotAsked), Tidied::default());
}

#[test]
fn jobs_without_a_file_descriptor_are_tried_again_by_itself() {
    let (mut node, _) = filled();
    tidy(&mut node, 500, &NotAsked);
    node.log.keep_for_draining(of_size(64 << 10));
    let job = node.log.next_background_job().unwrap();
    node.storage.fail_after(0, Fault::Emfile, Repeat::Sticky);
    let outcome = job.run();
    node.storage.clear_faults();
    node.log.complete(outcome).unwrap();
    assert!(node.log.health().is_short_of_descriptors);
    assert_eq!(LocalLog::next_wake(&node.log), Some(at_ms(600)));
    tidy(&mut node, 599, &NotAsked);
    assert!(node.log.next_background_job().is_none());
    tidy(&mut node, 600, &NotAsked);
    assert!(node.log.next_background_job().is_some());
}
