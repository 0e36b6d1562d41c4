//! A library for applications that process messages of queues, of Azure Queue Storage and of Azure Service Bus.
//!
//! It talks to both services through [`kew_client`], with the public protocols only.
//!
//! - A [`Listener`] receives messages from a [`Source`]: [`QueueSource`], [`BusSource`] or [`SessionSource`]. A
//!   [`Codec`] decodes them, and each goes to every [`Handler`]. A message is deleted only after all of them
//!   succeeded.
//! - Everything that it decides is a formula behind a trait, with a documented default: [`Idle`], [`WakeUp`],
//!   [`RetryDelay`], [`Pace`], [`Visibility`].
//! - A [`Sender`] sends messages, over one queue or [several](Sharded).
//! - [`Announce`] and [`Announcements`] tell listeners of work, so that nobody polls an empty queue.
//!
//! `ARCHITECTURE.md` of the repository says what a listener promises, and `docs/worker.md` how to use it.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test fails by panicking")
)]

mod chance;
mod codec;
mod delivery;
mod error;
mod failure;
mod listener;
mod policy;
mod push;
mod send;
mod source;
mod trace;

pub use codec::{Codec, CodecError, Json, Raw, Text, Xml};
pub use delivery::{Delivery, Handler, HandlerFn, Verify, handler_fn};
pub use error::SourceError;
pub use failure::{
    AUTHENTICATION_FAILED, Failure, MALFORMED_PAYLOAD, MAX_DELIVERY_COUNT_EXCEEDED,
    capture_backtraces, install_panic_hook,
};
pub use kew_client::ErrorKind;
pub use kew_metrics::Family;
pub use listener::{
    Event, Listener, ListenerBuilder, StartError, State, Stop, StopReport, Watch, metrics_page,
};
pub use policy::{
    Adaptive, AfterLoss, BackOff, ByDepth, Fixed, Idle, IdleAnswer, IdleBackOff, IdleState,
    LostLeases, OnLostLeases, Pace, RequestOutcome, RetryDelay, SlowDown, Steady, Visibility,
    WakeUp,
};
pub use push::{
    Announce, Announcement, Announcements, BusAnnouncements, BusAnnouncer, Heard,
    LocalAnnouncements, LocalPush, TopicAnnouncements, TopicAnnouncer, create_push_queue,
    create_push_topic,
};
pub use send::{
    AnnounceWhen, BusTarget, LeaseHint, QueueTarget, SendError, Sender, Sharded, Target,
};
pub use source::{
    Ask, Attempt, Burial, BusIntake, BusLease, BusSource, Checkpoints, ChosenLease, Envelopes,
    Incoming, Intake, Key, Lease, Meta, Outgoing, QueueIntake, QueueLease, QueueSource,
    SessionIntake, SessionLease, SessionSource, Source, SourceName, TextEncoding,
};
pub use trace::TraceContext;
