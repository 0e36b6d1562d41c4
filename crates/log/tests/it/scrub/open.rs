//! Segments that commits write to: what is durable of them is read, and a commit alone writes their headers.

use std::sync::Arc;

use kew_log::{
    BatchBuilder, Fault, FaultyStorage, Job, Need, Repeat, ScrubCursor, ScrubDamage, Scrubbed,
    SegmentLog, inspect,
};

use super::{active, filled, pass, run};
use crate::node::{Messages, Node, Told, small};

/// What a pass says of a segment.
fn scrubbed(log: &SegmentLog, name: &str) -> Scrubbed {
    let mut cursor = ScrubCursor::default();
    let mut of_segment = None;
    while let Some(scrub) = log.next_scrub(cursor) {
        let scrubbed = run(scrub);
        cursor = scrubbed.next;
        let is_named = scrubbed.damage.iter().any(|it| it.file == name);
        of_segment = of_segment.or(is_named.then_some(scrubbed));
    }
    of_segment.expect("the segment is damaged")
}

fn is_listed(damage: &[ScrubDamage], offset: u64) -> bool {
    damage.iter().any(|it| it.offset == offset)
}

fn send(log: &mut SegmentLog) {
    let at = log.reserve(Need::grow(0)).unwrap();
    let mut batch = BatchBuilder::at(at.position);
    batch.push_body(&[7; 1000]);
    batch.push_event(b"sent");
    log.append(at, batch).unwrap();
}

/// A log, and the name of a segment that was left while a commit was under way, which ends where the roll is.
fn left_during_a_commit(disk: &FaultyStorage) -> (SegmentLog, String) {
    let storage = Arc::new(disk.clone());
    let (mut log, _) = SegmentLog::open(storage, small(), 1, &mut Messages::default()).unwrap();
    loop {
        send(&mut log);
        let last = log.segments().last().unwrap().number;
        let mut jobs: Vec<Job> = std::iter::from_fn(|| log.next_job()).collect();
        log.reserve(Need::grow(0)).unwrap();
        let is_left = log.segments().last().unwrap().number > last;
        while let Some(job) = jobs.pop() {
            log.complete(job.run()).unwrap();
            // Another commit would write the roll.
            let is_next = |log: &SegmentLog| !is_left && !log.is_committing();
            jobs.extend(is_next(&log).then(|| log.next_job()).flatten());
        }
        if is_left {
            return (log, format!("segment-{last:020}"));
        }
    }
}

/// Without the header, the next start would be refused.
#[test]
fn a_header_is_written_again_by_the_next_commit() {
    for (offset, bytes) in [(8, &[1][..]), (512, &[0; 12]), (2000, &[1])] {
        let disk = FaultyStorage::new();
        let mut told = Told::default();
        let mut node = filled(&disk, &mut told);
        let name = active(&node);
        let before = disk.content(&name);
        disk.corrupt(&name, offset, bytes);
        assert_ne!(disk.content(&name), before);
        let found = scrubbed(&node.log, &name);
        assert!(is_listed(&found.damage, 0), "{found:?}");
        assert_ne!(disk.content(&name), before, "no scrub writes to it");
        let header = found.header.expect("a commit can write it");
        assert_eq!(header, name);
        assert!(node.log.write_header(&header));
        assert!(node.log.has_staged());
        node.commit(&mut told).unwrap();
        assert_eq!(disk.content(&name), before);
        assert_eq!(pass(&node).0, []);
        drop(node);
        Node::open_checked(&disk.kill(), &mut told);
    }
}

/// A commit that fails ends the service, which goes on without a header.
#[test]
fn no_commit_writes_to_a_bad_sector_or_a_cut_file() {
    for is_cut in [true, false] {
        let disk = FaultyStorage::new();
        let mut told = Told::default();
        let node = filled(&disk, &mut told);
        let name = active(&node);
        match is_cut {
            true => disk.truncate(&name, 100),
            false => disk.spoil(&name, 0..512),
        }
        let found = scrubbed(&node.log, &name);
        assert!(is_listed(&found.damage, 0), "{found:?}");
        assert_eq!(found.header, None);
        let what = &found.damage[0].what;
        let until = "it is not written again while messages are written to this segment";
        assert_eq!(what.ends_with(until), !is_cut, "{what}");
    }
}

