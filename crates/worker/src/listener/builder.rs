//! How a listener is set up.

use std::sync::Arc;
use std::time::Duration;

use tracing::Span;

use super::Listener;
use super::shared::{Decode, DynDecode, Settings, Shared};
use crate::chance::Chance;
use crate::codec::Codec;
use crate::delivery::{DynHandler, Handler, Verify};
use crate::policy::{
    Adaptive, AfterLoss, BackOff, ByDepth, Idle, IdleBackOff, LossLimit, OnLostLeases, Pace,
    RetryDelay, SlowDown, Visibility, WakeUp,
};
use crate::push::{Announcements, DynAnnouncements};
use crate::source::{ChosenLease, Meta, Source};

/// Sets up a [`Listener`]. Everything has a default but the handlers, of which there must be one.
pub struct ListenerBuilder<T, S: Source> {
    source: S,
    codec: Arc<dyn DynDecode<T>>,
    handlers: Vec<Box<dyn DynHandler<T, S::Lease>>>,
    settings: Settings,
    visibility: Box<dyn Visibility>,
    pace: Box<dyn Pace>,
    push: Option<Box<dyn DynAnnouncements>>,
    chance: Chance,
}

impl<T: Send + Sync + 'static, S: Source> ListenerBuilder<T, S> {
    pub(super) fn new(source: S, codec: impl Codec<T>) -> Self {
        Self {
            codec: Arc::new(Decode(codec)),
            handlers: Vec::new(),
            settings: Settings {
                batch_size: source.batch_size_max().min(32),
                tasks_max: 200,
                handlers_max: 64,
                delayed_max: 256,
                attempts_max: 10,
                handling_time_max: Duration::from_hours(1),
                recheck: Some(Duration::from_mins(10)),
                has_push: false,
                busy_delay: Duration::from_secs(4),
                idle: Box::new(IdleBackOff::default()),
                wake_up: Box::new(ByDepth),
                message_delay: Box::new(BackOff::MESSAGES),
                request_delay: Box::new(BackOff::REQUESTS),
                after_loss: AfterLoss::Keep,
                loss_limit: LossLimit::default(),
                on_lost_leases: None,
                verify: None,
                on_span: None,
            },
            visibility: Box::new(Adaptive::default()),
            pace: Box::new(SlowDown::default()),
            push: None,
            chance: Chance::from_system(),
            source,
        }
    }

    /// Adds a handler. Each message goes to all of them at the same time, and is deleted only after all succeeded.
    #[must_use]
    pub fn subscribe(mut self, handler: impl Handler<T, S::Lease>) -> Self {
        self.handlers.push(Box::new(handler));
        self
    }

    /// The most messages of one receive, from 1. Default 32, which is also the most of Queue Storage: more is
    /// clamped to what the source accepts.
    #[must_use]
    pub fn batch_size(mut self, count: u32) -> Self {
        self.settings.batch_size = count.clamp(1, self.source.batch_size_max().max(1));
        self
    }

    /// Messages that are handled at once, from 1. Default 64. The listener receives no message without a place here. On
    /// Service Bus a message that was handled gives its place to the next one while the service deletes it, as long as no
    /// more than so many are being deleted: so this also bounds the listener's memory.
    #[must_use]
    pub fn handlers_max(mut self, count: u32) -> Self {
        self.settings.handlers_max = count.max(1) as usize;
        self
    }

    /// Messages that wait out their back-off under lease beside those being handled. Default 256. One more keeps its
    /// place among the handlers. Queue Storage needs none: it hides such messages.
    #[must_use]
    pub fn delayed_max(mut self, count: u32) -> Self {
        self.settings.delayed_max = count as usize;
        self
    }

    /// Dequeue tasks that run at once, whatever starts them, from 1. Default 200.
    #[must_use]
    pub fn tasks_max(mut self, count: u32) -> Self {
        self.settings.tasks_max = count.max(1);
        self
    }

    /// After so many attempts a message is buried, from 1. Default 10. On Service Bus set no more than the queue's
    /// own limit (default 10): its service buries the message otherwise, without the error.
    #[must_use]
    pub fn attempts_max(mut self, count: u32) -> Self {
        self.settings.attempts_max = count.max(1);
        self
    }

    /// The longest time of one attempt, however often its lease is renewed. Default 1 h. A handler that takes
    /// longer is stopped, and the attempt has failed.
    #[must_use]
    pub fn handling_time_max(mut self, duration: Duration) -> Self {
        self.settings.handling_time_max = duration;
        self
    }

    /// What idle tasks do. Default: [`IdleBackOff`].
    #[must_use]
    pub fn idle(mut self, policy: impl Idle) -> Self {
        self.settings.idle = Box::new(policy);
        self
    }

    /// How many tasks run when work comes. Default: [`ByDepth`].
    #[must_use]
    pub fn wake_up(mut self, policy: impl WakeUp) -> Self {
        self.settings.wake_up = Box::new(policy);
        self
    }

    /// When a message comes back whose handler failed. Default: [`BackOff::MESSAGES`].
    #[must_use]
    pub fn message_delay(mut self, policy: impl RetryDelay) -> Self {
        self.settings.message_delay = Box::new(policy);
        self
    }

    /// How long to wait after a request that failed. Default: [`BackOff::REQUESTS`].
    #[must_use]
    pub fn request_delay(mut self, policy: impl RetryDelay) -> Self {
        self.settings.request_delay = Box::new(policy);
        self
    }

    /// The shortest wait after the service said that it is busy. Default 4 s.
    #[must_use]
    pub fn busy_delay(mut self, delay: Duration) -> Self {
        self.settings.busy_delay = delay;
        self
    }

    /// How the listener slows down when requests that were fast time out. Default: [`SlowDown`].
    #[must_use]
    pub fn pace(mut self, policy: impl Pace) -> Self {
        self.pace = Box::new(policy);
        self
    }

    /// What becomes of work whose message could not be deleted. Default: [`AfterLoss::Keep`].
    #[must_use]
    pub fn after_loss(mut self, choice: AfterLoss) -> Self {
        self.settings.after_loss = choice;
        self
    }

    /// Is told when `count` leases ended within a time before their messages were deleted. Without this call it is
    /// logged, with 10 in 5 minutes.
    #[must_use]
    pub fn on_lost_leases(mut self, count: u32, within: Duration, told: impl OnLostLeases) -> Self {
        self.settings.loss_limit = LossLimit { count, within };
        self.settings.on_lost_leases = Some(Box::new(told));
        self
    }

    /// Checks messages before they are decoded. Default: none.
    #[must_use]
    pub fn verify(mut self, verify: impl Verify) -> Self {
        self.settings.verify = Some(Box::new(verify));
        self
    }

    /// Is called with the span of each attempt before it starts, so that an application can connect it to a trace:
    /// with `tracing-opentelemetry`, extract the context from [`Meta::trace`] and call `set_parent`.
    #[must_use]
    pub fn on_span(mut self, connect: impl Fn(&Span, &Meta) + Send + Sync + 'static) -> Self {
        self.settings.on_span = Some(Box::new(connect));
        self
    }

    /// Hears announcements of work. While this works, all idle tasks end, and none polls.
    #[must_use]
    pub fn push(mut self, announcements: impl Announcements) -> Self {
        self.push = Some(Box::new(announcements));
        self.settings.has_push = true;
        self
    }

    /// How often a listener with push reads the depth of the queue, because messages that come back after a crash of
    /// another process or become due are not announced. What this listener itself releases, or loses the lease of, it
    /// looks for without an announcement. Default 10 minutes. `None` leaves such messages until the next announcement.
    #[must_use]
    pub fn recheck(mut self, every: Option<Duration>) -> Self {
        self.settings.recheck = every;
        self
    }

    /// Makes jitter repeatable, for tests.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.chance = Chance::seeded(seed);
        self
    }

    /// The listener. No task runs until [`Listener::start`].
    ///
    /// # Panics
    ///
    /// Without a handler: every message would be deleted unseen.
    pub fn build(self) -> Listener<T, S> {
        assert!(!self.handlers.is_empty(), "a listener needs a handler");
        let shared = Shared::new(
            self.source,
            self.codec,
            self.handlers,
            self.settings,
            self.visibility,
            self.pace,
            self.chance,
        );
        Listener::new(Arc::new(shared), self.push)
    }
}

impl<T: Send + Sync + 'static, S: ChosenLease> ListenerBuilder<T, S> {
    /// How long messages are leased. Default: [`Adaptive`]. Only where the listener can choose: the lock of a queue
    /// of Service Bus is a setting of the queue.
    #[must_use]
    pub fn visibility(mut self, policy: impl Visibility) -> Self {
        self.visibility = Box::new(policy);
        self
    }
}

impl<T, S: Source> std::fmt::Debug for ListenerBuilder<T, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerBuilder")
            .field("source", self.source.name())
            .field("handlers", &self.handlers.len())
            .finish_non_exhaustive()
    }
}
