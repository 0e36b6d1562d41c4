//! No change to a signed part of a request leaves the signature valid and changes the meaning.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use kew_broker::Broker;

use super::*;
use crate::accounts::{AccountKey, Accounts};
use crate::api::{QueueApi, QueueApiOptions};

const ORIGIN: Origin = Origin {
    peer: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1)),
    is_secure: false,
    may_use_public_key: true,
};

const DATE: &str = "Sun, 21 Jun 2026 08:00:00 GMT";
const DATE_SECONDS: u64 = 1_782_028_800;

/// A request as a client would sign it, and its string to sign.
struct Case {
    method: &'static str,
    target: &'static str,
    host: &'static str,
    /// Besides the host and the credential. All are signed.
    headers: &'static [(&'static str, &'static str)],
    string_to_sign: &'static str,
}

const CASES: [Case; 6] = [
    Case {
        method: "GET",
        target: "/devstoreaccount1/orders/messages?numofmessages=5&peekonly=true&timeout=7",
        host: "localhost",
        headers: &[("x-ms-date", DATE), ("x-ms-version", "2026-10-06")],
        string_to_sign: "GET\n\n\n\n\n\n\n\n\n\n\n\n\
            x-ms-date:Sun, 21 Jun 2026 08:00:00 GMT\nx-ms-version:2026-10-06\n\
            /devstoreaccount1/devstoreaccount1/orders/messages\n\
            numofmessages:5\npeekonly:true\ntimeout:7",
    },
    Case {
        method: "DELETE",
        target: "/devstoreaccount1/orders/messages/00112233-4455-6677-8899-aabbccddeeff\
            ?popreceipt=AA%2BA+%2F%3D%3D",
        host: "localhost",
        headers: &[("x-ms-date", DATE), ("x-ms-version", "2026-10-06")],
        string_to_sign: "DELETE\n\n\n\n\n\n\n\n\n\n\n\n\
            x-ms-date:Sun, 21 Jun 2026 08:00:00 GMT\nx-ms-version:2026-10-06\n\
            /devstoreaccount1/devstoreaccount1/orders/messages/\
            00112233-4455-6677-8899-aabbccddeeff\npopreceipt:AA+A+/==",
    },
    Case {
        method: "PUT",
        target: "/devstoreaccount1/orders",
        host: "localhost",
        headers: &[
            ("x-ms-date", DATE),
            ("x-ms-meta-owner", "Billing, \"the  North\" it is"),
            ("x-ms-meta-a_b", "1"),
            ("x-ms-version", "2026-10-06"),
        ],
        string_to_sign: "PUT\n\n\n\n\n\n\n\n\n\n\n\n\
            x-ms-date:Sun, 21 Jun 2026 08:00:00 GMT\nx-ms-meta-a_b:1\n\
            x-ms-meta-owner:Billing, \"the  North\" it is\nx-ms-version:2026-10-06\n\
            /devstoreaccount1/devstoreaccount1/orders",
    },
    Case {
        method: "GET",
        target: "/devstoreaccount1-secondary?comp=list&prefix=a+b%20c&include=metadata&marker=%C3%A4",
        host: "localhost",
        headers: &[("date", DATE), ("x-ms-version", "2026-10-06")],
        // A plus is a space, and the path is the primary's.
        string_to_sign: "GET\n\n\n\n\n\nSun, 21 Jun 2026 08:00:00 GMT\n\n\n\n\n\n\
            x-ms-version:2026-10-06\n/devstoreaccount1/devstoreaccount1\n\
            comp:list\ninclude:metadata\nmarker:\u{e4}\nprefix:a b c",
    },
    Case {
        method: "POST",
        target: "/orders/messages?messagettl=60&visibilitytimeout=5",
        host: "devstoreaccount1.queue.localhost",
        headers: &[
            ("content-length", "69"),
            ("content-md5", "kAFQmDzST7DWlj99KOF/cg=="),
            ("content-type", "application/xml"),
            ("x-ms-client-request-id", "1a2b"),
            ("x-ms-date", DATE),
            ("x-ms-version", "2026-10-06"),
        ],
        string_to_sign: "POST\n\n\n69\nkAFQmDzST7DWlj99KOF/cg==\napplication/xml\n\n\n\n\n\n\n\
            x-ms-client-request-id:1a2b\nx-ms-date:Sun, 21 Jun 2026 08:00:00 GMT\n\
            x-ms-version:2026-10-06\n/devstoreaccount1/orders/messages\n\
            messagettl:60\nvisibilitytimeout:5",
    },
    Case {
        method: "DELETE",
        target: "/devstoreaccount1/messages",
        host: "localhost",
        headers: &[("x-ms-date", DATE), ("x-ms-version", "2026-10-06")],
        string_to_sign: "DELETE\n\n\n\n\n\n\n\n\n\n\n\n\
            x-ms-date:Sun, 21 Jun 2026 08:00:00 GMT\nx-ms-version:2026-10-06\n\
            /devstoreaccount1/devstoreaccount1/messages",
    },
];

