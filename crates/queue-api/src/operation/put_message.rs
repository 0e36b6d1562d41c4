//! Put Message.

use bytes::{Bytes, BytesMut};
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use kew_engine::storage::{SentMessage, StorageCommand, StorageOutcome};
use kew_engine::{BodyEncoding, Command, Outcome, VisibilityTimeout};

use super::RequestBody;
use super::message_list::{self, Listed};
use crate::error::{Error, REASON_HIDDEN_BEYOND_EXPIRY, REASON_TIME_TO_LIVE};
use crate::limits::TEXT_SIZE_BYTES_MAX;
use crate::message_text;
use crate::parameter::{self, REASON_INTEGER, is_integer};
use crate::query::Query;
use crate::reply::Reply;
use crate::request::Request;
use crate::version::Version;

/// The default time to live, and the maximum before 2017-07-29: 7 days.
const TIME_TO_LIVE_SECONDS: u32 = 604_800;

/// The largest text before 2011-08-18, in bytes of UTF-8.
const OLD_TEXT_SIZE_BYTES_MAX: usize = 8_192;

/// Puts a message at the tail of a queue: 201, from 2016-05-31 on with the message's id, times and
/// a pop receipt that is valid at once.
///
/// `messagettl` is at least 1 s, or -1 for no expiry; values above 2,147,483,647 s count as that.
/// Before 2017-07-29 it is at most 7 days, which is the default. `visibilitytimeout` is 0 s to 7
/// days and below the time to live; before 2011-08-18 it is ignored. The text has at most 64 KiB of
/// UTF-8, before 2011-08-18 8 KiB.
///
/// In the 2008 dialect, with the verb `PUT`, the body is the message itself: any bytes, which every
/// version shows as Base64.
///
/// Source: *Put Message*; for the verb `PUT`, the first description of the service.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let time_to_live_seconds = time_to_live(&request.query, request.version)?;
    let visibility_timeout = visibility_timeout(&request.query, request.version)?;
    check_shown_before_expiry(visibility_timeout, time_to_live_seconds)?;
    let headers = request.headers;
    if !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING) {
        return Err(Error::MissingContentLengthHeader);
    }
    let limit_bytes = text_size_bytes_max(request.version);
    let (encoding, body) = if request.is_raw_put() {
        (BodyEncoding::Raw, raw(body?, limit_bytes)?)
    } else {
        let text = message_text::message_text(&body?, limit_bytes)?;
        (BodyEncoding::Text, text)
    };
    let command = Command::Storage(StorageCommand::Send {
        queue: request.queue()?,
        body,
        encoding,
        time_to_live_seconds,
        visibility_timeout,
    });
    match request.submit(command).await?.outcome {
        Outcome::Storage(StorageOutcome::Sent(_)) if request.version < Version::V2016_05_31 => {
            Ok(Reply::empty(StatusCode::CREATED))
        }
        Outcome::Storage(StorageOutcome::Sent(sent)) => {
            Ok(Reply::xml(StatusCode::CREATED, document(&sent)))
        }
        other => Err(request.unexpected(&other)),
    }
}

/// A message of bare bytes.
fn raw(body: Bytes, limit_bytes: usize) -> Result<Bytes, Error> {
    if body.len() <= limit_bytes {
        Ok(body)
    } else {
        Err(Error::RequestBodyTooLarge { limit_bytes })
    }
}

/// The largest text that a version allows, in bytes of UTF-8.
pub(super) fn text_size_bytes_max(version: Version) -> usize {
    if version < Version::V2011_08_18 {
        OLD_TEXT_SIZE_BYTES_MAX
    } else {
        TEXT_SIZE_BYTES_MAX
    }
}

fn time_to_live(query: &Query<'_>, version: Version) -> Result<Option<u32>, Error> {
    const NAME: &str = "messagettl";
    if version < Version::V2017_07_29 {
        let seconds = parameter::number(query, NAME, 1..=TIME_TO_LIVE_SECONDS)?;
        return Ok(Some(seconds.unwrap_or(TIME_TO_LIVE_SECONDS)));
    }
    let Some(text) = query.value(NAME) else {
        return Ok(Some(TIME_TO_LIVE_SECONDS));
    };
    if !is_integer(&text) {
        return Err(Error::invalid_query(NAME, text, REASON_INTEGER));
    }
    match text.parse::<i32>() {
        Ok(-1) => Ok(None),
        Ok(seconds @ 1..) => Ok(Some(seconds.unsigned_abs())),
        // A larger number: some clients send the largest that they have.
        Err(_) if !text.starts_with('-') => Ok(Some(i32::MAX.unsigned_abs())),
        Ok(_) | Err(_) => Err(Error::invalid_query(NAME, text, REASON_TIME_TO_LIVE)),
    }
}

