//! Shared access signatures: queries are read before the client is authenticated, and again after,
//! because then the owner has signed their fields, which may contain anything too.

use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_fuzz::mutate::{Input, changes};
use kew_queue_api::Accounts;

use crate::documents::key_request;
use crate::door::{Outcomes, Served, Signed, check_answered, encoded, request};
use crate::tokens::Bearer;
use crate::wire::{MEMORY_MAX_BYTES, SENT_SIZE_BYTES};
use crate::{INPUT_SIZE_MAX, INPUTS};

/// A kind of signature: its fields, and the signed ones, one per line. An empty name is the
/// resource.
struct Kind {
    fields: &'static [(&'static str, &'static str)],
    lines: &'static [&'static str],
}

const KINDS: [Kind; 4] = [
    // Of an account.
    Kind {
        fields: &[
            ("sv", "2021-12-02"),
            ("ss", "bqtf"),
            ("srt", "sco"),
            ("sp", "rwdlacup"),
            ("st", "2027-01-15"),
            ("se", "2027-01-16T00:00:00.1234567Z"),
            ("sip", "127.0.0.0-127.0.0.255"),
            ("spr", "https,http"),
        ],
        lines: &["sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses"],
    },
    // Of a queue.
    Kind {
        fields: &[
            ("sv", "2021-12-02"),
            ("sp", "raup"),
            ("st", "2027-01-15T00:00Z"),
            ("se", "2027-01-16"),
            ("sip", "127.0.0.1"),
            ("spr", "http,https"),
        ],
        lines: &["sp", "st", "se", "", "si", "sip", "spr", "sv"],
    },
    // Of a queue, with a policy.
    Kind {
        fields: &[("sv", "2018-03-28"), ("si", "a b")],
        lines: &["sp", "st", "se", "", "si", "sip", "spr", "sv"],
    },
    // Of a queue, by a user.
    Kind {
        fields: &[
            ("sv", "2025-07-05"),
            ("sp", "rap"),
            ("se", "2027-01-16T00:00:00Z"),
            ("skoid", "a-user"),
            ("sktid", "a-tenant"),
            ("skt", "2027-01-15T00:00:00Z"),
            ("ske", "2027-01-20T00:00:00Z"),
            ("sks", "q"),
            ("skv", "2025-07-05"),
        ],
        lines: &[
            "sp", "st", "se", "", "skoid", "sktid", "skt", "ske", "sks", "skv", "skdutid",
            "sduoid", "sip", "spr", "sv",
        ],
    },
];

/// Names of other parameters.
const NAMES: [&str; 16] = [
    "st",
    "si",
    "sip",
    "spr",
    "sr",
    "ses",
    "sduoid",
    "skdutid",
    "skoid",
    "ss",
    "sig",
    "tn",
    "epk",
    "api-version",
    "SV",
    "comp",
];

/// Other values of a field.
const VALUES: [&str; 24] = [
    "",
    "0",
    "q",
    "https",
    "HTTPS,http",
    "a-user",
    "2027-01-15T08:00:00Z",
    "2027-01-15T07:59:59Z",
    "2027-02-29",
    "9999-12-31T23:59:59.9999999Z",
    "10000-01-01",
    "0000-00-00T00:00Z",
    "2027-01-15T24:60:61Z",
    "255.255.255.255-0.0.0.0",
    "127.0.0.1-",
    "::1",
    "2012-02-12",
    "2026-10-06",
    "9999-99-99",
    "\u{10FFFF}\u{e9}",
    "a+b c%2B",
    "line\nline",
    "sco\0",
    "&=;#?",
];

const TARGETS: [(&str, &str); 6] = [
    ("GET", "/devstoreaccount1/orders/messages?numofmessages=1&"),
    ("GET", "/devstoreaccount1/orders/messages?peekonly=true&"),
    ("GET", "/devstoreaccount1/orders?comp=metadata&"),
    ("GET", "/devstoreaccount1?comp=list&"),
    ("DELETE", "/devstoreaccount1/orders/messages?"),
    ("HEAD", "/devstoreaccount1/orders?comp=metadata&"),
];

/// A front end, and the keys for signatures.
struct Signers {
    served: Served,
    bearer: String,
    account_key: Vec<u8>,
    user_key: Vec<u8>,
}

