//! The handle that front ends hold, and the answers and errors it returns.

use std::io;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use kew_engine::bus::{Awaited, BusOutcome};
use kew_engine::storage::StorageOutcome;
use kew_engine::{Command, Incarnation, Outcome};
use kew_log::{Epoch, LogSource, Recovery, SegmentSource, Storage};
use thiserror::Error;
use tokio::sync::{Notify, oneshot, watch};

use crate::answers::Asker;
use crate::runner::{self, ReportOf, Shared};
use crate::{
    AdmissionLimits, Answered, Answers, ChangeWatch, Door, OpenPartitionError, Ownership,
    PartitionOptions, Rejection, Reply, ScrubReport, Source, Standing, Watch,
};

/// How a broker is run.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// How its partition is run.
    pub partition: PartitionOptions,
    /// How much may be under way.
    pub admission: AdmissionLimits,
    /// How long a stop waits for other machines to agree on the last commands, if they keep the log too. Without effect on a
    /// log on one disk.
    pub stop_patience: Duration,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            partition: PartitionOptions::default(),
            admission: AdmissionLimits::default(),
            stop_patience: Duration::from_secs(5),
        }
    }
}

/// A successful answer, with the bodies of its messages read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The engine's answer.
    pub outcome: Outcome,
    /// The bodies of its messages, in the order of the messages.
    pub bodies: Vec<Bytes>,
}

