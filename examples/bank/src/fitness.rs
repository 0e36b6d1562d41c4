//! Which settings a queue of Service Bus needs, so that no confirmed transaction is lost in it.

use std::fmt;
use std::time::Duration;

use kew_client::QueueSettings;

/// How often a message is delivered before Service Bus buries it, in queues that the bank creates: the most that Azure
/// accepts.
const DELIVERIES_OF_NEW: u32 = 2_000;

/// The least in queues that it finds. A message that was delivered half as often is sent again: see
/// [`RENEWED_AT`].
const DELIVERIES_MIN: u32 = 100;

/// A message whose booking failed so often is sent again as a new one, because the service counts deliveries. So it is
/// tried forever.
pub const RENEWED_AT: u32 = DELIVERIES_MIN / 2;

/// What ends later than this never ends.
const NEVER: Duration = Duration::from_hours(10 * 365 * 24);

/// The settings of a queue that the bank creates. Nothing in it expires.
pub fn settings_of_new(worker_timeout: Duration) -> QueueSettings {
    QueueSettings {
        lock_duration: Some(worker_timeout),
        max_delivery_count: Some(DELIVERIES_OF_NEW),
        default_time_to_live: Some(QueueSettings::FOREVER),
        auto_delete_on_idle: Some(QueueSettings::FOREVER),
        dead_letters_expired: Some(true),
        requires_session: Some(false),
        ..QueueSettings::default()
    }
}

/// A queue with which the bank does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfitQueue {
    queue: String,
    /// What is wrong, and what to do about it.
    troubles: Vec<String>,
}

impl fmt::Display for UnfitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, troubles } = self;
        write!(
            f,
            "the queue {queue} is not fit for the bank: {}",
            troubles.join("; ")
        )
    }
}

impl std::error::Error for UnfitQueue {}

/// Checks the settings of a queue that the bank did not create, or created with another version.
pub fn check(
    queue: &str,
    settings: &QueueSettings,
    worker_timeout: Duration,
) -> Result<(), UnfitQueue> {
    let all = [
        sessions(settings),
        expiry(queue, settings),
        deliveries(queue, settings),
        lock(queue, settings, worker_timeout),
        forwarding(queue, settings),
        idle_deletion(queue, settings),
    ];
    let troubles: Vec<String> = all.into_iter().flatten().collect();
    match troubles.is_empty() {
        true => Ok(()),
        false => Err(UnfitQueue {
            queue: queue.to_owned(),
            troubles,
        }),
    }
}

fn sessions(settings: &QueueSettings) -> Option<String> {
    let text = "it requires sessions, which the bank's messages do not have: delete it, or choose \
                another queue with BANK_QUEUE";
    (settings.requires_session == Some(true)).then(|| text.to_owned())
}

fn expiry(queue: &str, settings: &QueueSettings) -> Option<String> {
    let time = settings.default_time_to_live?;
    let is_lossy = time < NEVER && settings.dead_letters_expired != Some(true);
    is_lossy.then(|| {
        format!(
            "its messages are deleted after {time:?}: set its time to live to never, or turn on dead-lettering of \
             expired messages (kew bus update {queue} --ttl never)"
        )
    })
}

fn deliveries(queue: &str, settings: &QueueSettings) -> Option<String> {
    let count = settings.max_delivery_count?;
    (count < DELIVERIES_MIN).then(|| {
        format!(
            "it buries messages after {count} deliveries: allow {DELIVERIES_MIN} at least \
             (kew bus update {queue} --max-delivery-count {DELIVERIES_OF_NEW})"
        )
    })
}

fn lock(queue: &str, settings: &QueueSettings, worker_timeout: Duration) -> Option<String> {
    let duration = settings.lock_duration?;
    let (locked_s, timeout_s) = (duration.as_secs_f64(), worker_timeout.as_secs());
    (duration != worker_timeout).then(|| {
        format!(
            "its locks last {locked_s} s, and the worker's timeout is {timeout_s} s: make them equal with \
             BANK_WORKER_TIMEOUT_S of all programs, or with kew bus update {queue} --lock-duration {timeout_s}s"
        )
    })
}

fn forwarding(queue: &str, settings: &QueueSettings) -> Option<String> {
    let target = settings.forward_to.as_deref()?;
    (!target.is_empty()).then(|| {
        format!(
            "it forwards all messages to {target}, where no worker looks: turn that off \
             (kew bus update {queue} --forward-to none), or use that queue with BANK_QUEUE"
        )
    })
}

fn idle_deletion(queue: &str, settings: &QueueSettings) -> Option<String> {
    let time = settings.auto_delete_on_idle?;
    (time < NEVER).then(|| {
        format!(
            "it is deleted with its messages when it is idle for {time:?}: turn that off \
             (kew bus update {queue} --auto-delete-on-idle never)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    type Change = fn(&mut QueueSettings);

    #[test]
    fn a_queue_that_the_bank_creates_is_fit() {
        assert_eq!(check("q", &settings_of_new(TIMEOUT), TIMEOUT), Ok(()));
    }

    #[test]
    fn each_setting_that_loses_or_buries_work_is_named_with_its_remedy() {
        let minute = Some(Duration::from_mins(1));
        let changes: [(Change, &str, &str); 6] = [
            (
                |it| it.requires_session = Some(true),
                "requires sessions",
                "BANK_QUEUE",
            ),
            (
                |it| {
                    it.default_time_to_live = Some(Duration::from_hours(14 * 24));
                    it.dead_letters_expired = Some(false);
                },
                "deleted after 1209600s",
                "update q --ttl never",
            ),
            (
                |it| it.max_delivery_count = Some(10),
                "after 10 deliveries",
                "--max-delivery-count 2000",
            ),
            (
                |it| it.lock_duration = Some(Duration::from_secs(60)),
                "last 60 s, and the worker's timeout is 20 s",
                "--lock-duration 20s",
            ),
            (
                |it| it.forward_to = Some("other".to_owned()),
                "forwards all messages to other",
                "--forward-to none",
            ),
            (
                |it| it.auto_delete_on_idle = Some(Duration::from_mins(5)),
                "idle for 300s",
                "--auto-delete-on-idle never",
            ),
        ];
        let mut all = settings_of_new(TIMEOUT);
        for (change, trouble, remedy) in changes {
            let mut settings = settings_of_new(TIMEOUT);
            change(&mut settings);
            change(&mut all);
            let error = check("q", &settings, TIMEOUT).unwrap_err();
            assert_eq!(error.troubles.len(), 1, "{error}");
            let text = error.to_string();
            assert!(text.contains(trouble) && text.contains(remedy), "{text}");
        }
        assert_eq!(check("q", &all, TIMEOUT).unwrap_err().troubles.len(), 6);
        // What expires is dead-lettered, so it can be returned.
        let mut settings = settings_of_new(TIMEOUT);
        settings.default_time_to_live = minute;
        assert_eq!(check("q", &settings, TIMEOUT), Ok(()));
    }
}
