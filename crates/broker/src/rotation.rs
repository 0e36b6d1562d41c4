//! Commands that wait for a turn, served in turn among the entities that they touch, and for each entity among the
//! sources that they come from.
//!
//! A source is a connection, or a job of the server. It waits in the line of the entity that its next command
//! touches. The first line of the ring is served until a share is used up or the turn ends. Then the line goes
//! behind the other lines, and the source that was served goes to the end of its line. So a command waits for one
//! share of each other entity until its own entity is served, and there for one share of each other source, however
//! many commands they have. Commands of one source keep their order.
//!
//! What is sent to an entity waits in another line than what else is asked of it: those who send to a topic may have to
//! wait until it has made the copies that it owes, and nobody else waits for that.
//!
//! It knows nothing of the mailbox and of admission, which bound how many commands wait.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use kew_engine::{Class, Command, Description, EntityName, Touches};
use rustc_hash::FxHashMap;
use slab::Slab;

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

    /// The number that names it; 0 for [`Source::ALONE`].
    pub const fn number(self) -> u64 {
        match self.0 {
            Some(number) => number.get(),
            None => 0,
        }
    }

    /// A source that no other caller has.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self::numbered(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What one entity takes of a turn before the others are served, and one source before the others of that entity.
/// The first command may be larger.
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

    /// Where the next command comes from.
    fn front_source(&self) -> Source;

    /// Takes the next command, which costs the turn so much.
    fn take(&mut self, cost: Cost) -> Option<(T, Command)>;

    /// Sets the line of the next command, whose bodies have so many bytes, aside until the turn ends. Returns false if it is
    /// not to wait, because too much does already, or has no line.
    fn hold(&mut self, _body_size_bytes: u64) -> bool {
        false
    }

    /// Whether a line was set aside.
    fn is_any_held(&self) -> bool {
        false
    }

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

    fn front_source(&self) -> Source {
        Source::numbered(u64::MAX)
    }

    fn take(&mut self, _: Cost) -> Option<(T, Command)> {
        self.pop_front()
    }
}

/// The line that a command waits in: that of the entity which it touches first, for what is sent or for the rest.
///
/// It is a hash. Two lines with one hash are one, which costs them time and nothing
/// else. Commands that touch no single entity have a line of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target(u64);

impl Target {
    /// The one of a command.
    pub fn of(command: &Command) -> Self {
        Self::of_described(&command.describe())
    }

