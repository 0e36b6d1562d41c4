//! The side that sends: encodes messages, adds what listeners read, and announces work.

mod hint;
mod sharded;
mod target;

use std::marker::PhantomData;

use tracing::Instrument as _;

pub use self::hint::LeaseHint;
pub use self::sharded::Sharded;
pub use self::target::{BusTarget, QueueTarget, Target};
use crate::codec::{Codec, CodecError};
use crate::error::SourceError;
use crate::push::{Announce, Announcement};
use crate::source::{LEASE_HINT, Outgoing, SourceName};
use crate::trace::TraceContext;

/// Why a message was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// It could not be encoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The service has no certain answer: see [`SourceError::kind`].
    #[error(transparent)]
    Target(#[from] SourceError),
}

/// When the work of a package is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnnounceWhen {
    /// Before the first message, so that listeners are awake when it comes.
    First,
    /// After the last message.
    Last,
    /// After the last message, if the queue then holds so many. A target that does not know its depth announces
    /// in any case.
    Depth(u64),
}

/// Sends messages of the type `T`. Share it by reference.
#[derive(Debug)]
pub struct Sender<T, C, K> {
    codec: C,
    target: K,
    hint: Option<LeaseHint>,
    name: String,
    message: PhantomData<fn(&T)>,
}

impl<T: Sync, C: Codec<T>, K: Target> Sender<T, C, K> {
    /// A sender. `name` names it in announcements, for people.
    pub fn new(codec: C, target: K, name: impl Into<String>) -> Self {
        Self {
            codec,
            target,
            hint: None,
            name: name.into(),
            message: PhantomData,
        }
    }

    /// Marks new messages with the lease that this hint has. It needs a target that carries properties.
    #[must_use]
    pub fn lease_hint(mut self, hint: LeaseHint) -> Self {
        self.hint = Some(hint);
        self
    }

    /// Sends a message, and returns the queue that has it.
    ///
    /// With an outcome that is unknown the queue may have it: send it again if the receivers recognize its id. To
    /// drop the future leaves the same open.
    pub async fn send(&self, message: &T) -> Result<SourceName, SendError> {
        self.send_with(message, |_| {}, None).await
    }

    /// The same with changes, such as an id or properties, and as a part of a trace.
    pub async fn send_with(
        &self,
        message: &T,
        change: impl FnOnce(&mut Outgoing) + Send,
        trace: Option<&TraceContext>,
    ) -> Result<SourceName, SendError> {
        let mut outgoing = self.codec.encode(message).await?;
        change(&mut outgoing);
        if self.target.carries_properties() {
            if let Some(trace) = trace {
                outgoing.properties.extend(trace.child().to_properties());
            }
            if let Some(seconds) = self.hint.as_ref().and_then(LeaseHint::seconds) {
                let hint = (LEASE_HINT.to_owned(), seconds.to_string());
                outgoing.properties.push(hint);
            }
        }
        let span = tracing::info_span!(
            target: "kew::worker",
            "publish",
            messaging.message.id = outgoing.id,
            traceparent = trace.map(ToString::to_string),
        );
        Ok(self.target.send(&outgoing).instrument(span).await?)
    }

    /// Sends the messages of a package one after the other, and announces them. Ends at the first error, and
    /// then announces nothing more; the messages before it are sent.
    ///
    /// A failed announcement is logged: listeners find the work later.
    pub async fn send_package(
        &self,
        messages: &[T],
        announce: &impl Announce,
        when: AnnounceWhen,
    ) -> Result<(), SendError> {
        if when == AnnounceWhen::First && !messages.is_empty() {
            self.announce(announce, self.target.name()).await;
        }
        let mut last = None;
        for message in messages {
            last = Some(self.send(message).await?);
        }
        let Some(last) = last else {
            return Ok(());
        };
        match when {
            AnnounceWhen::First => {}
            AnnounceWhen::Last => self.announce(announce, &last).await,
            AnnounceWhen::Depth(least) => {
                let depth = self.target.depth().await.unwrap_or(None);
                if depth.is_none_or(|depth| depth >= least) {
                    self.announce(announce, &last).await;
                }
            }
        }
        Ok(())
    }

    async fn announce(&self, announce: &impl Announce, name: &SourceName) {
        let announcement = Announcement::new(name, &self.name);
        if let Err(error) = announce.announce(&announcement).await {
            tracing::warn!(target: "kew::worker", %error, "work was not announced to all listeners");
        }
    }

    /// Where it sends to.
    pub fn target(&self) -> &K {
        &self.target
    }
}
