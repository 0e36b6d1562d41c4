//! The order in which commands are given out.

use std::collections::BTreeSet;

use kew_engine::EntityName;
use kew_engine::storage::StorageCommand;
use proptest::prelude::*;

use super::*;

fn command(queue: &str) -> Command {
    Command::Storage(StorageCommand::Clear {
        queue: EntityName::storage_queue("acct", queue),
    })
}

fn rotation(commands: u64) -> Rotation<(u64, u32)> {
    Rotation::new(Share {
        commands,
        ..Share::default()
    })
}

fn push(rotation: &mut Rotation<(u64, u32)>, source: u64, numbers: std::ops::Range<u32>) {
    push_for(rotation, "jobs", source, numbers);
}

fn push_for(
    rotation: &mut Rotation<(u64, u32)>,
    queue: &str,
    source: u64,
    numbers: std::ops::Range<u32>,
) {
    for number in numbers {
        rotation.push(Source::numbered(source), (source, number), command(queue));
    }
}

fn take(rotation: &mut Rotation<(u64, u32)>, cost: Cost) -> Option<(u64, u32)> {
    let is_there = rotation.front_mut().is_some();
    let taken = rotation.take(cost);
    assert_eq!(is_there, taken.is_some());
    taken.map(|(ticket, _)| ticket)
}

fn all(rotation: &mut Rotation<(u64, u32)>) -> Vec<(u64, u32)> {
    std::iter::from_fn(|| take(rotation, Cost::default())).collect()
}

/// Each key names what it should, and nothing is left over.
fn check(rotation: &Rotation<(u64, u32)>) {
    let ring = rotation.ring.iter().chain(&rotation.held);
    let keys: BTreeSet<usize> = ring.copied().collect();
    assert_eq!(keys.len(), rotation.ring.len() + rotation.held.len());
    let lines = &rotation.lines;
    assert_eq!(keys, lines.iter().map(|(key, _)| key).collect());
    let of_lines = lines.iter().map(|(key, line)| (line.target, key));
    assert_eq!(rotation.line_of, of_lines.collect());
    let sources = &rotation.sources;
    let of_sources = sources.iter().map(|(key, it)| (it.source, key));
    assert_eq!(rotation.source_of, of_sources.collect());
    let mut places = Vec::new();
    for (_, line) in lines {
        assert!(!line.places.is_empty());
        for place in &line.places {
            if let Place::Source(key) = place {
                assert_eq!(sources[*key].commands[0].2, line.target);
                places.push(*key);
            }
        }
    }
    places.sort_unstable();
    let of_sources: Vec<usize> = sources.iter().map(|(key, _)| key).collect();
    assert_eq!(places, of_sources, "each has one place");
}