fn visibility_timeout(query: &Query<'_>, version: Version) -> Result<VisibilityTimeout, Error> {
    if version < Version::V2011_08_18 {
        return Ok(VisibilityTimeout::ZERO);
    }
    let bounds = 0..=VisibilityTimeout::SECONDS_MAX;
    Ok(parameter::visibility_timeout(query, bounds)?.unwrap_or(VisibilityTimeout::ZERO))
}

/// A message that stays hidden until it expires is refused here and not by the engine, because a
/// bad query must be reported before a bad body or a missing queue.
fn check_shown_before_expiry(
    visibility_timeout: VisibilityTimeout,
    time_to_live_seconds: Option<u32>,
) -> Result<(), Error> {
    let hidden_seconds = visibility_timeout.as_seconds();
    match time_to_live_seconds {
        Some(seconds) if hidden_seconds >= seconds => Err(Error::invalid_query(
            "visibilitytimeout",
            hidden_seconds.to_string(),
            REASON_HIDDEN_BEYOND_EXPIRY,
        )),
        Some(_) | None => Ok(()),
    }
}

fn document(sent: &SentMessage) -> BytesMut {
    let sent = std::iter::once(sent).map(|sent| Listed {
        message: sent.message,
        inserted_at: sent.inserted_at,
        expires_at: sent.expires_at,
        lease: Some((sent.receipt, sent.visible_at)),
        delivery_count: None,
        text: None,
    });
    message_list::document(sent)
}

#[cfg(test)]
mod tests {
    use kew_engine::{Timestamp, Token};

    use super::*;

    fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
        match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => error.wire().code.to_owned(),
        }
    }

    fn check_time_to_live(text: &str, version: Version, expected: &str) {
        let query = format!("messagettl={text}");
        let result = time_to_live(&Query::parse(Some(&query)).unwrap(), version);
        assert_eq!(code(result), expected, "{text}");
    }

    #[test]
    fn times_to_live() {
        let newest = Version::NEWEST;
        check_time_to_live("1", newest, "Some(1)");
        check_time_to_live("2147483647", newest, "Some(2147483647)");
        for text in ["2147483648", "9007199254740991", "99999999999999999999"] {
            check_time_to_live(text, newest, "Some(2147483647)");
        }
        check_time_to_live("-1", newest, "None");
        for text in ["0", "-2", "-2147483649", "x", "", "-"] {
            check_time_to_live(text, newest, "InvalidQueryParameterValue");
        }
        let old = Version::V2016_05_31;
        check_time_to_live("604800", old, "Some(604800)");
        for text in ["0", "-1", "604801"] {
            check_time_to_live(text, old, "OutOfRangeQueryParameterValue");
        }
        for version in [newest, old] {
            let result = time_to_live(&Query::default(), version);
            assert_eq!(code(result), "Some(604800)");
        }
    }

    #[test]
    fn hiding_ends_before_expiry() {
        let hidden = |seconds| VisibilityTimeout::from_seconds(seconds).unwrap();
        for (seconds, time_to_live_seconds, expected) in [
            (0, Some(1), "()"),
            (9, Some(10), "()"),
            (604_800, None, "()"),
            (10, Some(10), "InvalidQueryParameterValue"),
            (604_800, Some(604_800), "InvalidQueryParameterValue"),
        ] {
            let result = check_shown_before_expiry(hidden(seconds), time_to_live_seconds);
            assert_eq!(code(result), expected, "{seconds}");
        }
    }

    #[test]
    fn old_versions_ignore_unknown_parameters() {
        let query = Query::parse(Some("visibilitytimeout=nonsense")).unwrap();
        assert!(visibility_timeout(&query, Version::V2009_09_19).is_ok());
        assert!(visibility_timeout(&query, Version::V2011_08_18).is_err());
    }

    #[test]
    fn the_answer_has_its_five_elements_in_order() {
        let out = document(&SentMessage {
            message: Token::from_bytes([0x11; 16]),
            receipt: Token::from_bytes([0; 16]),
            inserted_at: Timestamp::from_ms(0),
            expires_at: Timestamp::NEVER,
            visible_at: Timestamp::from_ms(1500),
        });
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList><QueueMessage>\
             <MessageId>11111111-1111-1111-1111-111111111111</MessageId>\
             <InsertionTime>Thu, 01 Jan 1970 00:00:00 GMT</InsertionTime>\
             <ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>\
             <PopReceipt>AAAAAAAAAAAAAAAAAAAAAA==</PopReceipt>\
             <TimeNextVisible>Thu, 01 Jan 1970 00:00:01 GMT</TimeNextVisible>\
             </QueueMessage></QueueMessagesList>"
        );
    }
}
