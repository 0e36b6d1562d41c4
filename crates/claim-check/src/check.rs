//! Checks data in and out.

use std::time::{Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use chrono::{DateTime, Utc};
use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};
use tokio::time::timeout;

use crate::codec::{self, Encoding};
use crate::content::{Body, Content, check_content_type};
use crate::envelope::{CONTENT_TYPE, Envelope, Place, Reference};
use crate::error::Error;
use crate::group::{self, Group, to_u64};
use crate::name;
use crate::options::ClaimCheckOptions;
use crate::store::ClaimStore;

/// Data of this size is compressed, hashed and decompressed at once; larger data on a thread for blocking work.
const AT_ONCE_MAX: usize = 32 << 10;

/// What a message refers to. Keep it until the message is settled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Claim {
    object: Option<String>,
}

impl Claim {
    /// The name of the object within the folder. `None` if the data lies in the message.
    pub fn object(&self) -> Option<&str> {
        self.object.as_deref()
    }
}

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The body of the message.
    pub body: Bytes,
    /// The content type of the message: [`CONTENT_TYPE`].
    pub content_type: &'static str,
    /// What it refers to.
    pub claim: Claim,
    /// When it is too late to send it: its object could be swept before its receiver has it. `None` if the data lies in
    /// the message.
    pub send_before: Option<Instant>,
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// What it carries.
    pub content: Content,
    /// What it refers to, for [`ClaimCheck::release`].
    pub claim: Claim,
}

/// Stores large data, and fetches it.
#[derive(Clone, Debug)]
pub struct ClaimCheck {
    pub(crate) store: ClaimStore,
    pub(crate) options: ClaimCheckOptions,
    pub(crate) prefix: Path,
}

impl ClaimCheck {
    /// Uses a store. Fails if the options are out of their ranges.
    pub fn new(store: ClaimStore, options: ClaimCheckOptions) -> Result<Self, Error> {
        options.check()?;
        let prefix = Path::parse(&options.prefix)
            .map_err(|error| Error::invalid(format!("the prefix {:?}: {error}", options.prefix)))?;
        Ok(Self {
            store,
            options,
            prefix,
        })
    }

    /// An empty group, with the limits of the options.
    pub fn new_group(&self) -> Group {
        Group::new(self.options.items_max, self.options.size_max_bytes)
    }

    /// Makes a message. Its object, if it needs one, is stored when this returns.
    ///
    /// Send the message before [`Outgoing::send_before`]. If the send is refused, [`ClaimCheck::release`] the claim; if
    /// its outcome is unknown, do not. An object that no message refers to, also after a crash or when the future is
    /// dropped, is removed by a sweep.
    pub async fn check_in(&self, content: Content) -> Result<Outgoing, Error> {
        check_content_type(&content.content_type)?;
        let (items, data) = self.joined(content.body)?;
        let mut envelope = Envelope {
            content_type: content.content_type,
            items,
            size: to_u64(data.len()),
            encoding: Encoding::Identity,
            place: Place::Inline(data.clone()),
        };
        if let Some(body) = self.inline(&envelope, data.len())? {
            return Ok(outgoing(body, Claim::default(), None));
        }
        let level = self.options.level;
        let (encoding, stored) = heavy(data.len(), move || codec::encode(data, level)).await??;
        envelope.encoding = encoding;
        envelope.place = Place::Inline(stored.clone());
        if let Some(body) = self.inline(&envelope, stored.len())? {
            return Ok(outgoing(body, Claim::default(), None));
        }
        // Counted from here, so that the object is younger than the time that is left.
        let send_before = Instant::now().checked_add(self.options.send_time_max);
        let reference = self.put(stored).await?;
        let claim = Claim {
            object: Some(reference.name.clone()),
        };
        envelope.place = Place::Object(reference);
        Ok(outgoing(envelope.to_bytes()?, claim, send_before))
    }

