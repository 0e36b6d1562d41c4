//! Queue Storage as a source.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use kew_client::{QueueClient, QueueMessage, Receipt};
use tokio::time::Instant;

use super::bury::Burial;
use super::envelope::{Envelope, Envelopes, ID};
use super::message::{Attempt, Incoming, Meta};
use super::{Ask, Checkpoints, ChosenLease, Intake, Lease, Source, SourceName, poison};
use crate::error::SourceError;

/// The most messages of one request.
const BATCH_SIZE_MAX: u32 = 32;

/// The longest visibility timeout, in seconds: seven days.
const VISIBILITY_MAX_S: u64 = 604_800;

/// How the bytes of a message become its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextEncoding {
    /// The text is the message. It must be UTF-8 without characters that XML forbids.
    #[default]
    Plain,
    /// The text is Base64, as the SDKs for Functions and older .NET write it. It carries any bytes.
    Base64,
}

#[derive(Debug)]
struct Settings {
    client: QueueClient,
    name: SourceName,
    encoding: TextEncoding,
    envelopes: Envelopes,
    poison: String,
}

/// A queue of Queue Storage. The listener chooses how long messages are leased: the visibility timeout.
#[derive(Clone, Debug)]
pub struct QueueSource {
    settings: Arc<Settings>,
}

impl QueueSource {
    /// A queue of an account. The account's name is only used in metrics and announcements.
    pub fn new(client: QueueClient, account: &str, queue: &str) -> Self {
        Self {
            settings: Arc::new(Settings {
                client,
                name: SourceName::new(account, queue),
                encoding: TextEncoding::Plain,
                envelopes: Envelopes::Off,
                poison: format!("{queue}-poison"),
            }),
        }
    }

    /// How bytes become texts. Default: plain.
    #[must_use]
    pub fn encoding(self, encoding: TextEncoding) -> Self {
        self.with(|settings| settings.encoding = encoding)
    }

    /// Whether failures and checkpoints are stored in envelopes. Default: off.
    #[must_use]
    pub fn envelopes(self, envelopes: Envelopes) -> Self {
        self.with(|settings| settings.envelopes = envelopes)
    }

    /// Where failed messages go. Default: the queue's name with `-poison`. It is created when it is needed.
    #[must_use]
    pub fn poison_queue(self, queue: &str) -> Self {
        self.with(|settings| queue.clone_into(&mut settings.poison))
    }

    fn with(self, change: impl FnOnce(&mut Settings)) -> Self {
        let settings = &self.settings;
        let mut changed = Settings {
            client: settings.client.clone(),
            name: settings.name.clone(),
            encoding: settings.encoding,
            envelopes: settings.envelopes,
            poison: settings.poison.clone(),
        };
        change(&mut changed);
        Self {
            settings: Arc::new(changed),
        }
    }
}

impl Source for QueueSource {
    type Lease = QueueLease;
    type Intake = QueueIntake;
    const CHOOSES_LEASE: bool = true;

    fn name(&self) -> &SourceName {
        &self.settings.name
    }

    fn batch_size_max(&self) -> u32 {
        BATCH_SIZE_MAX
    }

    async fn open(&self) -> Result<QueueIntake, SourceError> {
        let settings = self.settings.clone();
        Ok(QueueIntake { settings })
    }

    /// Hidden messages count too.
    async fn depth(&self) -> Result<Option<u64>, SourceError> {
        let settings = &self.settings;
        let read = settings.client.queue_properties(&settings.name.queue);
        Ok(Some(read.await?.approximate_message_count))
    }
}

impl ChosenLease for QueueSource {}

/// Receives from a queue of Queue Storage.
#[derive(Debug)]
pub struct QueueIntake {
    settings: Arc<Settings>,
}

impl Intake for QueueIntake {
    type Lease = QueueLease;
    const WAITS: bool = false;

