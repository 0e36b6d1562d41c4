//! Making a partition whole again whose log is damaged, at the price of what cannot be read.
//!
//! [`Repair::look`] modifies nothing: it reads all that can be read and lists what is lost.
//! [`Repair::carry_out`] makes a new log of the rest. No message is altered: what does not match its
//! checksum is not used. When in doubt a message is kept, so that one whose deletion was lost may
//! come back, as after any delivery that was not settled.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kew_engine::{EntityName, Event, Fact, Incarnation, SequenceNumber, State, Timestamp, Token};
use kew_log::{
    BoxError, Damage, Gap, LogFailed, LogPosition, OpenError, Rebuilt, Replay, Rescue, Salvage,
    Storage,
};
use thiserror::Error;

use crate::partition::to_log;
use crate::{OpenPartitionError, Partition, PartitionOptions};

/// What a damaged partition has lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Damage to headers and snapshots; not all of it costs something.
    pub damage: Vec<Damage>,
    /// What cannot be read of the history. What happened there is unknown: messages sent, deleted,
    /// updated, queues made and deleted.
    pub gaps: Vec<Gap>,
    /// Messages that are lost and known to have been there.
    pub messages: Vec<LostMessage>,
    /// Queues whose names are lost. They are kept, with their messages, under these names.
    pub renamed: Vec<EntityName>,
    /// Queues that are dropped with their messages because a newer one has their name.
    pub dropped: Vec<EntityName>,
    /// How many messages of each queue were there before the last gap: their deletion may be lost,
    /// and then they come back.
    pub may_return: BTreeMap<EntityName, u64>,
    /// The partition's secret is lost: messages get new ids.
    pub secret_is_lost: bool,
}

/// A message that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostMessage {
    /// Its queue.
    pub queue: EntityName,
    /// Its id; `None` if the partition's secret is lost.
    pub id: Option<Token>,
    /// Not sent before this time.
    pub inserted_from: Timestamp,
    /// Nor after this time.
    pub inserted_until: Timestamp,
    /// Size of its body, if it is known.
    pub size_bytes: Option<u32>,
    /// What is wrong.
    pub why: String,
}

/// A damaged partition, read as far as it can be.
pub struct Repair<'a> {
    storage: &'a dyn Storage,
    salvage: Salvage<'a>,
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
    /// Likewise.
    #[error("the repaired partition could not be opened")]
    Commit(#[from] LogFailed),
}

impl<'a> Repair<'a> {
    /// Reads all that can be read. Queues whose names are lost are given one in `account` if no
    /// other queue tells theirs.
    pub fn look(storage: &'a dyn Storage, account: &str) -> Result<Self, OpenError> {
        let salvage = Salvage::look(storage)?;
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
        losses.secret_is_lost = !losses.gaps.is_empty() && !state.is_initialized();
        Ok(Self {
            storage,
            salvage,
            state,
            losses,
        })
    }

    /// Why a start is refused, if it is.
    pub fn refusal(&self) -> Option<&OpenError> {
        self.salvage.refusal()
    }

    /// Whether there is anything to repair: a start is refused, or messages have lost their bodies.
    pub fn is_needed(&self) -> bool {
        self.refusal().is_some() || !self.losses.messages.is_empty()
    }

    /// What is lost.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// How many queues and messages are kept.
    pub fn kept(&self) -> (usize, u64) {
        self.state.counts()
    }

    /// Makes a new log of what could be read, and opens it once.
    ///
    /// `entropy` makes segment salts; `secret` is for a partition that has lost its own.
    pub fn carry_out(
        mut self,
        options: PartitionOptions,
        entropy: u64,
        secret: [u8; 16],
    ) -> Result<Rebuilt, RepairError> {
        if !self.losses.gaps.is_empty() {
            self.state.skip_numbers();
        }
        let mut parts = Vec::new();
        self.state
            .snapshot(|part| parts.push(Bytes::copy_from_slice(part)));
        let live: Vec<_> = self.state.bodies().map(to_log).collect();
        let rebuilt = self.salvage.rebuild(&options.log, &parts, live, entropy)?;
        let wall = self.state.last_event_at();
        Partition::<()>::open_repaired(self.storage, options, entropy, secret, wall)?;
        Ok(rebuilt)
    }
}