    /// The content of a message.
    ///
    /// Checks the length and the hash of an object, and holds no more than
    /// [`ClaimCheckOptions::size_max_bytes`] of the object and as much of its data. To drop the future loses nothing.
    pub async fn check_out(&self, body: &[u8]) -> Result<Incoming, Error> {
        let Envelope {
            content_type,
            items,
            size,
            encoding,
            place,
        } = Envelope::from_bytes(body)?;
        self.check_size(size)?;
        if let Some(count) = items {
            self.check_count(count.into())?;
        }
        let (stored, claim, expected) = match place {
            Place::Inline(stored) => (stored, Claim::default(), None),
            Place::Object(reference) => {
                let stored = self.get(&reference).await?;
                let claim = Claim {
                    object: Some(reference.name),
                };
                (stored, claim, Some(reference.sha256))
            }
        };
        let whole = usize::try_from(size)
            .unwrap_or(usize::MAX)
            .max(stored.len());
        let content = heavy(whole, move || {
            if expected.is_some_and(|hash| hash != codec::hash(&stored)) {
                return Err("its hash is not that of what was sent".to_owned());
            }
            let data = codec::decode(encoding, stored, size)?;
            Ok(match items {
                None => Body::One(data),
                Some(count) => Body::Group(group::unpack(data, count)?),
            })
        });
        let place = match claim.object() {
            Some(name) => format!("object {name}"),
            None => "the data in the message".to_owned(),
        };
        let body = content
            .await?
            .map_err(|why| Error::Damaged { place, why })?;
        Ok(Incoming {
            content: Content { content_type, body },
            claim,
        })
    }

    /// What a message refers to, without fetching it: for a message that is a repetition, and is settled unread.
    pub fn claim_of(&self, body: &[u8]) -> Result<Claim, Error> {
        Ok(match Envelope::from_bytes(body)?.place {
            Place::Inline(_) => Claim::default(),
            Place::Object(reference) => Claim {
                object: Some(reference.name),
            },
        })
    }

    /// Removes the object of a message. Call it after the settlement of the message was confirmed, and only if no other
    /// message has the same claim (as the copies of a topic's subscriptions do).
    ///
    /// An object that does not exist (any more) is a success, and one that was [kept](Self::keep) stays. If this fails, a
    /// sweep removes the object later.
    pub async fn release(&self, claim: &Claim) -> Result<(), Error> {
        match claim.object() {
            Some(name) if self.kept_since(name).await?.is_none() => self.delete(name).await,
            // A message that was buried refers to it, also if this one was a copy of it.
            Some(_) | None => Ok(()),
        }
    }

    /// Keeps the object of a message that is about to go to the dead-letter or poison queue. From now on nothing removes
    /// it but [`ClaimCheck::discard`], and a sweep long after
    /// [`ClaimCheckOptions::buried_life`](crate::ClaimCheckOptions::buried_life): also if you send the message again and it
    /// is handled.
    ///
    /// Call it before the message is buried. An object that does not exist is a success. Called again, it counts the
    /// time anew.
    pub async fn keep(&self, claim: &Claim) -> Result<(), Error> {
        let Some(name) = claim.object() else {
            return Ok(());
        };
        // First the mark: what looks for it afterwards does not remove the object.
        let mark = name::mark_of(name);
        let path = self.path(&mark);
        let put = self.store.objects.put(&path, PutPayload::from_static(b""));
        self.within(&mark, put).await?;
        let path = self.path(name);
        match self.within(name, self.store.objects.head(&path)).await {
            Ok(_) => Ok(()),
            Err(Error::Missing { .. }) => self.delete(&mark).await,
            Err(error) => Err(error),
        }
    }

    /// Removes the object of a message also if it was kept: for a buried message that you deleted, or handled after you
    /// sent it again.
    pub async fn discard(&self, claim: &Claim) -> Result<(), Error> {
        let Some(name) = claim.object() else {
            return Ok(());
        };
        // In this order, so that a crash in between leaves what a sweep finds.
        self.delete(&name::mark_of(name)).await?;
        self.delete(name).await
    }

