//! An upper bound of a snapshot's size, without making the snapshot. The disk keeps that much for the next
//! ones.
//!
//! Messages, sessions and remembered ids count by their number. The bound is computed often, so it takes a
//! step for each entity and account, and none for a message.

use crate::bus::BusQueue;
use crate::catalogue::AccountRecord;
use crate::state::State;
use crate::storage::Entity;

/// The most bytes of a message of a storage queue: its number (2^35 messages), three times, its lease's
/// generation and its delivery count (2^21 each), placement, encoding, and the location of its body.
const MESSAGE_SIZE_BYTES_MAX: u64 = 46;

/// The most bytes of an entity without its texts: numbers, times, lengths, and the heads of its parts.
const ENTITY_SIZE_BYTES_MAX: u64 = 256;

/// The most bytes of an access policy without its id and permissions.
const POLICY_SIZE_BYTES_MAX: u64 = 32;

/// The most bytes of an account without its name: secrets, versions, quota.
const ACCOUNT_SIZE_BYTES_MAX: u64 = 256;

/// The bytes of the file without its parts, and of the partition's own part.
const FILE_SIZE_BYTES_MAX: u64 = 256;

/// The heads of parts take at most this share of their content, which is 256 KiB or less.
const PARTS_SHARE: u64 = 1024;

/// To gather an entity takes about as long as to apply an effect, and a tenth as many effects as there are pieces make
/// a snapshot due: so gathering all takes less than a sixth of what those effects took.
const PIECES_PER_ENTITY: u64 = 64;

/// How large a state is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSize {
    /// The most bytes that a whole snapshot of it takes.
    pub snapshot_bytes_max: u64,
    /// What a snapshot has to look at, or a start to read: how many messages, sessions, remembered ids and rules
    /// there are, and 64 for each entity.
    pub pieces: u64,
}

impl StateSize {
    fn add(self, snapshot_bytes_max: u64, pieces: u64) -> Self {
        Self {
            snapshot_bytes_max: self.snapshot_bytes_max + snapshot_bytes_max,
            pieces: self.pieces + PIECES_PER_ENTITY + pieces,
        }
    }
}

impl State {
    /// The most bytes that a snapshot of this state takes.
    pub fn snapshot_size_bytes_max(&self) -> u64 {
        self.size().snapshot_bytes_max
    }

    /// How large it is, in one walk over entities and accounts.
    pub fn size(&self) -> StateSize {
        let size = (self.storage.values()).fold(StateSize::default(), |size, it| {
            size.add(entity_size_bytes(it), it.backlog.count())
        });
        let size = self.bus.values().fold(size, |size, it| {
            size.add(queue_size_bytes(it), queue_pieces(it))
        });
        StateSize {
            snapshot_bytes_max: self.with_the_rest(size.snapshot_bytes_max),
            ..size
        }
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
}

fn queue_size_bytes(queue: &BusQueue) -> u64 {
    let options = &queue.options;
    let destinations = [&options.forward_to, &options.forward_dead_letters_to];
    let destinations = destinations.into_iter().flatten().map(|name| name.len());
    let texts = queue.name.account.len() + queue.name.name.len() + destinations.sum::<usize>();
    ENTITY_SIZE_BYTES_MAX
        + (texts + options.description.len()) as u64
        + queue.backlog.snapshot_size_bytes_max()
        + queue.duplicates.snapshot_size_bytes_max()
        + (queue.topic.as_ref()).map_or(0, |topic| topic.snapshot_size_bytes_max())
}

fn queue_pieces(queue: &BusQueue) -> u64 {
    let sessions = queue.backlog.sessions.count();
    let rules = queue.topic.as_ref().map_or(0, |topic| topic.rule_count());
    queue.backlog.count() + sessions + queue.duplicates.kept_count() + rules as u64
}

fn account_size_bytes(account: &AccountRecord) -> u64 {
    ACCOUNT_SIZE_BYTES_MAX + account.name.len() as u64
}
