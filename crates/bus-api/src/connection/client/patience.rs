//! How a busy broker is asked again.

use std::time::Duration;

use kew_broker::{Answer, Broker, Rejection};
use kew_engine::bus::BusCommand;

use crate::ground::submit::Submitted;

/// How long a request waits that the broker had no room for.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// How often a command that must not be dropped is retried with a busy broker: for 5 s.
pub(crate) const BUSY_TRIES: u32 = 50;

/// Retries a command that must not be dropped, after the broker was too busy for it.
pub(crate) async fn submit_again(
    broker: &Broker,
    command: BusCommand,
) -> Result<Answer, Rejection> {
    let mut refused = Rejection::Busy;
    for _ in 0..BUSY_TRIES {
        tokio::time::sleep(BUSY_PAUSE).await;
        match Submitted::new(broker, command.clone()).answer().await {
            Err(
                rejection @ (Rejection::Busy
                | Rejection::NotOwner
                | Rejection::Full
                | Rejection::ReadFailed),
            ) => refused = rejection,
            answer => return answer,
        }
    }
    Err(refused)
}
