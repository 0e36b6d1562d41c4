//! Valid and invalid tokens, the keys behind them, and user delegation keys.

use std::net::Ipv4Addr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::door::{ACCOUNT, Answer, Door, Kind, NEWEST, NOW_SECONDS, PLAIN, SECURE, Sas};
use super::keys::{ISSUER, Signer, TENANT, USER, claims, document, issuer, with};
use crate::auth::{Issuer, IssuerOptions, Role};
use crate::origin::Origin;

const CONTRIBUTOR: &str = "Storage Queue Data Contributor";

fn verify(issuer: &Issuer, token: &str) -> Result<String, &'static str> {
    let now = UNIX_EPOCH + Duration::from_secs(NOW_SECONDS);
    let caller = crate::auth::issuer::verify(issuer, token, ACCOUNT, now)?;
    Ok(format!("{} {}", caller.user, caller.tenant))
}

#[test]
fn claims_that_hold() {
    let signer = Signer::new("one");
    let issuer = issuer(&signer);
    let good = claims(CONTRIBUTOR);
    let expected = format!("{USER} {TENANT}");
    for (name, claim, value) in [
        (
            "one audience of several",
            "aud",
            json!(["x", "https://storage.azure.com/"]),
        ),
        (
            "the account's own",
            "aud",
            json!("https://devstoreaccount1.queue.core.windows.net"),
        ),
        (
            "the application",
            "aud",
            json!("e406a681-f3d4-42a8-90b6-c2b029497af1"),
        ),
        ("within the skew", "exp", json!(NOW_SECONDS - 59)),
        ("within the skew", "nbf", json!(NOW_SECONDS + 60)),
        ("one role as a text", "roles", json!(CONTRIBUTOR)),
    ] {
        let token = signer.token(&with(good.clone(), claim, value));
        assert_eq!(verify(&issuer, &token), Ok(expected.clone()), "{name}");
    }
}

#[test]
fn a_token_needs_no_start_time() {
    let signer = Signer::new("one");
    let issuer = issuer(&signer);
    let mut claims = claims(CONTRIBUTOR);
    claims.as_object_mut().unwrap().remove("nbf");
    assert!(verify(&issuer, &signer.token(&claims)).is_ok());
}

#[test]
fn claims_that_do_not() {
    let signer = Signer::new("one");
    let issuer = issuer(&signer);
    let good = claims(CONTRIBUTOR);
    for (claim, value) in [
        ("exp", json!(NOW_SECONDS - 60)),
        ("exp", json!((NOW_SECONDS + 60) as f64)),
        ("exp", json!(1e300)),
        ("exp", json!((NOW_SECONDS + 60).to_string())),
        ("exp", json!(-1)),
        ("exp", Value::Null),
        ("nbf", json!(NOW_SECONDS + 61)),
        ("nbf", json!(0.5)),
        ("nbf", json!("0")),
        ("nbf", Value::Null),
        ("iss", json!("https://issuer.example/tenant/v2.0/")),
        ("iss", json!([ISSUER])),
        ("iss", Value::Null),
        ("aud", json!("https://storage.azure.com//")),
        ("aud", json!("https://other.queue.core.windows.net")),
        ("aud", json!([])),
        ("aud", json!(["x", 1])),
        ("aud", Value::Null),
        ("oid", json!(7)),
        ("oid", json!("a\u{0}b")),
        ("oid", json!("")),
        ("tid", json!("x".repeat(257))),
    ] {
        let token = signer.token(&with(good.clone(), claim, value.clone()));
        assert!(verify(&issuer, &token).is_err(), "{claim} {value}");
    }
    for claim in ["exp", "iss", "aud"] {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(claim);
        assert!(
            verify(&issuer, &signer.token(&claims)).is_err(),
            "without {claim}"
        );
    }
}

