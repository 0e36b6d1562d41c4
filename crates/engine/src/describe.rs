//! What a command is, said in one place: what it touches, writes, looks at and takes.
//!
//! A partition asks before it decides. It makes room for all that a command may write, so that a decision
//! never fails halfway; it bounds the work of a turn by what its commands look at; and it admits commands by
//! their class. A new command does not compile before it is described: here, or in `bus/describe.rs`.

use crate::bus::{
    Adjustable, DUE_SIZE_BYTES_MAX, RELEASED_SIZE_BYTES, ReceiveMode, Receives, TransactionPart,
    released_at_once,
};
use crate::profile::storage_queue::BODY_SIZE_BYTES_MAX;
use crate::{AccessPolicies, Command, EntityName, Metadata, Refusal, State};

/// The most bytes of an event besides its texts: two varints of 56 bits, two of 36, two times, the location
/// of a body, a hash, and the batch's own tag and length.
pub(crate) const EVENT_SIZE_BYTES: u64 = 128;
/// The bytes that a batch adds to a body.
pub(crate) const BODY_OVERHEAD_BYTES: u64 = 16;
/// The most bytes of a text's length, or of another number beside it.
const NUMBER_SIZE_BYTES: u64 = 10;

/// The largest properties of a service.
const PROPERTIES_SIZE_BYTES_MAX: usize = 64 * 1024;

/// A command as a partition sees it before it is decided.
#[derive(Debug)]
pub struct Description<'a> {
    /// What it reads or changes.
    pub touches: Touches<'a>,
    /// Which commands it makes way for.
    pub class: Class,
    /// What it writes, without the due work before it.
    pub writes: Writes<'a>,
    /// The bytes of its bodies. They are in memory from its admission to its answer.
    pub body_size_bytes: u64,
    /// Whether its bodies are changes to properties at the end of locks.
    pub changes_properties: bool,
    /// In how many bus queues due work is done before it.
    pub due_in: u32,
    /// Whether it releases messages with their session, as many as the budget for due work allows.
    pub releases: bool,
    /// How many messages, sessions or queues it looks at, as far as the command tells. Expired messages that
    /// it passes are not counted.
    pub looks_at: u64,
    /// What it takes that other receivers may wait for.
    pub receives: Option<Receives<'a>>,
    /// Why it is refused in any state.
    pub refusal: Option<Refusal>,
}

/// What a command reads or changes, besides the due work before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touches<'a> {
    /// A queue, or a sub-queue of a bus queue. Its sub-queues too: a message may become a dead letter.
    Queue(&'a EntityName),
    /// A bus queue or sub-queue, and the queue that its messages are sent to.
    Transfer {
        /// The source.
        from: &'a EntityName,
        /// The destination in the same namespace. Without a name, the queue that the sub-queue belongs to.
        to: Option<&'a str>,
    },
    /// The queues of these parts.
    Parts(&'a [TransactionPart]),
    /// The names and settings of queues; accounts, and the properties of services.
    Catalogue,
    /// An account with all its queues.
    Account(&'a str),
}

/// Which commands make way for others when much is under way, or when the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Takes or frees messages. Such commands have a share of their own, and are carried out on a full disk.
    Consume,
    /// Adds messages, or bytes to them.
    Produce,
    /// Changes queues or accounts.
    Manage,
    /// Changes nothing.
    Read,
}

/// What a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes<'a> {
    /// Nothing in any state.
    Nothing,
    /// At most this many bytes of a batch.
    AtMost(u64),
    /// Nothing if the queue exists: workers create their queues at start, to be sure. Otherwise at most this
    /// many bytes of a batch.
    ToCreate(&'a EntityName, u64),
}

impl Writes<'_> {
    /// The most bytes of a batch in this state.
    pub fn size_bytes_max(self, state: &State) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::AtMost(size_bytes) => size_bytes,
            Self::ToCreate(queue, size_bytes) => match state.has_entity(queue) {
                true => 0,
                false => size_bytes,
            },
        }
    }
}

