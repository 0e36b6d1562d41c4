//! No byte of a signed field can be changed.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use kew_broker::Broker;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::door::{ACCOUNT, Kind, NEWEST, SECURE, Sas, api};
use crate::accounts::Accounts;
use crate::api::QueueApi;
use crate::auth::{DelegationFields, Roles};
use crate::request::Request;
use crate::spelling::Spellings;

const START: &str = "2026-06-21T07:00:00Z";
const EXPIRY: &str = "2026-06-21T09:00:00Z";

fn is_let_in(api: &QueueApi, query: &str) -> bool {
    let uri = format!("/{ACCOUNT}/orders/messages?peekonly=true&{query}");
    let request = hyper::Request::get(uri)
        .header("host", "localhost")
        .header("x-ms-version", NEWEST);
    let Ok(request) = request.body(()) else {
        return false;
    };
    let (head, ()) = request.into_parts();
    let spellings = Spellings::default();
    let accounts = api.0.accounts.in_force().unwrap();
    let admitted = pin!(Request::admit(
        &api.0, &accounts, &SECURE, &head, &spellings
    ));
    match admitted.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(admitted) => admitted.is_ok(),
        Poll::Pending => panic!("nothing is waited for"),
    }
}

fn check(sas: &Sas, key: &str) {
    let api = api(Broker::start_in_memory().unwrap(), None);
    let query = sas.signed(key);
    assert!(is_let_in(&api, &query), "{query}");
    let pairs: Vec<(&str, Vec<u8>)> = query
        .split('&')
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            (name, percent_decode_str(value).collect())
        })
        .collect();
    let with = |changed: usize, value: Option<&[u8]>| {
        let mut parts = Vec::new();
        for (index, (name, original)) in pairs.iter().enumerate() {
            let value = if index == changed {
                value
            } else {
                Some(&**original)
            };
            if let Some(value) = value {
                parts.push(format!(
                    "{name}={}",
                    percent_encode(value, NON_ALPHANUMERIC)
                ));
            }
        }
        parts.join("&")
    };
    for (index, (name, value)) in pairs.iter().enumerate() {
        assert!(!is_let_in(&api, &with(index, None)), "without {name}");
        for place in 0..value.len() {
            for bit in 0..8 {
                let mut changed = value.clone();
                changed[place] ^= 1 << bit;
                let query = with(index, Some(&changed));
                assert!(!is_let_in(&api, &query), "{name}: {query}");
            }
            let mut shorter = value.clone();
            shorter.remove(place);
            let query = with(index, Some(&shorter));
            assert!(!is_let_in(&api, &query), "{name}: {query}");
        }
    }
}

#[test]
fn of_an_account() {
    for version in [
        "2015-04-05",
        "2020-10-02",
        "2020-12-06",
        NEWEST,
        "2099-01-01",
    ] {
        let mut sas = Sas::of(
            Kind::Account,
            &[
                ("sp", "rwdlacup"),
                ("ss", "bq"),
                ("srt", "sco"),
                ("st", START),
                ("se", EXPIRY),
                ("sip", "10.0.0.1-10.0.0.20"),
                ("spr", "https,http"),
                ("sv", version),
            ],
        );
        if version >= "2020-12-06" {
            sas = sas.with("ses", "scope");
        }
        check(&sas, Accounts::WELL_KNOWN_KEY);
    }
}

#[test]
fn of_a_queue() {
    for version in [
        "2012-02-12",
        "2014-02-14",
        "2015-02-21",
        "2015-04-05",
        NEWEST,
    ] {
        let mut sas = Sas::of(
            Kind::Queue("orders"),
            &[
                ("sp", "raup"),
                ("st", START),
                ("se", EXPIRY),
                ("sv", version),
            ],
        );
        if version >= "2015-04-05" {
            sas = sas.with("sip", "10.0.0.9").with("spr", "https");
        }
        check(&sas, Accounts::WELL_KNOWN_KEY);
    }
}

#[test]
fn of_a_user() {
    let accounts = Accounts::well_known();
    let account = accounts.find(ACCOUNT).unwrap();
    let made_for = DelegationFields {
        user: "user",
        tenant: "tenant",
        start: START,
        expiry: EXPIRY,
        version: "2025-07-05",
        delegated_tenant: "other",
    };
    let roles = Roles::from_iter([crate::auth::Role::Reader]);
    let value = made_for.value(account, account.primary(), roles);
    let sas = Sas::of(
        Kind::Delegation("orders"),
        &[
            ("sp", "raup"),
            ("st", START),
            ("se", EXPIRY),
            ("skoid", "user"),
            ("sktid", "tenant"),
            ("skt", START),
            ("ske", EXPIRY),
            ("sks", "q"),
            ("skv", "2025-07-05"),
            ("skdutid", "other"),
            ("sip", "10.0.0.9"),
            ("spr", "https"),
            ("sv", NEWEST),
        ],
    );
    use base64::Engine as _;
    let key = base64::engine::general_purpose::STANDARD.encode(value);
    check(&sas, &key);
}
