//! Opening a partition: its log is replayed, or a new partition is initialized.

use std::io;
use std::sync::Arc;

use kew_engine::{Command, State, Timestamp, Turn};
use kew_log::{
    AppendError, BootTime, FollowError, LogEnd, LogSource, Need, OpenError, Recovery, Reservation,
    ReserveError, SegmentSource, Storage,
};
use thiserror::Error;

use super::batch::{Batch, Writing};
use super::evacuation::Evacuation;
use super::eviction::Eviction;
use super::heartbeat::Heartbeat;
use super::lanes::Lanes;
use super::last_records::LastRecords;
use super::loads::Loads;
use super::quarantine::Damaged;
use super::reads::Reads;
use super::scrub::Scrubbing;
use super::size::{Measured, SinceSnapshot};
use super::snapshots::StepTimes;
use super::stirred::PassedOver;
use super::{Partition, PartitionOptions};
use crate::Moment;
use crate::follower::{Follower, Owned};
use crate::waiters::Waiters;

/// Why a partition could not be opened.
#[derive(Debug, Error)]
pub enum OpenPartitionError {
    /// The storage holds no log that this version can continue.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// There was no thread to read the log on.
    #[error("the system gave no thread to read the log on")]
    Thread(#[source] io::Error),
    /// There was no room for a new partition's secret.
    #[error("a new partition could not be initialized")]
    Reserve(#[from] ReserveError),
    /// The log refused a new partition's secret.
    #[error("a new partition could not be initialized")]
    Append(#[from] AppendError),
    /// A new partition's secret could not be written.
    #[error("a new partition could not be initialized")]
    Commit(#[from] LogEnd),
    /// Another process owns the log.
    #[error("the log cannot be owned")]
    Ended(#[source] LogEnd),
}

impl OpenPartitionError {
    /// How the log has ended, if that is why.
    pub(crate) fn end(&self) -> Option<&LogEnd> {
        match self {
            Self::Commit(end) | Self::Ended(end) => Some(end),
            Self::Reserve(ReserveError::Ended(end)) => Some(end),
            Self::Append(AppendError::Ended(end)) => Some(end),
            Self::Log(_) | Self::Thread(_) => None,
            Self::Reserve(ReserveError::NoSpace | ReserveError::NotPrepared) => None,
            Self::Append(AppendError::Stale { .. } | AppendError::TooLarge { .. }) => None,
        }
    }
}

impl From<FollowError> for OpenPartitionError {
    fn from(error: FollowError) -> Self {
        match error {
            FollowError::Open(error) => Self::Log(error),
            FollowError::Ended(end) => Self::Ended(end),
        }
    }
}

impl<T> Partition<T> {
    /// Opens the log and replays it. Initializes a new partition if the log is empty.
    ///
    /// `entropy` seeds the segment salts. `secret` becomes the secret of a new partition and is not used
    /// otherwise. Everything that was replayed is durable when this returns.
    pub fn open(
        storage: Arc<dyn Storage>,
        options: PartitionOptions,
        entropy: u64,
        secret: [u8; 16],
        wall: Timestamp,
    ) -> Result<(Self, Recovery), OpenPartitionError> {
        let source = SegmentSource::new(storage, options.log, move || entropy);
        Self::open_from(&source, options, secret, wall)
    }

    /// Opens a log of any kind: this process becomes its owner. See [`Partition::open`].
    pub fn open_from(
        source: &dyn LogSource,
        options: PartitionOptions,
        secret: [u8; 16],
        wall: Timestamp,
    ) -> Result<(Self, Recovery), OpenPartitionError> {
        let follower = Follower::begin(source, None, &options);
        let owned = match options.replays_beside {
            true => (follower.own_beside()).map_err(OpenPartitionError::Thread)?,
            false => follower.own_alone(),
        };
        Self::own(owned?, options, secret, wall)
    }

    /// A partition of a log that this process owns now. A new one gets its secret. Everything is durable when this returns.
    pub(crate) fn own(
        owned: Owned,
        options: PartitionOptions,
        secret: [u8; 16],
        wall: Timestamp,
    ) -> Result<(Self, Recovery), OpenPartitionError> {
        let (mut partition, recovery) = Self::begin(owned, options, secret, wall)?;
        partition.commit()?;
        Ok((partition, recovery))
    }

    fn begin(
        owned: Owned,
        options: PartitionOptions,
        secret: [u8; 16],
        wall: Timestamp,
    ) -> Result<(Self, Recovery), OpenPartitionError> {
        let Owned {
            log,
            mut recovery,
            replayed,
        } = owned;
        debug_assert_eq!(
            replayed.state.healed_runs(),
            0,
            "a page of a directory says what its messages say"
        );
        let measured = Measured::after_replay(&replayed.state, replayed.growth_bytes);
        let mut partition = Self {
            state: replayed.state,
            reads: Reads::new(log.owned_until()),
            heartbeat: Heartbeat::new(log.limits().heartbeat_ms, log.end()),
            log,
            waiters: Waiters::new(),
            stirred: Vec::new(),
            passed_over: PassedOver::default(),
            last_records: LastRecords::default(),
            options,
            last_snapshot_bytes: 0,
            snapshot_begun_at: BootTime::ZERO,
            snapshots_rest_until: BootTime::ZERO,
            step_times: StepTimes::default(),
            effects: SinceSnapshot::after_replay(replayed.effect_count),
            measured,
            opened_at: Timestamp::from_ms(recovery.time_ms),
            now: Moment::default(),
            active_at: BootTime::ZERO,
            is_marked: false,
            is_out_of_space: false,
            scrub: Scrubbing::default(),
            is_without_room: false,
            reading_retry_at: None,
            evacuation: Evacuation::default(),
            eviction: Eviction::default(),
            lanes: Lanes::default(),
            loads: Loads::default(),
            damaged: Damaged::of_start(replayed.damaged),
            is_awaited: |_| true,
            decided: Vec::new(),
            last_batch_bytes: 0,
            ended: None,
            stopped: false,
        };
        partition.state.begin_tallies();
        for file in &recovery.damaged_files {
            partition.avoid_file(file);
        }
        if !partition.state.is_initialized() {
            partition.initialize(secret, wall.max(partition.opened_at))?;
        }
        let warning = warning_of_names(&partition.state);
        recovery.warnings.extend(warning);
        Ok((partition, recovery))
    }

    /// Opens a partition whose log was repaired, and leaves it as an ordinary stop would: with a second
    /// snapshot after the one that the repair wrote.
    pub(crate) fn open_repaired(
        storage: Arc<dyn Storage>,
        options: PartitionOptions,
        entropy: u64,
        secret: [u8; 16],
        wall: Timestamp,
    ) -> Result<(), OpenPartitionError> {
        let (mut partition, _) = Self::open(storage, options, entropy, secret, wall)?;
        partition.beat();
        partition.commit()?;
        partition.snapshot();
        partition.run_jobs()?;
        partition.log.mark();
        Ok(partition.run_jobs()?)
    }

    /// Commits what was appended, on this thread.
    fn commit(&mut self) -> Result<(), LogEnd> {
        while self.log.durable() < self.log.end()
            && let Some(job) = self.log.next_job()
        {
            self.log.complete(job.run())?;
        }
        Ok(())
    }

    /// Carries out all jobs of the log, on this thread.
    fn run_jobs(&mut self) -> Result<(), LogEnd> {
        while let Some(job) = self.log.next_job() {
            self.log.complete(job.run())?;
        }
        Ok(())
    }

    /// Room for a small batch. What prepares it is carried out on this thread.
    fn reserve_at_once(&mut self) -> Result<Reservation, OpenPartitionError> {
        loop {
            let reserved = self.log.reserve(Need::grow(0));
            let job = match &reserved {
                Err(ReserveError::NotPrepared) => self.log.next_job(),
                Ok(_) | Err(ReserveError::NoSpace | ReserveError::Ended(_)) => None,
            };
            match job {
                Some(job) => self.log.complete(job.run())?,
                None => return Ok(reserved?),
            }
        }
    }

    fn initialize(&mut self, secret: [u8; 16], wall: Timestamp) -> Result<(), OpenPartitionError> {
        let reservation = self.reserve_at_once()?;
        let mut batch = Batch::at(reservation.position, wall, 0);
        let mut journal = Writing {
            batch: &mut batch,
            log: &*self.log,
            bodies: None,
        };
        let command = Command::Initialize {
            secret,
            run_length: self.options.run_length,
        };
        let decision = Turn::new(&mut self.state, wall, &mut journal).decide(command);
        assert!(decision.result.is_ok(), "the partition had no secret");
        self.log.append(reservation, batch.builder)?;
        Ok(())
    }
}

/// What to say of queues whose names are kept for subscriptions.
fn warning_of_names(state: &State) -> Option<String> {
    let mut names: Vec<_> = state.queues_named_as_subscriptions().collect();
    names.sort();
    let first = names.first()?;
    let (name, namespace) = (&first.name, &first.account);
    let which = match names.len() {
        1 => format!("the queue {name} of the namespace {namespace} has a name"),
        count => format!("{count} queues, such as {name} of the namespace {namespace}, have names"),
    };
    Some(format!(
        "{which} reserved for subscriptions of a topic, whose access rules hold there, too: move the messages to another \
         queue, and delete this one"
    ))
}