impl Description<'_> {
    /// The most bytes of a batch that the command takes in this state, with the due work before it, if at
    /// most `due_budget` due things are done. At least one is done in each of its queues, unless the budget
    /// is 0.
    pub fn room_size_bytes_max(&self, state: &State, due_budget: u32) -> u64 {
        let own = self.writes.size_bytes_max(state);
        if self.due_in == 0 || due_budget == 0 {
            return own;
        }
        // Each queue may get an event that says that it was used.
        let used = u64::from(self.due_in) * EVENT_SIZE_BYTES;
        let released = match self.releases {
            true => released_at_once(due_budget) as u64 * RELEASED_SIZE_BYTES,
            false => 0,
        };
        let due = u64::from(due_budget.max(self.due_in)) * DUE_SIZE_BYTES_MAX;
        own + used + released + due
    }
}

/// How descriptions are put together.
impl<'a> Description<'a> {
    pub(crate) fn new(class: Class, touches: Touches<'a>, writes: Writes<'a>) -> Self {
        Self {
            touches,
            class,
            writes,
            body_size_bytes: 0,
            changes_properties: false,
            due_in: 0,
            releases: false,
            looks_at: 1,
            receives: None,
            refusal: None,
        }
    }

    pub(crate) fn reads(touches: Touches<'a>) -> Self {
        Self::new(Class::Read, touches, Writes::Nothing)
    }

    pub(crate) fn with_bodies(self, body_size_bytes: u64) -> Self {
        Self {
            body_size_bytes,
            ..self
        }
    }

    /// Bodies that are changes to properties.
    pub(crate) fn with_changes(self, size_bytes: u64) -> Self {
        Self {
            changes_properties: true,
            ..self.with_bodies(size_bytes)
        }
    }

    pub(crate) fn looking_at(self, count: u64) -> Self {
        // A command for nothing takes time too.
        Self {
            looks_at: count.max(1),
            ..self
        }
    }

    pub(crate) fn after_due_in(self, due_in: u32) -> Self {
        Self { due_in, ..self }
    }

    pub(crate) fn releasing(self) -> Self {
        Self {
            releases: true,
            ..self
        }
    }

    pub(crate) fn receiving(self, receives: Receives<'a>) -> Self {
        Self {
            receives: Some(receives),
            ..self
        }
    }

    /// The same, if the command can be carried out in some state. Otherwise it does nothing.
    pub(crate) fn refused(self, refusal: Option<Refusal>) -> Self {
        match refusal {
            None => self,
            Some(refusal) => Self {
                writes: Writes::Nothing,
                due_in: 0,
                releases: false,
                looks_at: 1,
                refusal: Some(refusal),
                ..self
            },
        }
    }
}

impl Command {
    /// Describes the command.
    pub fn describe(&self) -> Description<'_> {
        use Class::{Consume, Manage, Produce};
        let writes = |class, queue, size_bytes| {
            Description::new(class, Touches::Queue(queue), Writes::AtMost(size_bytes))
        };
        let sets =
            |size_bytes| Description::new(Manage, Touches::Catalogue, Writes::AtMost(size_bytes));
        match self {
            Self::Initialize { secret } => sets(EVENT_SIZE_BYTES + secret.len() as u64),
            Self::CreateQueue { queue, metadata } => {
                let texts = (queue.account.len() + queue.name.len()) as u64;
                let size_bytes = EVENT_SIZE_BYTES + texts + metadata_size_bytes(metadata);
                let created = Writes::ToCreate(queue, size_bytes);
                Description::new(Manage, Touches::Queue(queue), created)
            }
            Self::DeleteQueue { queue } | Self::Clear { queue } => {
                writes(Consume, queue, EVENT_SIZE_BYTES)
            }
            Self::SetQueueMetadata { queue, metadata } => writes(
                Manage,
                queue,
                EVENT_SIZE_BYTES + metadata_size_bytes(metadata),
            ),
            Self::SetQueuePolicies { queue, policies } => writes(
                Manage,
                queue,
                EVENT_SIZE_BYTES + policies_size_bytes(policies),
            ),
            Self::ReadQueue { queue } => Description::reads(Touches::Queue(queue)),
            Self::ListQueues { limit, .. } => {
                Description::reads(Touches::Catalogue).looking_at((*limit).into())
            }
            Self::Send { queue, body, .. } => {
                let stored = BODY_OVERHEAD_BYTES + body.len() as u64;
                writes(Produce, queue, EVENT_SIZE_BYTES + stored)
                    .with_bodies(body.len() as u64)
                    .refused(refuse_body(body.len(), BODY_SIZE_BYTES_MAX))
            }
            Self::Receive { queue, count, .. } => {
                let count = u64::from(*count);
                writes(Consume, queue, count * EVENT_SIZE_BYTES).looking_at(count)
            }
            Self::Peek { queue, count } => {
                Description::reads(Touches::Queue(queue)).looking_at((*count).into())
            }
            Self::Update {
                queue, body: None, ..
            } => writes(Consume, queue, EVENT_SIZE_BYTES),
            Self::Update {
                queue,
                body: Some((_, body)),
                ..
            } => {
                let stored = BODY_OVERHEAD_BYTES + body.len() as u64;
                // It renews a lease, which its holder must not lose to producers.
                writes(Consume, queue, EVENT_SIZE_BYTES + stored)
                    .with_bodies(body.len() as u64)
                    .refused(refuse_body(body.len(), BODY_SIZE_BYTES_MAX))
            }
            Self::Delete { queue, .. } => writes(Consume, queue, EVENT_SIZE_BYTES),
            Self::SetServiceProperties {
                account,
                properties,
                ..
            } => {
                let texts = (account.len() + properties.len()) as u64;
                sets(EVENT_SIZE_BYTES + texts)
                    .with_bodies(properties.len() as u64)
                    .refused(refuse_body(properties.len(), PROPERTIES_SIZE_BYTES_MAX))
            }
            Self::ReadServiceProperties { .. } | Self::ListAccounts => {
                Description::reads(Touches::Catalogue)
            }
            Self::PutAccount { account, .. } => {
                let keys = account.keys.iter().map(|key| key.as_bytes().len());
                let texts = account.name.len() + keys.sum::<usize>();
                sets(EVENT_SIZE_BYTES + texts as u64)
            }
            Self::RemoveAccount { account, .. } => {
                let size_bytes = EVENT_SIZE_BYTES + account.len() as u64;
                let removed = Writes::AtMost(size_bytes);
                Description::new(Consume, Touches::Account(account), removed)
            }
            Self::Bus(command) => command.describe(),
        }
    }
}

