//! AMQP within a WebSocket: the way for clients that may only speak HTTPS.
//!
//! [`accept`] judges what a client asks for, and [`serve`] drives AMQP over the connection from then
//! on. What is between is in two parts: `frame` knows the bytes, [`stream`] makes of them a stream
//! that is read and written like a socket. A message of a client is never collected: its bytes are
//! AMQP's as they come, however they are cut, so that it needs no limit of its own.
//!
//! Source: RFC 6455; OASIS, *AMQP WebSocket Binding 1.0*.

mod frame;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{
    AsHeaderName, CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Method, StatusCode};
use kew_listen::Place;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use self::stream::WebSocketStream;
use super::answers::{Answer, HttpError, answer_of};
use crate::connection::Driver;
use crate::ground::origin::Origin;
use crate::shared::Shared;

/// The sub-protocols, by any of which a client says that it speaks AMQP 1.0: the service's name and
/// the standard's.
const PROTOCOLS: [&str; 2] = ["AMQPWSB10", "amqp"];
/// What a key is proven to be read with (RFC 6455, 1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// How long a client may take to answer the close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The answer that makes a WebSocket of the connection, if that is what was asked for.
///
/// Refuses with 426 what asks for no WebSocket or one of another version, and with 400 what asks for
/// one wrongly or to speak something else in it.
pub(super) fn accept(method: &Method, headers: &HeaderMap) -> Result<Answer, HttpError> {
    if *method != Method::GET || !has_token(headers, UPGRADE, "websocket") {
        let detail = "AMQP is spoken here within a WebSocket: ask for an upgrade to one.";
        return Err(HttpError::upgrade_required(detail));
    }
    if !has_token(headers, CONNECTION, "upgrade") {
        return Err(HttpError::bad_request(
            "A WebSocket needs the header Connection: Upgrade.",
        ));
    }
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version.as_bytes() != b"13") {
        let detail = "WebSockets are spoken in version 13, which the request does not name.";
        return Err(HttpError::upgrade_required(detail));
    }
    let key = key(headers).ok_or_else(|| {
        HttpError::bad_request("Sec-WebSocket-Key must be there once, and be 16 bytes in base64.")
    })?;
    let protocol = protocol(headers).ok_or_else(|| {
        HttpError::bad_request(format!(
            "Sec-WebSocket-Protocol must name {} or {}: nothing else is spoken here.",
            PROTOCOLS[0], PROTOCOLS[1]
        ))
    })?;
    let mut answer = answer_of(StatusCode::SWITCHING_PROTOCOLS);
    let headers = answer.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, proof(key));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    Ok(answer)
}

/// The elements of a list that may be in several headers.
fn elements(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

fn has_token(headers: &HeaderMap, name: impl AsHeaderName, token: &str) -> bool {
    elements(headers, name).any(|element| element.eq_ignore_ascii_case(token))
}

/// The client's key, as it came.
fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let mut keys = headers.get_all(SEC_WEBSOCKET_KEY).into_iter();
    let key = keys.next()?.as_bytes();
    let is_sound = STANDARD.decode(key).is_ok_and(|key| key.len() == 16);
    (is_sound && keys.next().is_none()).then_some(key)
}

/// The first of the client's protocols that is spoken here, as it spells it.
fn protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_known = |name: &&str| PROTOCOLS.iter().any(|own| own.eq_ignore_ascii_case(name));
    let found = elements(headers, SEC_WEBSOCKET_PROTOCOL).find(is_known)?;
    HeaderValue::from_str(found).ok()
}

fn proof(key: &[u8]) -> HeaderValue {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, KEY_SUFFIX].concat());
    let text = STANDARD.encode(digest);
    HeaderValue::from_str(&text).expect("base64 is made of visible ASCII")
}

/// Who speaks in a WebSocket, and the place of its connection.
pub(super) struct Speaker {
    pub(super) origin: Origin,
    pub(super) place: Arc<Place>,
}

/// Serves AMQP over a connection that has become a WebSocket. `begun` was read of it already.
pub(super) async fn serve<S>(
    shared: Arc<Shared>,
    stream: S,
    begun: Bytes,
    speaker: Speaker,
    shutdown: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stream = WebSocketStream::new(stream, begun);
    let driver = Driver::new(shared, speaker.origin, speaker.place, &[]);
    Box::new(driver).run(&mut stream, shutdown).await;
    // Whether it is heard is the client's matter.
    let _ = timeout(CLOSE_TIMEOUT, stream.shutdown()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What RFC 6455 asks for in 1.3, with its key.
    const ASKED: [(&str, &str); 5] = [
        ("upgrade", "WebSocket"),
        ("connection", "keep-alive, Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "chat, AMQPWSB10"),
    ];

    fn headers(changed: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in ASKED {
            headers.insert(name, value.parse().unwrap());
        }
        for (name, value) in changed {
            headers.remove(*name);
            for value in value.split('|').filter(|value| !value.is_empty()) {
                headers.append(*name, value.parse().unwrap());
            }
        }
        headers
    }

    #[test]
    fn who_asks_as_the_standard_says_is_answered_with_a_proof() {
        let answer = accept(&Method::GET, &headers(&[])).unwrap();
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        let header = |name| answer.headers().get(name).unwrap().to_str().unwrap();
        assert_eq!(
            header("sec-websocket-accept"),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(header("sec-websocket-protocol"), "AMQPWSB10");
        assert_eq!(header("upgrade"), "websocket");
    }

    #[test]
    fn the_first_protocol_that_is_known_is_spoken_as_it_was_spelled() {
        for (asked, spoken) in [
            ("amqp", "amqp"),
            ("amqp,AMQPWSB10", "amqp"),
            ("mqtt|AmqpWsB10", "AmqpWsB10"),
        ] {
            let headers = headers(&[("sec-websocket-protocol", asked)]);
            let answer = accept(&Method::GET, &headers).unwrap();
            assert_eq!(answer.headers()["sec-websocket-protocol"], spoken);
        }
    }

    #[test]
    fn what_is_asked_wrongly_is_refused() {
        let check = |method: Method, name, value, status: u16| {
            let refused = accept(&method, &headers(&[(name, value)])).unwrap_err();
            assert_eq!(refused.status.as_u16(), status, "{name}: {value}");
        };
        let get = || Method::GET;
        check(Method::POST, "x", "", 426);
        check(get(), "upgrade", "", 426);
        check(get(), "upgrade", "h2c", 426);
        check(get(), "connection", "keep-alive", 400);
        check(get(), "sec-websocket-version", "", 426);
        check(get(), "sec-websocket-version", "8", 426);
        for key in [
            "",
            "x",
            "dGhlIHNhbXBsZQ==",
            "dGhlIHNhbXBsZSBub25jZQ==|dGhlIHNhbXBsZSBub25jZQ==",
        ] {
            check(get(), "sec-websocket-key", key, 400);
        }
        for protocol in ["", "mqtt", "AMQPWSB10x"] {
            check(get(), "sec-websocket-protocol", protocol, 400);
        }
    }
}
