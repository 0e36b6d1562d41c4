//! Making a partition whole again whose log is damaged, at the price of what cannot be read.
//!
//! [`Repair::look`] modifies nothing: it reads all that can be read and lists what is lost.
//! [`Repair::carry_out`] makes a new log of the rest. No message is altered: what does not match its
//! checksum is not used. When in doubt a message is kept, so that one whose deletion was lost may
//! come back, as after any delivery that was not settled.

mod bus;
mod reading;

use std::collections::BTreeMap;

use bytes::Bytes;
use kew_engine::bus::BusFact;
use kew_engine::{EntityName, Event, Fact, SequenceNumber, State, Timestamp, Token};
use kew_log::{Damage, Gap, LogFailed, OpenError, Rebuilt, Salvage, Storage};
use thiserror::Error;

use self::reading::Reading;
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
    /// States of Service Bus sessions that are lost: the sessions have none.
    pub session_states: Vec<LostSessionState>,
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
    /// Its order in the queue, by which Service Bus names it.
    pub sequence_number: SequenceNumber,
    /// Its id in Queue Storage; `None` if the partition's secret is lost.
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

/// The state of a session that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSessionState {
    /// Its queue.
    pub queue: EntityName,
    /// The session's id.
    pub session: Box<str>,
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
        self.refusal().is_some()
            || !self.losses.messages.is_empty()
            || !self.losses.session_states.is_empty()
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

/// Drops the messages whose bodies cannot be read, in whole, and the states of sessions.
fn drop_bodiless(salvage: &Salvage<'_>, state: &mut State, losses: &mut Losses) {
    let mut dropped = Vec::new();
    for message in state.messages() {
        let body = salvage.body(to_log(message.body)).err();
        let overlays = message.overlays.iter();
        let mut overlays = overlays.filter_map(|overlay| salvage.body(to_log(*overlay)).err());
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
            dropped.push(if state.is_bus_queue(queue) {
                Fact::Bus(BusFact::Removed {
                    queue,
                    sequence_number,
                })
            } else {
                Fact::MessageDeleted {
                    queue,
                    sequence_number,
                }
            });
        }
    }
    for stored in state.session_states() {
        if let Err(why) = salvage.body(to_log(stored.body)) {
            losses.session_states.push(LostSessionState {
                queue: stored.queue_name,
                session: stored.session.clone(),
                why,
            });
            dropped.push(Fact::Bus(BusFact::SessionStateSet {
                queue: stored.queue,
                session: stored.session,
                state: None,
            }));
        }
    }
    let at = state.last_event_at();
    for fact in dropped {
        state.apply(Event { at, fact });
    }
}
