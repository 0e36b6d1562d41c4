//! Repairs a partition whose log is damaged. Data that cannot be read is lost.
//!
//! [`Repair::look`] modifies nothing: it reads everything that can be read and lists the losses.
//! [`Repair::carry_out`] writes a new log of the rest. No message is altered: bytes that do not match their
//! checksum are not used. When in doubt a message is kept. So a message may come back if its deletion was
//! lost, as after any delivery that was not settled.

mod bus;
mod reading;
mod rules;
mod topics;

use std::collections::BTreeMap;
use std::sync::Arc;

use kew_engine::bus::BusFact;
use kew_engine::{
    BodyLocation, EntityName, Event, Fact, Hold, Place, SequenceNumber, Skip, State, Timestamp,
    Token,
};
use kew_log::{Damage, Gap, LogEnd, OpenError, Rebuilt, Salvage, Storage};
use thiserror::Error;

use self::reading::Reading;
use crate::follower::Rehearsal;
use crate::partition::{Content, to_log};
use crate::{MigrateError, OpenPartitionError, Partition, PartitionOptions};

/// The losses of a damaged partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Damage to headers and snapshots. Not all of it causes a loss.
    pub damage: Vec<Damage>,
    /// The parts of the history that cannot be read. What happened there is unknown: messages sent, deleted
    /// or updated, and queues created or deleted.
    pub gaps: Vec<Gap>,
    /// Messages that are lost and are known to have existed.
    pub messages: Vec<LostMessage>,
    /// How many more are lost at most, by queue: too many to list.
    pub more_messages: BTreeMap<EntityName, u64>,
    /// Lost states of Service Bus sessions. The sessions have no state now.
    pub session_states: Vec<LostSessionState>,
    /// Topics whose subscriptions have lost rules, or may have.
    pub rules: Vec<LostRules>,
    /// Queues whose names are lost. They are kept, with their messages, under these names.
    pub renamed: Vec<EntityName>,
    /// Topics whose creation is lost. They have their names, which their subscriptions have, too, and default settings.
    pub without_settings: Vec<EntityName>,
    /// Queues that are dropped with their messages, because a newer queue has their name.
    pub dropped: Vec<EntityName>,
    /// How many messages of each queue existed before the last gap. If their deletion is lost, they come
    /// back.
    pub may_return: BTreeMap<EntityName, u64>,
    /// The partition's secret is lost: its messages get new ids.
    pub secret_is_lost: bool,
}

/// A message that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostMessage {
    /// Its queue.
    pub queue: EntityName,
    /// Its order in the queue, by which Service Bus names it.
    pub sequence_number: SequenceNumber,
    /// Its id in Queue Storage; `None` if the partition's secret is lost.
    pub id: Option<Token>,
    /// It was sent at this time at the earliest.
    pub inserted_from: Timestamp,
    /// It was sent at this time at the latest.
    pub inserted_until: Timestamp,
    /// Size of its body, if it is known.
    pub size_bytes: Option<u32>,
    /// The damage.
    pub why: String,
}

/// The state of a session that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSessionState {
    /// Its queue.
    pub queue: EntityName,
    /// The session's id.
    pub session: Box<str>,
    /// The damage.
    pub why: String,
}

/// What is lost of the rules of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRules {
    /// The topic.
    pub topic: EntityName,
    /// Changes of its rules may be lost: rules that were added may be missing, and rules that were removed may be back.
    pub may_be_old: bool,
    /// How many rules are dropped because their subscriptions are lost.
    pub dropped: u64,
    /// Subscriptions whose rules are lost, or not all of them known. They get every message of the topic now.
    pub opened: Vec<EntityName>,
}

/// A damaged partition, read as far as possible.
pub struct Repair {
    storage: Arc<dyn Storage>,
    salvage: Salvage,
    sets_aside: bool,
    state: State,
    losses: Losses,
}