#[test]
fn only_asymmetric_algorithms_and_the_keys_own_hold() {
    let signer = Signer::new("one");
    let issuer = issuer(&signer);
    let good = claims(CONTRIBUTOR);
    assert!(verify(&issuer, &signer.token(&good)).is_ok());
    for algorithm in [
        "none", "None", "HS256", "HS512", "RS256", "ES384", "PS256", "EdDSA", "",
    ] {
        let header = json!({"alg": algorithm, "kid": "one"});
        let token = signer.token_with(&header, &good);
        assert!(verify(&issuer, &token).is_err(), "{algorithm}");
        let (unsigned, _) = token.rsplit_once('.').unwrap();
        assert!(
            verify(&issuer, &format!("{unsigned}.")).is_err(),
            "{algorithm}"
        );
    }
    // An HMAC with the public key as its secret.
    let header = json!({"alg": "HS256", "kid": "one"});
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", encode(&header), encode(&good));
    let secret = signer.jwk().to_string();
    let tag = crate::accounts::AccountKey::new(secret.as_bytes()).sign(text.as_bytes());
    assert!(verify(&issuer, &format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag))).is_err());
    for header in [
        json!({"alg": "ES256", "kid": "one", "crit": ["exp"]}),
        json!({"alg": "ES256", "kid": "two"}),
    ] {
        let token = signer.token_with(&header, &good);
        assert!(verify(&issuer, &token).is_err(), "{header}");
    }
    // A key inside the token is ignored.
    let stranger = Signer::new("three");
    let header = json!({"alg": "ES256", "kid": "one", "jwk": stranger.jwk()});
    assert!(verify(&issuer, &stranger.token_with(&header, &good)).is_err());
    for token in ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", "e30.e30.e30"] {
        assert!(verify(&issuer, token).is_err(), "{token}");
    }
}

#[test]
fn a_token_has_a_short_header() {
    let signer = Signer::new("one");
    let issuer = issuer(&signer);
    let token = |padding: usize| {
        let header = json!({"alg": "ES256", "kid": "one", "x": "x".repeat(padding)});
        signer.token_with(&header, &claims(CONTRIBUTOR))
    };
    let size_of = |padding| token(padding).find('.').unwrap();
    let longest = (0..)
        .find(|more| size_of(12_000 + more) > 16 << 10)
        .unwrap()
        + 12_000
        - 1;
    assert!(verify(&issuer, &token(longest)).is_ok());
    assert_eq!(
        verify(&issuer, &token(longest + 1)),
        Err("The token's header is longer than 16 KiB.")
    );
}

#[test]
fn every_byte_of_a_token_counts() {
    let signer = Signer::new("one");
    let issuer = issuer(&signer);
    let token = signer.token(&claims(CONTRIBUTOR));
    for index in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(verify(&issuer, &changed).is_err(), "{index}: {changed}");
    }
}

#[test]
fn the_last_good_keys_are_kept() {
    let (one, two) = (Signer::new("one"), Signer::new("two"));
    let issuer = issuer(&one);
    let is_wanted = || {
        let wanted = pin!(issuer.keys_wanted());
        wanted.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    };
    let good = claims(CONTRIBUTOR);
    assert!(verify(&issuer, &one.token(&good)).is_ok());
    assert!(!is_wanted());
    assert!(verify(&issuer, &two.token(&good)).is_err());
    assert!(is_wanted() && !is_wanted());
    let secret = json!({"kty": "oct", "k": "c2VjcmV0", "kid": "two"});
    let encrypts = with(two.jwk(), "use", json!("enc"));
    let symmetric = with(two.jwk(), "alg", json!("HS256"));
    for bad in [
        b"".to_vec(),
        b"<html>".to_vec(),
        b"{}".to_vec(),
        document(&[]),
        document(&[secret, encrypts, symmetric, json!({"kty": "new"}), json!(1)]),
    ] {
        assert!(issuer.replace_keys(&bad).is_err());
        assert!(verify(&issuer, &one.token(&good)).is_ok());
    }
    let both = document(&[json!({"kty": "new"}), two.jwk()]);
    assert_eq!(issuer.replace_keys(&both).unwrap(), 1);
    assert!(verify(&issuer, &one.token(&good)).is_err());
    assert!(verify(&issuer, &two.token(&good)).is_ok());
}