#[test]
fn sources_are_served_in_turn() {
    let mut rotation = rotation(2);
    push(&mut rotation, 1, 0..5);
    push(&mut rotation, 0, 0..1);
    push(&mut rotation, 2, 0..3);
    push(&mut rotation, 0, 1..2);
    assert_eq!(rotation.len(), 10);
    let order = [
        (1, 0),
        (1, 1),
        (0, 0),
        (2, 0),
        (0, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (1, 3),
        (1, 4),
    ];
    assert_eq!(all(&mut rotation), order);
    assert!(rotation.is_empty() && rotation.source_of.is_empty());
}

#[test]
fn a_quiet_source_waits_for_one_share() {
    let mut rotation = rotation(64);
    push(&mut rotation, 1, 0..1000);
    for _ in 0..10 {
        take(&mut rotation, Cost::default());
    }
    push(&mut rotation, 2, 0..1);
    let order = all(&mut rotation);
    assert_eq!(order.iter().position(|it| *it == (2, 0)), Some(54));
}

#[test]
fn a_turn_ends_the_share() {
    let mut rotation = rotation(64);
    push(&mut rotation, 1, 0..4);
    push(&mut rotation, 2, 0..2);
    assert_eq!(take(&mut rotation, Cost::default()), Some((1, 0)));
    rotation.end_turn();
    assert_eq!(take(&mut rotation, Cost::default()), Some((2, 0)));
    rotation.end_turn();
    // A turn without room for its first command leaves that one first.
    rotation.end_turn();
    assert_eq!(all(&mut rotation), [(1, 1), (1, 2), (1, 3), (2, 1)]);
}

#[test]
fn a_share_is_bounded_by_bytes_and_by_steps() {
    let large = Cost {
        size_bytes: 40 * 1024,
        steps: 1,
    };
    let slow = Cost {
        size_bytes: 1,
        steps: 2000,
    };
    for cost in [large, slow] {
        let mut rotation = Rotation::default();
        push(&mut rotation, 1, 0..9);
        push(&mut rotation, 2, 0..1);
        let taken = [(); 4].map(|()| take(&mut rotation, cost).unwrap());
        assert_eq!(taken, [(1, 0), (1, 1), (2, 0), (1, 2)]);
    }
}

#[test]
fn entities_are_served_in_turn() {
    let mut rotation = rotation(2);
    // Many sources of one entity, and one of another.
    for source in 1..=3 {
        push_for(&mut rotation, "busy", source, 0..3);
    }
    push_for(&mut rotation, "busy", 0, 0..3);
    push_for(&mut rotation, "quiet", 4, 0..5);
    let quiet: Vec<_> = all(&mut rotation)
        .iter()
        .map(|(source, _)| *source == 4)
        .collect();
    let expected = [
        false, false, true, true, false, false, true, true, false, false, true,
    ];
    assert_eq!(quiet[..11], expected);
    assert!(rotation.lines.is_empty() && rotation.ring.is_empty());
}

#[test]
fn a_source_waits_where_its_next_command_belongs() {
    let mut rotation = rotation(2);
    push_for(&mut rotation, "a", 1, 0..1);
    push_for(&mut rotation, "b", 1, 1..2);
    push_for(&mut rotation, "a", 1, 2..3);
    push_for(&mut rotation, "b", 2, 0..2);
    push_for(&mut rotation, "a", 0, 0..1);
    // Its second command waits behind the other source of b, its third one behind nobody.
    let order = [(1, 0), (0, 0), (2, 0), (2, 1), (1, 1), (1, 2)];
    assert_eq!(all(&mut rotation), order);
}

#[test]
fn a_source_that_was_not_served_keeps_its_place() {
    let mut rotation = rotation(2);
    push(&mut rotation, 0, 0..2);
    push(&mut rotation, 1, 0..2);
    push(&mut rotation, 2, 0..1);
    let order = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)];
    assert_eq!(all(&mut rotation), order);
}

/// What was taken since a source waits, or since its entity was served.
#[derive(Default)]
struct Waits {
    /// The entities and numbers of its commands.
    commands: VecDeque<(usize, u32)>,
    /// Commands of each other source of its entity.
    of_sources: HashMap<u64, u64>,
    /// Commands of each other entity, since its own was served.
    of_entities: HashMap<usize, u64>,
}

#[derive(Clone, Debug)]
enum Step {
    /// A source, or none, gets a command for an entity.
    Push(u64, usize),
    /// A command of so many bytes is taken.
    Take(u64),
    Hold,
    EndTurn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0u64..5, 0usize..3).prop_map(|(source, entity)| Step::Push(source, entity)),
        4 => (0u64..40_000).prop_map(Step::Take),
        1 => Just(Step::Hold),
        1 => Just(Step::EndTurn),
    ];
    proptest::collection::vec(step, 1..300)
}

const QUEUES: [&str; 3] = ["a", "b", "c"];

