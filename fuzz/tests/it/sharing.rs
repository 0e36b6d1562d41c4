//! CORS: rules that an owner has stored, and requests that any page makes a browser send.

use std::panic::AssertUnwindSafe;

use kew_fuzz::mutate::{Input, changes};

use crate::door::{
    Outcomes, SIGNED_MEMORY_MAX_BYTES, Served, Signed, check_answered, header_value, request,
};
use crate::wire::MEMORY_MAX_BYTES;
use crate::{INPUT_SIZE_MAX, INPUTS};

/// The fields of a rule and their possible values.
const FIELDS: [(&str, [&str; 6]); 5] = [
    (
        "AllowedMethods",
        ["GET,PUT", "GET", "OPTIONS, HEAD", "TRACE", "", "get"],
    ),
    (
        "AllowedOrigins",
        [
            "http://a.example",
            "*",
            "http://b.example,null",
            " , ",
            "http://\u{e9}",
            "https://*.c",
        ],
    ),
    (
        "AllowedHeaders",
        [
            "x-ms-*,date",
            "*",
            "",
            "x-ms-meta-a,x-ms-meta-b",
            "a*,b*,c*",
            "\u{e9}",
        ],
    ),
    (
        "ExposedHeaders",
        ["*", "x-ms-*", "", "content-length,date", "*x", "x y"],
    ),
    (
        "MaxAgeInSeconds",
        ["60", "0", "2147483647", "2147483648", "-1", ""],
    ),
];

const ORIGINS: [&str; 6] = [
    "http://a.example",
    "http://b.example",
    "null",
    "*",
    "",
    "HTTP://A.EXAMPLE",
];

const METHODS: [&str; 6] = ["GET", "PUT", "get", "*", "", "OPTIONS"];

const HEADERS: [&str; 8] = [
    "x-ms-date",
    "X-MS-meta-a,date",
    "",
    ",,,",
    "*",
    "x-ms-\u{e9}",
    "x-m",
    "authorization , x-ms-version\t,content-type",
];

/// Picks one, or takes the input itself.
fn pick(choices: &[&str], input: &mut Input<'_>) -> Vec<u8> {
    let kind = input.byte();
    let mut value = choices[usize::from(kind) % choices.len()]
        .as_bytes()
        .to_vec();
    match kind {
        240.. => value = input.piece().to_vec(),
        224..240 => changes(&mut value, input),
        _ => {}
    }
    value
}

/// Text in the form of a document.
fn escaped(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Sets up to six rules, or the first value of each field if those are refused, and returns which.
fn set_rules(served: &Served, input: &mut Input<'_>) -> u16 {
    let mut rules = String::new();
    for _ in 0..=input.byte() % 6 {
        rules.push_str(&rule(|choices| escaped(&pick(choices, input))));
    }
    let status = put_rules(served, &rules);
    if status == 400 {
        // Otherwise the rules of the previous input would stay.
        assert_eq!(put_rules(served, &rule(|choices| choices[0].into())), 202);
    }
    status
}

/// A rule with the chosen values.
fn rule(mut choose: impl FnMut(&[&str]) -> String) -> String {
    let fields: String = FIELDS
        .iter()
        .map(|(name, choices)| format!("<{name}>{}</{name}>", choose(choices)))
        .collect();
    format!("<CorsRule>{fields}</CorsRule>")
}

fn put_rules(served: &Served, rules: &str) -> u16 {
    let mut set = Signed::new("PUT", "/");
    set.query = "restype=service&comp=properties".into();
    set.body = format!("<StorageServiceProperties><Cors>{rules}</Cors></StorageServiceProperties>")
        .into_bytes();
    let (status, _) = check_answered(served, &set.to_bytes(), SIGNED_MEMORY_MAX_BYTES);
    assert!(matches!(status, 202 | 400), "{status}: {rules}");
    status
}

/// The values of a header in an answer.
fn values<'a>(answer: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let head = answer.split("\r\n\r\n").next().unwrap_or_default();
    head.lines().filter_map(move |line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A preflight under new rules, and a request with an origin.
#[test]
fn preflight() {
    let served = AssertUnwindSafe((Served::new(), Outcomes::default(), Outcomes::default()));
    bolero::check!()
        .with_iterations(INPUTS / 10)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let (served, set, asked) = &*served;
            let mut input = Input::new(bytes);
            set.count(set_rules(served, &mut input));
            let mut sent = Vec::new();
            for (name, choices) in [
                ("Origin", &ORIGINS[..]),
                ("Access-Control-Request-Method", &METHODS),
                ("Access-Control-Request-Headers", &HEADERS),
            ] {
                for _ in 0..[1, 1, 1, 1, 1, 1, 0, 2][usize::from(input.byte() % 8)] {
                    sent.push((name, header_value(&pick(choices, &mut input))));
                }
            }
            let headers: Vec<(&str, &[u8])> =
                sent.iter().map(|(name, value)| (*name, &**value)).collect();
            for verb in ["OPTIONS", "GET"] {
                let target = b"/devstoreaccount1/orders?comp=metadata";
                let bytes = request(verb, target, &headers, b"");
                let (status, answer) = check_answered(served, &bytes, MEMORY_MAX_BYTES);
                if verb == "OPTIONS" {
                    assert!(matches!(status, 200 | 400 | 403), "{status}");
                    asked.count(status);
                } else {
                    assert!(status >= 400, "an unsigned request is refused");
                }
                let answer = String::from_utf8_lossy(&answer);
                let origins: Vec<&str> = values(&answer, "access-control-allow-origin").collect();
                assert!(origins.len() <= 1, "{answer}");
                if let ("OPTIONS", 200) = (verb, status) {
                    assert_eq!(origins.len(), 1, "{answer}");
                }
                for allowed in origins {
                    let is_sent = |(name, value): &(&str, &[u8])| {
                        *name == "Origin" && String::from_utf8_lossy(value).trim() == allowed
                    };
                    assert!(allowed == "*" || headers.iter().any(is_sent), "{answer}");
                }
            }
        });
}
