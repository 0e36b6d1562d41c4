//! The poison queue: where failed messages lie on Queue Storage, which has no dead-letter queue.

use bytes::Bytes;
use kew_client::{ErrorKind, PutOptions, QueueClient};

use super::bury::{Burial, Buried};
use super::envelope::Envelope;
use super::message::Incoming;
use super::queue::{TextEncoding, text_of};
use crate::error::SourceError;

/// The largest text that the service accepts, in bytes.
const TEXT_SIZE_MAX: usize = 64 << 10;

/// Poison messages never expire.
const NEVER: i64 = -1;

/// What a poison message says, from all to nothing but the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    All,
    WithoutTrace,
    WithoutHistory,
    OriginalText,
}

const DETAILS: [Detail; 4] = [
    Detail::All,
    Detail::WithoutTrace,
    Detail::WithoutHistory,
    Detail::OriginalText,
];

/// Puts a message and the reason into the poison queue, which is created if it does not exist.
pub(super) async fn put(
    client: &QueueClient,
    queue: &str,
    encoding: TextEncoding,
    original: &str,
    incoming: &Incoming,
    burial: &Burial,
) -> Result<(), SourceError> {
    let mut refused = None;
    for detail in DETAILS {
        let text = text(detail, encoding, original, incoming, burial);
        if text.len() > TEXT_SIZE_MAX && detail != Detail::OriginalText {
            continue;
        }
        match put_creating(client, queue, &text).await {
            Ok(()) => return Ok(()),
            // What is said of the message must not keep it from being buried.
            Err(error) if error.kind() == ErrorKind::Refused => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(refused.unwrap_or_else(|| SourceError::too_large("the message fits in no poison message")))
}

async fn put_creating(client: &QueueClient, queue: &str, text: &str) -> Result<(), SourceError> {
    let options = || PutOptions {
        time_to_live: Some(NEVER),
        ..PutOptions::default()
    };
    match client.put(queue, text, options()).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some("QueueNotFound") => {
            client.create_queue(queue, &[]).await?;
            client.put(queue, text, options()).await?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn text(
    detail: Detail,
    encoding: TextEncoding,
    original: &str,
    incoming: &Incoming,
    burial: &Burial,
) -> String {
    if detail == Detail::OriginalText {
        return original.to_owned();
    }
    let mut buried = Buried::new(burial, &incoming.meta);
    if detail != Detail::All {
        buried.chain.clear();
        buried.backtrace = None;
    }
    // A text that cannot be read goes as it came.
    let mut envelope = match &incoming.meta.unreadable {
        Some(_) => Envelope::of_body(&Bytes::copy_from_slice(original.as_bytes())),
        None => Envelope::of_body(&incoming.body),
    };
    envelope.properties.clone_from(&incoming.meta.properties);
    envelope.buried = Some(buried);
    if detail != Detail::WithoutHistory {
        envelope.history.clone_from(&burial.history);
    }
    encoded(encoding, &envelope, original)
}

/// An envelope is text, so every encoding has a form of it.
fn encoded(encoding: TextEncoding, envelope: &Envelope, original: &str) -> String {
    let text = Bytes::from(envelope.text());
    text_of(encoding, &text).unwrap_or_else(|_| original.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::message::Meta;

    #[test]
    fn details_are_left_out_before_the_message_is() {
        let incoming = Incoming {
            body: Bytes::from_static(b"body"),
            meta: Meta::new("jobs".into(), "id", 3).into(),
        };
        let burial = Burial::new("Reason", "text", Vec::new());
        let burial = burial.with_trace(&["chain".to_owned()], Some("backtrace"));
        let texts = DETAILS.map(|detail| {
            let text = text(detail, TextEncoding::Plain, "body", &incoming, &burial);
            (text.contains("backtrace"), text.contains("Reason"), text)
        });
        let said = texts.clone().map(|(trace, reason, _)| (trace, reason));
        assert_eq!(
            said,
            [(true, true), (false, true), (false, true), (false, false)]
        );
        assert_eq!(texts[3].2, "body");
        let read = Envelope::read(texts[0].2.as_bytes()).unwrap().unwrap();
        let buried = read.buried.clone().unwrap();
        assert_eq!((buried.queue.as_str(), buried.attempt), ("jobs", 3));
        assert_eq!(read.body().unwrap(), "body");
    }
}
