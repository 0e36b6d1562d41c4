//! What is known of one queue and its messages.

use std::collections::BTreeMap;

use bytes::Bytes;
use kew_engine::{
    Command, Metadata, Outcome, PeekedMessage, QueueView, ReceivedMessage, Refusal, SentMessage,
    Timestamp, Token,
};

use super::message::{Certainty, Message, Shown};
use super::{Operation, Violation, violated};

#[derive(Debug)]
pub(crate) struct Queue {
    exists: Certainty,
    /// What its metadata may be.
    metadata: Vec<Metadata>,
    messages: Vec<Message>,
    /// Every body that was ever given to a message of this queue, and the message.
    by_body: BTreeMap<Bytes, usize>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            exists: Certainty::No,
            metadata: Vec::new(),
            messages: Vec::new(),
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
    ) -> Result<(), Violation> {
        match (&operation.command, outcome) {
            (Command::CreateQueue { metadata, .. }, Outcome::QueueCreated) => {
                self.created(metadata)
            }
            (Command::CreateQueue { metadata, .. }, Outcome::QueueUnchanged) => {
                self.must_be_possible(operation)?;
                self.check_metadata(metadata)
            }
            (Command::DeleteQueue { .. }, Outcome::QueueDeleted) => {
                self.must_be_possible(operation)?;
                self.vanish(Certainty::Yes);
                Ok(())
            }
            (Command::ReadQueue { .. }, Outcome::Queue(view)) => {
                self.must_be_possible(operation)?;
                self.read(operation, view)
            }
            (Command::SetQueueMetadata { metadata, .. }, Outcome::QueueMetadataSet) => {
                self.must_be_possible(operation)?;
                self.metadata = vec![metadata.clone()];
                Ok(())
            }
            (Command::Send { body, .. }, Outcome::Sent(sent)) => {
                self.must_be_possible(operation)?;
                self.sent(body, sent)
            }
            (
                Command::Receive {
                    count,
                    visibility_timeout,
                    ..
                },
                Outcome::Received(messages),
            ) => {
                self.must_be_possible(operation)?;
                let hidden_ms = u64::from(visibility_timeout.as_seconds()) * 1000;
                self.received(operation, *count, hidden_ms, messages, bodies)
            }
            (Command::Peek { count, .. }, Outcome::Peeked(messages)) => {
                self.must_be_possible(operation)?;
                self.peeked(operation, *count, messages, bodies)
            }
            (
                Command::Update {
                    message,
                    receipt,
                    body,
                    ..
                },
                Outcome::Updated {
                    receipt: new,
                    visible_at,
                },
            ) => {
                self.must_be_possible(operation)?;
                let index = self.settled(operation, *message, *receipt)?;
                if let Some((_, body)) = body {
                    self.by_body.insert(body.clone(), index);
                    self.messages[index].bodies = vec![body.clone()];
                }
                self.messages[index].lease(*new, *visible_at)
            }
            (
                Command::Delete {
                    message, receipt, ..
                },
                Outcome::Deleted,
            ) => {
                self.must_be_possible(operation)?;
                let index = self.settled(operation, *message, *receipt)?;
                self.messages[index].gone = Certainty::Yes;
                Ok(())
            }
            (Command::Clear { .. }, Outcome::Cleared) => {
                self.must_be_possible(operation)?;
                for message in &mut self.messages {
                    message.gone = Certainty::Yes;
                }
                Ok(())
            }
            (command, outcome) => violated!("answers fit", "{command:?} answered {outcome:?}"),
        }
    }

    pub(crate) fn refused(
        &mut self,
        operation: &Operation,
        refusal: &Refusal,
    ) -> Result<(), Violation> {
        match (refusal, &operation.command) {
            (Refusal::QueueNotFound { .. }, _) => {
                if self.exists == Certainty::Yes {
                    return violated!("no loss", "the queue is there: {operation:?}");
                }
                self.vanish(Certainty::Yes);
                Ok(())
            }
            (Refusal::QueueAlreadyExists { .. }, Command::CreateQueue { .. }) => {
                self.must_be_possible(operation)
            }
            (
                Refusal::MessageNotFound | Refusal::PopReceiptMismatch,
                Command::Update {
                    message, receipt, ..
                }
                | Command::Delete {
                    message, receipt, ..
                },
            ) => {
                self.must_be_possible(operation)?;
                match self.find(*message) {
                    Some(known) if known.must_settle(*receipt, operation.until) => {
                        violated!("no loss", "{refusal} for {known:?}")
                    }
                    _ => Ok(()),
                }
            }
            (Refusal::HiddenBeyondExpiry { .. }, Command::Send { .. }) => Ok(()),
            (refusal, command) => violated!("answers fit", "{command:?} refused: {refusal}"),
        }
    }

    /// Takes in an operation that may have happened.
    pub(crate) fn unknown(&mut self, operation: &Operation) {
        let (from, until) = (operation.from, operation.until);
        match &operation.command {
            Command::CreateQueue { metadata, .. } => {
                if self.exists != Certainty::Yes {
                    self.exists = Certainty::Maybe;
                    self.metadata.push(metadata.clone());
                }
            }
            Command::DeleteQueue { .. } => self.vanish(Certainty::Maybe),
            Command::SetQueueMetadata { metadata, .. } => self.metadata.push(metadata.clone()),
            Command::Send {
                body,
                time_to_live_seconds: ttl,
                visibility_timeout,
                ..
            } => {
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
                    stale: Vec::new(),
                    visible_at_min: from.plus_seconds(hidden),
                    visible_at_max: until.plus_seconds(hidden),
                    deliveries_min: 0,
                    deliveries_max: 0,
                });
            }
            Command::Receive {
                visibility_timeout, ..
            } => {
                let hidden = u64::from(visibility_timeout.as_seconds());
                for message in &mut self.messages {
                    if message.is_possible(from) && message.visible_at_min.has_passed(until) {
                        let earliest = from.plus_seconds(hidden);
                        message.maybe_lease(earliest, until.plus_seconds(hidden));
                        message.deliveries_max += 1;
                    }
                }
            }
            Command::Update {
                message,
                visibility_timeout,
                body,
                ..
            } => {
                let hidden = u64::from(visibility_timeout.as_seconds());
                if let Some(index) = self.index_of(*message) {
                    let known = &mut self.messages[index];
                    known.maybe_lease(from.plus_seconds(hidden), until.plus_seconds(hidden));
                    if let Some((_, body)) = body {
                        known.bodies.push(body.clone());
                        self.by_body.insert(body.clone(), index);
                    }
                }
            }
            Command::Delete { message, .. } => {
                if let Some(index) = self.index_of(*message) {
                    self.messages[index].maybe_gone();
                }
            }
            Command::Clear { .. } => self.messages.iter_mut().for_each(Message::maybe_gone),
            Command::Initialize { .. }
            | Command::ReadQueue { .. }
            | Command::ListQueues { .. }
            | Command::Peek { .. } => {}
        }
    }

    fn must_be_possible(&mut self, operation: &Operation) -> Result<(), Violation> {
        if self.exists == Certainty::No {
            return violated!("no resurrection", "the queue is gone: {operation:?}");
        }
        self.exists = Certainty::Yes;
        Ok(())
    }

    fn created(&mut self, metadata: &Metadata) -> Result<(), Violation> {
        if self.exists == Certainty::Yes {
            return violated!("no loss", "a queue that was there was created");
        }
        self.vanish(Certainty::Yes);
        self.exists = Certainty::Yes;
        self.metadata = vec![metadata.clone()];
        Ok(())
    }

    /// The queue is gone, or may be.
    fn vanish(&mut self, gone: Certainty) {
        for message in &mut self.messages {
            match gone {
                Certainty::Yes => message.gone = Certainty::Yes,
                _ => message.maybe_gone(),
            }
        }
        self.exists = match (gone, self.exists) {
            (Certainty::Yes, _) | (_, Certainty::No) => Certainty::No,
            _ => Certainty::Maybe,
        };
    }

    fn check_metadata(&mut self, seen: &Metadata) -> Result<(), Violation> {
        if !self.metadata.iter().any(|known| known.is_same_as(seen)) {
            return violated!("no change", "metadata {seen:?}, not of {:?}", self.metadata);
        }
        self.metadata = vec![seen.clone()];
        Ok(())
    }

    fn read(&mut self, operation: &Operation, view: &QueueView) -> Result<(), Violation> {
        self.check_metadata(&view.metadata)?;
        let certain = |message: &&Message| message.is_certain(operation.until);
        let possible = |message: &&Message| message.gone != Certainty::Yes;
        let at_least = self.messages.iter().filter(certain).count() as u64;
        let at_most = self.messages.iter().filter(possible).count() as u64;
        let count = view.approximate_message_count;
        if !(at_least..=at_most).contains(&count) {
            return violated!(
                "counts conserved",
                "{count} messages, not {at_least} to {at_most}"
            );
        }
        Ok(())
    }

    fn sent(&mut self, body: &Bytes, sent: &SentMessage) -> Result<(), Violation> {
        if let Some(twin) = self.find(sent.message) {
            return violated!("unique ids", "{sent:?} has the id of {twin:?}");
        }
        self.add(Message {
            id: Some(sent.message),
            bodies: vec![body.clone()],
            gone: Certainty::No,
            inserted_at: Some(sent.inserted_at),
            expires_at_min: sent.expires_at,
            expires_at_max: sent.expires_at,
            receipt: Some(sent.receipt),
            stale: Vec::new(),
            visible_at_min: sent.visible_at,
            visible_at_max: sent.visible_at,
            deliveries_min: 0,
            deliveries_max: 0,
        });
        Ok(())
    }

    fn add(&mut self, message: Message) {
        for body in &message.bodies {
            self.by_body.insert(body.clone(), self.messages.len());
        }
        self.messages.push(message);
    }

    fn received(
        &mut self,
        operation: &Operation,
        count: u32,
        hidden_ms: u64,
        messages: &[ReceivedMessage],
        bodies: &[Bytes],
    ) -> Result<(), Violation> {
        let mut shown = Vec::new();
        for (message, body) in messages.iter().zip(bodies) {
            let at = Timestamp::from_ms(message.visible_at.as_ms() - hidden_ms);
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
            known.lease(message.receipt, message.visible_at)?;
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
        let Some(&index) = self.by_body.get(shown.body) else {
            return violated!("no phantom", "{shown:?} was never sent");
        };
        self.messages[index].show(shown)?;
        Ok(index)
    }

    /// Whoever asks for more than there is gets all that there is.
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
                "answers fit",
                "{messages} messages, {bodies} bodies, {count} asked"
            );
        }
        if messages == count as usize {
            return Ok(());
        }
        let (from, until) = (operation.from, operation.until);
        let missing = self.messages.iter().enumerate().find(|(index, message)| {
            message.is_certain(until)
                && message.visible_at_max.has_passed(from)
                && !shown.contains(index)
        });
        match missing {
            Some((_, message)) => violated!("no loss", "{operation:?} does not show {message:?}"),
            None => Ok(()),
        }
    }

    fn settled(
        &mut self,
        operation: &Operation,
        message: Token,
        receipt: Token,
    ) -> Result<usize, Violation> {
        let Some(index) = self.index_of(message) else {
            return violated!("no phantom", "{operation:?} settled what nobody sent");
        };
        self.messages[index].settle(receipt, operation.from)?;
        Ok(index)
    }

    fn index_of(&self, id: Token) -> Option<usize> {
        self.messages
            .iter()
            .rposition(|message| message.id == Some(id))
    }

    fn find(&self, id: Token) -> Option<&Message> {
        self.index_of(id).map(|index| &self.messages[index])
    }

    pub(crate) fn check_drained(&self, now: Timestamp) -> Result<(), Violation> {
        match self.messages.iter().find(|message| message.is_certain(now)) {
            Some(message) => violated!("no loss", "never came back: {message:?}"),
            None => Ok(()),
        }
    }
}
