//! Bearer tokens: three parts of Base64 with JSON in two of them, which any client can send.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kew_fuzz::mutate::{Input, changes};
use kew_queue_api::{Issuer, IssuerOptions};

use crate::door::{Outcomes, Served, check_answered, header_value, request};
use crate::wire::MEMORY_MAX_BYTES;
use crate::{INPUT_SIZE_MAX, INPUTS};

const ISSUER: &str = "https://issuer.example/";

const HEADER: [(&str, &str); 3] = [
    ("typ", "\"JWT\""),
    ("alg", "\"EdDSA\""),
    ("kid", "\"key-1\""),
];

const CLAIMS: [(&str, &str); 7] = [
    ("iss", "\"https://issuer.example/\""),
    ("aud", "\"https://storage.azure.com\""),
    ("exp", "4000000000"),
    ("nbf", "0"),
    ("oid", "\"a-user\""),
    ("tid", "\"a-tenant\""),
    ("roles", "[\"Storage Queue Data Contributor\"]"),
];

/// Other names of members.
const NAMES: [&str; 16] = [
    "crit", "zip", "enc", "jwk", "x5c", "x5t#S256", "cty", "b64", "alg", "kid", "sub", "exp",
    "aud", "roles", "\\u0000", "",
];

/// Other values of members.
const VALUES: [&str; 26] = [
    "null",
    "true",
    "-1",
    "1.5",
    "1e999",
    "18446744073709551615",
    "18446744073709551616",
    "1799999939",
    "1800000061",
    "\"\"",
    "\"none\"",
    "\"HS256\"",
    "\"RS256\"",
    "\"ES256\"",
    "\"DEF\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "[]",
    "{}",
    "[\"exp\"]",
    "[\"\",\"https://storage.azure.com/\"]",
    "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]",
    "{\"kty\":\"oct\",\"k\":\"AAAA\"}",
    "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AA\"}",
    "\"https://devstoreaccount1.queue.core.windows.net\"",
    "\"e406a681-f3d4-42a8-90b6-c2b029497af1\"",
];

/// An issuer with one key.
pub(crate) struct Bearer(Ed25519KeyPair);