impl Signers {
    fn new() -> Self {
        let bearer = Bearer::new();
        let served = Served::trusting(Some(bearer.issuer()));
        let bearer = format!("Bearer {}", bearer.token());
        let mut policy = Signed::new("PUT", "/orders");
        policy.query = "comp=acl".into();
        policy.body = b"<SignedIdentifiers><SignedIdentifier><Id>a b</Id><AccessPolicy>\
            <Expiry>2027-01-16</Expiry><Permission>r</Permission></AccessPolicy></SignedIdentifier>\
            </SignedIdentifiers>"
            .to_vec();
        let (status, _) = check_answered(&served, &policy.to_bytes(), usize::MAX);
        assert_eq!(status, 204);
        let info =
            b"<KeyInfo><Start>2027-01-15T00:00:00Z</Start><Expiry>2027-01-20T00:00:00Z</Expiry>\
            </KeyInfo>";
        let (_, answer) = check_answered(&served, &key_request(&bearer, info), usize::MAX);
        let answer = String::from_utf8(answer).expect("text");
        let value = answer.split_once("<Value>").expect("a key").1;
        let value = value.split_once('<').expect("an end").0;
        Self {
            served,
            bearer,
            account_key: STANDARD.decode(Accounts::WELL_KNOWN_KEY).expect("Base64"),
            user_key: STANDARD.decode(value).expect("Base64"),
        }
    }

    fn signature(&self, kind: &Kind, fields: &[(String, Vec<u8>)]) -> String {
        let mut text = Vec::new();
        let is_of_account = kind.lines.contains(&"ss");
        if is_of_account {
            text.extend_from_slice(b"devstoreaccount1\n");
        }
        for (index, line) in kind.lines.iter().enumerate() {
            if index > 0 {
                text.push(b'\n');
            }
            let field = fields.iter().find(|(name, _)| name == line);
            match (*line, field) {
                ("", _) => text.extend_from_slice(b"/queue/devstoreaccount1/orders"),
                (_, Some((_, value))) => text.extend_from_slice(value),
                (_, None) => {}
            }
        }
        if is_of_account {
            text.push(b'\n');
        }
        let is_of_user = kind.lines.contains(&"skoid");
        let key = if is_of_user {
            &self.user_key
        } else {
            &self.account_key
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        STANDARD.encode(hmac::sign(&key, &text))
    }

    fn make(&self, input: &mut Input<'_>) -> Vec<u8> {
        let kind = &KINDS[usize::from(input.byte()) % KINDS.len()];
        let (verb, target) = TARGETS[usize::from(input.byte()) % TARGETS.len()];
        let mut fields: Vec<(String, Vec<u8>)> = kind
            .fields
            .iter()
            .map(|(name, value)| ((*name).into(), value.as_bytes().to_vec()))
            .collect();
        for _ in 0..input.byte() % 4 {
            edit(&mut fields, input);
        }
        let mut signature = self.signature(kind, &fields).into_bytes();
        match input.byte() % 8 {
            6 => changes(&mut signature, input),
            7 => signature = input.piece().to_vec(),
            _ => {}
        }
        fields.push(("sig".into(), signature));
        let turn = input.below(fields.len());
        fields.rotate_left(turn);
        let style = input.byte();
        let mut target = target.as_bytes().to_vec();
        for (name, value) in &fields {
            let index = u8::try_from(target.len() % 8).unwrap_or_default();
            put_parameter(&mut target, name, value, style.rotate_left(index.into()));
        }
        if style == 255 {
            // Many, up to the limit of a head.
            let part = input.piece().to_vec();
            for n in 0..input.below(8000) {
                let _ = write!(Text(&mut target), "x{n:x}=");
                put_visible(&mut target, &part);
                target.push(b'&');
                if target.len() > SENT_SIZE_BYTES {
                    break;
                }
            }
        }
        target.truncate(SENT_SIZE_BYTES - 1024);
        let version = ["2021-12-02", "2025-07-05", "2012-02-12"][usize::from(input.byte()) % 3];
        let mut headers: Vec<(&str, &[u8])> = Vec::new();
        if input.byte().is_multiple_of(2) {
            headers.push(("x-ms-version", version.as_bytes()));
        }
        if input.byte() % 4 == 3 {
            headers.push(("Authorization", self.bearer.as_bytes()));
        }
        request(verb, &target, &headers, b"")
    }
}

/// Bytes to which text can be written.
struct Text<'a>(&'a mut Vec<u8>);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Changes, duplicates, adds or removes a field.
fn edit(fields: &mut Vec<(String, Vec<u8>)>, input: &mut Input<'_>) {
    let how = input.byte() % 8;
    let at = input.below(fields.len() + 1);
    let name = NAMES[usize::from(input.byte()) % NAMES.len()];
    let value = VALUES[usize::from(input.byte()) % VALUES.len()].as_bytes();
    match (how, fields.get_mut(at)) {
        (0 | 1, Some(field)) => field.1 = value.to_vec(),
        (2, Some(field)) => field.1 = input.piece().to_vec(),
        (3, Some(field)) => changes(&mut field.1, input),
        (4, Some(_)) => drop(fields.remove(at)),
        (5, Some(field)) => {
            let twice = (field.0.to_ascii_uppercase(), value.to_vec());
            fields.push(twice);
        }
        _ => fields.push((name.into(), value.to_vec())),
    }
}

