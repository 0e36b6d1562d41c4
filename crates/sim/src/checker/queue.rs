//! The known facts about one queue and its messages.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use kew_engine::storage::{
    AccessPolicies, Metadata, PeekedMessage, QueueView, ReceivedMessage, SentMessage,
    StorageCommand, StorageOutcome, StorageRefusal,
};
use kew_engine::{Command, MESSAGE_OVERHEAD_BYTES, Outcome, Refusal, Timestamp, Token};

use super::message::{Certainty, Message, Shown};
use super::{Operation, Violation, promise, violated};
use crate::rare::{Rare, RareStates};

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    exists: Certainty,
    /// Its possible metadata.
    metadata: Vec<Metadata>,
    /// Its possible access policies.
    policies: Vec<AccessPolicies>,
    /// All messages ever sent, including deleted ones, to notice if one reappears.
    messages: Vec<Message>,
    /// Messages that may still exist.
    possible: BTreeSet<usize>,
    by_id: HashMap<Token, usize>,
    /// Every id and receipt that was ever issued.
    issued: HashSet<Token>,
    /// Every body that a message of this queue ever had, and the message.
    by_body: BTreeMap<Bytes, usize>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            exists: Certainty::No,
            metadata: Vec::new(),
            policies: Vec::new(),
            messages: Vec::new(),
            possible: BTreeSet::new(),
            by_id: HashMap::new(),
            issued: HashSet::new(),
            by_body: BTreeMap::new(),
        }
    }
}

impl Queue {
    pub(crate) fn succeeded(
        &mut self,
        operation: &Operation,
        outcome: &Outcome,
        bodies: &[Bytes],
        rare: &mut RareStates,
    ) -> Result<(), Violation> {
        match (&operation.command, outcome) {
            (
                Command::Storage(StorageCommand::CreateQueue { metadata, .. }),
                Outcome::Storage(StorageOutcome::QueueCreated),
            ) => self.created(metadata),
            (
                Command::Storage(StorageCommand::CreateQueue { metadata, .. }),
                Outcome::Storage(StorageOutcome::QueueUnchanged),
            ) => {
                self.must_be_possible(operation)?;
                self.check_metadata(metadata)
            }
            (
                Command::Storage(StorageCommand::DeleteQueue { .. }),
                Outcome::Storage(StorageOutcome::QueueDeleted),
            ) => {
                self.must_be_possible(operation)?;
                self.vanish(Certainty::Yes);
                Ok(())
            }
            (
                Command::Storage(StorageCommand::ReadQueue { .. }),
                Outcome::Storage(StorageOutcome::Queue(view)),
            ) => {
                self.must_be_possible(operation)?;
                self.read(operation, view)
            }
            (
                Command::Storage(StorageCommand::SetQueueMetadata { metadata, .. }),
                Outcome::Storage(StorageOutcome::QueueMetadataSet),
            ) => {
                self.must_be_possible(operation)?;
                self.metadata = vec![metadata.clone()];
                Ok(())
            }
            (
                Command::Storage(StorageCommand::SetQueuePolicies { policies, .. }),
                Outcome::Storage(StorageOutcome::QueuePoliciesSet),
            ) => {
                self.must_be_possible(operation)?;
                self.policies = vec![policies.clone()];
                Ok(())
            }
            (
                Command::Storage(StorageCommand::Send { body, .. }),
                Outcome::Storage(StorageOutcome::Sent(sent)),
            ) => {
                self.must_be_possible(operation)?;
                self.sent(body, sent)
            }
            (
                Command::Storage(StorageCommand::Receive {
                    count,
                    visibility_timeout,
                    ..
                }),
                Outcome::Storage(StorageOutcome::Received(messages)),
            ) => {
                self.must_be_possible(operation)?;
                let hidden_ms = u64::from(visibility_timeout.as_seconds()) * 1000;
                self.received(operation, *count, hidden_ms, messages, bodies, rare)
            }
            (
                Command::Storage(StorageCommand::Peek { count, .. }),
                Outcome::Storage(StorageOutcome::Peeked(messages)),
            ) => {
                self.must_be_possible(operation)?;
                self.peeked(operation, *count, messages, bodies)
            }
            (
                Command::Storage(StorageCommand::Update {
                    message,
                    receipt,
                    body,
                    ..
                }),
                Outcome::Storage(StorageOutcome::Updated {
                    receipt: new,
                    visible_at,
                }),
            ) => {
                self.must_be_possible(operation)?;
                let index = self.settled(operation, *message, *receipt)?;
                rare.note_if(self.was_late(index, operation), Rare::LateUpdate);
                self.issue(*new)?;
                if let Some((_, body)) = body {
                    self.by_body.insert(body.clone(), index);
                    self.messages[index].bodies = vec![body.clone()];
                }
                self.messages[index].lease(*new, *visible_at);
                Ok(())
            }
            (
                Command::Storage(StorageCommand::Delete {
                    message, receipt, ..
                }),
                Outcome::Storage(StorageOutcome::Deleted),
            ) => {
                self.must_be_possible(operation)?;
                let index = self.settled(operation, *message, *receipt)?;
                rare.note_if(self.was_late(index, operation), Rare::LateDelete);
                self.set_gone(index);
                Ok(())
            }
            (
                Command::Storage(StorageCommand::Clear { .. }),
                Outcome::Storage(StorageOutcome::Cleared),
            ) => {
                self.must_be_possible(operation)?;
                self.set_all_gone();
                Ok(())
            }
            (command, outcome) => {
                violated!(promise::ANSWERS_FIT, "{command:?} answered {outcome:?}")
            }
        }
    }