/// A request on the wire, in parts that can be changed separately.
#[derive(Clone, Debug)]
struct Wire {
    method: String,
    target: Vec<u8>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Wire {
    fn of(case: &Case) -> Self {
        let key = AccountKey::from_base64(Accounts::WELL_KNOWN_KEY).unwrap();
        let signature = STANDARD.encode(key.sign(case.string_to_sign.as_bytes()));
        let credential = format!("SharedKey {}:{signature}", Accounts::WELL_KNOWN_NAME);
        let headers = case.headers.iter().copied();
        Self {
            method: case.method.into(),
            target: case.target.into(),
            headers: headers
                .chain([("host", case.host), ("authorization", &credential)])
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        }
    }

    /// What the HTTP library parses, if it accepts the request.
    fn parse(&self) -> Option<Parts> {
        let mut request = hyper::Request::builder()
            .method(self.method.as_str())
            .uri(self.target.as_slice());
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name).ok()?;
            // Surrounding white space is not part of a value.
            let value = HeaderValue::from_bytes(value.trim_ascii()).ok()?;
            request = request.header(name, value);
        }
        Some(request.body(()).ok()?.into_parts().0)
    }
}

/// Everything that determines an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Meaning {
    operation: Operation,
    version: Version,
    resource: String,
    timeout: Duration,
    parameters: Vec<Option<String>>,
    metadata: Result<Metadata, String>,
    md5: Option<HeaderValue>,
}

fn meaning(api: &QueueApi, wire: &Wire) -> Option<Meaning> {
    const PARAMETERS: [&str; 9] = [
        "include",
        "marker",
        "maxresults",
        "messagettl",
        "numofmessages",
        "peekonly",
        "popreceipt",
        "prefix",
        "visibilitytimeout",
    ];
    let head = wire.parse()?;
    let spellings = Spellings::default();
    let accounts = api.0.accounts.in_force().unwrap();
    let admitted = pin!(Request::admit(
        &api.0, &accounts, &ORIGIN, &head, &spellings
    ));
    let Poll::Ready(admitted) = admitted.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("only a stored policy is waited for");
    };
    let request = admitted.ok()?;
    let parameters = PARAMETERS.map(|name| request.query.value(name).map(Into::into));
    Some(Meaning {
        operation: request.operation,
        version: request.version,
        resource: format!("{} {:?}", request.account(), request.address.resource),
        timeout: request.timeout,
        parameters: parameters.into(),
        metadata: match request.metadata() {
            // The protocol signs any white space in a value as one space.
            Ok(metadata) => Ok(metadata
                .iter()
                .map(|(name, value)| (name, folded(value)))
                .collect()),
            Err(error) => Err(error.wire().code.into()),
        },
        md5: request.headers.get("content-md5").cloned(),
    })
}

fn folded(value: &str) -> String {
    let words: Vec<_> = value.split_ascii_whitespace().collect();
    words.join(" ")
}

