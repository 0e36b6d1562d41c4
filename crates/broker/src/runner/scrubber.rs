//! The thread that reads for the scrub, at its rate. Neither a commit nor another job waits for it.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use kew_engine::BodyOwner;
use kew_log::ScrubDamage;

use super::mailbox::Shared;
use super::spawn;
use crate::broker::lock;
use crate::{ScrubJob, ScrubOutcome, StartError};

/// The scrub of one opening of the log.
pub(super) struct Scrubber {
    /// `None` once it is closed.
    jobs: Option<Sender<ScrubJob>>,
    thread: JoinHandle<()>,
}

impl Scrubber {
    pub(super) fn start(shared: &Arc<Shared>, bytes_per_second: u64) -> Result<Self, StartError> {
        let (jobs, work) = mpsc::channel();
        let shared = Arc::clone(shared);
        let thread = spawn("kew-scrub", move || scrub(&work, &shared, bytes_per_second))?;
        Ok(Self {
            jobs: Some(jobs),
            thread,
        })
    }

    pub(super) fn send(&self, job: ScrubJob) {
        // If its thread has died, there is no scrub, and everything else goes on.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
    }

    /// Takes no more jobs. The rest of the present one is dropped, after a step at most.
    pub(super) fn close(&mut self) {
        self.jobs = None;
    }

    /// Waits until the thread has ended: for a read of the disk.
    pub(super) fn end(mut self) {
        self.close();
        if self.thread.join().is_err() {
            tracing::error!("the thread of the scrub panicked");
        }
    }
}

/// Carries out jobs until the scrub ends. The end does not wait for the rest of one.
fn scrub(jobs: &Receiver<ScrubJob>, shared: &Shared, bytes_per_second: u64) {
    while let Ok(mut job) = jobs.recv() {
        while let Some(read_bytes) = job.step() {
            let pause = pause_after(read_bytes, bytes_per_second);
            // There is one job at a time, so nothing comes but the end.
            if !matches!(jobs.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
        let outcome = job.finish();
        tell(&outcome);
        let mut mailbox = lock(&shared.mailbox);
        mailbox.requests.scrubbed = Some(outcome);
        shared.wake(mailbox);
    }
}

fn pause_after(read_bytes: u64, bytes_per_second: u64) -> Duration {
    Duration::from_nanos(read_bytes.saturating_mul(1_000_000_000) / bytes_per_second.max(1))
}

/// Tells the operator of damage. A log line for each place and each message, again in every pass. Of a header that a
/// commit writes again, the partition tells.
fn tell(outcome: &ScrubOutcome) {
    let is_left = |place: &&ScrubDamage| place.offset == 0 && outcome.leaves_header();
    let places = outcome.places().iter().filter(|it| it.is_certain);
    for place in places.filter(|place| !is_left(place)) {
        let (file, offset, what) = (&place.file, place.offset, &place.what);
        match place.is_repaired {
            true => tracing::warn!(
                "the scrub found damage and repaired it: {file} at byte {offset}: {what}"
            ),
            false => tracing::error!("the scrub found damage: {file} at byte {offset}: {what}"),
        }
    }
    for body in outcome.bodies() {
        let (queue, file, offset) = (&body.needed.queue, &body.file, body.offset);
        let of = match &body.needed.of {
            BodyOwner::Message(number) => format!("message {}", number.as_u64()),
            BodyOwner::Session(id) => format!("the state of session {id:?}"),
        };
        tracing::error!(
            "the scrub found {of} of queue {:?} damaged, in {file} at byte {offset}: it cannot be read any more",
            queue.name
        );
    }
}
