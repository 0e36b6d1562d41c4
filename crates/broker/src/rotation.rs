//! Commands that wait for a turn, served in turn among the sources that they come from.
//!
//! A source is a connection, or a job of the server. The first source of the ring is served until its share is
//! used up or the turn ends, and then goes behind the others. So a source with one command waits for one share
//! of each other source at most, however many commands they have. Commands of one source keep their order.
//!
//! It knows nothing of the mailbox and of admission, which bound how many commands wait.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use kew_engine::Command;
use kew_planted::{Bug, is_planted};

/// Where commands come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(Option<NonZeroU64>);

impl Source {
    /// Each command is a source of its own: for callers that have one command under way at a time.
    pub const ALONE: Self = Self(None);

    /// A source with this number, for drivers that name their sources. 0 is [`Source::ALONE`].
    pub const fn numbered(number: u64) -> Self {
        Self(NonZeroU64::new(number))
    }

    /// A source that no other caller has.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self::numbered(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What one source takes of a turn before the others are served. Its first command may be larger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Commands.
    pub commands: u64,
    /// The most bytes that they write to the batch, without the due work before them.
    pub size_bytes: u64,
    /// How many messages, sessions or queues they look at.
    pub steps: u64,
}

impl Default for Share {
    /// A sixteenth of the bytes and of the steps of a turn, and fewer commands than that.
    fn default() -> Self {
        Self {
            commands: 64,
            size_bytes: 64 * 1024,
            steps: 3125,
        }
    }
}

/// What a command costs its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The most bytes that it writes to the batch.
    pub size_bytes: u64,
    /// How many messages, sessions or queues it looks at.
    pub steps: u64,
}

/// Commands that wait for a turn, in the order in which turns take them.
///
/// `T` is the driver's ticket for a command.
pub trait Waiting<T> {
    /// Whether no command waits.
    fn is_empty(&self) -> bool;

    /// The next command.
    fn front_mut(&mut self) -> Option<&mut Command>;

    /// Takes the next command, which costs the turn so much.
    fn take(&mut self, cost: Cost) -> Option<(T, Command)>;

    /// Ends a turn.
    fn end_turn(&mut self) {}
}

/// The commands of one source, in their order.
impl<T> Waiting<T> for VecDeque<(T, Command)> {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn front_mut(&mut self) -> Option<&mut Command> {
        self.front_mut().map(|(_, command)| command)
    }

    fn take(&mut self, _: Cost) -> Option<(T, Command)> {
        self.pop_front()
    }
}

/// A place in the ring.
#[derive(Debug)]
enum Place<T> {
    /// A command that is a source of its own.
    Alone(T, Command),
    /// A source. Its commands are in `of_source`, at least one.
    Source(Source),
}

/// The commands of all sources. The order in which it gives them out depends on the order in which they came,
/// and on nothing else.
#[derive(Debug)]
pub struct Rotation<T> {
    share: Share,
    /// The sources with commands. The first one is being served.
    ring: VecDeque<Place<T>>,
    of_source: HashMap<Source, VecDeque<(T, Command)>>,
    /// How many commands, and what they cost, the first source has taken of its share.
    taken: (u64, Cost),
    count: usize,
    /// Empty queues, kept for their room.
    spare: Vec<VecDeque<(T, Command)>>,
}

/// How many empty queues are kept, and how many commands each has room for at most.
const SPARE_COUNT_MAX: usize = 64;
const SPARE_ROOM_MAX: usize = 64;

impl<T> Default for Rotation<T> {
    fn default() -> Self {
        Self::new(Share::default())
    }
}

impl<T> Rotation<T> {
    /// No command waits yet.
    pub fn new(share: Share) -> Self {
        Self {
            share,
            ring: VecDeque::new(),
            of_source: HashMap::new(),
            taken: (0, Cost::default()),
            count: 0,
            spare: Vec::new(),
        }
    }

    /// Adds a command behind the others of its source.
    pub fn push(&mut self, source: Source, ticket: T, command: Command) {
        self.count += 1;
        if source == Source::ALONE {
            self.ring.push_back(Place::Alone(ticket, command));
            return;
        }
        let (ring, spare) = (&mut self.ring, &mut self.spare);
        let commands = self.of_source.entry(source).or_insert_with(|| {
            ring.push_back(Place::Source(source));
            spare.pop().unwrap_or_default()
        });
        commands.push_back((ticket, command));
    }