/// Texts that other readers may take for ends, escapes, or another spelling of the same.
fn texts() -> Vec<Vec<u8>> {
    [
        "",
        "/",
        "?",
        "&",
        "=",
        "+",
        ":",
        ",",
        ";",
        "%00",
        "%0A",
        "%0a",
        "%0D%0A",
        "%20",
        "%26",
        "%2B",
        "%2C",
        "%2F",
        "%3A",
        "%3D",
        "%3F",
        "%E2%84%AA",
        "\u{212A}",
        "\u{17F}",
        "%C5%BF",
        "&&",
        "&a=1",
        "&comp=acl",
        "&timeout=1",
        "&peekonly=false",
        "%0Aa:1",
        "//",
        "/..",
        "/messages",
        "-secondary",
        ", ",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

/// Every byte, and the texts above.
fn replacements() -> Vec<Vec<u8>> {
    let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
    bytes.chain(texts()).collect()
}

fn api() -> QueueApi {
    let at = UNIX_EPOCH + Duration::from_secs(DATE_SECONDS);
    let options = QueueApiOptions {
        accounts: Accounts::well_known(),
        clock: Arc::new(move || -> SystemTime { at }),
        ..QueueApiOptions::default()
    };
    QueueApi::new(Broker::start_in_memory().unwrap(), options)
}

/// Calls `check` with every text that differs from `text` in one place.
fn each_change(text: &[u8], replacements: &[Vec<u8>], mut check: impl FnMut(Vec<u8>)) {
    for index in 0..=text.len() {
        for replacement in replacements {
            for end in [index, (index + 1).min(text.len())] {
                let changed = [&text[..index], replacement, &text[end..]].concat();
                if changed != text {
                    check(changed);
                }
            }
        }
    }
}

/// Calls `check` with every text in which two of the separators of a target differ.
fn each_two_signs(text: &[u8], replacements: &[Vec<u8>], mut check: impl FnMut(Vec<u8>)) {
    let is_sign = |index: &usize| b"/?&=+%".contains(&text[*index]);
    let signs: Vec<_> = (0..text.len()).filter(is_sign).collect();
    for (nth, &first) in signs.iter().enumerate() {
        for &second in &signs[nth + 1..] {
            for one in replacements {
                for other in replacements {
                    let start = [&text[..first], one, &text[first + 1..second]].concat();
                    check([&start, &**other, &text[second + 1..]].concat());
                }
            }
        }
    }
}

#[test]
fn no_change_to_a_signed_part_changes_the_operation() {
    let api = api();
    let replacements = replacements();
    for case in &CASES {
        let signed = Wire::of(case);
        let meant = meaning(&api, &signed).expect(case.target);
        let mut same_count = 0;
        let mut check = |changed: &Wire| {
            if let Some(found) = meaning(&api, changed) {
                assert_eq!(found, meant, "{changed:?}");
                same_count += 1;
            }
        };
        let mut changed = signed.clone();
        each_change(&signed.target, &replacements, |target| {
            changed.target = target;
            check(&changed);
        });
        each_two_signs(&signed.target, &texts(), |target| {
            changed.target = target;
            check(&changed);
        });
        // Every header but the last two: the host and the signature.
        for index in 0..case.headers.len() {
            let mut changed = signed.clone();
            let (name, value) = signed.headers[index].clone();
            each_change(&name, &replacements, |name| {
                changed.headers[index].0 = name;
                check(&changed);
            });
            changed.headers[index].0 = name;
            each_change(&value, &replacements, |value| {
                changed.headers[index].1 = value;
                check(&changed);
            });
            for at in [0, index, signed.headers.len()] {
                let mut doubled = signed.clone();
                doubled.headers.insert(at, signed.headers[index].clone());
                check(&doubled);
            }
            let mut removed = signed.clone();
            removed.headers.remove(index);
            check(&removed);
        }
        // Some changes have no effect, such as the case of a parameter's or header's name.
        assert!(same_count > 0, "{}", case.target);
    }
}

#[test]
fn no_other_host_changes_the_operation() {
    let api = api();
    for case in &CASES {
        let signed = Wire::of(case);
        let meant = meaning(&api, &signed).expect(case.target);
        for host in [
            "",
            "localhost",
            "kew.example",
            "devstoreaccount1.queue.localhost",
            "DEVSTOREACCOUNT1.x",
            "devstoreaccount1-secondary.queue.localhost:10001",
        ] {
            let mut changed = signed.clone();
            changed.headers[case.headers.len()].1 = host.into();
            if let Some(found) = meaning(&api, &changed) {
                assert_eq!(found, meant, "{changed:?}");
            }
        }
    }
}
