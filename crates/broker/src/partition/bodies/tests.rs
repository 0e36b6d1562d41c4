use std::collections::BTreeSet;

use kew_engine::Command;
use kew_engine::storage::StorageCommand;

use super::*;

fn body(record: u64, length: u32) -> BodyLocation {
    BodyLocation {
        record,
        offset: 0,
        length,
    }
}

fn missing(bodies: &[BodyLocation]) -> Missing {
    Missing {
        bodies: bodies.iter().copied().collect(),
        ..Missing::default()
    }
}

impl Bodies {
    fn ask_for(&mut self, command: u64, bodies: &[BodyLocation]) -> Ended {
        self.ask(command, &missing(bodies))
    }

    /// Reads what is asked for, as a job would. Returns what it was.
    fn read_all(&mut self) -> (BTreeSet<BodyLocation>, Ended) {
        let asked = std::mem::take(&mut self.asked);
        self.under_way
            .extend(asked.iter().map(|body| (*body, None)));
        let read = asked.iter().map(|body| {
            let bytes = vec![0; body.length as usize];
            (*body, Ok(Bytes::from(bytes)))
        });
        let ended = self.take(read.collect());
        (asked, ended)
    }
}

fn ready(commands: &[u64]) -> Ended {
    Ended {
        ready: commands.to_vec(),
        failed: Vec::new(),
    }
}

const MIB: u32 = 1 << 20;

#[test]
fn commands_hold_a_bounded_number_of_bytes_and_the_oldest_goes_on() {
    let mut bodies = Bodies::default();
    let eight: Vec<Vec<BodyLocation>> = (0..4)
        .map(|command| (0..8).map(|nth| body(command * 8 + nth, MIB)).collect())
        .collect();
    for (command, needed) in (0..).zip(&eight) {
        assert_eq!(bodies.ask_for(command, needed), Ended::default());
    }
    let (asked, ended) = bodies.read_all();
    assert_eq!(asked.len(), 16, "the first two have the room");
    assert_eq!(ended, ready(&[0, 1]));
    assert_eq!(bodies.held_bytes(), HELD_SIZE_BYTES_MAX);
    // A small one does not pass those that wait for room.
    assert_eq!(bodies.ask_for(4, &[body(100, 1)]), Ended::default());
    assert_eq!(bodies.read_all().0.len(), 0);
    assert_eq!(bodies.release(1), Ended::default());
    assert_eq!(bodies.held_bytes(), HELD_SIZE_BYTES_MAX / 2);
    assert_eq!(bodies.read_all().1, ready(&[2]));
    // One that needs more than all may hold goes when it is the oldest.
    let large: Vec<BodyLocation> = (200..220).map(|nth| body(nth, MIB)).collect();
    bodies.ask_for(5, &large);
    for command in [0, 2, 3, 4] {
        bodies.read_all();
        bodies.release(command);
    }
    assert_eq!(bodies.read_all().1, ready(&[5]));
    bodies.release(5);
    assert_eq!((bodies.held_bytes(), bodies.admitted_bytes), (0, 0));
}

#[test]
fn a_body_that_two_commands_need_is_read_once() {
    let mut bodies = Bodies::default();
    bodies.ask_for(1, &[body(1, 10), body(2, 10)]);
    bodies.ask_for(2, &[body(2, 10)]);
    let (asked, ended) = bodies.read_all();
    assert_eq!((asked.len(), ended), (2, ready(&[1, 2])));
}

#[test]
fn a_command_that_asks_again_keeps_what_it_still_needs() {
    let mut bodies = Bodies::default();
    bodies.ask_for(1, &[body(1, 10), body(2, 10)]);
    bodies.read_all();
    assert_eq!(bodies.ask_for(1, &[body(2, 10), body(3, 10)]), ready(&[]));
    assert_eq!(bodies.get(body(1, 10)), None);
    assert!(bodies.get(body(2, 10)).is_some());
    let (asked, ended) = bodies.read_all();
    assert_eq!(asked, BTreeSet::from([body(3, 10)]));
    assert_eq!(ended, ready(&[1]));
    assert_eq!(bodies.admitted_bytes, 20);
    bodies.release(1);
    assert_eq!((bodies.held_bytes(), bodies.admitted_bytes), (0, 0));
}

fn target(number: u64) -> Target {
    let queue = kew_engine::EntityName::storage_queue("acct", format!("queue{number}"));
    let command = StorageCommand::ReadQueue { queue };
    Target::of(&Command::Storage(command))
}

