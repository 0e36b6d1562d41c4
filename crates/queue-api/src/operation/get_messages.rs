//! Get Messages.

use bytes::{Bytes, BytesMut};
use kew_engine::storage::{ReceivedMessage, StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome, VisibilityTimeout};

use super::RequestBody;
use super::message_list::{self, Listed};
use crate::error::Error;
use crate::parameter;
use crate::reply::Reply;
use crate::request::Request;
use crate::version::Version;

/// The default visibility timeout, in seconds.
const VISIBILITY_TIMEOUT_SECONDS: u32 = 30;

/// The longest before 2011-08-18, in seconds: two hours.
const OLD_VISIBILITY_TIMEOUT_SECONDS_MAX: u32 = 7_200;

/// Takes up to 32 messages from the head of a queue and hides them: 200, also if there is none.
///
/// `numofmessages` is 1 to 32, default 1. `visibilitytimeout` is 1 s to 7 days (before 2011-08-18:
/// to two hours), default 30 s; it may end after a message's expiry.
///
/// Source: *Get Messages*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let count = parameter::message_count(&request.query)?;
    let seconds_max = if request.version < Version::V2011_08_18 {
        OLD_VISIBILITY_TIMEOUT_SECONDS_MAX
    } else {
        VisibilityTimeout::SECONDS_MAX
    };
    let visibility_timeout = match parameter::visibility_timeout(&request.query, 1..=seconds_max)? {
        Some(timeout) => timeout,
        None => VisibilityTimeout::from_seconds(VISIBILITY_TIMEOUT_SECONDS)
            .expect("the default is below the maximum"),
    };
    let command = Command::Storage(StorageCommand::Receive {
        queue: request.queue()?,
        count,
        visibility_timeout,
    });
    body?;
    request.check_room(message_list::size_bytes(count))?;
    let answer = request.submit(command).await?;
    match answer.outcome {
        Outcome::Storage(StorageOutcome::Received(messages)) => {
            let out = document(&messages, &answer.bodies, request.version);
            request.reply(out)
        }
        other => Err(request.unexpected(&other)),
    }
}

fn document(messages: &[ReceivedMessage], bodies: &[Bytes], version: Version) -> BytesMut {
    let messages = messages.iter().zip(bodies);
    message_list::document(messages.map(|(message, body)| Listed {
        message: message.message,
        inserted_at: message.inserted_at,
        expires_at: message.expires_at,
        lease: Some((message.receipt, message.visible_at)),
        delivery_count: message_list::delivery_count(message.delivery_count, version),
        text: Some((message.encoding, body)),
    }))
}

#[cfg(test)]
mod tests {
    use kew_engine::{BodyEncoding, BodyLocation, Timestamp, Token};

    use super::*;

    fn message(encoding: BodyEncoding) -> ReceivedMessage {
        ReceivedMessage {
            message: Token::from_bytes([0x11; 16]),
            receipt: Token::from_bytes([0; 16]),
            inserted_at: Timestamp::from_ms(0),
            expires_at: Timestamp::NEVER,
            visible_at: Timestamp::from_ms(1500),
            delivery_count: 2,
            encoding,
            body: BodyLocation::new(0, 0, 0),
        }
    }

    fn shown(encoding: BodyEncoding, body: &'static [u8], version: Version) -> String {
        let out = document(&[message(encoding)], &[Bytes::from_static(body)], version);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn elements_are_in_order() {
        assert_eq!(
            shown(BodyEncoding::Text, b"a<b", Version::NEWEST),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList><QueueMessage>\
             <MessageId>11111111-1111-1111-1111-111111111111</MessageId>\
             <InsertionTime>Thu, 01 Jan 1970 00:00:00 GMT</InsertionTime>\
             <ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>\
             <PopReceipt>AAAAAAAAAAAAAAAAAAAAAA==</PopReceipt>\
             <TimeNextVisible>Thu, 01 Jan 1970 00:00:01 GMT</TimeNextVisible>\
             <DequeueCount>2</DequeueCount><MessageText>a&lt;b</MessageText>\
             </QueueMessage></QueueMessagesList>"
        );
    }

    #[test]
    fn the_oldest_versions_have_no_count() {
        let shown = shown(BodyEncoding::Text, b"x", Version::OLDEST);
        assert!(!shown.contains("DequeueCount"), "{shown}");
    }

    #[test]
    fn bytes_are_shown_as_base64() {
        let raw = shown(BodyEncoding::Raw, b"\0\xff", Version::NEWEST);
        assert!(raw.contains("<MessageText>AP8=</MessageText>"), "{raw}");
        let empty = shown(BodyEncoding::Text, b"", Version::NEWEST);
        assert!(empty.contains("<MessageText />"), "{empty}");
    }

    #[test]
    fn no_messages_are_an_empty_list() {
        let out = document(&[], &[], Version::NEWEST);
        assert!(out.ends_with(b"?><QueueMessagesList />"));
    }
}