#[test]
fn the_configured_values_count() {
    let signer = Signer::new("one");
    let options = IssuerOptions {
        audiences: vec!["api://kew".into()],
        role_claim: "groups".into(),
        roles: [("workers".into(), Role::Processor)].into(),
        ..IssuerOptions::new(ISSUER)
    };
    let issuer = Issuer::new(options);
    issuer.replace_keys(&document(&[signer.jwk()])).unwrap();
    let now = UNIX_EPOCH + Duration::from_secs(NOW_SECONDS);
    let good = with(claims(CONTRIBUTOR), "aud", json!("api://kew"));
    let roles = |claims: &Value| {
        crate::auth::issuer::verify(&issuer, &signer.token(claims), ACCOUNT, now)
            .unwrap()
            .roles
    };
    assert!(roles(&good).is_empty());
    let named = with(good.clone(), "groups", json!([CONTRIBUTOR, 7, "workers"]));
    assert_eq!(roles(&named), [Role::Processor].into_iter().collect());
    assert!(verify(&issuer, &signer.token(&claims(CONTRIBUTOR))).is_err());
}

/// Lists queues with this token.
async fn list(door: &Door, origin: Origin, version: &str, token: &str) -> Answer {
    let token = format!("Bearer {token}");
    let headers = [("x-ms-version", version), ("Authorization", &token)];
    door.ask(origin, "GET", "/?comp=list", &headers, "").await
}

#[tokio::test]
async fn each_of_several_issuers_signs_with_its_own_keys() {
    let (one, two) = (Signer::new("one"), Signer::new("two"));
    let other = "https://other.example";
    let second = Issuer::new(IssuerOptions {
        audiences: vec!["api://other".into()],
        ..IssuerOptions::new(other)
    });
    second.replace_keys(&document(&[two.jwk()])).unwrap();
    let door = Door::open([issuer(&one), second]).await;
    let named = |name: &str, audience: &str| {
        let named = with(claims(CONTRIBUTOR), "iss", json!(name));
        with(named, "aud", json!(audience))
    };
    let storage = "https://storage.azure.com";
    for (signer, name, audience, status) in [
        (&one, ISSUER, storage, 200),
        (&two, other, "api://other", 200),
        // Each issuer's tokens are refused for the other's audiences.
        (&one, other, "api://other", 401),
        (&two, ISSUER, storage, 401),
        (&two, other, storage, 401),
        (&one, "https://third.example", storage, 401),
    ] {
        let token = signer.token(&named(name, audience));
        let answer = list(&door, SECURE, NEWEST, &token).await;
        assert_eq!(answer.status, status, "{name} {audience}: {answer:?}");
    }
    // A client without a valid token is sent to the first issuer.
    let answer = list(&door, SECURE, NEWEST, "x").await;
    let challenge = answer.header("www-authenticate").unwrap();
    assert!(
        challenge.contains("https://issuer.example/tenant/"),
        "{challenge}"
    );
}

#[tokio::test]
async fn tokens_need_a_private_connection() {
    let signer = Signer::new("one");
    let token = signer.token(&claims(CONTRIBUTOR));
    let door = Door::open(Some(issuer(&signer))).await;
    let here = Origin {
        peer: (Ipv4Addr::LOCALHOST, 1).into(),
        is_secure: false,
        may_use_public_key: true,
    };
    assert_eq!(list(&door, SECURE, NEWEST, &token).await.status, 200);
    assert_eq!(list(&door, SECURE, "2017-11-09", &token).await.status, 200);
    for (origin, version) in [(PLAIN, NEWEST), (here, NEWEST), (SECURE, "2017-07-29")] {
        let answer = list(&door, origin, version, &token).await;
        assert!(answer.is(403, "AuthenticationFailed"), "{answer:?}");
    }
    let options = IssuerOptions {
        allow_plain_loopback: true,
        ..IssuerOptions::new(ISSUER)
    };
    let local = Issuer::new(options);
    local.replace_keys(&document(&[signer.jwk()])).unwrap();
    let door = Door::open(Some(local)).await;
    assert_eq!(list(&door, here, NEWEST, &token).await.status, 200);
    assert_eq!(list(&door, PLAIN, NEWEST, &token).await.status, 403);
}

