use super::*;

fn group(entity: Incarnation, run: u64) -> Group {
    Group::first_of((entity, run))
}

fn entities() -> [Incarnation; 3] {
    Incarnation::default().with_sub_queues()
}

/// Asks for all messages of so many groups, from a run on.
fn ask(wants: &mut Wants, asker: Asker, from: u64, count: u64) {
    let [entity, ..] = entities();
    let groups = (from..from + count).map(|run| (group(entity, run), Slots::MAX));
    wants.ask(asker, groups);
}

fn take_all(wants: &mut Wants) -> Vec<(Group, Slots)> {
    std::iter::from_fn(|| wants.take()).collect()
}

/// Reads everything that is asked for. Returns who has got everything then.
fn read_all(wants: &mut Wants) -> Vec<Asker> {
    let taken = take_all(wants).into_iter();
    taken
        .flat_map(|(group, slots)| wants.end_read(group, slots))
        .collect()
}

const ONE: Asker = Asker::Command(1);
const TWO: Asker = Asker::Command(2);
const THREE: Asker = Asker::Command(3);

/// More groups than are admitted beside another want.
const MANY: u64 = HELD_RECORDS_MAX / 128;

fn is_empty(wants: &Wants) -> bool {
    wants.wants.is_empty()
        && wants.numbers.is_empty()
        && wants.unserved.is_empty()
        && wants.parked.is_empty()
        && wants.small.is_empty()
        && wants.missing.is_empty()
        && wants.asked.is_empty()
        && wants.under_way.is_empty()
        && wants.admitted.is_empty()
        && wants.held == 0
        && wants.held_by_small == 0
}

#[test]
fn entities_take_turns() {
    let [first, second, _] = entities();
    let asked = [0, 1, 2].map(|run| (group(first, run), 1));
    let other = (group(second, 7), 1);
    let mut wants = Wants::default();
    wants.ask(ONE, asked.into_iter().chain([other]));
    let taken = take_all(&mut wants);
    assert_eq!(taken, [other, asked[0], asked[1], asked[2]]);
}

#[test]
fn a_message_is_read_once_for_all_that_want_it() {
    let [entity, ..] = entities();
    let group = group(entity, 3);
    let mut wants = Wants::default();
    wants.ask(ONE, [(group, 0b011)]);
    assert_eq!(wants.take(), Some((group, 0b011)));
    // One of these is being read.
    wants.ask(TWO, [(group, 0b110)]);
    assert_eq!(wants.take(), Some((group, 0b100)));
    assert_eq!(wants.take(), None);
    assert!(wants.has_run((entity, 3)) && !wants.has_run((entity, 2)));
    assert_eq!(wants.end_read(group, 0b011), [ONE]);
    assert_eq!(wants.end_read(group, 0b100), [TWO]);
    wants.release(ONE);
    wants.release(TWO);
    assert!(is_empty(&wants));
}

#[test]
fn what_nobody_wants_any_more_is_not_read() {
    let mut wants = Wants::default();
    ask(&mut wants, ONE, 0, 3);
    ask(&mut wants, TWO, 2, 1);
    let first = wants.take().unwrap();
    // One of its groups could not be read, or there was no descriptor.
    assert_eq!(wants.fail(first.0, first.1), [ONE]);
    wants.release(ONE);
    let left = take_all(&mut wants);
    let [entity, ..] = entities();
    assert_eq!(left, [(group(entity, 2), Slots::MAX)]);
    wants.put_back(left[0].0, left[0].1);
    assert_eq!(take_all(&mut wants), left, "it is wanted");
    wants.release(TWO);
    wants.put_back(left[0].0, left[0].1);
    assert_eq!(wants.take(), None);
    assert!(is_empty(&wants));
}

#[test]
fn wants_are_admitted_in_order_and_below_a_bound() {
    let mut wants = Wants::default();
    ask(&mut wants, ONE, 0, 10);
    assert!(!wants.is_full());
    ask(&mut wants, TWO, 10, MANY);
    ask(&mut wants, THREE, 20 + MANY, 20);
    assert_eq!(
        wants.held,
        10 * 128,
        "the third one does not pass the second"
    );
    assert!(wants.is_full());
    assert_eq!(read_all(&mut wants), [ONE], "and waits for a place");
    // The second one is the first that has not got everything, and is larger than the rest of the bound.
    assert_eq!(wants.held, (10 + MANY) * 128);
    assert_eq!(read_all(&mut wants), [TWO]);
    assert_eq!(read_all(&mut wants), [THREE]);
    for asker in [ONE, TWO, THREE] {
        wants.release(asker);
    }
    assert!(is_empty(&wants));
}

/// Clients with a cold message do not wait for one that settles thousands. But they cannot take all of the memory.
#[test]
fn who_asks_for_little_passes_others() {
    let mut wants = Wants::default();
    ask(&mut wants, ONE, 0, MANY);
    ask(&mut wants, TWO, MANY, MANY);
    assert_eq!(wants.held, MANY * 128);
    for number in 0..1000 {
        ask(
            &mut wants,
            Asker::Command(10 + number),
            3 * MANY + number,
            1,
        );
    }
    let passed = (wants.held - MANY * 128) / 128;
    let most = (HELD_RECORDS_MAX + HELD_BY_SMALL_MAX) / 128;
    assert_eq!(passed, most - MANY);
    // Those of the one that waits are gone with it.
    wants.release(TWO);
    let served = read_all(&mut wants);
    assert_eq!(served.len() as u64, 1 + passed);
    for asker in served {
        wants.release(asker);
    }
    assert_eq!(read_all(&mut wants).len() as u64, 1000 - passed);
    for number in 0..1000 {
        wants.release(Asker::Command(10 + number));
    }
    assert!(is_empty(&wants));
}

