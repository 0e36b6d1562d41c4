//! Upper bounds of what a state takes in a snapshot, without making the snapshot. The disk keeps as much for the next
//! ones as follows from these, and from the pages that there are.
//!
//! Messages, sessions and remembered ids count by their number. The bounds are computed often, so they take a step for
//! each entity and account, and none for a message.

use crate::bus::{BusQueue, REMEMBERED_SIZE_BYTES, SOURCE_SIZE_BYTES_MAX};
use crate::catalogue::AccountRecord;
use crate::effect::Effect;
use crate::event::{Event, Fact};
use crate::state::State;
use crate::storage::Entity;

/// The most bytes of a message of a storage queue: its number (2^35 messages), three times, its lease's
/// generation and its delivery count (2^21 each), placement, encoding, and the location of its body.
const MESSAGE_SIZE_BYTES_MAX: u64 = 46;

/// The most bytes of an entity without its texts: numbers, times, lengths, and the heads of its parts.
const ENTITY_SIZE_BYTES_MAX: u64 = 256;

/// The most bytes of a run without its messages: its bits, counts, bounds and spread in a directory page, the heads of
/// its columns, and its share of that page. The heads of a page of its own are less than its 65 messages count for and do
/// not take; for fewer messages see `OWN_PAGE_SIZE_BYTES`.
const RUN_SIZE_BYTES_MAX: u64 = 512;

/// What a session, a rule or a block of remembered ids may take beside themselves: the head of a page.
const PAGE_HEAD_SIZE_BYTES: u64 = 64;

/// The most bytes of an access policy without its id and permissions.
const POLICY_SIZE_BYTES_MAX: u64 = 32;

/// The most bytes of an account without its name: secrets, versions, quota.
const ACCOUNT_SIZE_BYTES_MAX: u64 = 256;

/// The bytes of the file without its parts, and of the partition's own part.
const FILE_SIZE_BYTES_MAX: u64 = 256;

/// The heads of parts take at most this share of their content, which is 256 KiB or less.
const PARTS_SHARE: u64 = 1024;

/// By how much a message of a storage queue grows on its page while it is consumed: the end of its lease (4), a generation
/// and a count of deliveries that differ from those of its neighbours, and flags. Of a run that keeps its page, 64 messages
/// lie in the directory instead, which is less for 1,024.
const CONSUMED_SIZE_BYTES: u64 = 8;

/// The same of a run, for the first ones of its messages that lie in the directory: the heads of columns there, and bits.
const CONSUMED_RUN_SIZE_BYTES: u64 = 128;

/// The same of a message whose record is not in memory: a patch with the end of its lease and that of its time to live, or
/// its record beside its page; and of a message of a bus queue, which may go to its dead letters, where it has other
/// neighbours.
const PATCHED_SIZE_BYTES: u64 = 20;

/// The same of a run, if records may leave memory: few messages that lie in a directory get a page of their own then, with
/// the heads of its groups and columns.
const OWN_PAGE_SIZE_BYTES: u64 = 512;

/// A run that begins where messages of another one go, and is consumed there.
const NEW_RUN_SIZE_BYTES: u64 = RUN_SIZE_BYTES_MAX + CONSUMED_RUN_SIZE_BYTES;

/// What an arrival, a move of a body or another fact adds to pages beyond the bytes of its event: the times and counts that
/// it implies or writes as differences, for a message and for a session that begins with it.
const GROWTH_BYTES: u64 = 72;

/// What an event adds that creates an entity: a queue of Service Bus has two more.
const ENTITIES_GROWTH_BYTES: u64 = 3 * ENTITY_SIZE_BYTES_MAX;

/// To gather an entity takes about as long as to apply an effect, and a tenth as many effects as there are pieces make
/// a snapshot due: so gathering all takes less than a sixth of what those effects took.
const PIECES_PER_ENTITY: u64 = 64;

/// How large a state is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSize {
    /// The most bytes that its pages take, of one copy. A snapshot of it without pages takes less.
    pub pages_bytes_max: u64,
    /// By how much its pages grow at most while its messages are consumed: received, settled in any way, expired or
    /// forwarded.
    pub consumed_bytes_max: u64,
    /// What of that `pages_bytes_max` does not have already: runs that begin, and what forwarded messages get.
    pub new_bytes_max: u64,
    /// What a message that arrives adds to `consumed_bytes_max` at most, as a multiple of what it adds to the growth of
    /// pages.
    pub consumed_share: u64,
    /// What a snapshot has to look at, or a start to read: how many messages, sessions, remembered ids and rules
    /// there are, and 64 for each entity.
    pub pieces: u64,
    /// How many messages there are.
    pub messages: u64,
}