/// How a partition changes a command before it decides it.
impl Command {
    /// Makes the request smaller if a smaller answer is enough. Returns whether it is.
    pub fn limit_count(&mut self, count: u32) -> bool {
        let asked = self.adjustable().asked;
        asked.is_some_and(|asked| {
            *asked = count.min(*asked);
            true
        })
    }

    /// Makes a command that would delete what it receives delete nothing before it was read.
    pub fn delete_once_read(&mut self) {
        if let Some(mode) = self.adjustable().receive
            && *mode == ReceiveMode::ReceiveAndDelete
        {
            *mode = ReceiveMode::DeleteOnceRead;
        }
    }

    fn adjustable(&mut self) -> Adjustable<'_> {
        match self {
            Self::Bus(command) => command.adjustable(),
            // A receive of Queue Storage asks for few messages.
            Self::Receive { .. }
            | Self::Initialize { .. }
            | Self::CreateQueue { .. }
            | Self::DeleteQueue { .. }
            | Self::ReadQueue { .. }
            | Self::SetQueueMetadata { .. }
            | Self::ListQueues { .. }
            | Self::Send { .. }
            | Self::Peek { .. }
            | Self::Update { .. }
            | Self::Delete { .. }
            | Self::Clear { .. }
            | Self::SetQueuePolicies { .. }
            | Self::SetServiceProperties { .. }
            | Self::ReadServiceProperties { .. }
            | Self::PutAccount { .. }
            | Self::RemoveAccount { .. }
            | Self::ListAccounts => Adjustable::default(),
        }
    }
}

fn refuse_body(size_bytes: usize, limit_bytes: usize) -> Option<Refusal> {
    (size_bytes > limit_bytes).then_some(Refusal::BodyTooLarge {
        size_bytes,
        limit_bytes,
    })
}

fn metadata_size_bytes(metadata: &Metadata) -> u64 {
    metadata.size_bytes() as u64 + metadata.len() as u64 * 2 * NUMBER_SIZE_BYTES
}

fn policies_size_bytes(policies: &AccessPolicies) -> u64 {
    let sizes = policies.iter().map(|policy| {
        let permissions = policy.permissions.as_deref().map_or(0, str::len);
        // Two lengths, two times, and whether three parts are there.
        (policy.id.len() + permissions) as u64 + 5 * NUMBER_SIZE_BYTES
    });
    sizes.sum()
}

#[cfg(test)]
pub(crate) mod tests;