    async fn receive(&mut self, ask: Ask) -> Result<Vec<QueueLease>, SourceError> {
        let settings = &self.settings;
        let (seconds, asked_at) = (seconds_of(ask.lease).max(1), Instant::now());
        let count = ask.count.clamp(1, BATCH_SIZE_MAX);
        let got = settings
            .client
            .get(&settings.name.queue, count, Some(seconds));
        let ends_at = asked_at + Duration::from_secs(seconds.into());
        let messages = got.await?.into_iter();
        let leases = messages.map(|it| QueueLease::new(settings.clone(), it, ends_at));
        Ok(leases.collect())
    }

    async fn close(self) -> Result<(), SourceError> {
        Ok(())
    }
}

/// A message of Queue Storage, hidden from others.
#[derive(Debug)]
pub struct QueueLease {
    settings: Arc<Settings>,
    receipt: String,
    /// As it came, or as it was last stored: UTF-8. It shares its memory with the body, if that is the text.
    text: Bytes,
    envelope: Option<Envelope>,
    incoming: Incoming,
    ends_at: Instant,
    /// How long it is hidden each time.
    lease: Duration,
    /// It is in the poison queue, and only has to be deleted.
    is_buried: bool,
}

impl QueueLease {
    fn new(settings: Arc<Settings>, message: QueueMessage, ends_at: Instant) -> Self {
        let attempt = u32::try_from(message.dequeue_count).unwrap_or(u32::MAX);
        let mut meta = Meta::new(settings.name.queue.clone(), message.id, attempt);
        meta.enqueued_at = Some(message.inserted);
        let mut envelope = None;
        let text = Bytes::from(message.text);
        let body = read_text(settings.encoding, &text, &mut meta, &mut envelope);
        let body = body.unwrap_or_else(|why| {
            meta.unreadable = Some(why);
            text.clone()
        });
        let receipt = message.receipt.map(|it| it.value).unwrap_or_default();
        let lease = ends_at.saturating_duration_since(Instant::now());
        Self {
            settings,
            receipt,
            text,
            envelope,
            incoming: Incoming {
                body,
                meta: Arc::new(meta),
            },
            lease: lease.max(Duration::from_secs(1)),
            ends_at,
            is_buried: false,
        }
    }

    /// Its key is the id that the service made.
    fn message_id(&self) -> &str {
        self.incoming.meta.key.name()
    }

    async fn update(&mut self, hidden: Duration, text: Option<String>) -> Result<(), SourceError> {
        let settings = &self.settings;
        let (seconds, asked_at) = (seconds_of(hidden), Instant::now());
        let (queue, client) = (&settings.name.queue, &settings.client);
        let update = client.update(
            queue,
            self.message_id(),
            &self.receipt,
            seconds,
            text.as_deref(),
        );
        let Receipt { value, .. } = update.await?;
        self.receipt = value;
        self.ends_at = asked_at + Duration::from_secs(seconds.into());
        if let Some(text) = text {
            self.text = text.into();
        }
        Ok(())
    }

    /// The envelope that a change goes into, if the message may have one.
    fn envelope(&self) -> Option<Envelope> {
        match (&self.envelope, self.settings.envelopes) {
            (Some(envelope), _) => Some(envelope.clone()),
            (None, Envelopes::On) if self.incoming.meta.unreadable.is_none() => {
                Some(Envelope::of_body(&self.incoming.body))
            }
            (None, Envelopes::On | Envelopes::Off) => None,
        }
    }

    fn text_with(&self, envelope: &Envelope) -> Result<String, SourceError> {
        text_of(self.settings.encoding, &Bytes::from(envelope.text()))
    }
}

impl Lease for QueueLease {
    fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    fn ends_at(&self) -> Instant {
        self.ends_at
    }

    async fn renew(&mut self, duration: Duration) -> Result<(), SourceError> {
        self.lease = duration.max(Duration::from_secs(1));
        self.update(self.lease, None).await
    }

    async fn complete(&mut self) -> Result<(), SourceError> {
        let settings = &self.settings;
        let queue = &settings.name.queue;
        let delete = settings
            .client
            .delete_message(queue, self.message_id(), &self.receipt);
        Ok(delete.await?)
    }

    fn hides_released(&self) -> bool {
        true
    }

