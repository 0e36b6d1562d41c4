//! The two ends of a queue, or of a topic with subscriptions, for any protocol.

use anyhow::{Result, bail};
use bytes::Bytes;

use crate::options::{Protocol, Target};
use crate::{amqp10, amqp091, null};

/// An end that sends messages, each of which the broker settles once it is safe.
pub(crate) trait Sending {
    /// Sends a message. Returns whether there was room for it; if not, `settled` makes some.
    async fn send(&mut self, body: Bytes) -> Result<bool>;

    /// Waits until messages were settled, and returns how many; 0 if there is only new room. Cancel
    /// safe.
    async fn settled(&mut self) -> Result<usize>;
}

/// An end that receives messages, and completes each at once.
pub(crate) trait Receiving {
    /// Waits until something arrived, and counts it. Cancel safe.
    async fn received(&mut self, received: &mut Received) -> Result<()>;

    /// Disconnects after the broker has received every completion.
    async fn leave(&mut self) -> Result<()>;
}

/// The received messages.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The stamps of the messages, in their order.
    pub(crate) stamps: Vec<u64>,
    /// How many completions the broker confirmed. For protocols without confirmations: how many
    /// were sent.
    pub(crate) completed: usize,
}

/// Any kind of both.
pub(crate) enum Ends {
    Amqp10(Box<(amqp10::Sender, amqp10::Receiver)>),
    Amqp091(Box<(amqp091::Sender, amqp091::Receiver)>),
    Null(Box<(null::Sender, null::Receiver)>),
}

impl Ends {
    /// Connects two ends of a queue. The receiver has this much credit.
    pub(crate) async fn connect(target: &Target, queue: &str, credit: u32) -> Result<Self> {
        Ok(match target.protocol {
            Protocol::Amqp10 => {
                let receiver = amqp10::Receiver::connect(target, queue, credit).await?;
                let sender = amqp10::Sender::connect(target, queue).await?;
                Self::Amqp10(Box::new((sender, receiver)))
            }
            Protocol::Amqp091 => {
                let receiver = amqp091::Receiver::connect(target, queue, credit).await?;
                let sender = amqp091::Sender::connect(target, queue).await?;
                Self::Amqp091(Box::new((sender, receiver)))
            }
            Protocol::Null => {
                let receiver = null::Receiver::connect(target).await?;
                let sender = null::Sender::connect(target).await?;
                Self::Null(Box::new((sender, receiver)))
            }
        })
    }

    /// Connects an end that publishes to a topic, and one that receives from the first subscriptions, with this much
    /// credit at each.
    pub(crate) async fn connect_topic(
        target: &Target,
        topic: &str,
        subscriptions: u32,
        credit: u32,
    ) -> Result<Self> {
        Ok(match target.protocol {
            Protocol::Amqp10 => {
                let addresses = (0..subscriptions)
                    .map(|number| format!("{topic}/Subscriptions/{}", subscription(number)));
                let receiver = amqp10::Receiver::connect_all(target, addresses, credit).await?;
                let sender = amqp10::Sender::connect_topic(target, topic).await?;
                Self::Amqp10(Box::new((sender, receiver)))
            }
            Protocol::Amqp091 => {
                let queues = (0..subscriptions).map(|number| amqp091::queue_of(topic, number));
                let receiver = amqp091::Receiver::connect_all(target, queues, credit).await?;
                let sender = amqp091::Sender::connect_exchange(target, topic).await?;
                Self::Amqp091(Box::new((sender, receiver)))
            }
            Protocol::Null => bail!("the null stream has no topics"),
        })
    }
}

/// The color of messages that are published, and the one that their subscriptions ask for.
pub(crate) const COLOR: &str = "red";
/// What other subscriptions ask for.
pub(crate) const OTHER_COLOR: &str = "blue";

/// The name of a subscription.
pub(crate) fn subscription(number: u32) -> String {
    format!("s{number:05}")
}

/// A body of this size, which begins with a stamp.
pub(crate) fn stamped(stamp: u64, size: u32) -> Vec<u8> {
    let mut body = vec![b'x'; size as usize];
    for (place, byte) in body.iter_mut().zip(stamp.to_be_bytes()) {
        *place = byte;
    }
    body
}

/// The stamp of a body.
pub(crate) fn stamp_of(body: &[u8]) -> Result<u64> {
    let stamp = body.first_chunk();
    stamp
        .map(|stamp| u64::from_be_bytes(*stamp))
        .ok_or_else(|| anyhow::anyhow!("a message has no stamp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_found_again() {
        let body = stamped(7 << 40, 16);
        assert_eq!((body.len(), stamp_of(&body).unwrap()), (16, 7 << 40));
        assert!(stamp_of(&body[..7]).is_err());
    }
}