/// Drops the messages whose bodies cannot be read.
fn drop_bodiless(salvage: &Salvage<'_>, state: &mut State, losses: &mut Losses) {
    let mut dropped = Vec::new();
    for message in state.messages() {
        if let Err(why) = salvage.body(to_log(message.body)) {
            losses.messages.push(LostMessage {
                queue: message.queue_name.clone(),
                id: state.id_of(message.queue, message.sequence_number),
                inserted_from: message.inserted_at,
                inserted_until: message.inserted_at,
                size_bytes: Some(message.body.length),
                why,
            });
            dropped.push((message.queue, message.sequence_number));
        }
    }
    let at = state.last_event_at();
    for (queue, sequence_number) in dropped {
        let fact = Fact::MessageDeleted {
            queue,
            sequence_number,
        };
        state.apply(Event { at, fact });
    }
}

/// A message that must have been there, and is not.
struct Hole {
    inserted_from: Timestamp,
    inserted_until: Timestamp,
    size_bytes: Option<u32>,
    why: String,
}

/// The state that one reading of the log comes to, and what it misses.
struct Reading {
    state: State,
    account: String,
    /// The last gap, in words.
    gap: Option<String>,
    /// When the last event before the last gap happened.
    gap_from: Timestamp,
    /// The next sequence number of each queue at the last gap.
    next_at_gap: BTreeMap<Incarnation, SequenceNumber>,
    /// Queues whose creation was not read, by the names that they were given.
    stand_ins: BTreeMap<Incarnation, EntityName>,
    deleted: BTreeSet<Incarnation>,
    holes: BTreeMap<(Incarnation, SequenceNumber), Hole>,
}

impl Reading {
    fn new(account: &str) -> Self {
        Self {
            state: State::new(),
            account: account.to_owned(),
            gap: None,
            gap_from: Timestamp::ZERO,
            next_at_gap: BTreeMap::new(),
            stand_ins: BTreeMap::new(),
            deleted: BTreeSet::new(),
            holes: BTreeMap::new(),
        }
    }

    /// Adds what another reading knows.
    fn absorb(&mut self, other: Self) -> Vec<EntityName> {
        let unknown: Vec<_> = self.stand_ins.keys().copied().collect();
        for queue in unknown {
            if let Some(name) = other.state.queue_name(queue)
                && !other.stand_ins.contains_key(&queue)
            {
                self.state.rename(queue, name.clone());
                self.stand_ins.remove(&queue);
            }
        }
        for (queue, name) in other.stand_ins {
            if self.state.queue_name(queue).is_none() {
                self.stand_ins.insert(queue, name);
            }
        }
        for (queue, next) in other.next_at_gap {
            let own = self.next_at_gap.entry(queue).or_insert(next);
            *own = next.max(*own);
        }
        for (hole, found) in other.holes {
            self.holes.entry(hole).or_insert(found);
        }
        self.state.absorb(other.state)
    }

    /// Says what is missed at the end.
    fn list(&mut self, losses: &mut Losses) {
        let holes = std::mem::take(&mut self.holes);
        for ((queue, sequence_number), hole) in holes {
            let Some(name) = self.state.queue_name(queue) else {
                continue;
            };
            if !self.state.holds(queue, sequence_number) {
                losses.messages.push(LostMessage {
                    queue: name.clone(),
                    id: self.state.id_of(queue, sequence_number),
                    inserted_from: hole.inserted_from,
                    inserted_until: hole.inserted_until,
                    size_bytes: hole.size_bytes,
                    why: hole.why,
                });
            }
        }
        losses.renamed = self.stand_ins.values().cloned().collect();
        for message in self.state.messages() {
            let next = self.next_at_gap.get(&message.queue);
            if next.is_some_and(|next| message.sequence_number < *next) {
                let count = losses
                    .may_return
                    .entry(message.queue_name.clone())
                    .or_default();
                *count += 1;
            }
        }
    }

