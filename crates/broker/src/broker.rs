//! The handle that front ends hold, and what they meet in it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use kew_engine::bus::{Awaited, BusOutcome};
use kew_engine::{Command, Incarnation, Outcome};
use kew_log::{Body, LogFailed, Recovery, Storage};
use thiserror::Error;
use tokio::sync::{Notify, oneshot, watch};

use crate::answers::{Among, Asker};
use crate::runner::{self, Shared};
use crate::unread;
use crate::{
    AdmissionLimits, Answered, Answers, ChangeWatch, OpenPartitionError, PartitionOptions,
    Rejection, Reply, Watch,
};

/// How a broker is run.
#[derive(Clone, Debug, Default)]
pub struct BrokerOptions {
    /// How its partition is run.
    pub partition: PartitionOptions,
    /// How much may be under way.
    pub admission: AdmissionLimits,
}

/// A successful answer, with the bodies of its messages read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the engine answered.
    pub outcome: Outcome,
    /// The bodies of its messages, in the order of the messages.
    pub bodies: Vec<Bytes>,
}

impl Answer {
    /// The answer, if all its bodies are in memory and nothing is to be done with it.
    pub fn in_memory(answered: Answered) -> Result<Self, Box<Answered>> {
        match answered.bodies.iter().map(Body::in_memory).collect() {
            Some(bodies) if answered.unread.is_none() => Ok(Self {
                outcome: answered.outcome,
                bodies,
            }),
            _ => Err(Box::new(answered)),
        }
    }
}

/// Why a broker could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The log could not be opened.
    #[error(transparent)]
    Open(#[from] OpenPartitionError),
    /// The operating system gave no random bytes or no thread.
    #[error("the operating system refused {what}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// Why a broker stopped by itself: what it was about to write may or may not be on the disk.
#[derive(Clone, Debug, Error)]
#[error("the partition has stopped: {reason}")]
pub struct Failure {
    reason: Arc<str>,
}

impl Failure {
    pub(crate) fn of_a_bug() -> Self {
        Self {
            reason: "its thread panicked, which is a bug".into(),
        }
    }
}

impl From<&LogFailed> for Failure {
    fn from(failed: &LogFailed) -> Self {
        let mut reason = failed.to_string();
        let mut source = std::error::Error::source(failed);
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Some errors end with the text of their cause.
            if !reason.ends_with(&cause_text) {
                reason.push_str(": ");
                reason.push_str(&cause_text);
            }
            source = cause.source();
        }
        Self {
            reason: reason.into(),
        }
    }
}

/// A running broker. Clones share it.
#[derive(Clone, Debug)]
pub struct Broker {
    pub(crate) shared: Arc<Shared>,
    /// Held by whoever reads for metrics.
    pub(crate) reading: Arc<tokio::sync::Mutex<()>>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
    failure: watch::Receiver<Option<Failure>>,
}

impl Broker {
    /// Recovers what the storage holds and starts the threads. When this returns, a command that
    /// is submitted is carried out.
    pub fn start(
        storage: Arc<dyn Storage>,
        options: BrokerOptions,
    ) -> Result<(Self, Recovery), StartError> {
        let (failed, failure) = watch::channel(None);
        let started = runner::start(storage, options, failed)?;
        let broker = Self {
            shared: started.shared,
            reading: Arc::default(),
            threads: Arc::new(Mutex::new(started.threads)),
            failure,
        };
        Ok((broker, started.recovery))
    }

    /// A broker that keeps everything in memory and forgets it when it stops.
    pub fn start_in_memory() -> Result<Self, StartError> {
        let storage = Arc::new(kew_log::MemoryStorage::new());
        let (broker, _) = Self::start(storage, BrokerOptions::default())?;
        Ok(broker)
    }

    /// Has a command carried out. The answer comes when what it rests on is durable.
    ///
    /// To drop the future does not take the command back. A message whose body proves damaged on
    /// the disk is left out of the answer, and reported with file and offset. One that was to be received
    /// and deleted stays where it is.
    pub async fn submit(&self, command: Command) -> Result<Answer, Rejection> {
        self.check_taken(&command).await?;
        let answered = self.ask(unread::careful(command)).await?;
        self.read(answered).await
    }

    /// The answer to a command, without its bodies.
    pub(crate) async fn ask(&self, command: Command) -> Result<Answered, Rejection> {
        let (sender, answer) = oneshot::channel::<Reply>();
        let submitted = self.shared.submit(Asker::Alone(sender), command);
        submitted.map_err(|(_, rejection)| rejection)?;
        // A ticket is dropped without an answer only when its runner is gone.
        answer.await.unwrap_or(Err(Rejection::Stopped))
    }