#[tokio::test]
async fn access_policies_accept_tokens_from_2025_07_05_on() {
    let signer = Signer::new("one");
    let door = Door::open(Some(issuer(&signer))).await;
    let token = format!("Bearer {}", signer.token(&claims(Role::Contributor.name())));
    for (version, status) in [
        ("2025-07-05", 204),
        (NEWEST, 204),
        ("2025-05-05", 403),
        ("2017-11-09", 403),
    ] {
        let headers = [("x-ms-version", version), ("Authorization", &*token)];
        let created = door.ask(SECURE, "PUT", "/orders", &headers, "").await;
        assert!(created.status < 300, "{created:#?}");
        let set = door.ask(SECURE, "PUT", "/orders?comp=acl", &headers, "");
        assert_eq!(set.await.status, status, "{version}");
        let get = door.ask(SECURE, "GET", "/orders?comp=acl", &headers, "");
        assert_eq!(get.await.status == 200, status == 204, "{version}");
        // Operations on the service accept them from the beginning.
        let properties = "/?restype=service&comp=properties";
        let get = door.ask(SECURE, "GET", properties, &headers, "").await;
        assert_eq!(get.status, 200, "{version}: {get:#?}");
    }
}

#[tokio::test]
async fn a_bad_token_is_sent_to_the_issuer() {
    let signer = Signer::new("one");
    let door = Door::open(Some(issuer(&signer))).await;
    let answer = list(&door, SECURE, NEWEST, "nonsense").await;
    assert!(answer.is(401, "InvalidAuthenticationInfo"), "{answer:?}");
    assert_eq!(
        answer.header("www-authenticate"),
        Some(
            "Bearer authorization_uri=https://issuer.example/tenant/oauth2/authorize \
             resource_id=https://storage.azure.com"
        )
    );
    let wrong = with(claims(CONTRIBUTOR), "aud", json!("x"));
    let answer = list(&door, SECURE, NEWEST, &signer.token(&wrong)).await;
    assert!(
        answer
            .text
            .contains("Audience validation failed. Audience did not match."),
        "{answer:?}"
    );
    let door = Door::open(None).await;
    let answer = list(&door, SECURE, NEWEST, &signer.token(&claims(CONTRIBUTOR))).await;
    assert!(answer.is(401, "InvalidAuthenticationInfo"), "{answer:?}");
    assert!(answer.text.contains("not enabled on this server"));
}

/// Asks for a user delegation key.
async fn delegation_key(door: &Door, signer: &Signer, claims: &Value, info: &str) -> Answer {
    let token = format!("Bearer {}", signer.token(claims));
    let headers = [("x-ms-version", NEWEST), ("Authorization", &token)];
    let target = "/?restype=service&comp=userdelegationkey";
    let body = format!("<KeyInfo>{info}</KeyInfo>");
    door.ask(SECURE, "POST", target, &headers, &body).await
}

fn element<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let (_, rest) = answer.text.split_once(&format!("<{name}>")).expect(name);
    rest.split('<').next().unwrap()
}

const KEY_INFO: &str = "<Start>2026-06-21T08:00:00Z</Start><Expiry>2026-06-28T08:00:00Z</Expiry>";

/// A signature with the key in the answer.
fn sas_with(answer: &Answer, permissions: &str) -> (Sas, String) {
    let mut sas = Sas::of(
        Kind::Delegation("orders"),
        &[("sp", permissions), ("se", "2026-06-22"), ("sv", NEWEST)],
    );
    for (field, name) in [
        ("skoid", "SignedOid"),
        ("sktid", "SignedTid"),
        ("skt", "SignedStart"),
        ("ske", "SignedExpiry"),
        ("sks", "SignedService"),
        ("skv", "SignedVersion"),
    ] {
        sas = sas.with(field, element(answer, name));
    }
    (sas, element(answer, "Value").to_owned())
}

