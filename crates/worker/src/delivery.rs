//! What a handler gets.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use kew_client::ErrorKind;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::error::SourceError;
use crate::failure::Failure;
use crate::listener::Phase;
use crate::source::{Checkpoints, Incoming, Meta};
use crate::trace::TraceContext;

/// A future in a box.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A message that is handed to handlers. To clone it is cheap.
///
/// Handlers do not settle it: the listener completes the message after all of them returned `Ok`.
pub struct Delivery<T, L> {
    message: Arc<T>,
    meta: Arc<Meta>,
    lease: Arc<Mutex<L>>,
    listener: Arc<dyn OfListener>,
}

/// The listener that a message came to.
pub(crate) trait OfListener: Send + Sync {
    /// Takes in a request that ends now: a listener slows down when its service does.
    fn observe(&self, began: Instant, error: Option<&SourceError>);

    /// Tells when it stops.
    fn phase(&self) -> watch::Receiver<Phase>;
}

impl<T, L> Delivery<T, L> {
    pub(crate) fn new(
        message: Arc<T>,
        meta: Arc<Meta>,
        lease: Arc<Mutex<L>>,
        listener: Arc<dyn OfListener>,
    ) -> Self {
        Self {
            message,
            meta,
            lease,
            listener,
        }
    }

    /// The message.
    pub fn message(&self) -> &T {
        &self.message
    }

    /// What is known of it besides: its id, properties, history and more.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Which delivery this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.meta.attempt
    }

    /// Where the message belongs in a distributed trace.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.meta.trace.as_ref()
    }

    /// What an earlier attempt saved with [`save`](Self::save).
    pub fn checkpoint(&self) -> Option<&Bytes> {
        self.meta.checkpoint.as_ref()
    }

    /// Waits until the listener is asked to stop. Long work can then save a checkpoint and fail.
    pub async fn stopping(&self) {
        let mut phase = self.listener.phase();
        // A listener that does not exist any more has stopped.
        let _ = phase.wait_for(|phase| *phase != Phase::Running).await;
    }
}

impl<T, L: Checkpoints> Delivery<T, L> {
    /// Stores the progress of long work with the message. The next delivery has it in
    /// [`checkpoint`](Self::checkpoint).
    ///
    /// A plain queue of Service Bus has no place for progress, so this method does not exist there. On Queue Storage
    /// it is refused unless the source writes envelopes. To drop the future leaves it open whether it was stored.
    pub async fn save(&self, progress: impl Into<Bytes>) -> Result<(), SourceError> {
        let mut lease = self.lease.lock().await;
        let mut request = UnderWay::new(&*self.listener);
        let saved = lease.save(progress.into()).await;
        request.end(saved.as_ref().err());
        saved
    }
}

/// A request of a handler. Handlers are dropped when their time is over: a request that nobody waits for any more has
/// had no answer until then.
struct UnderWay<'a> {
    listener: &'a dyn OfListener,
    began: Instant,
    has_ended: bool,
}

impl<'a> UnderWay<'a> {
    fn new(listener: &'a dyn OfListener) -> Self {
        Self {
            listener,
            began: Instant::now(),
            has_ended: false,
        }
    }

    fn end(&mut self, error: Option<&SourceError>) {
        self.has_ended = true;
        self.listener.observe(self.began, error);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let text = "the handler was dropped before the service answered";
            self.end(Some(&SourceError::new(ErrorKind::OutcomeUnknown, text)));
        }
    }
}

impl<T, L> Clone for Delivery<T, L> {
    fn clone(&self) -> Self {
        Self {
            message: self.message.clone(),
            meta: self.meta.clone(),
            lease: self.lease.clone(),
            listener: self.listener.clone(),
        }
    }
}

impl<T, L> fmt::Debug for Delivery<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Delivery");
        debug.field("meta", &self.meta).finish_non_exhaustive()
    }
}

/// Handles messages. It can be wrapped in another one, for example in a guard that runs it once for each business id.
///
/// A message is completed only after every handler of the listener returned `Ok`. One that fails makes the message
/// come back, to all of them. The future is dropped if the lease ends before it does, or if the listener stops and
/// its time is over: use work that can be repeated, and do not hand it to tasks that outlive the future.
pub trait Handler<T, L>: Send + Sync + 'static {
    /// Handles a message.
    fn handle(&self, delivery: Delivery<T, L>) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl<T, L, H: Handler<T, L>> Handler<T, L> for Arc<H> {
    fn handle(&self, delivery: Delivery<T, L>) -> impl Future<Output = Result<(), Failure>> + Send {
        H::handle(self, delivery)
    }
}

/// A function as a handler. See [`handler_fn`].
#[derive(Clone, Copy, Debug)]
pub struct HandlerFn<F>(F);

/// Makes a handler of an asynchronous function.
pub fn handler_fn<T, L, F, Fut>(function: F) -> HandlerFn<F>
where
    F: Fn(Delivery<T, L>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send,
{
    HandlerFn(function)
}

impl<T, L, F, Fut> Handler<T, L> for HandlerFn<F>
where
    F: Fn(Delivery<T, L>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send,
{
    fn handle(&self, delivery: Delivery<T, L>) -> impl Future<Output = Result<(), Failure>> + Send {
        self.0(delivery)
    }
}

/// Checks that a message comes from where it says, before a codec decodes it.
pub trait Verify: Send + Sync + 'static {
    /// Refuses a message with the reason. It is then buried as `AuthenticationFailed`. Must not block.
    fn verify(&self, incoming: &Incoming) -> Result<(), String>;
}

impl<F: Fn(&Incoming) -> Result<(), String> + Send + Sync + 'static> Verify for F {
    fn verify(&self, incoming: &Incoming) -> Result<(), String> {
        self(incoming)
    }
}

/// A handler whose future is in a box, so that a listener can have several.
pub(crate) trait DynHandler<T, L>: Send + Sync {
    fn handle_boxed(&self, delivery: Delivery<T, L>) -> Boxed<'_, Result<(), Failure>>;
}

impl<T, L, H: Handler<T, L>> DynHandler<T, L> for H
where
    T: Send + Sync + 'static,
    L: Send + 'static,
{
    fn handle_boxed(&self, delivery: Delivery<T, L>) -> Boxed<'_, Result<(), Failure>> {
        Box::pin(self.handle(delivery))
    }
}