    /// How many commands wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no command waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes all commands, in the order of the ring.
    pub fn drain(&mut self) -> impl Iterator<Item = (T, Command)> + '_ {
        std::iter::from_fn(|| self.take(Cost::default()))
    }

    fn is_share_used_up(&self) -> bool {
        let (commands, cost) = &self.taken;
        let share = &self.share;
        *commands >= share.commands
            || cost.size_bytes >= share.size_bytes
            || cost.steps >= share.steps
    }

    /// Serves the next source. The one that was served goes behind the others, or has no commands any more.
    fn serve_next(&mut self, source: Source, is_empty: bool) {
        self.taken = (0, Cost::default());
        self.ring.pop_front();
        if !is_empty {
            self.ring.push_back(Place::Source(source));
            return;
        }
        if let Some(room) = self.of_source.remove(&source)
            && self.spare.len() < SPARE_COUNT_MAX
            && room.capacity() <= SPARE_ROOM_MAX
        {
            self.spare.push(room);
        }
    }
}

impl<T> Waiting<T> for Rotation<T> {
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn front_mut(&mut self) -> Option<&mut Command> {
        match self.ring.front_mut()? {
            Place::Alone(_, command) => Some(command),
            Place::Source(source) => {
                let commands = self.of_source.get_mut(source)?;
                commands.front_mut().map(|(_, command)| command)
            }
        }
    }

    fn take(&mut self, cost: Cost) -> Option<(T, Command)> {
        let taken = match self.ring.pop_front()? {
            Place::Alone(ticket, command) => (ticket, command),
            Place::Source(source) => {
                self.ring.push_front(Place::Source(source));
                let commands = self.of_source.get_mut(&source)?;
                let taken = commands.pop_front()?;
                let is_empty = commands.is_empty();
                let (count, sum) = &mut self.taken;
                *count += 1;
                sum.size_bytes += cost.size_bytes;
                sum.steps += cost.steps;
                let is_stuck = is_planted(Bug::RotationStuck);
                if is_empty || (self.is_share_used_up() && !is_stuck) {
                    self.serve_next(source, is_empty);
                }
                taken
            }
        };
        self.count -= 1;
        Some(taken)
    }

    /// A turn may have less room than a share, and must not begin with the source that had all of the last one.
    fn end_turn(&mut self) {
        if self.taken.0 > 0
            && let Some(Place::Source(source)) = self.ring.front()
            && !is_planted(Bug::RotationStuck)
        {
            self.serve_next(*source, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use kew_engine::EntityName;
    use kew_engine::storage::StorageCommand;
    use proptest::prelude::*;

    use super::*;

    fn command() -> Command {
        Command::Storage(StorageCommand::Clear {
            queue: EntityName::storage_queue("acct", "jobs"),
        })
    }

    fn rotation(commands: u64) -> Rotation<(u64, u32)> {
        Rotation::new(Share {
            commands,
            ..Share::default()
        })
    }

    fn push(rotation: &mut Rotation<(u64, u32)>, source: u64, numbers: std::ops::Range<u32>) {
        for number in numbers {
            rotation.push(Source::numbered(source), (source, number), command());
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
            (2, 1),
            (0, 1),
            (1, 2),
            (1, 3),
            (2, 2),
            (1, 4),
        ];
        assert_eq!(all(&mut rotation), order);
        assert!(rotation.is_empty() && rotation.of_source.is_empty());
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

    proptest! {
        /// Steps: a source gets a command, or (0) a command is taken.
        #[test]
        fn nothing_is_lost_and_each_source_keeps_its_order(
            steps in proptest::collection::vec((0u64..6, 0u64..40_000), 1..300),
        ) {
            let mut rotation = rotation(3);
            let mut waiting = HashMap::<u64, VecDeque<u32>>::new();
            // How many commands of the other source were taken since the first one waits.
            let mut passed = HashMap::<(u64, u64), u64>::new();
            for (number, (source, size_bytes)) in (0u32..).zip(steps) {
                if source > 0 {
                    push(&mut rotation, source, number..number + 1);
                    waiting.entry(source).or_default().push_back(number);
                } else if let Some((source, number)) = take(&mut rotation, Cost { size_bytes, steps: 1 }) {
                    let commands = waiting.get_mut(&source).unwrap();
                    prop_assert_eq!(commands.pop_front(), Some(number));
                    passed.retain(|(waits, _), _| *waits != source);
                    for (other, _) in waiting.iter().filter(|(_, commands)| !commands.is_empty()) {
                        if *other != source {
                            let passed = passed.entry((*other, source)).or_default();
                            *passed += 1;
                            prop_assert!(*passed <= 3);
                        }
                    }
                }
                prop_assert_eq!(rotation.len(), waiting.values().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
