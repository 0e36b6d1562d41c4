//! Signs requests with an account's key.
//!
//! Source: *Authorize with Shared Key*. The order of header names is a culture's and not that of bytes, as the
//! signing policies of the SDKs have it.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use smallvec::SmallVec;

/// An account of Queue Storage with one of its keys.
#[derive(Clone)]
pub struct SharedKey {
    account: String,
    key: Arc<hmac::Key>,
}

/// What is signed of a request.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    /// The method, in capitals.
    pub method: &'a str,
    /// The path as it is sent, the account included where it is addressed by path.
    pub path: &'a str,
    /// Names in lower case, and values as they are sent, percent-encoded.
    pub query: &'a [(&'a str, &'a str)],
    /// Names in lower case; among them `x-ms-date`, and `content-type` if it is sent.
    pub headers: &'a [(&'a str, &'a str)],
    /// How long the body is, in bytes.
    pub content_length: usize,
}

impl SharedKey {
    /// Of an account's name and its key in Base64. `None` if the key is not Base64, or empty.
    pub fn new(account: impl Into<String>, key: &str) -> Option<Self> {
        let key = STANDARD.decode(key).ok().filter(|key| !key.is_empty())?;
        Some(Self {
            account: account.into(),
            key: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &key)),
        })
    }

    /// The account's name.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// The value of the header `Authorization`.
    pub fn authorization(&self, request: &HttpRequest<'_>) -> String {
        let text = string_to_sign(&self.account, request);
        let mut value = String::with_capacity(AUTHORIZATION_LENGTH + self.account.len());
        value.extend(["SharedKey ", &self.account, ":"]);
        STANDARD.encode_string(self.signature(&text), &mut value);
        value
    }

    /// The signature of a text, in Base64.
    pub(super) fn sign(&self, text: &str) -> String {
        STANDARD.encode(self.signature(text))
    }

    fn signature(&self, text: &str) -> hmac::Tag {
        hmac::sign(&self.key, text.as_bytes())
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedKey({}, ..)", self.account)
    }
}

/// How long the header's value is without the account's name.
const AUTHORIZATION_LENGTH: usize = 64;

/// About how long a text to be signed is.
const TEXT_LENGTH: usize = 512;

/// How many parameters or headers most requests have at most. More need an allocation.
pub(crate) const FEW: usize = 6;

fn string_to_sign(account: &str, request: &HttpRequest<'_>) -> String {
    let content_type = request
        .headers
        .iter()
        .find(|(name, _)| *name == "content-type")
        .map_or("", |(_, value)| value);
    // Encoding, language, length, MD5, type, date (x-ms-date is sent), four conditions, range.
    let mut text = String::with_capacity(TEXT_LENGTH);
    text.extend([request.method, "\n\n\n"]);
    if request.content_length > 0 {
        text.push_str(&request.content_length.to_string());
    }
    text.extend(["\n\n", content_type]);
    text.push_str("\n\n\n\n\n\n\n");
    let mut headers: SmallVec<[_; FEW]> = request
        .headers
        .iter()
        .filter(|(name, _)| name.starts_with("x-ms-"))
        .collect();
    headers.sort_by(|(left, _), (right, _)| collated(left).cmp(collated(right)));
    for (name, value) in headers {
        text.extend([*name, ":", value.trim(), "\n"]);
    }
    text.extend(["/", account, request.path]);
    let mut query: SmallVec<[_; FEW]> = request
        .query
        .iter()
        .map(|(name, value)| (*name, percent_decode_str(value).decode_utf8_lossy()))
        .collect();
    query.sort();
    for (name, value) in query {
        text.extend(["\n", name, ":", &value]);
    }
    text
}

/// Sorts as the service does: hyphens do not count, and an underscore comes before digits and letters. Names that
/// differ in hyphens alone cannot occur: metadata names have none.
fn collated(name: &str) -> impl Iterator<Item = u8> {
    let bytes = name.bytes().filter(|byte| *byte != b'-');
    bytes.map(|byte| if byte == b'_' { b' ' } else { byte })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

    #[test]
    fn the_parts_of_the_string() {
        let query = [
            ("visibilitytimeout", "0"),
            ("messagettl", "60"),
            ("prefix", "a%2Fb%20c"),
        ];
        let headers = [
            ("content-type", "application/xml"),
            ("accept", "application/xml"),
            ("x-ms-version", "2026-10-06"),
            ("x-ms-date", "Tue, 25 Jun 2019 20:45:00 GMT"),
            ("x-ms-client-request-id", "1a2b"),
        ];
        let request = HttpRequest {
            method: "POST",
            path: "/devstoreaccount1/q/messages",
            query: &query,
            headers: &headers,
            content_length: 69,
        };
        assert_eq!(
            string_to_sign("devstoreaccount1", &request),
            "POST\n\n\n69\n\napplication/xml\n\n\n\n\n\n\n\
             x-ms-client-request-id:1a2b\n\
             x-ms-date:Tue, 25 Jun 2019 20:45:00 GMT\n\
             x-ms-version:2026-10-06\n\
             /devstoreaccount1/devstoreaccount1/q/messages\n\
             messagettl:60\nprefix:a/b c\nvisibilitytimeout:0"
        );
    }

    #[test]
    fn metadata_is_sorted_as_the_service_sorts() {
        let headers = [
            ("x-ms-version", "v"),
            ("x-ms-meta-ab", " 2 "),
            ("x-ms-meta-a_b", "1"),
            ("x-ms-meta-a1", "0"),
        ];
        let request = HttpRequest {
            method: "PUT",
            path: "/q",
            query: &[],
            headers: &headers,
            content_length: 0,
        };
        assert_eq!(
            string_to_sign("a", &request),
            "PUT\n\n\n\n\n\n\n\n\n\n\n\n\
             x-ms-meta-a_b:1\nx-ms-meta-a1:0\nx-ms-meta-ab:2\nx-ms-version:v\n/a/q"
        );
    }

    /// The signature is that of `openssl dgst`.
    #[test]
    fn a_signature() {
        let headers = [
            ("x-ms-version", "2026-10-06"),
            ("x-ms-date", "Sat, 21 Nov 2026 00:00:00 GMT"),
        ];
        let request = HttpRequest {
            method: "PUT",
            path: "/devstoreaccount1/jobs",
            query: &[],
            headers: &headers,
            content_length: 0,
        };
        let key = SharedKey::new("devstoreaccount1", KEY).unwrap();
        assert_eq!(
            key.authorization(&request),
            "SharedKey devstoreaccount1:XYvoEAoDbVRzXG+q+pxF6ab7KQJadv7FYfIxrjwqW78="
        );
    }
}