/// Why a partition was not repaired.
#[derive(Debug, Error)]
pub enum RepairError {
    /// The log could not be written anew.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The new log could not be opened.
    #[error("the repaired partition could not be opened")]
    Open(#[from] OpenPartitionError),
    /// A log of the format before could not be brought to the present one.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    /// The new log could not be written to.
    #[error("the repaired partition could not be opened")]
    Commit(#[from] LogEnd),
}

impl Repair {
    /// Reads everything that can be read. A queue whose name is lost gets a new name, in the account of
    /// another queue or, without any, in `account`.
    pub fn look(storage: Arc<dyn Storage>, account: &str) -> Result<Self, OpenError> {
        let mut start = Rehearsal::new();
        let salvage = Salvage::look_for(Arc::clone(&storage), &mut start)?;
        let mut losses = Losses {
            damage: salvage.damage().to_vec(),
            ..Losses::default()
        };
        let bases = salvage.bases();
        let mut reading = Reading::new(account);
        losses.gaps = salvage.read(&bases[0], &mut reading)?;
        if !losses.gaps.is_empty() {
            for base in &bases[1..] {
                let mut other = Reading::new(account);
                let gaps = salvage.read(base, &mut other)?;
                losses.gaps.extend(gaps);
                losses.dropped.extend(reading.absorb(other));
            }
            losses.gaps.sort_by(|one, next| {
                let key = |gap: &Gap| (gap.file.clone(), gap.offset);
                key(one).cmp(&key(next))
            });
            losses.gaps.dedup();
        }
        reading.list(&mut losses);
        let mut state = reading.state;
        drop_bodiless(&salvage, &mut state, &mut losses);
        // The message that counts the body of several may be among those that are lost or dropped.
        if !losses.gaps.is_empty() || !losses.messages.is_empty() {
            state.complete_holds();
        }
        losses.secret_is_lost = !losses.gaps.is_empty() && !state.is_initialized();
        Ok(Self {
            storage,
            salvage,
            sets_aside: start.sets_aside(),
            state,
            losses,
        })
    }

    /// Why a start is refused, if it is.
    pub fn refusal(&self) -> Option<&OpenError> {
        self.salvage.refusal()
    }

    /// Whether a start sets messages of damaged pages aside. A repair may find them elsewhere.
    pub fn start_sets_aside(&self) -> bool {
        self.sets_aside
    }

    /// Whether anything needs a repair: the start is refused or loses messages, or messages have lost their bodies.
    pub fn is_needed(&self) -> bool {
        self.refusal().is_some()
            || self.sets_aside
            || !self.losses.messages.is_empty()
            || !self.losses.session_states.is_empty()
    }

    /// The losses.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// How many queues and messages are kept.
    pub fn kept(&self) -> (usize, u64) {
        self.state.counts()
    }

    /// Writes a new log of everything that could be read, and opens it once.
    ///
    /// `entropy` seeds the segment salts. `secret` is for a partition that has lost its own.
    pub fn carry_out(
        mut self,
        options: PartitionOptions,
        entropy: u64,
        secret: [u8; 16],
    ) -> Result<Rebuilt, RepairError> {
        if !self.losses.gaps.is_empty() {
            self.state.skip_numbers(Skip::GAP);
        }
        let mut content = Content::Shared(self.state.share());
        let live: Vec<_> = self.state.bodies().map(to_log).collect();
        let rebuilt = self
            .salvage
            .rebuild(&options.log, &mut content, live, entropy)?;
        let wall = self.state.last_event_at();
        Partition::<()>::open_repaired(self.storage, options, entropy, secret, wall)?;
        Ok(rebuilt)
    }
}

/// The bodies of a damaged partition. One that several messages have is read once.
struct Bodies<'a> {
    salvage: &'a Salvage,
    /// Why shared ones cannot be read, if they cannot.
    shared: BTreeMap<BodyLocation, Option<String>>,
}

impl Bodies<'_> {
    /// Why a body cannot be read.
    fn damage(&mut self, body: BodyLocation) -> Option<String> {
        let read = || self.salvage.body(to_log(body)).err();
        match body.hold() {
            Hold::Alone => read(),
            Hold::Lends | Hold::Borrows => {
                let known = self.shared.entry(body.with(Hold::Alone));
                known.or_insert_with(read).clone()
            }
        }
    }
}

/// Drops messages whose bodies cannot be read in full, and such states of sessions.
fn drop_bodiless(salvage: &Salvage, state: &mut State, losses: &mut Losses) {
    let mut dropped = Vec::new();
    let mut bodies = Bodies {
        salvage,
        shared: BTreeMap::new(),
    };
    for message in state.messages() {
        let body = bodies.damage(message.body);
        let overlays = message.overlays.iter();
        let mut overlays = overlays.filter_map(|overlay| bodies.damage(*overlay));
        let overlay = || {
            overlays
                .next()
                .map(|why| format!("a change to its properties: {why}"))
        };
        if let Some(why) = body.or_else(overlay) {
            losses.messages.push(LostMessage {
                queue: message.queue_name.clone(),
                sequence_number: message.sequence_number,
                id: state.id_of(message.queue, message.sequence_number),
                inserted_from: message.inserted_at,
                inserted_until: message.inserted_at,
                size_bytes: Some(message.body.length),
                why,
            });
            let (queue, sequence_number) = (message.queue, message.sequence_number);
            dropped.extend(state.ended(Place {
                entity: queue,
                number: sequence_number,
            }));
        }
    }
    for stored in state.session_states() {
        if let Err(why) = salvage.body(to_log(stored.body)) {
            losses.session_states.push(LostSessionState {
                queue: stored.queue_name,
                session: stored.session.id.clone(),
                why,
            });
            dropped.push(Fact::Bus(BusFact::SessionStateSet {
                queue: stored.queue,
                session: stored.session,
                was: Some(stored.body),
                state: None,
            }));
        }
    }
    let at = state.last_event_at();
    for fact in dropped {
        state.apply(Event { at, fact });
    }
}