    /// Makes up for what a gap has hidden before this event.
    fn prepare(&mut self, event: &Event) {
        let Some(why) = self.gap.clone() else {
            return;
        };
        match &event.fact {
            Fact::QueueCreated { name, .. } => {
                // Of that name there was another, and its deletion was not read.
                let mut queues = self.state.queues();
                let old = queues.find(|(_, other)| *other == name).map(|(old, _)| old);
                drop(queues);
                if let Some(queue) = old {
                    let fact = Fact::QueueDeleted { queue };
                    self.state.apply(Event { at: event.at, fact });
                }
            }
            Fact::QueueMetadataSet { queue, .. } | Fact::QueuePoliciesSet { queue, .. } => {
                self.stand_in(*queue, event.at);
            }
            Fact::MessageSent {
                queue,
                sequence_number,
                ..
            } => {
                if self.stand_in(*queue, event.at) {
                    return;
                }
                let next = self.state.next_sequence_number(*queue);
                for missed in next.into_iter().flat_map(|n| n.until(*sequence_number)) {
                    self.note_hole(*queue, missed, event.at, None, &why);
                }
            }
            Fact::MessageReceived {
                queue,
                sequence_number,
                ..
            } => {
                self.stand_in(*queue, event.at);
                self.note_hole(*queue, *sequence_number, event.at, None, &why);
            }
            Fact::MessageUpdated {
                queue,
                sequence_number,
                body,
                ..
            } => {
                self.stand_in(*queue, event.at);
                let size_bytes = body.map(|(_, location)| location.length);
                self.note_hole(*queue, *sequence_number, event.at, size_bytes, &why);
            }
            Fact::MessageDeleted {
                queue,
                sequence_number,
            } => {
                self.holes.remove(&(*queue, *sequence_number));
            }
            Fact::QueueCleared { queue, before } => {
                self.holes
                    .retain(|(of, number), _| of != queue || number >= before);
            }
            Fact::QueueDeleted { queue } => {
                self.holes.retain(|(of, _), _| of != queue);
                self.stand_ins.remove(queue);
            }
            Fact::AccountRemoved { account } => {
                let gone = self.queues_of(account);
                self.holes.retain(|(of, _), _| !gone.contains(of));
                self.stand_ins.retain(|queue, _| !gone.contains(queue));
            }
            Fact::PartitionInitialized { .. }
            | Fact::RunExpired { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. } => {}
        }
    }

    fn queues_of(&self, account: &str) -> Vec<Incarnation> {
        let queues = self.state.queues();
        queues
            .filter(|(_, name)| *name.account == *account)
            .map(|(queue, _)| queue)
            .collect()
    }

    /// Puts a queue there whose creation was not read; says if it did.
    fn stand_in(&mut self, queue: Incarnation, at: Timestamp) -> bool {
        if self.state.queue_name(queue).is_some() || self.deleted.contains(&queue) {
            return false;
        }
        let account = self.state.queues().next().map(|(_, name)| &*name.account);
        let account = account.unwrap_or(&self.account).to_owned();
        let plain = format!("recovered-{}", queue.as_u64());
        let name = (0..)
            .map(|other| match other {
                0 => plain.clone(),
                other => format!("{plain}-{other}"),
            })
            .map(|name| EntityName::storage_queue(&*account, name))
            .find(|name| !self.state.has_entity(name))
            .expect("one of endlessly many names is free");
        self.state.stand_in(queue, name.clone(), at);
        self.stand_ins.insert(queue, name);
        true
    }

    fn note_hole(
        &mut self,
        queue: Incarnation,
        sequence_number: SequenceNumber,
        at: Timestamp,
        size_bytes: Option<u32>,
        why: &str,
    ) {
        if self.state.holds(queue, sequence_number) {
            return;
        }
        let (from, until) = (self.gap_from, at);
        let hole = self
            .holes
            .entry((queue, sequence_number))
            .or_insert_with(|| Hole {
                inserted_from: from,
                inserted_until: until,
                size_bytes: None,
                why: why.to_owned(),
            });
        hole.size_bytes = size_bytes.or(hole.size_bytes);
    }
}

impl Replay for Reading {
    fn begin(&mut self) {
        *self = Self::new(&self.account);
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        Ok(self.state.restore(part)?)
    }

    fn event(&mut self, _record: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        let event = Event::decode(event)?;
        self.prepare(&event);
        match &event.fact {
            Fact::QueueDeleted { queue } => {
                self.deleted.insert(*queue);
            }
            Fact::AccountRemoved { account } => {
                let gone = self.queues_of(account);
                self.deleted.extend(gone);
            }
            _ => {}
        }
        self.state.apply(event);
        Ok(())
    }
}

impl Rescue for Reading {
    fn gap(&mut self, gap: &Gap) {
        self.gap = Some(match gap.span {
            Some(_) => format!(
                "it was sent where {} cannot be read from byte {} on: {}",
                gap.file, gap.offset, gap.what
            ),
            None => format!(
                "it was in {} at byte {}: {}",
                gap.file, gap.offset, gap.what
            ),
        });
        self.gap_from = self.state.last_event_at();
        let queues: Vec<_> = self.state.queues().map(|(queue, _)| queue).collect();
        for queue in queues {
            let next = self.state.next_sequence_number(queue);
            self.next_at_gap.extend(next.map(|next| (queue, next)));
        }
    }
}