    pub(crate) fn refused(
        &mut self,
        operation: &Operation,
        refusal: &Refusal,
        rare: &mut RareStates,
    ) -> Result<(), Violation> {
        match (refusal, &operation.command) {
            (Refusal::Storage(StorageRefusal::QueueNotFound { .. }), _) => {
                self.must_be_absent(operation)
            }
            (
                Refusal::Storage(StorageRefusal::QueueAlreadyExists { .. }),
                Command::Storage(StorageCommand::CreateQueue { .. }),
            ) => {
                rare.note(Rare::QueueExistsOtherwise);
                self.must_be_possible(operation)
            }
            (
                Refusal::Storage(
                    StorageRefusal::MessageNotFound | StorageRefusal::PopReceiptMismatch,
                ),
                Command::Storage(
                    StorageCommand::Update {
                        message, receipt, ..
                    }
                    | StorageCommand::Delete {
                        message, receipt, ..
                    },
                ),
            ) => {
                self.must_be_possible(operation)?;
                let stale = *refusal == Refusal::Storage(StorageRefusal::PopReceiptMismatch);
                rare.note_if(stale, Rare::StaleReceiptRefused);
                let Some(known) = self.find(*message) else {
                    return Ok(());
                };
                let expired = known.gone == Certainty::No
                    && known.is_latest(*receipt)
                    && known.expires_at_max.has_passed(operation.from)
                    && known.visible_at_min > known.expires_at_max;
                rare.note_if(expired, Rare::ExpiredWhileLeased);
                promise::no_loss_on_refusal(known, *receipt, operation.until, refusal)?;
                promise::exact_refusal(known, operation, refusal)
            }
            (
                Refusal::Storage(StorageRefusal::HiddenBeyondExpiry { .. }),
                Command::Storage(StorageCommand::Send { .. }),
            ) => Ok(()),
            // Accounts have their own check of whether there was a quota and it was used up.
            (
                Refusal::Storage(StorageRefusal::AccountQuotaExceeded { .. }),
                Command::Storage(StorageCommand::CreateQueue { .. }),
            ) => {
                rare.note(Rare::QueueRefusedByQuota);
                self.must_be_absent(operation)
            }
            (
                Refusal::Storage(StorageRefusal::AccountQuotaExceeded { .. }),
                Command::Storage(StorageCommand::Send { .. } | StorageCommand::Update { .. }),
            ) => {
                rare.note(Rare::RefusedByQuota);
                self.must_be_possible(operation)
            }
            (refusal, command) => {
                violated!(promise::ANSWERS_FIT, "{command:?} refused: {refusal}")
            }
        }
    }

    /// One that is not known may have been sent without an answer.
    pub(super) fn may_exist(&self, message: Token) -> bool {
        let known = self.find(message);
        known.is_none_or(|message| message.gone != Certainty::Yes)
    }

    /// From now on this message may be missing.
    pub(super) fn excuse(&mut self, message: Token) {
        if let Some(index) = self.index_of(message) {
            self.messages[index].maybe_gone();
        }
    }