impl Answer {
    /// The answer, if all bodies are in memory, be it that of the operating system. Never waits.
    pub fn at_once(answered: Answered) -> Result<Self, Box<Answered>> {
        let Answered { outcome, bodies } = answered;
        match bodies.read_cached() {
            Ok(bodies) => Ok(Self { outcome, bodies }),
            Err(bodies) => Err(Box::new(Answered { outcome, bodies })),
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
        /// The random bytes or the thread.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Why a broker stopped by itself. Its last write may or may not be on the disk.
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

    /// With the causes of an error.
    pub(crate) fn of(error: &dyn std::error::Error) -> Self {
        let mut reason = error.to_string();
        let mut source = error.source();
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

/// A running broker. Clones share it, and are the same source of commands.
#[derive(Clone, Debug)]
pub struct Broker {
    /// Where the commands come from that this handle submits.
    source: Source,
    /// Where they go to.
    door: Arc<dyn Door>,
    /// The partition of this process.
    pub(crate) shared: Arc<Shared>,
    /// Locked by the caller that reads for metrics.
    pub(crate) reading: Arc<tokio::sync::Mutex<()>>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
    failure: watch::Receiver<Option<Failure>>,
}

impl Broker {
    /// Recovers the stored partition and starts the threads. Commands submitted after this returns are
    /// carried out.
    pub fn start(
        storage: Arc<dyn Storage>,
        options: BrokerOptions,
    ) -> Result<(Self, Recovery), StartError> {
        let entropy = u64::from_le_bytes(runner::random()?);
        let openings = AtomicU64::new(0);
        let entropy = move || entropy ^ openings.fetch_add(1, Ordering::Relaxed);
        let source = SegmentSource::new(storage, options.partition.log, entropy);
        Self::start_on(Arc::new(source), options)
    }

    /// The same, on a log of any kind. This process becomes its owner.
    ///
    /// If another process becomes the owner later, the broker goes on: it follows the log, and refuses commands with
    /// [`Rejection::NotOwner`], until it is told to [own](Self::promote) the log again.
    pub fn start_on(
        source: Arc<dyn LogSource>,
        options: BrokerOptions,
    ) -> Result<(Self, Recovery), StartError> {
        let (failed, failure) = watch::channel(None);
        let started = runner::start(source, options, failed)?;
        let broker = Self {
            source: Source::ALONE,
            door: Arc::clone(&started.shared) as Arc<dyn Door>,
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
        let mut options = BrokerOptions::default();
        // There is no disk that could change anything.
        options.partition.scrub_bytes_per_second = 0;
        let (broker, _) = Self::start(storage, options)?;
        Ok(broker)
    }

    /// A handle for a connection or a job, which may have many commands under way. They are carried out in their
    /// order, and in turn with those of other handles. Commands of the first handle wait by themselves.
    #[must_use]
    pub fn for_source(&self) -> Self {
        Self {
            source: Source::new(),
            ..self.clone()
        }
    }

    /// A handle for the commands of a source that has a number already.
    #[must_use]
    pub fn of_source(&self, source: Source) -> Self {
        Self {
            source,
            ..self.clone()
        }
    }

    /// A handle whose commands and watches go through another door. Everything else is of the partition of this process.
    #[must_use]
    pub fn through(&self, door: Arc<dyn Door>) -> Self {
        Self {
            door,
            ..self.clone()
        }
    }

    /// The door of this handle.
    pub fn door(&self) -> &Arc<dyn Door> {
        &self.door
    }

    /// Carries out a command. The answer comes once everything it rests on is durable.
    ///
    /// Dropping the future does not take the command back. A message whose body turns out to be damaged on
    /// the disk is left out of the answer, and reported with file and offset. If it was to be received and
    /// deleted, it is not deleted.
    pub async fn submit(&self, command: Command) -> Result<Answer, Rejection> {
        self.submit_within(None, command).await
    }

    /// The same, for a command that rests on what was read in an epoch. If the partition is not owned with that epoch any
    /// more, the command is not carried out, and refused with [`Rejection::NotOwner`].
    pub async fn submit_within(
        &self,
        within: Option<Epoch>,
        command: Command,
    ) -> Result<Answer, Rejection> {
        let answered = self.ask(within, command).await?;
        self.read(answered).await
    }

    /// Reads the bodies of an answer that are not in memory. Messages with damaged ones are left out.
    pub async fn read(&self, answered: Answered) -> Result<Answer, Rejection> {
        match Answer::at_once(answered) {
            Ok(answer) => Ok(answer),
            Err(answered) => {
                let answer = tokio::task::spawn_blocking(|| read_bodies(*answered)).await;
                answer.map_err(|_| Rejection::Stopped)
            }
        }
    }

    /// The answer to a command, without its bodies.
    async fn ask(&self, within: Option<Epoch>, command: Command) -> Result<Answered, Rejection> {
        let (sender, answer) = oneshot::channel::<Reply>();
        let mut asked = iter::once((Asker::alone(sender), command));
        let mut refused = None;
        self.door
            .submit(self.source, within, &mut asked, &mut |_, rejection| {
                refused = Some(rejection);
            });
        if let Some(rejection) = refused {
            return Err(rejection);
        }
        // A ticket is dropped without an answer only if its runner is gone.
        answer.await.unwrap_or(Err(Rejection::Stopped))
    }

    /// Carries out commands and collects their answers in one place, each under its key. An answer comes
    /// once everything it rests on is durable. Its bodies are not read yet.
    ///
    /// Commands are carried out in the order of their submission by this handle, if it is one for a source: see
    /// [`Broker::for_source`]. A command that is passed to `refused` gets no
    /// answer.
    pub fn submit_among(
        &self,
        commands: impl Iterator<Item = (u64, Command)>,
        answers: &Arc<Answers>,
        refused: impl FnMut(u64, Rejection),
    ) {
        self.submit_among_within(None, commands, answers, refused);
    }

    /// The same, within an epoch: see [`submit_within`](Self::submit_within).
    pub fn submit_among_within(
        &self,
        within: Option<Epoch>,
        commands: impl Iterator<Item = (u64, Command)>,
        answers: &Arc<Answers>,
        mut refused: impl FnMut(u64, Rejection),
    ) {
        let mut asked = commands.map(|(key, command)| (Asker::among(answers, key), command));
        self.door
            .submit(self.source, within, &mut asked, &mut |asker, rejection| {
                if let Some(key) = asker.forget() {
                    refused(key, rejection);
                }
            });
    }

    /// With which epoch the partition is owned, as far as the door knows.
    pub fn ownership(&self) -> &Arc<Ownership> {
        self.door.ownership()
    }

    /// Watches a bus queue or sub-queue for something to receive. `entity` is the incarnation that a read of
    /// it shows.
    pub fn watch(&self, entity: Incarnation, awaited: Awaited) -> Watch {
        self.door.watchers().watch(entity, awaited)
    }

    /// Notifies `notify` whenever the settings of a bus queue or sub-queue change or it is deleted.
    /// [`ChangeWatch::take`] says which watch has a change.
    pub fn watch_changes(&self, entity: Incarnation, notify: &Arc<Notify>) -> ChangeWatch {
        self.door.watchers().watch_changes(entity, notify)
    }

    /// Wakes a receiver that waits for this, as if something had just come: another one was woken for it, and has gone.
    pub fn pass_on(&self, entity: Incarnation, awaited: &Awaited) {
        self.door.watchers().pass_on(entity, awaited);
    }

    /// What the scrub has found, and which messages are set aside. `None` if the partition has stopped or follows.
    pub async fn scrub_report(&self) -> Option<ScrubReport> {
        let report = self.shared.request_scrub_report(ReportOf::Quarantined);
        report.await.ok()
    }

    /// What the scrub has found, without a look at each run.
    pub(crate) async fn known_damage(&self) -> Option<ScrubReport> {
        let report = self.shared.request_scrub_report(ReportOf::Damage);
        report.await.ok()
    }

    /// How many receivers were woken since the start.
    pub fn woken_count(&self) -> u64 {
        self.door.watchers().woken.value()
    }

    /// How many watches there are.
    pub fn watch_count(&self) -> usize {
        self.door.watchers().count()
    }

    /// How the partition is.
    pub fn standing(&self) -> Standing {
        // The failure is published before the runner ends.
        match self.failure.borrow().is_some() {
            true => Standing::Stopped,
            false => self.shared.standing().1,
        }
    }

    /// Whether a put would succeed now.
    pub fn is_ready(&self) -> bool {
        self.standing() == Standing::Ready
    }

    /// Makes this process the owner of its log, with an epoch that is above all others. It becomes the owner once it has
    /// followed the log to its end: see [`standing`](Self::standing). An owner that does not know yet that another process
    /// has taken the log over finds that out first. This counts once: if an epoch that is as high has begun by then, the
    /// process goes on to follow.
    pub fn promote(&self, epoch: Epoch) {
        self.shared.promote(epoch);
    }

    /// Waits until the broker has stopped by itself and returns the reason. Otherwise it never returns.
    pub async fn failed(&self) -> Failure {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(failure) => failure.clone().expect("waited for some"),
            Err(_) => std::future::pending().await,
        }
    }

    /// Carries out the submitted commands, accepts no more, writes a snapshot, and ends the threads.
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

/// Reads the bodies that are not in memory, and leaves out messages with damaged ones.
fn read_bodies(answered: Answered) -> Answer {
    let read: Vec<Option<Bytes>> = answered
        .bodies
        .read()
        .into_iter()
        .map(|read| match read {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                tracing::error!(%error, "a message body is damaged: the message is left out of the answer");
                None
            }
        })
        .collect();
    let mut keep = read.iter().map(Option::is_some);
    let mut is_kept = || keep.next().unwrap_or(true);
    let outcome = match answered.outcome {
        Outcome::Storage(StorageOutcome::Received(mut messages)) => {
            messages.retain(|_| is_kept());
            Outcome::Storage(StorageOutcome::Received(messages))
        }
        Outcome::Storage(StorageOutcome::Peeked(mut messages)) => {
            messages.retain(|_| is_kept());
            Outcome::Storage(StorageOutcome::Peeked(messages))
        }
        Outcome::Bus(mut outcome) => {
            let bodies = keep_whole_messages(&mut outcome, read);
            let outcome = Outcome::Bus(outcome);
            return Answer { outcome, bodies };
        }
        outcome @ (Outcome::Initialized
        | Outcome::Storage(
            StorageOutcome::QueueCreated
            | StorageOutcome::QueueUnchanged
            | StorageOutcome::QueueDeleted
            | StorageOutcome::Queue(_)
            | StorageOutcome::QueueMetadataSet
            | StorageOutcome::Queues(_)
            | StorageOutcome::Sent(_)
            | StorageOutcome::Updated { .. }
            | StorageOutcome::Deleted
            | StorageOutcome::Cleared
            | StorageOutcome::QueuePoliciesSet,
        )
        | Outcome::ServicePropertiesSet
        | Outcome::ServiceProperties(_)
        | Outcome::AccountPut
        | Outcome::AccountRemoved
        | Outcome::Accounts(_)
        | Outcome::BodiesMoved { .. }
        | Outcome::Quarantined(_)) => outcome,
    };
    Answer {
        outcome,
        bodies: read.into_iter().flatten().collect(),
    }
}

/// Returns the bodies of the messages whose parts could all be read, and leaves out the other messages. A
/// damaged session state is left out too: the answer then says that there is a state, but brings none.
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

/// Takes a lock even if its holder has panicked: the data behind these locks is consistent at any time.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