    /// The one of a command that was described.
    pub(crate) fn of_described(description: &Description<'_>) -> Self {
        let name: Option<&EntityName> = match &description.touches {
            Touches::Queue(name) | Touches::Transfer { from: name, .. } => Some(name),
            Touches::Queues(names) => names.first().copied(),
            Touches::Catalogue | Touches::Account(_) | Touches::Bodies => None,
        };
        // Its keys are fixed: the order of commands is the same in each run.
        let mut hasher = DefaultHasher::new();
        (name, description.class == Class::Produce).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// How much more waits than may, of what can be told to come again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    /// Commands.
    pub commands: usize,
    /// Bytes of their bodies.
    pub body_bytes: usize,
}

/// A place in a line.
#[derive(Debug)]
enum Place<T> {
    /// A command that is a source of its own.
    Alone(T, Command),
    /// A source, with the key that it has in `sources`.
    Source(usize),
}

/// A line of those whose next command touches one entity.
#[derive(Debug)]
struct Line<T> {
    target: Target,
    /// At least one.
    places: VecDeque<Place<T>>,
}

/// The commands of one source.
#[derive(Debug)]
struct OfSource<T> {
    source: Source,
    /// Each with its line. At least one.
    commands: VecDeque<(T, Command, Target)>,
}

/// Why a line is where its key says.
const LINE_STAYS: &str = "a line ends only when its key leaves the ring";

/// Why a source is where its key says.
const SOURCE_STAYS: &str = "a source ends with its place";

/// The commands of all sources. The order in which it gives them out depends on the order in which they came,
/// and on nothing else.
///
/// The next command is found by keys of its line and its source. A hash is looked up only when a command comes, and
/// when a source or a line ends, or a source goes to another line. Keys are used again, but none is kept longer than
/// what it names. That of a line is in the ring or among those that are held, once, and the line ends when its key
/// leaves the ring. That of a source is in its one place, and the source ends with it.
#[derive(Debug)]
pub struct Rotation<T> {
    share: Share,
    /// The lines that are served in turn, by their keys in `lines`. The first one is being served.
    ring: VecDeque<usize>,
    /// The keys of those that are not served before the turn ends.
    held: Vec<usize>,
    excess: Excess,
    /// All lines. A source has one place in all of them.
    lines: Slab<Line<T>>,
    /// Their keys.
    line_of: HashMap<Target, usize>,
    /// All sources but [`Source::ALONE`].
    sources: Slab<OfSource<T>>,
    /// Their keys. Nobody outside chooses the number of a source, so a cheap hash will do.
    source_of: FxHashMap<Source, usize>,
    /// How many commands of the first line were taken of its share, and what they cost.
    taken: (u64, Cost),
    /// Whether the source of the last one still has the first place of that line.
    is_served_first: bool,
    count: usize,
    /// Empty lines and queues, kept for their room.
    spare_lines: Spare<Place<T>>,
    spare: Spare<(T, Command, Target)>,
}

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
            held: Vec::new(),
            excess: Excess::default(),
            lines: Slab::new(),
            line_of: HashMap::new(),
            sources: Slab::new(),
            source_of: FxHashMap::default(),
            taken: (0, Cost::default()),
            is_served_first: false,
            count: 0,
            spare_lines: Spare::default(),
            spare: Spare::default(),
        }
    }

    /// Adds a command behind the others of its source.
    pub fn push(&mut self, source: Source, ticket: T, command: Command) {
        self.push_to(Target::of(&command), source, ticket, command);
    }

    /// Adds a command that waits in this line, once it is the first of its source.
    pub(crate) fn push_to(&mut self, target: Target, source: Source, ticket: T, command: Command) {
        self.count += 1;
        if source == Source::ALONE {
            self.line_up(target, Place::Alone(ticket, command));
            return;
        }
        let waiting = (ticket, command, target);
        if let Some(key) = self.source_of.get(&source) {
            let known = self.sources.get_mut(*key).expect(SOURCE_STAYS);
            known.commands.push_back(waiting);
            return;
        }
        let mut commands = self.spare.take();
        commands.push_back(waiting);
        let key = self.sources.insert(OfSource { source, commands });
        self.source_of.insert(source, key);
        self.line_up(target, Place::Source(key));
    }

    /// How many commands wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no command waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sets how many commands are not to wait for a topic.
    pub fn set_excess(&mut self, excess: Excess) {
        self.excess = excess;
    }

    /// Takes all commands, in the order of the ring.
    pub fn drain(&mut self) -> impl Iterator<Item = (T, Command)> + '_ {
        self.ring.extend(self.held.drain(..));
        std::iter::from_fn(|| self.take(Cost::default()))
    }

    /// Adds a place at the end of the line of an entity.
    fn line_up(&mut self, target: Target, place: Place<T>) {
        if let Some(key) = self.line_of.get(&target) {
            let line = self.lines.get_mut(*key).expect(LINE_STAYS);
            line.places.push_back(place);
            return;
        }
        let mut places = self.spare_lines.take();
        places.push_back(place);
        let key = self.lines.insert(Line { target, places });
        self.line_of.insert(target, key);
        self.ring.push_back(key);
    }

    /// The line that is being served.
    fn first_line(&self) -> Option<&Line<T>> {
        let key = self.ring.front()?;
        Some(self.lines.get(*key).expect(LINE_STAYS))
    }

    /// Takes the first command of the first place of the first line, and takes away the place of a source that
    /// does not wait there any more.
    fn take_first(&mut self) -> Option<(T, Command)> {
        self.is_served_first = false;
        let key = *self.ring.front()?;
        let line = self.lines.get_mut(key).expect(LINE_STAYS);
        let key = match line.places.pop_front()? {
            Place::Alone(ticket, command) => return Some((ticket, command)),
            Place::Source(key) => key,
        };
        let own = self.sources.get_mut(key).expect(SOURCE_STAYS);
        let (ticket, command, _) = own.commands.pop_front()?;
        match own.commands.front().map(|(_, _, target)| *target) {
            Some(next) if next == line.target => {
                line.places.push_front(Place::Source(key));
                self.is_served_first = true;
            }
            Some(next) => self.line_up(next, Place::Source(key)),
            None => {
                let OfSource { source, commands } = self.sources.remove(key);
                self.source_of.remove(&source);
                self.spare.keep(commands);
            }
        }
        Some((ticket, command))
    }

    fn is_share_used_up(&self) -> bool {
        let (commands, cost) = &self.taken;
        let share = &self.share;
        *commands >= share.commands
            || cost.size_bytes >= share.size_bytes
            || cost.steps >= share.steps
    }

    /// Whether nobody waits in the first line any more.
    fn is_line_empty(&self) -> bool {
        self.first_line().is_some_and(|it| it.places.is_empty())
    }

    /// Serves the next entity. The line of the one that was served goes behind the others, or ends, and the source
    /// that was served goes to the end of that line.
    fn serve_next(&mut self) {
        self.taken = (0, Cost::default());
        let is_served_first = std::mem::take(&mut self.is_served_first);
        let Some(key) = self.ring.pop_front() else {
            return;
        };
        let line = self.lines.get_mut(key).expect(LINE_STAYS);
        if line.places.is_empty() {
            let Line { target, places } = self.lines.remove(key);
            self.line_of.remove(&target);
            self.spare_lines.keep(places);
            return;
        }
        if is_served_first {
            line.places.rotate_left(1);
        }
        self.ring.push_back(key);
    }
}

