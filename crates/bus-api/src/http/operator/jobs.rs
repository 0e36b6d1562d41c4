//! Work that continues after its request was answered: purges and resubmissions.
//!
//! Jobs live in memory and end with the server. Finished work stays: each message is moved or
//! deleted in one durable step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::StatusCode;
use serde::Serialize;

use super::super::answers::HttpError;

/// The most jobs that run at once. One more is refused.
const RUNNING_MAX: usize = 16;
/// How many ended jobs are remembered; the oldest is forgotten first.
const ENDED_MAX: usize = 100;

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    by_number: Mutex<BTreeMap<u64, Arc<Job>>>,
    last_number: AtomicU64,
}

/// A job.
#[derive(Debug)]
pub(super) struct Job {
    id: String,
    pub(super) act: &'static str,
    pub(super) entity: String,
    pub(super) is_dry_run: bool,
    is_cancelled: AtomicBool,
    progress: Mutex<Progress>,
}

/// The progress of a job.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Progress {
    /// Messages that were looked at.
    pub(super) looked_at: u64,
    /// Of these, those that matched.
    pub(super) matched: u64,
    /// Of these, those that were moved or deleted, or would be.
    pub(super) done: u64,
    /// Those that stayed, by reason.
    pub(super) skipped: BTreeMap<&'static str, u64>,
    /// States of sessions that were cleared, or would be.
    pub(super) session_states: u64,
    /// Why it ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    #[default]
    Running,
    Done,
    Cancelled,
    Failed,
}

/// A job as shown to operators.
#[derive(Debug, Serialize)]
pub(super) struct JobView {
    id: String,
    act: &'static str,
    entity: String,
    dry_run: bool,
    #[serde(flatten)]
    progress: Progress,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded data is consistent at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Jobs {
    /// A place for one more job. `now_s` makes its id differ from those before a restart.
    pub(super) fn begin(
        &self,
        act: &'static str,
        entity: &str,
        is_dry_run: bool,
        now_s: u64,
    ) -> Result<Arc<Job>, HttpError> {
        let mut jobs = lock(&self.by_number);
        let running = jobs.values().filter(|job| !job.has_ended()).count();
        if running >= RUNNING_MAX {
            let text = format!(
                "{RUNNING_MAX} jobs are running, which is the maximum: wait until one ends, or \
                 cancel one"
            );
            return Err(HttpError::new(StatusCode::TOO_MANY_REQUESTS, text));
        }
        let ended = jobs.iter().filter(|(_, job)| job.has_ended());
        let forgotten: Vec<u64> = ended
            .map(|(number, _)| *number)
            .rev()
            .skip(ENDED_MAX - 1)
            .collect();
        for number in forgotten {
            jobs.remove(&number);
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let job = Arc::new(Job {
            id: format!("{now_s:x}-{number}"),
            act,
            entity: entity.to_owned(),
            is_dry_run,
            is_cancelled: AtomicBool::new(false),
            progress: Mutex::default(),
        });
        jobs.insert(number, Arc::clone(&job));
        Ok(job)
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<Job>, HttpError> {
        let jobs = lock(&self.by_number);
        let found = jobs.values().find(|job| job.id == id);
        found.map(Arc::clone).ok_or_else(|| {
            let text = format!("there is no job '{id}': the server forgets its jobs when it stops");
            HttpError::new(StatusCode::NOT_FOUND, text)
        })
    }

    /// All remembered jobs, in the order of their start.
    pub(super) fn all(&self) -> Vec<JobView> {
        lock(&self.by_number)
            .values()
            .map(|job| job.view())
            .collect()
    }
}

impl Job {
    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it should stop.
    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    fn has_ended(&self) -> bool {
        lock(&self.progress).state != State::Running
    }

    pub(super) fn note(&self, note: impl FnOnce(&mut Progress)) {
        note(&mut lock(&self.progress));
    }

    /// Notes the end, and returns a summary in words.
    pub(super) fn end(&self, result: &Result<(), HttpError>) -> String {
        let mut progress = lock(&self.progress);
        progress.error = result.as_ref().err().map(|error| error.detail().to_owned());
        progress.state = match result {
            _ if self.is_cancelled() => State::Cancelled,
            Ok(()) => State::Done,
            Err(_) => State::Failed,
        };
        let skipped: u64 = progress.skipped.values().sum();
        format!(
            "job {}: {} of {} messages done, {skipped} left, {} session states cleared{}",
            self.id,
            progress.done,
            progress.matched,
            progress.session_states,
            match progress.state {
                State::Cancelled => ", cancelled",
                State::Failed => ", failed",
                State::Running | State::Done => "",
            }
        )
    }

    pub(super) fn view(&self) -> JobView {
        JobView {
            id: self.id.clone(),
            act: self.act,
            entity: self.entity.clone(),
            dry_run: self.is_dry_run,
            progress: lock(&self.progress).clone(),
        }
    }
}

impl Progress {
    /// Counts messages that stayed.
    pub(super) fn skip(&mut self, why: &'static str, count: u64) {
        if count > 0 {
            *self.skipped.entry(why).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_bounded() {
        let jobs = Jobs::default();
        let begin = || jobs.begin("purge", "q", false, 1);
        let running: Vec<_> = (0..RUNNING_MAX).map(|_| begin().unwrap()).collect();
        assert_eq!(begin().unwrap_err().status, 429);
        for job in &running {
            job.end(&Ok(()));
        }
        for _ in 0..ENDED_MAX + 5 {
            begin().unwrap().end(&Ok(()));
        }
        let all = jobs.all();
        assert_eq!(all.len(), ENDED_MAX);
        assert!(jobs.find(&all[0].id).is_ok());
        assert!(jobs.find("1-1").is_err());
    }
}