proptest! {
    #[test]
    fn keys_are_used_again_and_nothing_is_lost(steps in steps()) {
        let mut rotation = rotation(3);
        let mut left = BTreeSet::new();
        let mut last = HashMap::new();
        for (number, step) in (0u32..).zip(steps) {
            match step {
                Step::Push(source, entity) => {
                    push_for(&mut rotation, QUEUES[entity], source, number..number + 1);
                    left.insert((source, number));
                }
                Step::Take(size_bytes) => {
                    if let Some(taken) = take(&mut rotation, Cost { size_bytes, steps: 1 }) {
                        prop_assert!(left.remove(&taken));
                        let (source, number) = taken;
                        let before = last.insert(source, number);
                        prop_assert!(source == 0 || before < Some(number));
                    }
                }
                Step::Hold => {
                    let is_there = rotation.front_mut().is_some();
                    prop_assert_eq!(is_there, is_there && rotation.hold(0));
                }
                Step::EndTurn => rotation.end_turn(),
            }
            check(&rotation);
            prop_assert_eq!(rotation.len(), left.len());
        }
        let drained: BTreeSet<_> = rotation.drain().map(|(ticket, _)| ticket).collect();
        prop_assert_eq!(drained, left);
        check(&rotation);
        prop_assert!(rotation.lines.is_empty());
    }

    /// Steps: a source gets a command for an entity, or (0) a command is taken.
    #[test]
    fn nothing_is_lost_and_each_source_keeps_its_order(
        steps in proptest::collection::vec((0u64..6, 0usize..3, 0u64..40_000), 1..400),
    ) {
        let mut rotation = rotation(3);
        let mut waiting = HashMap::<u64, Waits>::new();
        for (number, (source, entity, size_bytes)) in (0u32..).zip(steps) {
            if source > 0 {
                push_for(&mut rotation, QUEUES[entity], source, number..number + 1);
                waiting.entry(source).or_default().commands.push_back((entity, number));
            } else if let Some((source, number)) = take(&mut rotation, Cost { size_bytes, steps: 1 }) {
                let own = waiting.get_mut(&source).unwrap();
                let (entity, expected) = own.commands.pop_front().unwrap();
                prop_assert_eq!(number, expected);
                *own = Waits { commands: std::mem::take(&mut own.commands), ..Waits::default() };
                waiting.retain(|_, it| !it.commands.is_empty());
                for (_, other) in waiting.iter_mut().filter(|(it, _)| **it != source) {
                    let passed = if other.commands[0].0 == entity {
                        other.of_entities.clear();
                        other.of_sources.entry(source).or_default()
                    } else {
                        other.of_entities.entry(entity).or_default()
                    };
                    *passed += 1;
                    prop_assert!(*passed <= 3);
                }
            }
            let count = waiting.values().map(|it| it.commands.len()).sum::<usize>();
            prop_assert_eq!(rotation.len(), count);
        }
    }
}

#[test]
fn a_line_that_is_held_comes_back_when_the_turn_ends() {
    let mut rotation = rotation(2);
    push_for(&mut rotation, "topic", 1, 0..3);
    push_for(&mut rotation, "jobs", 2, 0..3);
    assert_eq!(take(&mut rotation, Cost::default()), Some((1, 0)));
    assert!(rotation.hold(0));
    // More for the line comes meanwhile.
    push_for(&mut rotation, "topic", 3, 0..1);
    assert_eq!(all(&mut rotation), [(2, 0), (2, 1), (2, 2)]);
    assert!(Waiting::is_empty(&rotation) && rotation.is_any_held());
    assert_eq!(rotation.len(), 3);
    rotation.end_turn();
    assert!(!rotation.is_any_held());
    assert_eq!(all(&mut rotation), [(1, 1), (1, 2), (3, 0)]);
}

#[test]
fn a_line_is_not_held_while_too_much_waits() {
    let mut rotation = rotation(1);
    push(&mut rotation, 1, 0..3);
    let of = |commands, body_bytes| Excess {
        commands,
        body_bytes,
    };
    rotation.set_excess(of(1, 0));
    assert!(!rotation.hold(0));
    assert!(rotation.hold(0));
    rotation.end_turn();
    rotation.set_excess(of(0, 150));
    assert_eq!([(); 3].map(|()| rotation.hold(100)), [false, false, true]);
    // What is held is not lost.
    assert_eq!(rotation.drain().count(), 3);
}

#[test]
fn what_is_sent_has_another_line_than_the_rest() {
    let queue = EntityName::storage_queue("acct", "jobs");
    let sent = Command::Storage(StorageCommand::Send {
        queue,
        body: "a".into(),
        encoding: kew_engine::BodyEncoding::Text,
        time_to_live_seconds: None,
        visibility_timeout: kew_engine::VisibilityTimeout::ZERO,
    });
    assert_eq!(Target::of(&sent), Target::of(&sent.clone()));
    assert_ne!(Target::of(&sent), Target::of(&command("jobs")));
}
