use std::collections::BTreeSet;

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
        self.ask(command, &missing(bodies), Timestamp::from_ms(0))
    }

    /// Reads what is asked for, as a job would. Returns what it was.
    fn read_all(&mut self) -> (BTreeSet<BodyLocation>, Ended) {
        let asked = std::mem::take(&mut self.asked);
        self.under_way.extend(&asked);
        let read = asked.iter().map(|body| {
            let bytes = vec![0; body.length as usize];
            (*body, Ok(Bytes::from(bytes)))
        });
        let ended = self.take(read.collect(), Timestamp::from_ms(0));
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

#[test]
fn what_is_read_ahead_is_bounded_and_the_oldest_goes_first() {
    let mut bodies = Bodies::default();
    for record in 0..8 {
        let read = vec![(body(record, MIB), Ok(Bytes::from(vec![0; 1 << 20])))];
        bodies.take(read, Timestamp::from_ms(0));
    }
    assert_eq!(bodies.held_bytes(), AHEAD_SIZE_BYTES_MAX);
    assert_eq!(bodies.get(body(3, MIB)), None);
    // A command that needs one of them holds it.
    assert_eq!(bodies.ask_for(1, &[body(4, MIB)]), ready(&[1]));
    bodies.forget_ahead();
    assert_eq!(bodies.held_bytes(), u64::from(MIB));
    bodies.release(1);
    assert_eq!((bodies.held_bytes(), bodies.ahead_bytes), (0, 0));
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