    /// Adds the effects of an operation that may have happened.
    pub(crate) fn unknown(&mut self, operation: &Operation) {
        let (from, until) = (operation.from, operation.until);
        match &operation.command {
            Command::Storage(StorageCommand::CreateQueue { metadata, .. }) => {
                if self.exists != Certainty::Yes {
                    self.exists = Certainty::Maybe;
                    self.metadata.push(metadata.clone());
                    self.policies.push(AccessPolicies::default());
                }
            }
            Command::Storage(StorageCommand::DeleteQueue { .. }) => self.vanish(Certainty::Maybe),
            Command::Storage(StorageCommand::SetQueueMetadata { metadata, .. }) => self.metadata.push(metadata.clone()),
            Command::Storage(StorageCommand::SetQueuePolicies { policies, .. }) => self.policies.push(policies.clone()),
            Command::Storage(StorageCommand::Send {
                body,
                time_to_live_seconds: ttl,
                visibility_timeout,
                ..
            }) => {
                let expiry = |at: Timestamp| {
                    ttl.map_or(Timestamp::NEVER, |ttl| at.plus_seconds(u64::from(ttl)))
                };
                let hidden = u64::from(visibility_timeout.as_seconds());
                self.add(Message {
                    id: None,
                    bodies: vec![body.clone()],
                    gone: Certainty::Maybe,
                    inserted_at: None,
                    expires_at_min: expiry(from),
                    expires_at_max: expiry(until),
                    receipt: None,
                    receipt_may_be_stale: true,
                    visible_at_min: from.plus_seconds(hidden),
                    visible_at_max: until.plus_seconds(hidden),
                    deliveries_min: 0,
                    deliveries_max: 0,
                });
            }
            Command::Storage(StorageCommand::Receive {
                visibility_timeout, ..
            }) => {
                let hidden = u64::from(visibility_timeout.as_seconds());
                for index in &self.possible {
                    let message = &mut self.messages[*index];
                    if message.is_possible(from) && message.visible_at_min.has_passed(until) {
                        let earliest = from.plus_seconds(hidden);
                        message.maybe_lease(earliest, until.plus_seconds(hidden));
                        message.deliveries_max += 1;
                    }
                }
            }
            Command::Storage(StorageCommand::Update {
                message,
                receipt,
                visibility_timeout,
                body,
                ..
            }) => {
                let hidden = u64::from(visibility_timeout.as_seconds());
                if let Some(index) = self.index_if_settled(*message, *receipt) {
                    let known = &mut self.messages[index];
                    known.maybe_lease(from.plus_seconds(hidden), until.plus_seconds(hidden));
                    if let Some((_, body)) = body {
                        known.bodies.push(body.clone());
                        self.by_body.insert(body.clone(), index);
                    }
                }
            }
            Command::Storage(StorageCommand::Delete {
                message, receipt, ..
            }) => {
                if let Some(index) = self.index_if_settled(*message, *receipt) {
                    self.messages[index].maybe_gone();
                }
            }
            Command::Storage(StorageCommand::Clear { .. }) => self.maybe_all_gone(),
            Command::Bus(_)
            | Command::Initialize { .. }
            | Command::Storage(StorageCommand::ReadQueue { .. } | StorageCommand::ListQueues { .. } | StorageCommand::Peek { .. })
            // Those of accounts are checked elsewhere.
            | Command::SetServiceProperties { .. }
            | Command::ReadServiceProperties { .. }
            | Command::PutAccount { .. }
            | Command::RemoveAccount { .. }
            | Command::ListAccounts
            | Command::MoveBodies { .. }
            | Command::Quarantine { .. } => {}
        }
    }

    /// I3: an observed queue is not a deleted one.
    pub(super) fn must_be_possible(&mut self, operation: &Operation) -> Result<(), Violation> {
        if self.exists == Certainty::No {
            return violated!(promise::NO_RESURRECTION, "the queue is gone: {operation:?}");
        }
        self.exists = Certainty::Yes;
        Ok(())
    }

    /// I1: an existing queue is found.
    pub(super) fn must_be_absent(&mut self, operation: &Operation) -> Result<(), Violation> {
        if self.exists == Certainty::Yes {
            return violated!(promise::NO_LOSS, "the queue is there: {operation:?}");
        }
        self.vanish(Certainty::Yes);
        Ok(())
    }

    fn created(&mut self, metadata: &Metadata) -> Result<(), Violation> {
        if self.exists == Certainty::Yes {
            return violated!(promise::NO_LOSS, "a queue that was there was created");
        }
        self.vanish(Certainty::Yes);
        self.exists = Certainty::Yes;
        self.metadata = vec![metadata.clone()];
        self.policies = vec![AccessPolicies::default()];
        Ok(())
    }

    /// Whether it exists.
    pub(super) fn certainty(&self) -> Certainty {
        self.exists
    }

