//! Unauthenticated input is short, even with a valid signature.

use super::door::{ACCOUNT, Door, Kind, NEWEST, NOW, PLAIN, SECURE, Sas, key};
use super::keys::{TENANT, USER};
use crate::accounts::Accounts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const EXPIRY: &str = "2026-06-21T09:00:00Z";

fn kinds() -> [Sas; 3] {
    let common = [("sp", "r"), ("se", EXPIRY), ("sv", NEWEST)];
    [
        Sas::of(Kind::Account, &common)
            .with("ss", "q")
            .with("srt", "o"),
        Sas::of(Kind::Queue("orders"), &common),
        Sas::of(Kind::Delegation("orders"), &common)
            .with("skoid", USER)
            .with("sktid", TENANT)
            .with("skt", NOW)
            .with("ske", EXPIRY)
            .with("sks", "q")
            .with("skv", NEWEST),
    ]
}

#[tokio::test]
async fn a_long_field_is_refused_before_anything_is_computed() {
    let door = Door::open(None).await;
    for sas in kinds() {
        for name in [
            "sv", "ss", "srt", "sp", "st", "se", "si", "sip", "spr", "ses", "sr", "skoid", "sktid",
            "skt", "ske", "sks", "skv", "skdutid", "sduoid",
        ] {
            // The fields that determine the kind stay unchanged.
            if (matches!(sas.kind, Kind::Queue(_)) && ["ss", "srt", "skoid"].contains(&name))
                || (matches!(sas.kind, Kind::Delegation(_)) && ["ss", "srt"].contains(&name))
            {
                continue;
            }
            let sas = sas.clone().with(name, &"x".repeat(300));
            let target = format!(
                "/orders/messages?peekonly=true&{}",
                sas.signed(Accounts::WELL_KNOWN_KEY)
            );
            let answer = door.ask(SECURE, "GET", &target, &[], "").await;
            assert!(answer.is(403, "AuthenticationFailed"), "{answer:#?}");
            let why = format!("{name} has 300 bytes, at most");
            assert!(answer.text.contains(&why), "{answer:#?}");
            assert!(!answer.text.contains("String to sign"), "{answer:#?}");
        }
    }
}

#[tokio::test]
async fn a_long_signature_is_refused() {
    let door = Door::open(None).await;
    let [sas, ..] = kinds();
    let query = sas.signed(Accounts::WELL_KNOWN_KEY);
    let (fields, _) = query.split_once("sig=").unwrap();
    let target = format!("/orders?comp=metadata&{fields}sig={}", "A".repeat(60_000));
    let answer = door.ask(PLAIN, "GET", &target, &[], "").await;
    assert!(answer.is(403, "AuthenticationFailed"), "{answer:#?}");
    assert!(answer.text.contains("sig has 60000 bytes"), "{answer:#?}");
}

/// Lists queues with a number of bytes in a signed header.
async fn list_with(door: &Door, size_bytes: usize) -> super::door::Answer {
    let value = "x".repeat(size_bytes);
    let text = format!(
        "GET\n\n\n\nx-ms-date:{NOW}\nx-ms-meta-a:{value}\nx-ms-version:{NEWEST}\n\
         /{ACCOUNT}/{ACCOUNT}/?comp=list"
    );
    let signature = STANDARD.encode(key(Accounts::WELL_KNOWN_KEY).sign(text.as_bytes()));
    let authorization = format!("SharedKeyLite {ACCOUNT}:{signature}");
    let headers = [
        ("x-ms-date", NOW),
        ("x-ms-meta-a", &*value),
        ("x-ms-version", NEWEST),
        ("Authorization", &*authorization),
    ];
    door.ask(PLAIN, "GET", "/?comp=list", &headers, "").await
}

#[tokio::test]
async fn the_string_to_sign_is_bounded() {
    let door = Door::open(None).await;
    // More than metadata may have, which is the longest legitimate input.
    assert_eq!(list_with(&door, 24 * 1024).await.status, 200);
    let answer = list_with(&door, 32 * 1024).await;
    assert!(answer.is(403, "AuthenticationFailed"), "{answer:#?}");
    assert!(answer.text.contains("at most 32768"), "{answer:#?}");
}
