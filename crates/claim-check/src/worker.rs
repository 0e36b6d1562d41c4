//! Claim checks as codecs of `kew-worker`.
//!
//! A sender stores what is large before it sends the reference, and removes the object if the message was certainly not
//! sent. A listener fetches and checks the object before the handlers run, and removes it after the service confirmed the
//! delete of the message. A message that is buried keeps its object. What a crash leaves in between is left to a sweep.

use std::sync::Arc;

use bytes::Bytes;
use kew_worker::{Codec, CodecError, Incoming as Received, Outgoing as Sent};

use crate::check::{Claim, ClaimCheck};
use crate::content::{Body, Content};
use crate::error::{Error, ErrorKind};

/// The reason of a message whose object does not exist.
pub const CLAIM_MISSING: &str = "ClaimMissing";

/// The reason of a message whose object is not what was sent: of another length or hash, for example.
pub const CLAIM_DAMAGED: &str = "ClaimDamaged";

/// The reason of a message whose data is larger than the options allow.
pub const CLAIM_TOO_LARGE: &str = "ClaimTooLarge";

/// What the data is if the codec of the messages does not say it.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Damage is seen so often before the message is buried: it may have happened on the way.
const DAMAGED_MAX: u32 = 2;

/// A codec whose large messages lie in the object store.
///
/// It has another codec for the messages themselves. Of that, it calls neither `completed` nor `burying` nor `not_sent`.
/// `docs/claim-check.md` says what happens to messages whose object cannot be fetched.
#[derive(Clone, Debug)]
pub struct Checked<C> {
    claims: ClaimCheck,
    codec: C,
    is_shared: bool,
}

/// A codec of groups: several messages of the application are one message of the queue, and one object.
///
/// Properties, ids and sessions of single messages are not sent: set those of the group in `Sender::send_with`. All
/// messages of a group must have the same content type. Everything else is as for [`Checked`].
#[derive(Clone, Debug)]
pub struct CheckedGroup<C>(Checked<C>);

impl<C> Checked<C> {
    /// Stores what `codec` writes, and has it read what was stored.
    pub fn new(claims: ClaimCheck, codec: C) -> Self {
        Self {
            claims,
            codec,
            is_shared: false,
        }
    }

    /// Leaves the objects of completed messages to sweeps: for the subscriptions of a topic, whose copies of a message
    /// have the same object.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    async fn check_out(&self, received: &Received) -> Result<Content, CodecError> {
        let checked_out = self.claims.check_out(&received.body).await;
        match checked_out {
            Ok(incoming) => Ok(incoming.content),
            Err(error) => Err(not_decoded(&error, received.meta.attempt)),
        }
    }

    async fn check_in(&self, content: Content) -> Result<Bytes, CodecError> {
        let checked_in = self.claims.check_in(content).await;
        let outgoing = checked_in.map_err(|error| match error.kind() {
            ErrorKind::TryAgainLater | ErrorKind::Missing | ErrorKind::Damaged => {
                CodecError::Unavailable(error.to_string())
            }
            ErrorKind::Refused => CodecError::unusable("ClaimRefused", &error),
        })?;
        Ok(outgoing.body)
    }

    async fn clean_up(&self, body: &[u8]) {
        if !self.is_shared {
            self.release(body).await;
        }
    }

    /// After the message was settled, or was not sent.
    async fn release(&self, body: &[u8]) {
        // What is no claim check refers to nothing.
        let claim = self.claims.claim_of(body).unwrap_or_default();
        if let Err(error) = self.claims.release(&claim).await {
            tracing::warn!(
                target: "kew::claim_check",
                object = claim.object(),
                %error,
                "an object was not removed; a sweep does it"
            );
        }
    }

    /// Before the message is buried.
    async fn keep(&self, body: &[u8]) -> Result<(), CodecError> {
        let claim = self.claims.claim_of(body).unwrap_or_default();
        match self.claims.keep(&claim).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::TryAgainLater => {
                Err(CodecError::Unavailable(error.to_string()))
            }
            // Rights that are missing must not keep the message from being buried. Its object has `message_life`.
            Err(error) => {
                log_not_kept(&claim, &error);
                Ok(())
            }
        }
    }
}

impl<C> CheckedGroup<C> {
    /// Stores groups of what `codec` writes, and has it read what was stored.
    pub fn new(claims: ClaimCheck, codec: C) -> Self {
        Self(Checked::new(claims, codec))
    }

    /// See [`Checked::shared`].
    #[must_use]
    pub fn shared(self) -> Self {
        Self(self.0.shared())
    }
}

