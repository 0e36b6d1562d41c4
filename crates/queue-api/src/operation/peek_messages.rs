//! Peek Messages.

use bytes::{Bytes, BytesMut};
use kew_engine::storage::{PeekedMessage, StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome};

use super::RequestBody;
use super::message_list::{self, Listed};
use crate::error::Error;
use crate::parameter;
use crate::reply::Reply;
use crate::request::Request;
use crate::version::Version;

/// Shows up to 32 messages at the head of a queue without taking them: 200, also if there is none.
///
/// `numofmessages` is 1 to 32, default 1. A `visibilitytimeout` is ignored.
///
/// Source: *Peek Messages*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    check_peekonly(request)?;
    let count = parameter::message_count(&request.query)?;
    let command = Command::Storage(StorageCommand::Peek {
        queue: request.queue()?,
        count,
    });
    body?;
    request.check_room(message_list::size_bytes(count))?;
    let answer = request.submit(command).await?;
    match answer.outcome {
        Outcome::Storage(StorageOutcome::Peeked(messages)) => {
            let out = document(&messages, &answer.bodies, request.version);
            request.reply(out)
        }
        other => Err(request.unexpected(&other)),
    }
}

/// The route treats anything but `false` as a peek, which is the safer error.
fn check_peekonly(request: &Request<'_>) -> Result<(), Error> {
    match request.query.value("peekonly") {
        Some(text) if !text.eq_ignore_ascii_case("true") => Err(Error::invalid_query(
            "peekonly",
            text,
            "The value is neither true nor false.",
        )),
        Some(_) | None => Ok(()),
    }
}

fn document(messages: &[PeekedMessage], bodies: &[Bytes], version: Version) -> BytesMut {
    let messages = messages.iter().zip(bodies);
    message_list::document(messages.map(|(message, body)| Listed {
        message: message.message,
        inserted_at: message.inserted_at,
        expires_at: message.expires_at,
        lease: None,
        delivery_count: message_list::delivery_count(message.delivery_count, version),
        text: Some((message.encoding, body)),
    }))
}

#[cfg(test)]
mod tests {
    use kew_engine::{BodyEncoding, BodyLocation, Timestamp, Token};

    use super::*;

    #[test]
    fn there_is_no_receipt() {
        let message = PeekedMessage {
            message: Token::from_bytes([0x11; 16]),
            inserted_at: Timestamp::from_ms(0),
            expires_at: Timestamp::NEVER,
            delivery_count: 0,
            encoding: BodyEncoding::Text,
            body: BodyLocation::new(0, 0, 0),
        };
        let out = document(&[message], &[Bytes::from_static(b"x")], Version::NEWEST);
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList><QueueMessage>\
             <MessageId>11111111-1111-1111-1111-111111111111</MessageId>\
             <InsertionTime>Thu, 01 Jan 1970 00:00:00 GMT</InsertionTime>\
             <ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>\
             <DequeueCount>0</DequeueCount><MessageText>x</MessageText>\
             </QueueMessage></QueueMessagesList>"
        );
    }
}