    /// How many bytes its messages take at least and at most, as an account counts them.
    pub(super) fn size_bytes(&self, until: Timestamp) -> (u64, u64) {
        let (mut least, mut most) = (0, 0);
        for index in &self.possible {
            let message = &self.messages[*index];
            let sizes = || message.bodies.iter().map(|body| body.len() as u64);
            if message.is_certain(until) {
                least += sizes().min().unwrap_or_default() + MESSAGE_OVERHEAD_BYTES;
            }
            most += sizes().max().unwrap_or_default() + MESSAGE_OVERHEAD_BYTES;
        }
        (least, most)
    }

    /// The queue was deleted, or may have been.
    pub(super) fn vanish(&mut self, gone: Certainty) {
        match gone {
            Certainty::Yes => self.set_all_gone(),
            _ => self.maybe_all_gone(),
        }
        self.exists = match (gone, self.exists) {
            (Certainty::Yes, _) | (_, Certainty::No) => Certainty::No,
            _ => Certainty::Maybe,
        };
    }

    fn set_gone(&mut self, index: usize) {
        self.messages[index].gone = Certainty::Yes;
        self.possible.remove(&index);
    }

    fn set_all_gone(&mut self) {
        for index in std::mem::take(&mut self.possible) {
            self.messages[index].gone = Certainty::Yes;
        }
    }

    fn maybe_all_gone(&mut self) {
        for index in &self.possible {
            self.messages[*index].maybe_gone();
        }
    }

    /// Whether a settlement came after its lease had ended.
    fn was_late(&self, index: usize, operation: &Operation) -> bool {
        self.messages[index]
            .visible_at_max
            .has_passed(operation.from)
    }

    /// I9: no id and no receipt is issued twice.
    fn issue(&mut self, token: Token) -> Result<(), Violation> {
        if !self.issued.insert(token) {
            return violated!(promise::UNIQUE_IDS, "{token:?} was handed out before");
        }
        Ok(())
    }

    /// I2: a queue's metadata is what was last set.
    pub(super) fn check_metadata(&mut self, seen: &Metadata) -> Result<(), Violation> {
        if !self.metadata.iter().any(|known| known.is_same_as(seen)) {
            return violated!(
                promise::NO_CHANGE,
                "metadata {seen:?}, not of {:?}",
                self.metadata
            );
        }
        self.metadata = vec![seen.clone()];
        Ok(())
    }

    /// I2: a queue's access policies are those that were last set.
    fn check_policies(&mut self, seen: &AccessPolicies) -> Result<(), Violation> {
        if !self.policies.contains(seen) {
            let known = &self.policies;
            return violated!(promise::NO_CHANGE, "policies {seen:?}, not of {known:?}");
        }
        self.policies = vec![seen.clone()];
        Ok(())
    }

    fn read(&mut self, operation: &Operation, view: &QueueView) -> Result<(), Violation> {
        self.check_metadata(&view.metadata)?;
        self.check_policies(&view.policies)?;
        let certain = |index: &&usize| self.messages[**index].is_certain(operation.until);
        let at_least = self.possible.iter().filter(certain).count();
        let count = view.approximate_message_count;
        promise::counts_conserved(count, at_least, self.possible.len())
    }

    fn sent(&mut self, body: &Bytes, sent: &SentMessage) -> Result<(), Violation> {
        self.issue(sent.message)?;
        self.issue(sent.receipt)?;
        self.add(Message {
            id: Some(sent.message),
            bodies: vec![body.clone()],
            gone: Certainty::No,
            inserted_at: Some(sent.inserted_at),
            expires_at_min: sent.expires_at,
            expires_at_max: sent.expires_at,
            receipt: Some(sent.receipt),
            receipt_may_be_stale: false,
            visible_at_min: sent.visible_at,
            visible_at_max: sent.visible_at,
            deliveries_min: 0,
            deliveries_max: 0,
        });
        Ok(())
    }

    fn add(&mut self, message: Message) {
        let index = self.messages.len();
        for body in &message.bodies {
            self.by_body.insert(body.clone(), index);
        }
        if let Some(id) = message.id {
            self.by_id.insert(id, index);
        }
        self.possible.insert(index);
        self.messages.push(message);
    }