impl<T: Send + Sync + 'static, C: Codec<T>> Codec<T> for Checked<C> {
    async fn decode(&self, received: &Received) -> Result<T, CodecError> {
        let content = self.check_out(received).await?;
        match content.body {
            Body::One(data) => {
                let inner = with_body(received, content.content_type, data);
                self.codec.decode(&inner).await
            }
            Body::Group(items) => Err(CodecError::Malformed(format!(
                "a group of {} messages came, and the listener expects one: use CheckedGroup",
                items.len()
            ))),
        }
    }

    async fn encode(&self, message: &T) -> Result<Sent, CodecError> {
        let sent = self.codec.encode(message).await?;
        let content_type = sent.content_type.as_deref().unwrap_or(UNKNOWN_TYPE);
        let content = Content::one(content_type, sent.body.clone());
        let body = self.check_in(content).await?;
        Ok(Sent {
            body,
            content_type: Some(crate::CONTENT_TYPE.to_owned()),
            ..sent
        })
    }

    async fn completed(&self, received: &Received) {
        self.clean_up(&received.body).await;
    }

    async fn burying(&self, received: &Received) -> Result<(), CodecError> {
        self.keep(&received.body).await
    }

    async fn not_sent(&self, body: &Bytes) {
        self.release(body).await;
    }
}

impl<T: Send + Sync + 'static, C: Codec<T>> Codec<Vec<T>> for CheckedGroup<C> {
    async fn decode(&self, received: &Received) -> Result<Vec<T>, CodecError> {
        let content = self.0.check_out(received).await?;
        let Body::Group(items) = content.body else {
            return Err(CodecError::Malformed(
                "one message came, and the listener expects a group: use Checked".to_owned(),
            ));
        };
        let mut messages = Vec::with_capacity(items.len());
        for item in items {
            let inner = with_body(received, content.content_type.clone(), item);
            messages.push(self.0.codec.decode(&inner).await?);
        }
        Ok(messages)
    }

    async fn encode(&self, messages: &Vec<T>) -> Result<Sent, CodecError> {
        let mut group = self.0.claims.new_group();
        let mut content_type = None;
        for message in messages {
            let sent = self.0.codec.encode(message).await?;
            let of_item = sent.content_type.as_deref().unwrap_or(UNKNOWN_TYPE);
            if *content_type.get_or_insert_with(|| of_item.to_owned()) != of_item {
                return Err(CodecError::Malformed(format!(
                    "a group has one content type, and a message of it has another: {of_item}"
                )));
            }
            group.push(sent.body).map_err(|_| {
                let count = group.len();
                CodecError::Malformed(format!("the group is full after {count} messages"))
            })?;
        }
        let content_type = content_type.unwrap_or_else(|| UNKNOWN_TYPE.to_owned());
        let content = Content::group(content_type, group.into_items());
        Ok(Sent {
            body: self.0.check_in(content).await?,
            content_type: Some(crate::CONTENT_TYPE.to_owned()),
            ..Sent::default()
        })
    }

    async fn completed(&self, received: &Received) {
        self.0.clean_up(&received.body).await;
    }

    async fn burying(&self, received: &Received) -> Result<(), CodecError> {
        self.0.keep(&received.body).await
    }

    async fn not_sent(&self, body: &Bytes) {
        self.0.release(body).await;
    }
}

/// The message as its own codec reads it.
fn with_body(received: &Received, content_type: String, body: Bytes) -> Received {
    let mut meta = received.meta.clone();
    Arc::make_mut(&mut meta).content_type = Some(content_type);
    Received { body, meta }
}

/// What is to become of a message that cannot be checked out.
fn not_decoded(error: &Error, attempt: u32) -> CodecError {
    match error {
        Error::Missing { .. } => CodecError::unusable(CLAIM_MISSING, error),
        Error::Damaged { .. } if attempt < DAMAGED_MAX => {
            CodecError::Unavailable(error.to_string())
        }
        Error::Damaged { .. } => CodecError::unusable(CLAIM_DAMAGED, error),
        Error::TooLarge { .. } | Error::TooManyItems { .. } => {
            CodecError::unusable(CLAIM_TOO_LARGE, error)
        }
        Error::Malformed { .. } | Error::UnknownVersion { .. } | Error::Invalid { .. } => {
            CodecError::Malformed(error.to_string())
        }
        // Rights that are missing are missing for every message: none of them is to blame.
        Error::StoreRefused { .. } | Error::Unavailable { .. } => {
            CodecError::Unavailable(error.to_string())
        }
    }
}

fn log_not_kept(claim: &Claim, error: &Error) {
    tracing::error!(
        target: "kew::claim_check",
        object = claim.object(),
        %error,
        "a message is buried, and its object cannot be kept for it"
    );
}
