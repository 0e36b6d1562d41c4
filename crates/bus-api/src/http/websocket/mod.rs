//! AMQP within a WebSocket, for clients that can only use HTTPS.
//!
//! [`accept`] checks a client's request, and [`serve`] drives AMQP over the connection from then
//! on. There are two parts below it: `frame` knows the bytes, and [`stream`] makes of them a stream
//! that is read and written like a socket. A client's message is never collected: its bytes go to
//! AMQP as they arrive, in any fragments, so that it needs no limit of its own.
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

/// The sub-protocols that mean AMQP 1.0: the service's name and the standard's.
const PROTOCOLS: [&str; 2] = ["AMQPWSB10", "amqp"];
/// The constant that proves that a server has read the key (RFC 6455, 1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// How long a client may take to answer the close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The answer that turns the connection into a WebSocket, if the request asks for one.
///
/// Refuses with 426 a request that asks for no WebSocket or for another version, and with 400 a
/// request that is malformed or names no supported sub-protocol.
pub(super) fn accept(method: &Method, headers: &HeaderMap) -> Result<Answer, HttpError> {
    if *method != Method::GET || !has_token(headers, UPGRADE, "websocket") {
        let detail = "AMQP is available here over WebSocket only: send the header Upgrade: \
                      websocket.";
        return Err(HttpError::upgrade_required(detail));
    }
    if !has_token(headers, CONNECTION, "upgrade") {
        return Err(HttpError::bad_request(
            "A WebSocket needs the header Connection: Upgrade.",
        ));
    }
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version.as_bytes() != b"13") {
        let detail = "Only version 13 of WebSocket is supported: send the header \
                      Sec-WebSocket-Version: 13.";
        return Err(HttpError::upgrade_required(detail));
    }
    let key = key(headers).ok_or_else(|| {
        HttpError::bad_request(
            "The request must have one header Sec-WebSocket-Key, of 16 bytes in base64.",
        )
    })?;
    let protocol = protocol(headers).ok_or_else(|| {
        HttpError::bad_request(format!(
            "Sec-WebSocket-Protocol must name {} or {}: no other protocol is supported here.",
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

/// The client's key in its encoded form.
fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let mut keys = headers.get_all(SEC_WEBSOCKET_KEY).into_iter();
    let key = keys.next()?.as_bytes();
    let is_sound = STANDARD.decode(key).is_ok_and(|key| key.len() == 16);
    (is_sound && keys.next().is_none()).then_some(key)
}

/// The first supported protocol of the client, in the client's spelling.
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

/// The client of a WebSocket, and the place of its connection.
pub(super) struct Speaker {
    pub(super) origin: Origin,
    pub(super) place: Arc<Place>,
}

/// Serves AMQP over a connection that has become a WebSocket. `begun` was read already.
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
    // It does not matter whether the client receives it.
    let _ = timeout(CLOSE_TIMEOUT, stream.shutdown()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example request of RFC 6455, 1.3, with its key.
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
    fn a_standard_request_is_answered_with_the_proof() {
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
    fn the_first_supported_protocol_is_accepted_in_the_clients_spelling() {
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
    fn malformed_requests_are_refused() {
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