#[tokio::test]
async fn a_key_signs_its_users_rights_and_survives_a_restart() {
    let signer = Signer::new("one");
    let door = Door::open(Some(issuer(&signer))).await;
    let reader = claims("StorageQueueDataReader");
    let answer = delegation_key(&door, &signer, &reader, KEY_INFO).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(element(&answer, "SignedOid"), USER);
    let (sas, key) = sas_with(&answer, "rp");
    // Another server of the same account, which has issued no key.
    let door = Door::open(None).await;
    let query = sas.signed(&key);
    let peek = format!("/orders/messages?peekonly=true&{query}");
    assert_eq!(door.ask(PLAIN, "GET", &peek, &[], "").await.status, 404);
    let get = format!("/orders/messages?{query}");
    let answer = door.ask(PLAIN, "GET", &get, &[], "").await;
    assert!(
        answer.is(403, "AuthorizationPermissionMismatch"),
        "{answer:?}"
    );
    assert!(
        answer
            .text
            .contains("<ExtendedErrorDetail>The user has no role")
    );
}

#[tokio::test]
async fn a_signature_for_one_user_needs_that_users_token() {
    let signer = Signer::new("one");
    let door = Door::open(Some(issuer(&signer))).await;
    let info = format!("{KEY_INFO}<DelegatedUserTid>other-tenant</DelegatedUserTid>");
    let answer = delegation_key(&door, &signer, &claims(CONTRIBUTOR), &info).await;
    assert_eq!(element(&answer, "SignedDelegatedUserTid"), "other-tenant");
    let (sas, key) = sas_with(&answer, "r");
    let sas = sas.with("skdutid", "other-tenant").with("sduoid", "friend");
    let target = format!("/orders/messages?peekonly=true&{}", sas.signed(&key));
    let friend = |user: &str, tenant: &str| {
        let claims = with(claims("no role at all"), "oid", user.into());
        format!(
            "Bearer {}",
            signer.token(&with(claims, "tid", tenant.into()))
        )
    };
    for (token, status) in [
        (friend("friend", "other-tenant"), 404),
        (friend("stranger", "other-tenant"), 403),
        (friend("friend", TENANT), 403),
        ("Bearer nonsense".to_owned(), 401),
    ] {
        let headers = [("x-ms-version", NEWEST), ("Authorization", &token)];
        let answer = door.ask(SECURE, "GET", &target, &headers, "").await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let answer = door.ask(SECURE, "GET", &target, &[], "").await;
    assert!(answer.is(401, "InvalidAuthenticationInfo"), "{answer:?}");
}

#[tokio::test]
async fn keys_that_are_not_given() {
    let signer = Signer::new("one");
    let door = Door::open(Some(issuer(&signer))).await;
    let good = claims(CONTRIBUTOR);
    for (info, code) in [
        ("", "MissingRequiredXmlNode"),
        ("<Start>2026-06-21</Start>", "MissingRequiredXmlNode"),
        (
            "<Start>now</Start><Expiry>2026-06-22</Expiry>",
            "InvalidXmlNodeValue",
        ),
        (
            "<Start>2026-06-21</Start><Expiry>2026-06-28T08:16:00Z</Expiry>",
            "InvalidXmlNodeValue",
        ),
        (
            "<Start>2026-06-23</Start><Expiry>2026-06-22</Expiry>",
            "InvalidXmlNodeValue",
        ),
        (
            "<Start>2026-06-19</Start><Expiry>2026-06-20</Expiry>",
            "InvalidXmlNodeValue",
        ),
        (
            "<Start>2026-06-21</Start><Expiry>2026-06-22</Expiry><X>1</X>",
            "UnsupportedXmlNode",
        ),
        (
            "<Start>2026-06-21</Start><Expiry>2026-06-22</Expiry>\
             <DelegatedUserTid>&#10;</DelegatedUserTid>",
            "InvalidXmlNodeValue",
        ),
    ] {
        let answer = delegation_key(&door, &signer, &good, info).await;
        assert!(answer.is(400, code), "{info}: {answer:?}");
    }
}