impl Bodies {
    /// Reads ahead what a queue has asked for, as a job would. Returns what it was.
    fn read_ahead(&mut self) -> Vec<BodyLocation> {
        let Some((target, asked, room_bytes)) = self.ahead.next() else {
            return Vec::new();
        };
        let mut left = room_bytes;
        let fits = |body: &&BodyLocation| {
            let fits = u64::from(body.length) <= left;
            left = left.saturating_sub(u64::from(body.length));
            fits
        };
        let to_read: Vec<BodyLocation> = asked.iter().take_while(fits).copied().collect();
        let under_way = to_read.iter().map(|body| (*body, Some(target)));
        self.under_way.extend(under_way);
        let read = to_read.iter();
        let read = read.map(|body| (*body, Ok(Bytes::from(vec![0; body.length as usize]))));
        self.take(read.collect());
        self.ahead.end_read(target);
        to_read
    }

    fn ask_behind(&mut self, command: u64, queue: u64, needed: u64) {
        let target = target(queue);
        self.ask_for(command, &[body(needed, 1 << 10)]);
        let room_bytes = self.room_ahead(target);
        let behind = (0..room_bytes >> 10).map(|nth| body(needed + 1 + nth, 1 << 10));
        self.ask_ahead(command, target, behind.collect());
    }
}

/// Each queue has a share, and nothing is dropped for another queue.
#[test]
fn what_is_read_ahead_is_bounded_and_shared() {
    let mut bodies = Bodies::default();
    for queue in 0..100 {
        bodies.ask_behind(queue, queue, queue << 32);
    }
    let mut read = Vec::new();
    loop {
        let job = bodies.read_ahead();
        if job.is_empty() {
            break;
        }
        assert!(job.len() as u64 <= JOB_SIZE_BYTES >> 10, "one job is short");
        read.extend(job);
        assert!(bodies.ahead.size_bytes() <= AHEAD_SIZE_BYTES_MAX);
    }
    let queues: BTreeSet<u64> = read.iter().map(|body| body.record >> 32).collect();
    assert!(queues.len() >= 3, "{queues:?}");
    assert_eq!(bodies.held_bytes(), (read.len() as u64) << 10);
    for body in &read {
        assert!(bodies.get(*body).is_some(), "nothing is dropped");
    }
    // Another queue does not drop them while they are used.
    bodies.ask_behind(200, 200, 200 << 32);
    assert!(read.iter().all(|body| bodies.get(*body).is_some()));
    bodies.forget_ahead();
    assert_eq!(bodies.held_bytes(), 0);
    assert_eq!(bodies.ahead.size_bytes(), 0);
}

/// What others have taken in the meantime is dropped when the queue misses something again.
#[test]
fn what_lies_before_the_head_of_a_queue_is_dropped() {
    let mut bodies = Bodies::default();
    bodies.ask_behind(1, 1, 0);
    bodies.read_all();
    let read = bodies.read_ahead();
    assert_eq!(read.len(), 1024);
    bodies.release(1);
    // A receiver holds what it needs of it.
    assert_eq!(bodies.ask_for(2, &[read[0]]), ready(&[2]));
    bodies.use_up(read[0]);
    bodies.release(2);
    assert_eq!(bodies.ahead.size_bytes(), 1023 << 10);
    bodies.ask_behind(3, 1, 5000);
    assert_eq!(bodies.ahead.size_bytes(), 0);
}

/// A queue that nobody receives from any more leaves its share to others.
#[test]
fn what_is_not_used_for_a_while_makes_room() {
    let mut bodies = Bodies::default();
    bodies.ask_behind(1, 1, 0);
    let read = bodies.read_ahead();
    assert!(!read.is_empty());
    assert_eq!(bodies.ahead.unused(Timestamp::from_ms(999)), []);
    assert_eq!(bodies.ahead.unused(Timestamp::from_ms(1000)), read);
}

/// A body that is read ahead, and needed by the time the job ends without it, is asked for.
#[test]
fn what_a_job_has_not_read_ahead_is_asked_for_when_it_is_needed() {
    let mut bodies = Bodies::default();
    let (first, second) = (body(1, 10), body(2, 10));
    bodies.ask_for(1, &[body(0, 10)]);
    bodies.ask_ahead(1, target(1), vec![first, second]);
    bodies.read_all();
    let (target, asked, _) = bodies.ahead.next().unwrap();
    let under_way = asked.into_iter().map(|body| (body, Some(target)));
    bodies.under_way.extend(under_way);
    bodies.ask_for(2, &[second]);
    assert_eq!(bodies.read_all().0.len(), 0, "it is under way");
    bodies.take(vec![(first, Ok(Bytes::from_static(b"0123456789")))]);
    let (asked, ended) = bodies.read_all();
    assert_eq!((asked, ended), (BTreeSet::from([second]), ready(&[2])));
}

#[test]
fn an_end_of_a_wait_takes_back_what_was_asked_for() {
    let mut bodies = Bodies::default();
    bodies.ask_for(1, &[body(1, 10)]);
    bodies.release(1);
    assert_eq!(bodies.read_all().0.len(), 0);
    bodies.ask_for(2, &[body(1, 10)]);
    bodies.release_all();
    assert_eq!(bodies.read_all().0.len(), 0);
    assert_eq!(bodies.admitted_bytes, 0);
}