/// `name=value&`, escaped in one of the possible ways.
fn put_parameter(target: &mut Vec<u8>, name: &str, value: &[u8], style: u8) {
    match style % 4 {
        1 => target.extend_from_slice(name.to_ascii_uppercase().as_bytes()),
        2 => name.bytes().for_each(|byte| {
            let _ = write!(Text(target), "%{byte:02x}");
        }),
        _ => target.extend_from_slice(name.as_bytes()),
    }
    target.push(b'=');
    if style & 12 == 12 {
        put_visible(target, value);
    } else {
        target.extend_from_slice(encoded(value).as_bytes());
    }
    target.push(b'&');
}

/// Unescaped, as far as a target allows.
fn put_visible(target: &mut Vec<u8>, value: &[u8]) {
    let visible = |byte: &u8| if byte.is_ascii_graphic() { *byte } else { b'+' };
    target.extend(value.iter().map(visible));
}

/// Changed valid fields, with a right signature, and without.
#[test]
fn query() {
    let signers = AssertUnwindSafe((Signers::new(), Outcomes::default()));
    bolero::check!()
        .with_iterations(INPUTS / 10)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let (signers, outcomes) = &*signers;
            let sent = signers.make(&mut Input::new(bytes));
            let (status, _) = check_answered(&signers.served, &sent, MEMORY_MAX_BYTES);
            outcomes.count(status);
        });
}

/// Every kind is valid unchanged, or a harness would only see refusals.
#[test]
fn the_kinds_hold() {
    let signers = Signers::new();
    for kind in 0..u8::try_from(KINDS.len()).expect("few") {
        let sent = signers.make(&mut Input::new(&[kind]));
        let (status, answer) = check_answered(&signers.served, &sent, MEMORY_MAX_BYTES);
        let answer = String::from_utf8_lossy(&answer);
        // The policy allows only to peek.
        let expected = if kind == 2 { 403 } else { 200 };
        assert_eq!(status, expected, "{kind}: {answer}");
    }
    let sent = signers.make(&mut Input::new(&[2, 1]));
    let (status, _) = check_answered(&signers.served, &sent, MEMORY_MAX_BYTES);
    assert_eq!(status, 200);
}

/// The worst known target.
#[test]
fn the_worst_queries_take_little() {
    let served = Served::new();
    let head = "/devstoreaccount1/orders/messages?sv=2021-12-02&se=2027-01-16&sp=r&sig=AAAA";
    let numbered = |of: &dyn Fn(usize) -> String| {
        let mut text = String::from(head);
        let parts = (0..).map(of);
        for part in parts {
            if text.len() + part.len() > 60_000 {
                break;
            }
            text.push_str(&part);
        }
        text
    };
    let digits = |n: usize| {
        let digit = |n: usize| char::from(b"0123456789abcdefghijklmnopqrstuvwxyz"[n % 36]);
        String::from_iter([digit(n / 1296), digit(n / 36), digit(n)])
    };
    for (name, expected, target) in [
        ("parameters", 400, numbered(&|n| format!("&{}", digits(n)))),
        ("values", 400, numbered(&|n| format!("&{}=+", digits(n)))),
        ("escaped names", 400, numbered(&|n| format!("&%78{n:x}"))),
        (
            "escaped values",
            400,
            numbered(&|n| format!("&x{n:x}=%41+%42")),
        ),
        (
            "a long field",
            403,
            format!("{head}&sip={}", "+%20".repeat(15_000)),
        ),
        (
            "a long field that is refused",
            403,
            format!("{head}&ss=q&srt=o&spr={}", "%26%3C".repeat(9_000)),
        ),
        (
            "a long signature",
            403,
            format!("{head}{}", "AAAA".repeat(14_000)),
        ),
        (
            "long fields of a user",
            403,
            format!("{head}&skoid={0}&sktid={0}&skt={0}", "+%41".repeat(4_500)),
        ),
    ] {
        let sent = request("GET", target.as_bytes(), &[], b"");
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| {
            check_answered(&served, &sent, MEMORY_MAX_BYTES).0
        }));
        let checked = checked.unwrap_or_else(|_| panic!("{name}"));
        // Too many parameters are refused by their number: comparing all of them would take a
        // second.
        assert_eq!(checked, expected, "{name}");
    }
}