impl StateSize {
    /// With an entity that has so many messages, and so many other pieces.
    fn add(self, bytes_max: (u64, u64), messages: u64, others: u64) -> Self {
        let (pages_bytes_max, consumed_bytes_max) = bytes_max;
        Self {
            pages_bytes_max: self.pages_bytes_max + pages_bytes_max,
            consumed_bytes_max: self.consumed_bytes_max + consumed_bytes_max,
            pieces: self.pieces + PIECES_PER_ENTITY + messages + others,
            messages: self.messages + messages,
            ..self
        }
    }
}

impl State {
    /// How large it is, in one walk over entities and accounts. `may_be_cold` says whether records may leave memory.
    pub fn size(&self, may_be_cold: bool) -> StateSize {
        let waiting_bytes = self.catalogue.run_length.waiting_size_bytes_max();
        let (consumed, run_bytes) = match may_be_cold {
            true => (
                PATCHED_SIZE_BYTES,
                CONSUMED_RUN_SIZE_BYTES + OWN_PAGE_SIZE_BYTES,
            ),
            false => (CONSUMED_SIZE_BYTES, CONSUMED_RUN_SIZE_BYTES),
        };
        let run_bytes = run_bytes + waiting_bytes;
        let new_run_bytes = NEW_RUN_SIZE_BYTES + waiting_bytes;
        let size = (self.storage.values()).fold(StateSize::default(), |size, it| {
            let count = it.backlog.count();
            let runs = it.backlog.table().run_count();
            let consumed = count * consumed + runs * run_bytes;
            let pages = entity_size_bytes(it) + runs * waiting_bytes;
            size.add((pages, consumed), count, 0)
        });
        let (mut forwarded, mut new_runs) = (Forwarded::default(), 0);
        let size = self.bus.values().fold(size, |size, it| {
            let (count, others) = (it.backlog.count(), other_pieces(it));
            let runs = it.backlog.table().run_count();
            forwarded.add(it);
            // As many runs may begin in the queue of its dead letters.
            new_runs += runs;
            let consumed = (count + others) * PATCHED_SIZE_BYTES + runs * run_bytes;
            let pages = queue_size_bytes(it) + runs * waiting_bytes;
            size.add((pages, consumed), count, others)
        });
        let new_bytes_max = new_runs * new_run_bytes + forwarded.size_bytes(new_run_bytes);
        StateSize {
            pages_bytes_max: self.with_the_rest(size.pages_bytes_max),
            consumed_bytes_max: size.consumed_bytes_max + new_bytes_max,
            new_bytes_max,
            // A run that begins adds 512 to growth, and up to 768 to this; forwarded messages 640 more. What its directory
            // says of messages that wait adds as much to both.
            consumed_share: 2 + forwarded.each_bytes().div_ceil(GROWTH_BYTES),
            ..size
        }
    }

    /// By how much the pages of this process's state have grown at most because of runs that have begun.
    pub fn begun_runs_bytes(&self) -> u64 {
        let waiting_bytes = self.catalogue.run_length.waiting_size_bytes_max();
        self.catalogue.live.begun_runs() * (RUN_SIZE_BYTES_MAX + waiting_bytes)
    }

    /// With what the partition itself takes.
    fn with_the_rest(&self, entities_bytes: u64) -> u64 {
        let accounts = self.catalogue.accounts.values().map(account_size_bytes);
        let properties = self.catalogue.service_properties.iter();
        let properties = properties.map(|((_, account), properties)| {
            ENTITY_SIZE_BYTES_MAX + (account.len() + properties.len()) as u64
        });
        let rest = accounts.chain(properties);
        let size_bytes = FILE_SIZE_BYTES_MAX + entities_bytes + rest.sum::<u64>();
        size_bytes + size_bytes / PARTS_SHARE
    }
}

