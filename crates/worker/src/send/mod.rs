//! The side that sends: encodes messages, adds what listeners read, and announces work.

mod hint;
mod sharded;
mod target;

use std::collections::HashMap;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use kew_client::ErrorKind;
use tokio::time::Instant;
use tracing::Instrument as _;

pub use self::hint::LeaseHint;
pub use self::sharded::Sharded;
pub use self::target::{BusTarget, QueueTarget, Target};
use crate::codec::{Codec, CodecError};
use crate::error::SourceError;
use crate::push::{Announce, Announcement};
use crate::source::{LEASE_HINT, Outgoing, SourceName};
use crate::trace::TraceContext;

/// Sends of a package that are under way at once, unless the sender says otherwise.
const IN_FLIGHT: usize = 10;

/// With no message for so long, listeners may have gone to sleep again while a package is sent.
const LISTENERS_SLEEP_AFTER: Duration = Duration::from_secs(1);

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
    /// Before the first message, so that listeners are awake when it comes; again after a pause while the package is
    /// sent, and at its end.
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
    in_flight: usize,
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
            in_flight: IN_FLIGHT,
            name: name.into(),
            message: PhantomData,
        }
    }

    /// Sends of a package that are under way at once, from 1. Default 10. With more than one, messages can arrive in
    /// another order than that of the package: set 1 where the order matters, such as for a message session.
    #[must_use]
    pub fn in_flight(mut self, count: u32) -> Self {
        self.in_flight = count.max(1) as usize;
        self
    }

    /// Marks new messages with the lease that this hint has. It needs a target that carries properties: others refuse
    /// messages while the hint says something.
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

    /// The same with changes, such as an id or properties, and as a part of a trace. A target that carries no
    /// properties refuses a trace.
    pub async fn send_with(
        &self,
        message: &T,
        change: impl FnOnce(&mut Outgoing) + Send,
        trace: Option<&TraceContext>,
    ) -> Result<SourceName, SendError> {
        let hint = self.hint.as_ref().and_then(LeaseHint::seconds);
        if (trace.is_some() || hint.is_some()) && !self.target.carries_properties() {
            let text = "the target has no place for a trace or a lease hint: \
                        QueueTarget::envelopes makes one";
            return Err(SourceError::refused(text).into());
        }
        let mut outgoing = self.codec.encode(message).await?;
        let body = outgoing.body.clone();
        change(&mut outgoing);
        if let Some(trace) = trace {
            outgoing.properties.extend(trace.child().to_properties());
        }
        if let Some(seconds) = hint {
            let hint = (LEASE_HINT.to_owned(), seconds.to_string());
            outgoing.properties.push(hint);
        }
        let span = tracing::info_span!(
            target: "kew::worker",
            "publish",
            messaging.message.id = outgoing.id,
            traceparent = trace.map(ToString::to_string),
        );
        let sent = self.target.send(&outgoing).instrument(span).await;
        match sent.as_ref().map_err(SourceError::kind) {
            Err(ErrorKind::Refused | ErrorKind::TryAgainLater) => self.codec.not_sent(&body).await,
            // The queue has the message, or may have it.
            Ok(_) | Err(ErrorKind::OutcomeUnknown) => {}
        }
        Ok(sent?)
    }

    /// Sends the messages of a package, and announces every queue that got some of them. At the first error no more
    /// are sent; those under way are awaited, and what was sent is announced.
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
        let (mut left, mut under_way) = (messages.iter(), FuturesUnordered::new());
        let (mut reached, mut result) = (HashMap::new(), Ok(()));
        loop {
            while result.is_ok() && under_way.len() < self.in_flight {
                let Some(message) = left.next() else { break };
                under_way.push(self.send(message));
            }
            match under_way.next().await {
                None => break,
                Some(Err(error)) if result.is_ok() => result = Err(error),
                // The first error is the one that is reported.
                Some(Err(_)) => {}
                Some(Ok(name)) => {
                    let now = Instant::now();
                    let before = reached.insert(name.clone(), now);
                    let sleeps = before.is_none_or(|before| now - before >= LISTENERS_SLEEP_AFTER);
                    if when == AnnounceWhen::First && sleeps {
                        self.announce(announce, &name).await;
                    }
                }
            }
        }
        if !reached.is_empty() && self.is_due(when).await {
            for name in reached.keys() {
                self.announce(announce, name).await;
            }
        }
        result
    }

    async fn is_due(&self, when: AnnounceWhen) -> bool {
        match when {
            AnnounceWhen::First | AnnounceWhen::Last => true,
            AnnounceWhen::Depth(least) => {
                let depth = self.target.depth().await.unwrap_or(None);
                depth.is_none_or(|depth| depth >= least)
            }
        }
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
