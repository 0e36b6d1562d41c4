use std::collections::BTreeSet;

use kew_engine::Command;
use kew_engine::storage::StorageCommand;

use super::ahead::UNUSED_MS;
use super::*;

fn body(record: u64, length: u32) -> BodyLocation {
    BodyLocation::new(record, 0, length)
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

    /// What the next job is to read.
    fn next_job(&mut self) -> Vec<BodyLocation> {
        let to_read = self.next(|body| Some(Body::gone(to_log(body))), false);
        to_read.into_iter().map(|(body, _)| body).collect()
    }

    /// Ends a job that has read everything.
    fn end_job(&mut self, job: &[BodyLocation]) -> Ended {
        let read = job.iter().map(|body| {
            let bytes = vec![0; body.length as usize];
            (*body, Some(Ok(Bytes::from(bytes))))
        });
        self.take(read.collect())
    }

    /// Carries out all jobs. Returns what they have read.
    fn read_all(&mut self) -> (BTreeSet<BodyLocation>, Ended) {
        let mut all = (BTreeSet::new(), Ended::default());
        loop {
            let job = self.next_job();
            if job.is_empty() {
                return all;
            }
            let ended = self.end_job(&job);
            all.0.extend(job);
            all.1.ready.extend(ended.ready);
            all.1.failed.extend(ended.failed);
        }
    }
}

fn ready(commands: &[u64]) -> Ended {
    Ended {
        ready: commands.to_vec(),
        failed: Vec::new(),
    }
}

const KIB: u32 = 1 << 10;

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
    fn ask_behind(&mut self, command: u64, queue: u64, needed: u64) {
        let target = target(queue);
        let needed = body(needed, KIB);
        let missing = BTreeSet::from([needed]);
        let room_bytes = self.room_ahead(target, &missing);
        self.pass_by(target, &missing);
        self.ask_for(command, &[needed]);
        let behind = (1..=room_bytes >> 10).map(|nth| body(needed.record + nth, KIB));
        self.ask_ahead(command, target, behind.collect());
    }
}

/// Each queue has a share, and nothing is dropped for another queue.
#[test]
fn what_is_read_ahead_is_bounded_and_shared() {
    const QUEUES: u64 = 100;
    let mut bodies = Bodies::default();
    for queue in 0..QUEUES {
        bodies.ask_behind(queue, queue, queue << 32);
    }
    let mut read = BTreeSet::new();
    loop {
        let job = bodies.next_job();
        if job.is_empty() {
            break;
        }
        assert!(job.len() as u64 <= JOB_SIZE_BYTES >> 10, "one job is short");
        bodies.end_job(&job);
        read.extend(job);
        assert!(bodies.ahead.size_bytes() <= AHEAD_SIZE_BYTES_MAX);
    }
    let ahead = read.iter().filter(|body| body.record & 0xffff != 0);
    let queues: BTreeSet<u64> = ahead.map(|body| body.record >> 32).collect();
    assert!(queues.len() >= 3, "{queues:?}");
    assert_eq!(bodies.held_bytes(), (read.len() as u64) << 10);
    // Another queue does not drop them while they are used.
    bodies.ask_behind(200, 200, 200 << 32);
    assert!(read.iter().all(|body| bodies.get(*body).is_some()));
    bodies.begin_turn(BootTime::ZERO.plus_ms(UNUSED_MS - 1));
    assert!(bodies.ahead.size_bytes() > 0);
    assert_eq!(bodies.unused_at(), BootTime::ZERO.plus_ms(UNUSED_MS));
    bodies.begin_turn(BootTime::ZERO.plus_ms(UNUSED_MS));
    assert_eq!(bodies.held_bytes(), QUEUES << 10, "what commands need");
    assert_eq!(bodies.ahead.size_bytes(), 0);
    assert_eq!(bodies.unused_at(), BootTime::NEVER);
}

/// What others have taken in the meantime is dropped when the queue misses something again, and makes room.
#[test]
fn what_lies_before_the_head_of_a_queue_is_dropped() {
    let mut bodies = Bodies::default();
    bodies.ask_behind(1, 1, 0);
    assert_eq!(bodies.read_all().0.len(), 1024, "one job");
    assert_eq!(bodies.ahead.size_bytes(), 1023 << 10);
    bodies.release(1);
    // Another one asks, and what it asked for is taken too before it was read.
    bodies.ask_behind(2, 1, 2000);
    bodies.release(2);
    bodies.ask_behind(3, 1, 5000);
    assert_eq!(bodies.ahead.size_bytes(), 0);
    let (read, _) = bodies.read_all();
    assert_eq!(read.first(), Some(&body(5000, KIB)));
    assert_eq!(read.len(), 1024);
    // A receiver holds what it needs of it.
    let next = body(5001, KIB);
    assert_eq!(bodies.ask_for(4, &[next]), ready(&[4]));
    bodies.use_up(next);
    bodies.release(4);
    assert_eq!(bodies.ahead.size_bytes(), 1022 << 10);
}

/// A queue that nobody receives from any more leaves its share to others.
#[test]
fn what_is_not_used_for_a_while_makes_room() {
    let mut bodies = Bodies::default();
    for queue in 0..4 {
        bodies.ask_behind(queue, queue, queue << 32);
        bodies.read_all();
        bodies.release(queue);
    }
    assert!(bodies.ahead.size_bytes() > AHEAD_SIZE_BYTES_MAX / 2);
    // The clock of the turn is not asked: what is unused goes when others need the room.
    bodies.now = BootTime::ZERO.plus_ms(UNUSED_MS);
    bodies.ask_behind(9, 9, 9 << 32);
    let (read, _) = bodies.read_all();
    assert!(read.len() > 1, "something is read ahead");
    assert!(bodies.get(body(1, KIB)).is_none());
}

/// What a job has not read, because the disk has failed, is asked for again if it is needed.
#[test]
fn what_a_job_has_not_read_is_asked_for_if_it_is_needed() {
    let mut bodies = Bodies::default();
    let all = [0, 1, 2, 3].map(|record| body(record, 10));
    bodies.ask_for(1, &all[..2]);
    bodies.ask_ahead(1, target(1), all[2..].to_vec());
    assert_eq!(bodies.next_job(), all);
    bodies.ask_for(2, &[all[3]]);
    assert_eq!(bodies.next_job(), [], "it is under way");
    let read = all.map(|body| match body.record {
        0 => (body, Some(Ok(Bytes::from_static(b"0123456789")))),
        _ => (body, None),
    });
    assert_eq!(bodies.take(read.into()), Ended::default());
    let again = bodies.next_job();
    assert_eq!(again, [all[1], all[3]], "nobody needs the other one");
    let ended = bodies.end_job(&again);
    assert_eq!(ended, ready(&[1, 2]));
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