impl Event {
    /// By how much pages grow at most because of this event, which takes so many bytes in the log; without the runs that
    /// begin, and without what messages that are there may grow by while they are consumed
    /// ([`StateSize::consumed_bytes_max`]).
    pub fn growth_bytes(&self, size_bytes: u64) -> u64 {
        let arrived = match &self.fact {
            Fact::Storage(fact) => arrived_count(fact.effects()),
            Fact::Bus(fact) => arrived_count(fact.effects()),
            Fact::PartitionInitialized { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. }
            | Fact::Quarantined { .. }
            | Fact::RunLost { .. } => None,
        };
        let count = arrived.unwrap_or_else(|| self.effect_count());
        let entities_bytes = match self.shows_in_catalogue() {
            true => ENTITIES_GROWTH_BYTES,
            false => 0,
        };
        size_bytes + self.left_out_size_bytes() + GROWTH_BYTES * count as u64 + entities_bytes
    }
}

/// How many messages effects let come, if there are effects.
fn arrived_count<O>(effects: &[Effect<O>]) -> Option<usize> {
    let is_arrival = |effect: &&Effect<O>| matches!(effect, Effect::Arrived { .. });
    (!effects.is_empty()).then(|| effects.iter().filter(is_arrival).count())
}

/// Messages that may be forwarded without a client, also while the disk is full: due work does it.
#[derive(Clone, Copy, Debug, Default)]
struct Forwarded {
    messages: u64,
    runs: u64,
    /// The longest name that such a dead letter gets as its source. Others keep theirs.
    source_bytes_max: u64,
}

impl Forwarded {
    fn add(&mut self, queue: &BusQueue) {
        if queue.options.forward_dead_letters_to.is_some() {
            let length = queue.name.name.len() as u64;
            self.source_bytes_max = self.source_bytes_max.max(length);
        }
        if queue.options.forwards() {
            self.messages += queue.backlog.count();
            self.runs += queue.backlog.table().run_count();
        }
    }

    /// What each of them grows by: a source, and an id if the destination looks it up.
    fn each_bytes(self) -> u64 {
        match self.messages {
            0 => 0,
            _ => {
                SOURCE_SIZE_BYTES_MAX
                    + self.source_bytes_max
                    + REMEMBERED_SIZE_BYTES
                    + PATCHED_SIZE_BYTES
            }
        }
    }

    fn size_bytes(self, new_run_bytes: u64) -> u64 {
        self.messages * self.each_bytes() + self.runs * new_run_bytes
    }
}

fn entity_size_bytes(entity: &Entity) -> u64 {
    let policies = entity.policies.iter().map(|policy| {
        let permissions = policy.permissions.as_deref().map_or(0, str::len);
        POLICY_SIZE_BYTES_MAX + (policy.id.len() + permissions) as u64
    });
    let metadata = &entity.metadata;
    let texts = entity.name.account.len() + entity.name.name.len() + metadata.size_bytes();
    // Each name and value of metadata has a length.
    let texts = (texts + 8 * metadata.len()) as u64;
    ENTITY_SIZE_BYTES_MAX
        + texts
        + policies.sum::<u64>()
        + entity.backlog.count() * MESSAGE_SIZE_BYTES_MAX
        + entity.backlog.table().run_count() * RUN_SIZE_BYTES_MAX
}

fn queue_size_bytes(queue: &BusQueue) -> u64 {
    let options = &queue.options;
    let destinations = [&options.forward_to, &options.forward_dead_letters_to];
    let destinations = destinations.into_iter().flatten().map(|name| name.len());
    let texts = queue.name.account.len() + queue.name.name.len() + destinations.sum::<usize>();
    let sessions = queue.backlog.sessions.count();
    let heads = sessions + rule_count(queue) + queue.duplicates.block_count();
    ENTITY_SIZE_BYTES_MAX
        + (texts + options.description.len()) as u64
        + queue.backlog.snapshot_size_bytes_max()
        + queue.backlog.table().run_count() * RUN_SIZE_BYTES_MAX
        + queue.duplicates.snapshot_size_bytes_max()
        + (queue.topic.as_ref()).map_or(0, |topic| topic.snapshot_size_bytes_max())
        + heads * PAGE_HEAD_SIZE_BYTES
}

fn other_pieces(queue: &BusQueue) -> u64 {
    queue.backlog.sessions.count() + queue.duplicates.kept_count() + rule_count(queue)
}

fn rule_count(queue: &BusQueue) -> u64 {
    let topic = queue.topic.as_ref();
    topic.map_or(0, |topic| topic.rule_count() as u64)
}

fn account_size_bytes(account: &AccountRecord) -> u64 {
    ACCOUNT_SIZE_BYTES_MAX + account.name.len() as u64
}