    /// Has commands carried out whose answers come together, each under its key. An answer comes when
    /// what it rests on is durable, and its bodies are not read yet.
    ///
    /// Commands are carried out in the order in which they are submitted. To those that `refused`
    /// tells of there is no answer.
    pub fn submit_among(
        &self,
        commands: impl Iterator<Item = (u64, Command)>,
        answers: &Arc<Answers>,
        mut refused: impl FnMut(u64, Rejection),
    ) {
        let asked = commands.map(|(key, command)| {
            let among = Among::new(answers, key);
            (Asker::Among(among), unread::careful(command))
        });
        self.shared.submit_all(asked, |asker, rejection| {
            if let Asker::Among(among) = asker {
                refused(among.forget(), rejection);
            }
        });
    }

    /// Watches for something of a bus queue or sub-queue, by the incarnation that a read of it shows.
    pub fn watch(&self, entity: Incarnation, awaited: Awaited) -> Watch {
        self.shared.watchers.watch(entity, awaited)
    }

    /// Has `notify` told whenever the settings of a bus queue or sub-queue are changed, or it is
    /// deleted. What was told of is found with [`ChangeWatch::take`].
    pub fn watch_changes(&self, entity: Incarnation, notify: &Arc<Notify>) -> ChangeWatch {
        self.shared.watchers.watch_changes(entity, notify)
    }

    /// How many receivers were woken since the start.
    pub fn woken_count(&self) -> u64 {
        self.shared.watchers.woken.value()
    }

    /// How many watches there are.
    pub fn watch_count(&self) -> usize {
        self.shared.watchers.count()
    }

    /// Whether a put would succeed now.
    pub fn is_ready(&self) -> bool {
        // A failure is told before the runner has come to its end.
        self.failure.borrow().is_none() && self.shared.is_ready()
    }

    /// Waits until the broker has stopped by itself, and tells why. Never returns otherwise.
    pub async fn failed(&self) -> Failure {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(failure) => failure.clone().expect("waited for some"),
            Err(_) => std::future::pending().await,
        }
    }

    /// Carries out what was submitted, takes no more, leaves a snapshot, and ends the threads.
    ///
    /// Blocks until that is done.
    pub fn stop(&self) {
        self.shared.stop();
        for thread in lock(&self.threads).drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the partition panicked");
            }
        }
    }
}

/// Reads what is not in memory, and leaves out what is damaged.
pub(crate) fn read_bodies(answered: Answered) -> Answer {
    let read: Vec<Option<Bytes>> = answered
        .bodies
        .iter()
        .map(|body| match body.read() {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                tracing::error!(%error, "a message body is damaged; the message is not shown");
                None
            }
        })
        .collect();
    let mut keep = read.iter().map(Option::is_some);
    let mut is_kept = || keep.next().unwrap_or(true);
    let outcome = match answered.outcome {
        Outcome::Received(mut messages) => {
            messages.retain(|_| is_kept());
            Outcome::Received(messages)
        }
        Outcome::Peeked(mut messages) => {
            messages.retain(|_| is_kept());
            Outcome::Peeked(messages)
        }
        Outcome::Bus(mut outcome) => {
            let bodies = keep_whole_messages(&mut outcome, read);
            let outcome = Outcome::Bus(outcome);
            return Answer { outcome, bodies };
        }
        outcome @ (Outcome::Initialized
        | Outcome::QueueCreated
        | Outcome::QueueUnchanged
        | Outcome::QueueDeleted
        | Outcome::Queue(_)
        | Outcome::QueueMetadataSet
        | Outcome::Queues(_)
        | Outcome::Sent(_)
        | Outcome::Updated { .. }
        | Outcome::Deleted
        | Outcome::Cleared
        | Outcome::QueuePoliciesSet
        | Outcome::ServicePropertiesSet
        | Outcome::ServiceProperties(_)
        | Outcome::AccountPut
        | Outcome::AccountRemoved
        | Outcome::Accounts(_)) => outcome,
    };
    Answer {
        outcome,
        bodies: read.into_iter().flatten().collect(),
    }
}

/// The bodies of the messages of which every part could be read; the others are left out. A damaged
/// state of a session is left out too: then the answer says that there is one, and brings none.
fn keep_whole_messages(outcome: &mut BusOutcome, read: Vec<Option<Bytes>>) -> Vec<Bytes> {
    let mut read = read.into_iter();
    let mut bodies = Vec::new();
    outcome.retain_messages(|part_count| {
        let parts: Vec<_> = read.by_ref().take(part_count).collect();
        let whole: Option<Vec<_>> = parts.into_iter().collect();
        let is_whole = whole.is_some();
        bodies.extend(whole.into_iter().flatten());
        is_whole
    });
    bodies.extend(read.flatten());
    bodies
}

/// Takes a lock whose holder may have panicked: what these locks guard is consistent at any time.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
