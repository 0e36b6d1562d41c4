//! Damage of every kind to every kind of file.

use std::time::Instant;

use kew_sim::disk::{
    ActiveCounts, AsideCounts, RotCounts, Setting, TailDamage, WorkloadKind, active_rot_case,
    aside_case, damage_tail, moved_rot_case, rot, rot_active, rot_case, rot_moved, set_aside,
};

use crate::support::{is_wanted, number, on_all_cores, replayed, seed};

/// How often one world is damaged.
const PER_WORLD: u64 = 100;

/// The same, if only the segment is damaged that is written to.
const PER_ACTIVE: u64 = 20;

/// The same, if only pages with messages are damaged.
const PER_ASIDE: u64 = 20;

#[test]
fn no_damage_goes_unnoticed() {
    let injections = number("KEW_DISK_INJECTIONS", 40_000);
    let counts = damage_all("bit rot", WorkloadKind::Storage, injections);
    if replayed().is_some() {
        return;
    }
    check_is_varied(&counts, injections);
}

/// Messages have locks, sessions, schedules and dead letters. In one world out of five, none stays in memory.
#[test]
fn no_damage_of_bus_queues_goes_unnoticed() {
    let injections = number("KEW_DISK_INJECTIONS", 40_000) / 8;
    let counts = damage_all("bit rot, bus", WorkloadKind::WithBus, injections);
    if replayed().is_some() {
        return;
    }
    check_is_varied(&counts, injections);
    check_is_cold(&counts, injections);
    assert!(counts.dead_letters >= injections / 1000, "{counts:?}");
}

/// Subscriptions have copies with one body, messages wait in their topic for rules that look at them, and rules have changed
/// copies.
#[test]
fn no_damage_of_topics_goes_unnoticed() {
    let injections = number("KEW_DISK_INJECTIONS", 40_000) / 4;
    let counts = damage_all("bit rot, topics", WorkloadKind::WithTopics, injections);
    if replayed().is_some() {
        return;
    }
    check_is_varied(&counts, injections);
    check_is_cold(&counts, injections);
    for rare in [
        counts.shared_bodies,
        counts.dead_letters,
        counts.changes,
        counts.buried,
    ] {
        assert!(rare >= injections / 1000, "{counts:?}");
    }
}

/// Bodies were moved, and two in five damages are where they are now.
#[test]
fn no_damage_of_moved_bodies_goes_unnoticed() {
    let injections = number("KEW_DISK_INJECTIONS", 40_000) / 40;
    let (seed, began) = (seed(), Instant::now());
    let settings = Setting::SCATTERED;
    let (counts, moved) = on_all_cores(
        settings.len(),
        |index| {
            let setting = settings[index];
            if !is_wanted(&moved_rot_case(setting)) {
                return (RotCounts::default(), 0);
            }
            let rotten = rot_moved(setting, seed, injections / settings.len() as u64);
            rotten.unwrap_or_else(|failure| panic!("{failure}"))
        },
        |sum: &mut (RotCounts, u64), more| {
            sum.0.add(&more.0);
            sum.1 += more.1;
        },
    );
    println!(
        "bit rot, moves, seed {seed}: {moved} have moved, {counts:?} in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    if replayed().is_some() {
        return;
    }
    assert!(moved >= 2 * settings.len() as u64, "{moved}");
    assert!(counts.in_last_batches >= injections / 4, "{counts:?}");
    assert!(counts.bodies >= injections / 20, "{counts:?}");
    assert!(counts.scrubbed >= injections / 20, "{counts:?}");
}

/// The segment that is written to is damaged while it is, and a scrub reads it while clients go on.
#[test]
fn no_damage_of_the_active_segment_goes_unnoticed() {
    let injections = number("KEW_DISK_INJECTIONS", 40_000) / 20;
    damage_active("bit rot, active", WorkloadKind::Storage, injections);
}

/// Bodies are those of messages with locks, dead letters, copies and changes.
#[test]
fn no_damage_of_the_active_segment_with_topics_goes_unnoticed() {
    let injections = number("KEW_DISK_INJECTIONS", 40_000) / 40;
    for kind in [WorkloadKind::WithBus, WorkloadKind::WithTopics] {
        damage_active("bit rot, active", kind, injections / 2);
    }
}

#[expect(
    clippy::print_stdout,
    reason = "a test prints its numbers for readers of its output"
)]
fn damage_active(name: &str, kind: WorkloadKind, injections: u64) {
    let (seed, began) = (seed(), Instant::now());
    let counts = on_all_cores(
        usize::try_from(injections.div_ceil(PER_ACTIVE)).expect("few"),
        |world| {
            if !is_wanted(&active_rot_case(kind, world as u64)) {
                return ActiveCounts::default();
            }
            let rotten = rot_active(seed, kind, world as u64, PER_ACTIVE);
            rotten.unwrap_or_else(|failure| panic!("{failure}"))
        },
        ActiveCounts::add,
    );
    println!(
        "{name}, seed {seed}: {counts:?} in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    if replayed().is_some() {
        return;
    }
    assert!(counts.injections >= injections, "{counts:?}");
    for often in [
        counts.in_headers,
        counts.headers_written,
        counts.in_bodies,
        counts.in_records,
        counts.scrubbed,
        counts.busy,
        counts.starts,
        counts.met,
    ] {
        assert!(often >= injections / 10, "{counts:?}");
    }
    assert!(counts.left >= injections / 100, "{counts:?}");
    assert!(counts.busy >= counts.left + injections / 20, "{counts:?}");
}