impl Bearer {
    pub(crate) fn new() -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("32 bytes"))
    }

    /// An issuer that a front end trusts, also from this machine without TLS.
    pub(crate) fn issuer(&self) -> Arc<Issuer> {
        let issuer = Issuer::new(IssuerOptions {
            allow_plain_loopback: true,
            ..IssuerOptions::new(ISSUER)
        });
        let public = URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref());
        let keys = format!(
            "{{\"keys\":[{{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"use\":\"sig\",\"alg\":\"EdDSA\",\
             \"kid\":\"key-1\",\"x\":\"{public}\"}}]}}"
        );
        assert_eq!(issuer.replace_keys(keys.as_bytes()).expect("a key"), 1);
        Arc::new(issuer)
    }

    /// A valid token.
    pub(crate) fn token(&self) -> String {
        self.sign(object(&HEADER).as_bytes(), object(&CLAIMS).as_bytes())
    }

    fn sign(&self, header: &[u8], claims: &[u8]) -> String {
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        let signed = format!("{header}.{claims}");
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

fn object(members: &[(&str, &str)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Members of which some are changed, removed, repeated or added.
fn changed(members: &[(&str, &str)], input: &mut Input<'_>) -> Vec<u8> {
    let kind = input.byte() % 8;
    if kind == 1 {
        return input.piece().to_vec();
    }
    let mut members = members.to_vec();
    let owned: Vec<String> = (0..input.byte() % 4)
        .map(|_| format!("{:?}", String::from_utf8_lossy(input.piece())))
        .collect();
    for text in owned.iter().map(String::as_str).chain(["", "", ""]) {
        let how = input.byte() % 8;
        let at = input.below(members.len() + 1);
        let name = NAMES[usize::from(input.byte()) % NAMES.len()];
        let value = match text {
            "" => VALUES[usize::from(input.byte()) % VALUES.len()],
            text => text,
        };
        match (how, members.get_mut(at)) {
            (1 | 2, Some(member)) => member.1 = value,
            (3, Some(_)) => drop(members.remove(at)),
            (4, Some(member)) => {
                let twice = *member;
                members.push(twice);
            }
            (5 | 6, _) => members.insert(at, (name, value)),
            _ => {}
        }
    }
    let mut bytes = object(&members).into_bytes();
    if kind == 7 {
        changes(&mut bytes, input);
    }
    bytes
}

fn make(bearer: &Bearer, input: &mut Input<'_>) -> Vec<u8> {
    let scheme = ["Bearer ", "bearer ", "BEARER  ", "Bearer\t"][usize::from(input.byte() / 64)];
    let header = changed(&HEADER, input);
    let claims = changed(&CLAIMS, input);
    let mut value = bearer.sign(&header, &claims).into_bytes();
    match input.byte() % 16 {
        1 => changes(&mut value, input),
        2 => value.extend_from_slice(b".e30"),
        3 => value.extend_from_slice(b"=="),
        4 => value.truncate(value.len() - 43),
        5 => value.insert(0, b'.'),
        6 => value = input.piece().to_vec(),
        _ => {}
    }
    let mut sent = scheme.as_bytes().to_vec();
    sent.extend_from_slice(&header_value(&value));
    sent
}

/// A request of a client with a token.
fn listing(authorization: &[u8]) -> Vec<u8> {
    let headers: [(&str, &[u8]); 2] = [
        ("x-ms-version", b"2021-12-02"),
        ("Authorization", authorization),
    ];
    request("GET", b"/devstoreaccount1?comp=list", &headers, b"")
}

/// Changed valid headers and claims, with a right signature, and without.
#[test]
fn token() {
    let bearer = Bearer::new();
    let served = AssertUnwindSafe((Served::trusting(Some(bearer.issuer())), Outcomes::default()));
    let bearer = AssertUnwindSafe(bearer);
    bolero::check!()
        .with_iterations(INPUTS / 10)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let (served, outcomes) = &*served;
            let sent = listing(&make(&bearer, &mut Input::new(bytes)));
            let (status, _) = check_answered(served, &sent, MEMORY_MAX_BYTES);
            outcomes.count(status);
        });
}

/// The worst known head for the parser: the client is not authenticated yet.
#[test]
fn the_worst_tokens_take_little() {
    let bearer = Bearer::new();
    let served = Served::trusting(Some(bearer.issuer()));
    let header = object(&HEADER);
    let inside = |value: &str| format!("{},\"x\":{value}}}", header.trim_end_matches('}'));
    let list = |of: &str, size: usize| {
        let count = size / (of.len() + 1);
        format!("[{}]", vec![of; count].join(","))
    };
    for size in [1_000, 10_000, 45_000] {
        let members: String = (0..size / 10).map(|n| format!(",\"x{n}\":\"\"")).collect();
        for (name, header) in [
            ("numbers", inside(&list("0", size))),
            ("texts", inside(&list("\"\"", size))),
            ("lists", inside(&list("[]", size))),
            ("lists in lists", inside(&"[".repeat(size))),
            ("a long text", inside(&format!("\"{}\"", "x".repeat(size)))),
            (
                "certificates",
                inside("0").replace("\"x\":0", &format!("\"x5c\":{}", list("\"\"", size))),
            ),
            (
                "members",
                format!("{}{members}}}", header.trim_end_matches('}')),
            ),
            (
                "a key",
                inside("0").replace("\"x\":0", &format!("\"jwk\":{{\"a\":{}}}", list("0", size))),
            ),
        ] {
            let token = bearer.sign(header.as_bytes(), b"{}");
            let sent = listing(format!("Bearer {token}").as_bytes());
            let checked = std::panic::catch_unwind(AssertUnwindSafe(|| {
                check_answered(&served, &sent, MEMORY_MAX_BYTES).0
            }));
            assert!(checked.is_ok(), "{name} of {size} bytes");
            assert!((400..500).contains(&checked.unwrap_or(0)), "{name}");
        }
    }
}