/// What the first asker needs beyond the bound takes nothing of the room of those that ask for little.
#[test]
fn who_asks_for_little_passes_one_that_needs_more_than_all_may_hold() {
    let mut wants = Wants::default();
    ask(&mut wants, ONE, 0, 3 * MANY);
    assert_eq!(wants.held, 3 * MANY * 128);
    for number in 0..1000 {
        let run = 3 * MANY + number;
        ask(&mut wants, Asker::Command(10 + number), run, 1);
    }
    let passed = wants.held / 128 - 3 * MANY;
    assert_eq!(passed, HELD_BY_SMALL_MAX / 128);
    ask(&mut wants, TWO, 4 * MANY, MANY);
    let served = read_all(&mut wants);
    assert_eq!(served.len() as u64, 1 + passed);
    assert!(!served.contains(&TWO));
    for asker in served {
        wants.release(asker);
    }
    // The others are first now, and then those that need much.
    let served = std::iter::repeat_with(|| read_all(&mut wants)).take_while(|it| !it.is_empty());
    let served: Vec<Asker> = served.flatten().collect();
    assert_eq!(served.len() as u64, 1000 - passed + 1);
    served.into_iter().for_each(|asker| wants.release(asker));
    assert!(is_empty(&wants));
}

/// One of its messages could not be read. Nobody reads the others in the same breath.
#[test]
fn a_group_fails_for_all_that_want_something_of_it() {
    let [entity, ..] = entities();
    let (bad, good) = (group(entity, 3), group(entity, 4));
    let mut wants = Wants::default();
    wants.ask(ONE, [(bad, 0b001), (good, 1)]);
    assert_eq!(wants.take(), Some((bad, 0b001)));
    wants.ask(TWO, [(bad, 0b010)]);
    wants.ask(THREE, [(bad, 0b100)]);
    assert_eq!(wants.fail(bad, 0b001), [ONE, TWO, THREE]);
    assert_eq!(wants.take(), Some((good, 1)), "the rest of the first one");
    wants.release(TWO);
    wants.release(THREE);
    // The first one needs it no more, and still waits for its other group.
    assert!(!wants.do_without(ONE, bad));
    assert_eq!(wants.end_read(good, 1), [ONE]);
    assert!(wants.do_without(ONE, bad));
    wants.release(ONE);
    assert!(is_empty(&wants));
}

/// Both hold a part of what they need, and together all that there is room for.
#[test]
fn wants_that_hold_a_part_do_not_block_each_other() {
    let mut wants = Wants::default();
    ask(&mut wants, ONE, 0, MANY / 2);
    ask(&mut wants, TWO, MANY, MANY / 2);
    assert_eq!(read_all(&mut wants), [ONE, TWO]);
    ask(&mut wants, ONE, 2 * MANY, MANY / 2);
    ask(&mut wants, TWO, 3 * MANY, MANY / 2);
    assert_eq!(
        wants.held,
        3 * (MANY / 2) * 128,
        "the first one alone goes on"
    );
    assert_eq!(read_all(&mut wants), [ONE]);
    wants.release(ONE);
    assert_eq!(read_all(&mut wants), [TWO]);
    wants.release(TWO);
    assert!(is_empty(&wants));
}

/// Many receivers of a queue need the same messages. These leave room for others, and fail for all at once.
#[test]
fn what_many_ask_for_counts_once() {
    let mut wants = Wants::default();
    for number in 0..2 * MANY {
        ask(&mut wants, Asker::Command(number), 0, 1);
        ask(&mut wants, Asker::Command(number), 1, 1);
    }
    let other = Asker::Command(2 * MANY);
    ask(&mut wants, other, 5, 1);
    assert_eq!(wants.held, 3 * 128);
    let [entity, ..] = entities();
    let all = [0, 1, 5].map(|run| (group(entity, run), Slots::MAX));
    assert_eq!(wants.take(), Some(all[0]));
    let failed = wants.fail(all[0].0, all[0].1);
    assert_eq!(failed.len() as u64, 2 * MANY);
    for asker in failed {
        wants.release(asker);
    }
    assert_eq!(wants.held, 128);
    assert_eq!(take_all(&mut wants), all[2..], "nobody wants the second");
    assert_eq!(wants.end_read(all[2].0, all[2].1), [other]);
    wants.release(other);
    assert!(is_empty(&wants));
}

/// It may be due again and again, and counts for what it misses now.
#[test]
fn due_work_that_asks_again_holds_nothing_twice() {
    let [entity, ..] = entities();
    let due = Asker::DueWork(entity);
    let mut wants = Wants::default();
    for from in 0..10 {
        ask(&mut wants, due, from, 1);
        assert_eq!(wants.held, 128);
        // The tick comes by again before it is read.
        ask(&mut wants, due, from, 1);
        assert_eq!(wants.held, 128);
        assert_eq!(read_all(&mut wants), [due]);
        // The message whose record was read needs something else: it has both.
        ask(&mut wants, due, from + 10, 1);
        assert_eq!(wants.held, 256);
        assert_eq!(read_all(&mut wants), [due]);
        wants.release(due);
        assert!(is_empty(&wants));
    }
}