impl<T> Waiting<T> for Rotation<T> {
    fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    fn front_mut(&mut self) -> Option<&mut Command> {
        let key = *self.ring.front()?;
        let line = self.lines.get_mut(key).expect(LINE_STAYS);
        match line.places.front_mut()? {
            Place::Alone(_, command) => Some(command),
            Place::Source(key) => {
                let own = self.sources.get_mut(*key).expect(SOURCE_STAYS);
                own.commands.front_mut().map(|(_, command, _)| command)
            }
        }
    }

    fn front_source(&self) -> Source {
        match self.first_line().and_then(|line| line.places.front()) {
            Some(Place::Source(key)) => self.sources.get(*key).expect(SOURCE_STAYS).source,
            Some(Place::Alone(..)) | None => Source::ALONE,
        }
    }

    fn take(&mut self, cost: Cost) -> Option<(T, Command)> {
        let taken = self.take_first()?;
        self.count -= 1;
        let (count, sum) = &mut self.taken;
        *count += 1;
        sum.size_bytes += cost.size_bytes;
        sum.steps += cost.steps;
        if self.is_line_empty() || self.is_share_used_up() {
            self.serve_next();
        }
        Some(taken)
    }

    fn hold(&mut self, body_size_bytes: u64) -> bool {
        let Excess {
            commands,
            body_bytes,
        } = &mut self.excess;
        if *commands > 0 || *body_bytes > 0 {
            *commands = commands.saturating_sub(1);
            let size_bytes = usize::try_from(body_size_bytes).unwrap_or(usize::MAX);
            *body_bytes = body_bytes.saturating_sub(size_bytes);
            return false;
        }
        if let Some(line) = self.ring.pop_front() {
            self.held.push(line);
        }
        self.taken = (0, Cost::default());
        self.is_served_first = false;
        true
    }

    fn is_any_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// A turn may have less room than a share, and must not begin with the entity that had all of the last one.
    fn end_turn(&mut self) {
        if self.taken.0 > 0 {
            self.serve_next();
        }
        self.ring.extend(self.held.drain(..));
    }
}

/// Empty queues that are kept for their room: a bounded number of them, with a bounded room together.
#[derive(Debug)]
struct Spare<T> {
    queues: Vec<VecDeque<T>>,
    /// How many places they have.
    room: usize,
}

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self {
            queues: Vec::new(),
            room: 0,
        }
    }
}

impl<T> Spare<T> {
    const COUNT_MAX: usize = 64;
    const ROOM_MAX: usize = 64 * Self::COUNT_MAX;

    fn take(&mut self) -> VecDeque<T> {
        let queue = self.queues.pop().unwrap_or_default();
        self.room -= queue.capacity();
        queue
    }

    fn keep(&mut self, queue: VecDeque<T>) {
        if self.queues.len() < Self::COUNT_MAX && self.room + queue.capacity() <= Self::ROOM_MAX {
            self.room += queue.capacity();
            self.queues.push(queue);
        }
    }
}

#[cfg(test)]
mod tests;