/// A page with messages is damaged in both copies, of one or two runs at a time.
#[test]
fn messages_whose_records_are_lost_are_set_aside() {
    let injections = number("KEW_DISK_INJECTIONS", 40_000) / 10;
    let counts = set_all_aside("set aside", WorkloadKind::Storage, injections);
    if replayed().is_some() {
        return;
    }
    assert!(counts.pages >= injections, "{counts:?}");
    assert!(counts.messages >= injections, "{counts:?}");
    assert!(counts.starts >= injections / 2, "{counts:?}");
    assert!(counts.first_starts >= injections / 4, "{counts:?}");
    assert!(counts.whole >= injections / 10, "{counts:?}");
}

/// Messages have locks, sessions, schedules and changes, are deferred or dead letters. In one world out of three, all of them
/// are in memory, so a start reads each page. In the others it reads those with sessions or changes.
#[test]
fn bus_messages_whose_records_are_lost_are_set_aside() {
    let injections = number("KEW_DISK_INJECTIONS", 40_000) / 20;
    let counts = set_all_aside("set aside, bus", WorkloadKind::WithBus, injections);
    if replayed().is_some() {
        return;
    }
    assert!(counts.pages >= injections, "{counts:?}");
    assert!(counts.messages >= injections, "{counts:?}");
    assert!(counts.starts >= injections / 2, "{counts:?}");
    assert!(counts.first_starts >= injections / 4, "{counts:?}");
    assert!(counts.at_once >= injections / 10, "{counts:?}");
    for rare in [
        counts.whole,
        counts.locked,
        counts.scheduled,
        counts.deferred,
        counts.dead_letters,
        counts.of_sessions,
        counts.copies,
    ] {
        assert!(rare >= injections / 50, "{counts:?}");
    }
}

#[expect(
    clippy::print_stdout,
    reason = "a test prints its numbers for readers of its output"
)]
fn set_all_aside(name: &str, kind: WorkloadKind, injections: u64) -> AsideCounts {
    let (seed, began) = (seed(), Instant::now());
    let counts = on_all_cores(
        usize::try_from(injections.div_ceil(PER_ASIDE)).expect("few"),
        |world| {
            if !is_wanted(&aside_case(kind, world as u64)) {
                return AsideCounts::default();
            }
            set_aside(seed, kind, world as u64, PER_ASIDE)
                .unwrap_or_else(|failure| panic!("{failure}"))
        },
        AsideCounts::add,
    );
    println!(
        "{name}, seed {seed}: {counts:?} in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    counts
}

#[expect(
    clippy::print_stdout,
    reason = "a test prints its numbers for readers of its output"
)]
fn damage_all(name: &str, kind: WorkloadKind, injections: u64) -> RotCounts {
    let seed = seed();
    let began = Instant::now();
    let counts = on_all_cores(
        usize::try_from(injections.div_ceil(PER_WORLD)).expect("few"),
        |world| {
            if !is_wanted(&rot_case(kind, world as u64)) {
                return RotCounts::default();
            }
            rot(seed, kind, world as u64, PER_WORLD, replayed().is_some())
                .unwrap_or_else(|failure| panic!("{failure}"))
        },
        RotCounts::add,
    );
    println!(
        "{name}, seed {seed}: {counts:?} in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    counts
}

/// The same where messages are on pages alone.
fn check_is_cold(counts: &RotCounts, injections: u64) {
    assert!(counts.cold >= injections / 20, "{counts:?}");
    assert!(counts.scrubbed_cold >= injections / 500, "{counts:?}");
}

/// These must occur, or the test proves nothing.
fn check_is_varied(counts: &RotCounts, injections: u64) {
    assert!(counts.injections >= injections * 99 / 100, "{counts:?}");
    assert!(counts.in_last_batches >= injections / 4, "{counts:?}");
    for rare in [
        counts.bits,
        counts.sectors,
        counts.truncations,
        counts.stale,
        counts.misdirected,
        counts.misdirected_away,
        counts.in_snapshots,
        counts.in_pages,
        counts.pages_from_copy,
        counts.refused,
        counts.harmless,
        counts.bodies,
        counts.scrubbed,
        counts.snapshots_passed_over,
    ] {
        assert!(rare >= injections / 100, "{counts:?}");
    }
}

/// The one ambiguity that FORMAT.md declares: before any later record or mark is written, damage in
/// the last commit looks like a torn tail. A mark, which an idle partition writes, ends it.
#[test]
fn a_mark_distinguishes_damage_in_the_last_batch_from_a_torn_tail() {
    let damaged =
        |is_marked| damage_tail(seed(), is_marked).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(damaged(false), TailDamage::Cut);
    assert_eq!(damaged(true), TailDamage::Refused);
}
