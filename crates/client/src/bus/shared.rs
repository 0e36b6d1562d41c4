//! What all handles of a client share: the way to the connection's task, and the bounds of what is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::core::{Answer, Attached, Command, InboxSender, LinkKey, LinkSpec, Request};
use super::entity::Entity;
use super::job::{Ended, Job, Watch, job};
use super::nudges::{Nudge, Nudges};
use super::room::Room;
use crate::error::{Effect, Error};
use crate::retry::Retry;

/// No link: what is said of it is said of requests.
const NO_LINK: LinkKey = LinkKey(0);

/// What all handles of a client share.
#[derive(Debug)]
pub(super) struct Shared {
    commands: mpsc::Sender<Command>,
    nudges: Arc<Nudges>,
    sends: Room,
    requests: Room,
    last_key: AtomicU64,
    pub(super) retry: Retry,
    timeout: Duration,
}

/// A link that belongs to a handle, and ends with it.
#[derive(Debug)]
pub(super) struct LinkHandle {
    shared: Arc<Shared>,
    key: LinkKey,
}

/// Which of the two shares of what is under way an operation has.
pub(super) enum Share {
    /// That of sends: the size of the message.
    Sends { bytes: usize },
    /// That of settlements and requests, which producers do not take.
    Requests,
}

impl Shared {
    pub(super) fn new(
        commands: mpsc::Sender<Command>,
        nudges: Arc<Nudges>,
        sends: Room,
        requests: Room,
        retry: Retry,
        timeout: Duration,
    ) -> Self {
        Self {
            commands,
            nudges,
            sends,
            requests,
            last_key: AtomicU64::new(NO_LINK.0),
            retry,
            timeout,
        }
    }

    /// Until when an operation that begins now has to be done.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// How long the service may take for a request, in milliseconds.
    pub(super) fn timeout_ms(&self) -> u32 {
        u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX)
    }

    /// Waits before the next try. Fails with the error if there is none.
    pub(super) async fn pause(
        &self,
        error: Error,
        failures: u32,
        deadline: Instant,
    ) -> Result<(), Error> {
        self.retry.pause(error, failures, deadline).await
    }

    /// Tries until it succeeds, or fails in a way that another try does not change.
    pub(super) async fn with_retries<T, F>(
        &self,
        deadline: Instant,
        attempt: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.retry.run(deadline, attempt).await
    }

    /// Has the connection's task do something, once.
    pub(super) async fn attempt<T>(
        &self,
        effect: Effect,
        share: Share,
        watch: Option<Arc<Watch>>,
        link: Option<LinkKey>,
        deadline: Instant,
        command: impl FnOnce(Job<T>) -> Command,
    ) -> Result<T, Error> {
        let place = async {
            match share {
                Share::Sends { bytes } => self.sends.take(bytes).await,
                Share::Requests => self.requests.take(0).await,
            }
        };
        let too_much = |_| Error::later("too much was under way, and nothing was sent in time");
        let place = timeout_at(deadline, place).await.map_err(too_much)?;
        let (job, outcome) = job(effect, Some(place), watch);
        let room = timeout_at(deadline, self.commands.reserve()).await;
        match room.map_err(too_much)? {
            Ok(room) => room.send(command(job)),
            // Nobody takes commands any more. The job tells so.
            Err(_) => drop(job),
        }
        let link = link.unwrap_or(NO_LINK);
        let mut leaving = Leaving {
            nudges: &self.nudges,
            link,
            is_early: true,
        };
        let ended = outcome.until(deadline).await;
        leaving.is_early = false;
        match ended {
            Ended::Told(result) => result,
            Ended::Withdrawn => {
                self.nudges.push(link, Nudge::Stalled);
                Err(Error::later("nothing was sent in time"))
            }
            Ended::Silent(error) => {
                self.nudges.push(link, Nudge::Replace);
                Err(error)
            }
        }
    }

    /// Asks the node of an entity something, once.
    pub(super) async fn request(
        &self,
        entity: &Entity,
        effect: Effect,
        request: Request,
        deadline: Instant,
    ) -> Result<Answer, Error> {
        entity.check()?;
        let (node, audience) = (entity.management(), entity.base());
        let command = |job| Command::Request {
            node,
            audience,
            request,
            job,
        };
        self.attempt(effect, Share::Requests, None, None, deadline, command)
            .await
    }

    /// Says something of a link, once there is room for it. To drop the future says nothing.
    pub(super) async fn want(&self, link: LinkKey, count: u32) -> Result<(), Error> {
        let sent = self.commands.send(Command::Want { link, count }).await;
        sent.map_err(|_| Error::refused("the client was closed"))
    }

    /// The same, if there is room now. Says whether there was.
    pub(super) fn want_now(&self, link: LinkKey, count: u32) -> bool {
        let command = Command::Want { link, count };
        self.commands.try_send(command).is_ok()
    }
}

/// Tells the connection's task that a caller went away, so that the place of what it withdrew is free at once.
struct Leaving<'a> {
    nudges: &'a Nudges,
    link: LinkKey,
    is_early: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.is_early {
            self.nudges.push(self.link, Nudge::Tidy);
        }
    }
}

impl LinkHandle {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let key = LinkKey(shared.last_key.fetch_add(1, Ordering::Relaxed) + 1);
        Self {
            shared: shared.clone(),
            key,
        }
    }

    pub(super) async fn attach(
        &self,
        spec: LinkSpec,
        inbox: Option<InboxSender>,
        deadline: Instant,
    ) -> Result<Attached, Error> {
        let link = self.key;
        let command = |job| Command::Attach {
            link,
            spec,
            inbox,
            job,
        };
        let (effect, share) = (Effect::Read, Share::Requests);
        self.shared
            .attempt(effect, share, None, Some(link), deadline, command)
            .await
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn key(&self) -> LinkKey {
        self.key
    }
}

impl Drop for LinkHandle {
    fn drop(&mut self) {
        self.shared.nudges.push(self.key, Nudge::Forget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn without_a_connection_task_operations_fail_at_once() {
        let (commands, taken) = mpsc::channel(1);
        drop(taken);
        let room = || Room::new(1, 1 << 10);
        let (nudges, timeout) = (Arc::default(), Duration::from_secs(60));
        let retry = Retry::default();
        let shared = Shared::new(commands, nudges, room(), room(), retry, timeout);
        let began = Instant::now();
        let (link, effect) = (LinkKey(1), Effect::Change);
        let drained = shared.attempt(
            effect,
            Share::Requests,
            None,
            None,
            shared.deadline(),
            |job| Command::Drain { link, job },
        );
        let error = drained.await.unwrap_err();
        assert!(error.text().contains("the client was closed"), "{error}");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