    fn received(
        &mut self,
        operation: &Operation,
        count: u32,
        hidden_ms: u64,
        messages: &[ReceivedMessage],
        bodies: &[Bytes],
        rare: &mut RareStates,
    ) -> Result<(), Violation> {
        let mut shown = Vec::new();
        for (message, body) in messages.iter().zip(bodies) {
            let at = Timestamp::from_ms(message.visible_at.as_ms() - hidden_ms);
            rare.note_if(message.delivery_count >= 5, Rare::DeliveredOften);
            self.issue(message.receipt)?;
            let unknown = self
                .index_of_body(body)
                .is_ok_and(|index| self.messages[index].id.is_none());
            rare.note_if(unknown, Rare::UnknownSendDelivered);
            let index = self.show(Shown {
                id: message.message,
                inserted_at: message.inserted_at,
                expires_at: message.expires_at,
                deliveries_before: message.delivery_count - 1,
                body,
                at,
            })?;
            let known = &mut self.messages[index];
            known.deliveries_min += 1;
            known.deliveries_max += 1;
            known.lease(message.receipt, message.visible_at);
            shown.push(index);
        }
        self.check_complete(operation, count, messages.len(), bodies.len(), &shown)
    }

    fn peeked(
        &mut self,
        operation: &Operation,
        count: u32,
        messages: &[PeekedMessage],
        bodies: &[Bytes],
    ) -> Result<(), Violation> {
        let mut shown = Vec::new();
        for (message, body) in messages.iter().zip(bodies) {
            shown.push(self.show(Shown {
                id: message.message,
                inserted_at: message.inserted_at,
                expires_at: message.expires_at,
                deliveries_before: message.delivery_count,
                body,
                at: operation.until,
            })?);
        }
        self.check_complete(operation, count, messages.len(), bodies.len(), &shown)
    }

    fn show(&mut self, shown: Shown<'_>) -> Result<usize, Violation> {
        let by_body = self.index_of_body(shown.body)?;
        let index = self.index_of(shown.id).unwrap_or(by_body);
        if self.messages[index].id.is_none() {
            self.issue(shown.id)?;
            self.by_id.insert(shown.id, index);
        }
        self.messages[index].show(shown)?;
        Ok(index)
    }

    /// I2: every body that is shown was sent.
    fn index_of_body(&self, body: &Bytes) -> Result<usize, Violation> {
        match self.by_body.get(body) {
            Some(index) => Ok(*index),
            None => violated!(promise::NO_PHANTOM, "{body:?} was never sent"),
        }
    }

    /// A client that asks for more than there are gets all messages.
    fn check_complete(
        &self,
        operation: &Operation,
        count: u32,
        messages: usize,
        bodies: usize,
        shown: &[usize],
    ) -> Result<(), Violation> {
        if messages != bodies || messages > count as usize {
            return violated!(
                promise::ANSWERS_FIT,
                "{messages} messages, {bodies} bodies, {count} asked"
            );
        }
        if messages == count as usize {
            return Ok(());
        }
        let (from, until) = (operation.from, operation.until);
        let is_missing = |index: &usize| {
            let message = &self.messages[*index];
            message.is_certain(until)
                && message.visible_at_max.has_passed(from)
                && !shown.contains(index)
        };
        let missing = self.possible.iter().find(|index| is_missing(index));
        let missing = missing.map(|index| &self.messages[*index]);
        promise::no_loss_in_listing(operation, missing)
    }

    fn settled(
        &mut self,
        operation: &Operation,
        message: Token,
        receipt: Token,
    ) -> Result<usize, Violation> {
        let Some(index) = self.index_of(message) else {
            return violated!(
                promise::NO_PHANTOM,
                "{operation:?} settled a message that was never sent"
            );
        };
        let known = &mut self.messages[index];
        promise::only_latest_settles(known, receipt, operation.from)?;
        known.gone = Certainty::No;
        Ok(index)
    }

    /// The message that a settlement of unknown outcome may have changed: not if its receipt is
    /// stale.
    fn index_if_settled(&self, message: Token, receipt: Token) -> Option<usize> {
        self.index_of(message)
            .filter(|index| self.messages[*index].receipt == Some(receipt))
    }

    fn index_of(&self, id: Token) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    fn find(&self, id: Token) -> Option<&Message> {
        self.index_of(id).map(|index| &self.messages[index])
    }

    /// I1: at the end every message was received and deleted, or has expired.
    pub(crate) fn check_drained(&self, now: Timestamp) -> Result<(), Violation> {
        let certain = |index: &&usize| self.messages[**index].is_certain(now);
        match self.possible.iter().find(certain) {
            Some(index) => violated!(
                promise::NO_LOSS,
                "never came back: {:?}",
                self.messages[*index]
            ),
            None => Ok(()),
        }
    }
}