/// A failed write of a header fails its commit, as any write does.
#[test]
fn a_header_that_a_commit_cannot_write_ends_the_log() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = filled(&disk, &mut told);
    assert!(node.log.write_header(&active(&node)));
    disk.fail_after(0, Fault::Eio, Repeat::Once);
    assert!(node.log.run_commit().is_err());
    assert!(!node.log.write_header(&active(&node)));
}

/// Between the two, the roll waits for a commit, which needs the report of its failed write.
#[test]
fn a_segment_that_was_left_is_open_until_its_roll_is_written() {
    let disk = FaultyStorage::new();
    let (mut log, name) = left_during_a_commit(&disk);
    let before = disk.content(&name);
    disk.flip(&name, 8, 1);
    let found = scrubbed(&log, &name);
    assert_eq!(found.header.as_deref(), Some(&*name), "{found:?}");
    assert!(log.write_header(&name));
    log.run_commit().unwrap();
    assert_eq!(
        disk.content(&name).unwrap()[..4096],
        before.unwrap()[..4096]
    );

    // Once the next segment has a record, the scrub writes it.
    send(&mut log);
    log.run_commit().unwrap();
    disk.flip(&name, 8, 1);
    let found = scrubbed(&log, &name);
    assert!(
        found.damage[0].is_repaired && found.header.is_none(),
        "{found:?}"
    );
    assert!(!log.write_header(&name));
    assert_eq!(inspect(&disk.kill()).unwrap().damage, []);
}

/// A commit was under way when the header was found. It must not let the file be closed that the next one writes to.
#[test]
fn a_segment_whose_header_is_about_to_be_written_stays_open() {
    let disk = FaultyStorage::new();
    let (mut log, name) = left_during_a_commit(&disk);
    let before = disk.content(&name);
    disk.flip(&name, 8, 1);
    send(&mut log);
    let commit = log.next_job().expect("the roll is written");
    assert!(log.write_header(&name));
    log.complete(commit.run()).unwrap();
    assert!(log.write_header(&name), "it is open");
    log.run_commit().unwrap();
    assert_eq!(
        disk.content(&name).unwrap()[..4096],
        before.unwrap()[..4096]
    );
    assert!(
        !log.write_header(&name),
        "nothing is written to it any more"
    );
}

/// A pass does not end at a segment that was left a moment ago.
#[test]
fn what_is_durable_of_a_segment_that_was_just_left_is_read() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = filled(&disk, &mut told);
    let (name, durable) = (active(&node), node.log.durable());
    // It has batches that no commit has written, and so has the next one.
    while active(&node) == name {
        node.send(1, &mut told).unwrap();
        node.background().unwrap();
    }
    let span = node.log.segments().find(|it| it.end > durable).unwrap();
    assert!(span.end < node.log.end(), "it was left");
    let last = 4096 + durable.as_u64() - span.first.as_u64() - 20;
    disk.flip(&name, last, 1);
    let (damage, _) = pass(&node);
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(damage[0].positions.clone().unwrap().end, durable);
}

/// What is not used of a segment may be in bad sectors.
#[test]
fn a_bad_sector_behind_the_records_of_a_segment_hides_none() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let node = filled(&disk, &mut told);
    let mut count = 0;
    for span in node.log.segments() {
        let name = format!("segment-{:020}", span.number);
        let used = 4096 + span.end.as_u64() - span.first.as_u64();
        // Behind the roll, too.
        let unused = (used + 56).next_multiple_of(512);
        let capacity = disk.content(&name).unwrap().len() as u64;
        if name != active(&node) && unused < capacity {
            disk.spoil(&name, unused..capacity);
            count += 1;
        }
    }
    assert!(count > 1, "{count}");
    assert_eq!(pass(&node).0, []);
}

/// Nothing is known of what lies behind the end, and nothing is looked for there.
#[test]
fn a_hole_at_the_end_of_what_is_durable_ends_there() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let node = filled(&disk, &mut told);
    let (name, durable) = (active(&node), node.log.durable());
    let span = node.log.segments().last().unwrap();
    let end = 4096 + durable.as_u64() - span.first.as_u64();
    let capacity = disk.content(&name).unwrap().len() as u64;
    disk.spoil(&name, end.next_multiple_of(512)..capacity);
    assert_eq!(pass(&node).0, []);
    disk.flip(&name, end - 20, 1);
    let (damage, _) = pass(&node);
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(damage[0].positions.clone().unwrap().end, durable);
    assert!(!damage[0].what.contains("I/O"), "{damage:?}");
}