    async fn release(&mut self, delay: Duration, history: &[Attempt]) -> Result<(), SourceError> {
        let changed = self.envelope().filter(|it| it.history != history);
        if let Some(mut envelope) = changed {
            envelope.history = history.to_vec();
            let text = self.text_with(&envelope)?;
            match self.update(delay, Some(text)).await {
                // The history does not fit: the message returns without it.
                Err(error) if error.is_too_large() => {}
                updated => return updated,
            }
        }
        self.update(delay, None).await
    }

    async fn bury(&mut self, burial: &Burial) -> Result<(), SourceError> {
        if !self.is_buried {
            let settings = &self.settings;
            let (client, queue) = (&settings.client, &settings.poison);
            let (encoding, incoming) = (settings.encoding, &self.incoming);
            let text = std::str::from_utf8(&self.text).expect("it was made of a string");
            poison::put(client, queue, encoding, text, incoming, burial).await?;
            self.is_buried = true;
        }
        self.complete().await
    }

    fn is_buried(&self) -> bool {
        self.is_buried
    }
}

impl Checkpoints for QueueLease {
    /// Refused if the source writes no envelopes, or if the message with its progress exceeds 64 KiB. Also renews
    /// the lease.
    async fn save(&mut self, progress: Bytes) -> Result<(), SourceError> {
        let no_envelope = || {
            SourceError::refused("checkpoints need envelopes: QueueSource::envelopes turns them on")
        };
        let mut envelope = self.envelope().ok_or_else(no_envelope)?;
        envelope.set_checkpoint(&progress);
        let text = self.text_with(&envelope)?;
        self.update(self.lease, Some(text)).await?;
        self.envelope = Some(envelope);
        Arc::make_mut(&mut self.incoming.meta).checkpoint = Some(progress);
        Ok(())
    }
}

/// The text of a body.
pub(crate) fn text_of(encoding: TextEncoding, body: &Bytes) -> Result<String, SourceError> {
    match encoding {
        TextEncoding::Base64 => Ok(BASE64_STANDARD.encode(body)),
        TextEncoding::Plain => std::str::from_utf8(body).map(str::to_owned).map_err(|_| {
            SourceError::refused("the body is not UTF-8: set TextEncoding::Base64 to send bytes")
        }),
    }
}

fn read_text(
    encoding: TextEncoding,
    text: &Bytes,
    meta: &mut Meta,
    found: &mut Option<Envelope>,
) -> Result<Bytes, String> {
    let bytes = match encoding {
        TextEncoding::Plain => text.clone(),
        TextEncoding::Base64 => BASE64_STANDARD
            .decode(text)
            .map(Bytes::from)
            .map_err(|error| {
                format!("the text is not Base64 ({error}), and the source expects it")
            })?,
    };
    let Some(envelope) = Envelope::read(&bytes) else {
        return Ok(bytes);
    };
    let envelope = envelope?;
    let body = envelope.body()?;
    meta.checkpoint = envelope.checkpoint()?;
    meta.history.clone_from(&envelope.history);
    meta.set_properties(envelope.properties.clone());
    if let Some(id) = &envelope.id {
        meta.properties.push((ID.to_owned(), id.clone()));
    }
    *found = Some(envelope);
    Ok(body)
}

/// Whole seconds, rounded up, within what the service accepts.
fn seconds_of(duration: Duration) -> u32 {
    let seconds = duration.as_millis().div_ceil(1_000);
    let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
    u32::try_from(seconds.min(VISIBILITY_MAX_S)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_whole_and_within_the_services_range() {
        let of_ms = |ms| seconds_of(Duration::from_millis(ms));
        assert_eq!([0, 1, 1_000, 1_001].map(of_ms), [0, 1, 1, 2]);
        assert_eq!(seconds_of(Duration::MAX), 604_800);
    }

    #[test]
    fn a_text_that_is_not_base64_is_named_so() {
        let mut meta = Meta::new("jobs".into(), "id", 1);
        let read = read_text(TextEncoding::Base64, &"no!".into(), &mut meta, &mut None);
        assert!(read.unwrap_err().contains("not Base64"));
        let text = text_of(TextEncoding::Plain, &Bytes::from_static(&[0xff]));
        assert!(text.unwrap_err().to_string().contains("Base64"));
    }
}
