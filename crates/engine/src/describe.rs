//! What a command of a partition is: see [`Description`](crate::catalogue::Description). Its profile says most of
//! it.

use crate::bus::{
    DELETED_SIZE_BYTES, DUE_SIZE_BYTES_MAX, RELEASED_SIZE_BYTES, at_once_size_bytes_max,
    released_at_once,
};
use crate::catalogue;
use crate::catalogue::description::{Class, EVENT_SIZE_BYTES, Touches, Writes};
use crate::command::Command;
use crate::moves;
use crate::outcome::Refusal;
use crate::state::State;

/// A command as a partition sees it before it is decided.
pub type Description<'a> = catalogue::Description<'a, Refusal>;

/// The largest properties of a service.
const PROPERTIES_SIZE_BYTES_MAX: usize = 64 * 1024;

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
            Self::ToSend {
                to,
                size_bytes,
                count,
                copies_size_bytes,
            } => {
                let (subscriptions, changes) = state.copying(to);
                let messages = (count, copies_size_bytes);
                size_bytes + at_once_size_bytes_max(changes, subscriptions, messages)
            }
            Self::ToDelete(entity) => {
                EVENT_SIZE_BYTES + DELETED_SIZE_BYTES * state.subscription_count(entity)
            }
        }
    }
}

/// What a decision needs of the description of its command.
#[derive(Debug, PartialEq, Eq)]
pub struct Checked {
    pub(crate) needs_bodies: bool,
    pub(crate) refusal: Option<Refusal>,
}

impl Description<'_> {
    /// What a decision needs of it, so that the command is not described once more.
    pub fn checked(self) -> Checked {
        Checked {
            needs_bodies: self.needs_bodies,
            refusal: self.refusal,
        }
    }

    /// The most bytes of a batch that the command takes in this state, with the due work before it, if at
    /// most `due_budget` due things are done. At least one is done in each of its queues, unless the budget
    /// is 0.
    pub fn room_size_bytes_max(&self, state: &State, due_budget: u32) -> u64 {
        let own = self.writes.size_bytes_max(state);
        if self.due_in == 0 || due_budget == 0 {
            return own;
        }
        // Each queue may get an event that says that it was used, and its topic one, too: both are short.
        let used = u64::from(self.due_in) * EVENT_SIZE_BYTES;
        let released = match self.releases {
            true => released_at_once(due_budget) as u64 * RELEASED_SIZE_BYTES,
            false => 0,
        };
        let due = u64::from(due_budget.max(self.due_in)) * DUE_SIZE_BYTES_MAX;
        own + used + released + due
    }

    /// How many copies the topic that a command sends to owes for what waits in it: as many as if every subscription got
    /// each message. 0 for other commands, and for those that touch another entity first: they wait among its commands, and
    /// would hold up clients that have nothing to do with the topic.
    pub fn owed_copies(&self, state: &State) -> u64 {
        // Most commands are not about topics, and most topics have no message that waits.
        if self.class != Class::Produce || state.catalogue.copying.is_empty() {
            return 0;
        }
        match &self.touches {
            Touches::Queue(name) => state.owed_copies(name),
            Touches::Queues(names) => names.first().map_or(0, |name| state.owed_copies(name)),
            Touches::Transfer { .. }
            | Touches::Catalogue
            | Touches::Account(_)
            | Touches::Bodies => 0,
        }
    }
}

impl Command {
    /// Describes the command.
    pub fn describe(&self) -> Description<'_> {
        let sets = |class, touches, size_bytes| {
            Description::new(
                class,
                touches,
                Writes::AtMost(EVENT_SIZE_BYTES + size_bytes),
            )
        };
        match self {
            Self::Initialize { secret, .. } => {
                sets(Class::Manage, Touches::Catalogue, secret.len() as u64)
            }
            Self::SetServiceProperties {
                account,
                properties,
                ..
            } => {
                let texts = (account.len() + properties.len()) as u64;
                sets(Class::Manage, Touches::Catalogue, texts)
                    .with_bodies(properties.len() as u64)
                    .refused(refuse_properties(properties.len()))
            }
            Self::ReadServiceProperties { .. } | Self::ListAccounts => {
                Description::reads(Touches::Catalogue)
            }
            Self::PutAccount { account, .. } => {
                let keys = account.keys.iter().map(|key| key.as_bytes().len());
                let texts = account.name.len() + keys.sum::<usize>();
                sets(Class::Manage, Touches::Catalogue, texts as u64)
            }
            Self::RemoveAccount { account, .. } => sets(
                Class::Consume,
                Touches::Account(account),
                account.len() as u64,
            ),
            Self::MoveBodies { bodies } => moves::describe(bodies),
            Self::Quarantine { .. } => sets(Class::Maintain, Touches::Bodies, 0),
            Self::Storage(command) => command.describe().map_refusal(Refusal::Storage),
            Self::Bus(command) => command.describe().map_refusal(Refusal::Bus),
        }
    }
}

fn refuse_properties(size_bytes: usize) -> Option<Refusal> {
    let limit_bytes = PROPERTIES_SIZE_BYTES_MAX;
    (size_bytes > limit_bytes).then_some(Refusal::PropertiesTooLarge {
        size_bytes,
        limit_bytes,
    })
}

/// How a partition changes a command before it decides it.
impl Command {
    /// Makes the request smaller if a smaller answer is enough. Returns whether it is.
    pub fn limit_count(&mut self, count: u32) -> bool {
        self.asked().is_some_and(|asked| {
            *asked = count.min(*asked);
            true
        })
    }

    /// How many messages are asked for, if a smaller answer is enough.
    fn asked(&mut self) -> Option<&mut u32> {
        match self {
            Self::Bus(command) => command.asked(),
            // A receive of Queue Storage asks for few messages.
            Self::Storage(_)
            | Self::Initialize { .. }
            | Self::SetServiceProperties { .. }
            | Self::ReadServiceProperties { .. }
            | Self::PutAccount { .. }
            | Self::RemoveAccount { .. }
            | Self::ListAccounts
            | Self::MoveBodies { .. }
            | Self::Quarantine { .. } => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
