use std::ops::RangeInclusive;

use proptest::prelude::*;

use super::*;

/// The slow obvious one.
type Model = BTreeMap<u64, Mark>;

fn number(number: u64) -> SequenceNumber {
    SequenceNumber::new(number)
}

#[derive(Clone, Debug)]
enum Step {
    /// Most messages come behind all others.
    Push(u64, Mark),
    Put(u64, Mark),
    Change(usize, Mark),
    Remove(usize),
    RemoveRange(RangeInclusive<u64>),
    PopReady,
}

fn step() -> impl Strategy<Value = Step> {
    let mark = || prop_oneof![Just(Mark::Other), Just(Mark::Ready), Just(Mark::Locked)];
    let above = prop_oneof![8 => 1_u64..4, 1 => (1_u64 << 29)..(1 << 31)];
    prop_oneof![
        8 => (above, mark()).prop_map(|(above, mark)| Step::Push(above, mark)),
        2 => (0_u64..60, mark()).prop_map(|(number, mark)| Step::Put(number, mark)),
        6 => (0_usize..40, mark()).prop_map(|(nth, mark)| Step::Change(nth, mark)),
        4 => (0_usize..40).prop_map(Step::Remove),
        1 => (0_u64..60, 0_u64..30).prop_map(|(from, length)| Step::RemoveRange(from..=from + length)),
        3 => Just(Step::PopReady),
    ]
}

fn with(model: &Model, mark: Mark) -> Vec<SequenceNumber> {
    let found = model.iter().filter(|(_, it)| **it == mark);
    found.map(|(at, _)| number(*at)).collect()
}

impl SessionMessages {
    fn check_is(&self, model: &Model, length_max: usize) {
        let marked = self.0.from(0).flat_map(Block::marked);
        assert_eq!(marked.collect::<Model>(), *model);
        assert_eq!(self.is_empty(), model.is_empty());
        let ready = with(model, Mark::Ready);
        assert_eq!(self.ready().collect::<Vec<_>>(), ready);
        assert_eq!(self.first_ready(), ready.first().copied());
        assert_eq!(self.has_ready(), !ready.is_empty());
        let locked = with(model, Mark::Locked);
        assert_eq!(self.locked_count(), locked.len());
        assert_eq!(self.locked().collect::<Vec<_>>(), locked);
        for block in self.0.from(0) {
            assert!(block.len() <= length_max);
        }
        self.check();
    }

    fn blocks(&self) -> usize {
        self.0.from(0).count()
    }

    fn room(&self) -> usize {
        self.0.from(0).map(Block::room).sum()
    }
}

fn carry_out(messages: &mut SessionMessages, model: &mut Model, step: Step, length_max: usize) {
    let mut put = |at: u64, mark| {
        messages.put(number(at), mark, length_max);
        model.insert(at, mark);
    };
    match step {
        Step::Push(above, mark) => {
            let last = model.last_key_value().map_or(0, |(at, _)| *at);
            model.insert(last + above, mark);
            messages.put(number(last + above), mark, length_max);
        }
        Step::Put(at, mark) => put(at, mark),
        Step::Change(nth, mark) => {
            if let Some(at) = model.keys().nth(nth).copied() {
                messages.put(number(at), mark, length_max);
                model.insert(at, mark);
            }
        }
        Step::Remove(nth) => {
            let at = model.keys().nth(nth).copied().unwrap_or(1 << 34);
            messages.remove(number(at), length_max);
            model.remove(&at);
        }
        Step::RemoveRange(range) => {
            for at in range {
                messages.remove(number(at), length_max);
                model.remove(&at);
            }
        }
        Step::PopReady => {
            if let Some(first) = messages.first_ready() {
                messages.remove(first, length_max);
                model.remove(&first.as_u64());
            }
        }
    }
}

proptest! {
    #[test]
    fn they_are_numbers_with_marks(
        steps in prop::collection::vec(step(), 1..200),
        length_max in 4_usize..9,
        from in 0_u64..80,
    ) {
        let (mut messages, mut model) = (SessionMessages::default(), Model::new());
        for step in steps {
            carry_out(&mut messages, &mut model, step, length_max);
            messages.check_is(&model, length_max);
            let rest = model.range(from..).map(|(at, _)| number(*at));
            prop_assert!(messages.numbers_from(number(from)).eq(rest));
        }
        let mut fresh = SessionMessages::default();
        model.iter().for_each(|(at, mark)| fresh.put(number(*at), *mark, length_max));
        prop_assert_eq!(&fresh, &messages);
        fresh.put(number(1 << 34), Mark::Other, length_max);
        prop_assert_ne!(&fresh, &messages);
    }
}

/// One block is visited, however many there are: the one that has it.
#[test]
fn a_ready_message_behind_a_million_deferred_ones_is_found_at_once() {
    let mut messages = SessionMessages::default();
    (0..1_000_000).for_each(|at| messages.put(number(at), Mark::Other, 128));
    messages.put(number(1_000_000), Mark::Locked, 128);
    assert_eq!(
        (messages.first_ready(), messages.has_ready()),
        (None, false)
    );
    for at in 1_000_001..1_100_000 {
        messages.put(number(at), Mark::Ready, 128);
        assert_eq!(messages.first_ready(), Some(number(at)));
        assert_eq!(messages.0.named(|many| &many.ready).count(), 1);
        assert_eq!(messages.0.named(|many| &many.locked).count(), 1);
        assert_eq!(messages.locked().next(), Some(number(1_000_000)));
        messages.remove(number(at), 128);
    }
    assert!(messages.room() < 1_000_000 + 256);
}

#[test]
fn few_messages_take_little_room_however_many_there_were() {
    let mut messages = SessionMessages::default();
    (0..100_000).for_each(|at| messages.put(number(at), Mark::Ready, 128));
    (0..100_000)
        .filter(|at| at % 1000 != 0)
        .for_each(|at| messages.remove(number(at), 128));
    assert!(messages.blocks() <= 6 && messages.room() <= 400);
    (1..100).for_each(|at| messages.remove(number(at * 1000), 128));
    assert!(matches!(&messages.0, Blocks::One(block) if block.len() == 1));
    messages.remove(number(0), 128);
    assert!(messages.is_empty() && messages.room() == 0);
}

/// Falling numbers would make blocks of one number each if each began a new one.
#[test]
fn falling_numbers_share_blocks() {
    let mut messages = SessionMessages::default();
    let mut model = Model::new();
    let far = (1 << 34)..(1 << 34) + 3;
    let all = far.chain(0..200).chain((200..10_000).rev());
    for at in all {
        let mark = if at % 3 == 0 {
            Mark::Ready
        } else {
            Mark::Locked
        };
        messages.put(number(at), mark, 128);
        model.insert(at, mark);
    }
    messages.check_is(&model, 128);
    assert!(
        messages.blocks() <= 10_000 / 64 + 2,
        "{}",
        messages.blocks()
    );
}

#[test]
fn a_short_session_keeps_its_room() {
    let mut messages = SessionMessages::default();
    for at in 0..100 {
        messages.put(number(at), Mark::Ready, 128);
        messages.put(number(at + 1), Mark::Ready, 128);
        messages.remove(number(at), 128);
        assert_eq!(messages.room(), 4);
    }
}