    /// When an object was kept, by the clock of the store.
    pub(crate) async fn kept_since(&self, name: &str) -> Result<Option<DateTime<Utc>>, Error> {
        let mark = name::mark_of(name);
        let path = self.path(&mark);
        match self.within(&mark, self.store.objects.head(&path)).await {
            Ok(found) => Ok(Some(found.last_modified)),
            Err(Error::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes what may be absent.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        match self.within(name, self.store.objects.delete(&path)).await {
            Ok(()) | Err(Error::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for the store as long as an operation may take.
    pub(crate) async fn within<T>(
        &self,
        object: &str,
        operation: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Error> {
        let limit = self.options.store_time_max;
        match timeout(limit, operation).await {
            Ok(done) => done.map_err(|error| Error::of_store(error, object)),
            Err(_) => Err(Error::unavailable(format!("no answer in {limit:?}"))),
        }
    }

    pub(crate) fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), Path::join)
    }

    /// The data, and how many messages it is.
    fn joined(&self, body: Body) -> Result<(Option<u32>, Bytes), Error> {
        match body {
            Body::One(data) => {
                self.check_size(to_u64(data.len()))?;
                Ok((None, data))
            }
            Body::Group(items) => {
                let count = self.check_count(to_u64(items.len()))?;
                self.check_size(group::packed_size(&items))?;
                Ok((Some(count), group::pack(&items)?))
            }
        }
    }

    fn check_size(&self, size_bytes: u64) -> Result<(), Error> {
        let limit_bytes = self.options.size_max_bytes;
        match size_bytes <= limit_bytes {
            true => Ok(()),
            false => Err(Error::TooLarge {
                size_bytes,
                limit_bytes,
            }),
        }
    }

    fn check_count(&self, count: u64) -> Result<u32, Error> {
        let limit = self.options.items_max;
        match u32::try_from(count) {
            Ok(count) if count <= limit => Ok(count),
            Ok(_) | Err(_) => Err(Error::TooManyItems {
                count,
                limit: limit.into(),
            }),
        }
    }

    /// The body with the data in it, if it is small enough.
    fn inline(&self, envelope: &Envelope, data_size: usize) -> Result<Option<Bytes>, Error> {
        let limit = self.options.message_size_max_bytes;
        if data_size > limit {
            return Ok(None);
        }
        let body = envelope.to_bytes()?;
        Ok((body.len() <= limit).then_some(body))
    }

    async fn put(&self, stored: Bytes) -> Result<Reference, Error> {
        let bytes = stored.clone();
        let sha256 = heavy(stored.len(), move || codec::hash(&bytes)).await?;
        let size = to_u64(stored.len());
        let name = name::new(SystemTime::now().into())?;
        let path = self.path(&name);
        let put = self.store.objects.put(&path, PutPayload::from(stored));
        self.within(&name, put).await.map_err(|error| match error {
            // Of a write: the bucket.
            Error::Missing { .. } => Error::StoreRefused {
                source: "the bucket or container does not exist".into(),
            },
            other => other,
        })?;
        Ok(Reference { name, size, sha256 })
    }

    /// The object as it lies in the store, if it has the size that the message says.
    async fn get(&self, reference: &Reference) -> Result<Bytes, Error> {
        let Reference { name, size, .. } = reference;
        self.check_size(*size)?;
        let damaged = |has: u64| Error::Damaged {
            place: format!("object {name}"),
            why: format!("it has {has} bytes, and {size} were stored"),
        };
        let path = self.path(name);
        let fetch = async {
            let found = self.store.objects.get(&path).await?;
            let has = found.meta.size;
            if has != *size {
                return Ok(Err(has));
            }
            let mut chunks = found.into_stream();
            let mut stored = BytesMut::new();
            while let Some(chunk) = chunks.next().await {
                stored.extend_from_slice(&chunk?);
                if to_u64(stored.len()) > *size {
                    break;
                }
            }
            match to_u64(stored.len()) {
                has if has == *size => Ok(Ok(stored.freeze())),
                has => Ok(Err(has)),
            }
        };
        self.within(name, fetch).await?.map_err(damaged)
    }
}

fn outgoing(body: Bytes, claim: Claim, send_before: Option<Instant>) -> Outgoing {
    Outgoing {
        body,
        content_type: CONTENT_TYPE,
        claim,
        send_before,
    }
}

/// Runs work on so many bytes where it stops no other task.
async fn heavy<T: Send + 'static>(
    size: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    if size <= AT_ONCE_MAX {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work)
        .await
        .map_err(Error::unavailable)
}
