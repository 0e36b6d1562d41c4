//! Rules that change, tokens that end, and tokens of an issuer.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Map, Text};
use kew_amqp::message::{write_application_properties, write_value};
use kew_amqp::performative::Tag;
use kew_amqp::{Event, LinkId, Outgoing};
use kew_bus_api::{
    AuthorizationRule, BusApiOptions, InvalidRule, Origin, Right, Rights, RuleScope,
};
use kew_engine::bus::{BusCommand, BusQueueOptions};
use kew_issuer::{Issuer, IssuerOptions};
use kew_listen::Barred;
use kew_principals::{PrincipalError, WhichKey};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::client::{Client, LOCAL, Server, message, queue_named, token_by};
use crate::rest::ask_as;

const UNAUTHORIZED: &str = "amqp:unauthorized-access";
const JOBS: &str = "sb://localhost/jobs";
const BEGIN_S: u64 = 1_900_000_000;

thread_local! {
    /// The time of a test's server, which runs on the test's thread.
    static NOW_S: Cell<u64> = const { Cell::new(BEGIN_S) };
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW_S.get())
}

pub(crate) fn later(seconds: u64) {
    NOW_S.set(NOW_S.get() + seconds);
}

pub(crate) async fn server(issuers: impl IntoIterator<Item = Issuer>, origin: Origin) -> Server {
    let options = BusApiOptions {
        issuers: issuers.into_iter().map(Arc::new).collect(),
        clock: now,
        ..BusApiOptions::default()
    };
    Server::open(options, origin).await
}

pub(crate) fn rule(name: &str, rights: &[Right]) -> AuthorizationRule {
    let rights: Rights = rights.iter().copied().collect();
    AuthorizationRule::generate(name, rights, 1).unwrap()
}

pub(crate) fn token_of(rule: &AuthorizationRule, path: &str, seconds: u64) -> String {
    let resource = format!("sb://localhost/{path}");
    token_by(&rule.name, &resource, &rule.primary_key, BEGIN_S + seconds)
}

pub(crate) async fn stranger(server: &Server) -> Client {
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    client
}

/// Waits until the server has detached a link, and returns why.
async fn detached(client: &mut Client, link: LinkId) -> String {
    let error = client.until(|event| match event {
        Event::Detached {
            link: id, error, ..
        } if *id == link => Some(error.clone()),
        _ => None,
    });
    error.await.unwrap().condition.to_string()
}

#[tokio::test]
async fn a_refreshed_token_keeps_links_and_an_expired_one_ends_them() {
    let server = server(None, LOCAL).await;
    let rule = rule("r", &[Right::Send, Right::Listen]);
    server.add_rule(None, rule.clone()).await.unwrap();
    let mut client = stranger(&server).await;
    let put = client.put_token(JOBS, &token_of(&rule, "jobs", 100)).await;
    assert_eq!(put, 202);
    let sender = client.sender("jobs").await.unwrap();
    let put = client.put_token(JOBS, &token_of(&rule, "jobs", 300)).await;
    assert_eq!(put, 202);
    later(200);
    // The first token has expired. Any input makes the server check the time.
    let receiver = client.receiver("jobs").await.unwrap();
    let sent = client.send(sender, 0, message("x")).await;
    assert_eq!(sent, kew_amqp::performative::DeliveryState::ACCEPTED);
    later(200);
    let refused = client.receiver("steps").await.unwrap_err();
    assert_eq!(refused.condition, UNAUTHORIZED);
    // In the order in which they were attached.
    assert_eq!(detached(&mut client, sender).await, UNAUTHORIZED);
    assert_eq!(detached(&mut client, receiver).await, UNAUTHORIZED);
    let put = client.put_token(JOBS, &token_of(&rule, "jobs", 300)).await;
    assert_eq!(put, 401);
}

#[tokio::test]
async fn a_token_that_replaces_another_removes_its_rights() {
    let server = server(None, LOCAL).await;
    let sending = rule("sending", &[Right::Send]);
    let listening = rule("listening", &[Right::Listen]);
    for rule in [&sending, &listening] {
        server.add_rule(None, rule.clone()).await.unwrap();
    }
    let mut client = stranger(&server).await;
    let token = token_of(&sending, "jobs", 100);
    assert_eq!(client.put_token(JOBS, &token).await, 202);
    let sender = client.sender("jobs").await.unwrap();
    // A token for another audience removes no right, and one for the other spelling of the same
    // audience does.
    let steps = "sb://localhost/steps";
    let token = token_of(&listening, "", 100);
    assert_eq!(client.put_token(steps, &token).await, 202);
    let sent = client.send(sender, 0, message("x")).await;
    assert_eq!(sent, kew_amqp::performative::DeliveryState::ACCEPTED);
    let receiver = client.receiver("jobs").await.unwrap();
    let same = "amqps://localhost:5671/JOBS/";
    // The client learns of the link before it gets the answer.
    let audience = Map::build(|map| {
        map.entry("operation", "put-token");
        map.entry("name", same);
    });
    let token = Text::from(token_of(&listening, "jobs", 100).as_str());
    let requests = client.sender("$cbs").await.unwrap();
    let mut payload = BytesMut::new();
    write_application_properties(&mut payload, &audience);
    write_value(&mut payload, &token);
    client.can_send(requests).await;
    let parts = [payload.freeze(), Bytes::new()];
    let outgoing = Outgoing {
        tag: Tag::from([8; 16]),
        message_format: 0,
        is_settled: true,
        state: None,
    };
    client.connection.send(requests, outgoing, parts).unwrap();
    assert_eq!(detached(&mut client, sender).await, UNAUTHORIZED);
    let refused = client.sender("jobs").await.unwrap_err();
    assert_eq!(refused.condition, UNAUTHORIZED);
    // Links that are still allowed stay.
    server.trusted().await.send_one("jobs", "y").await;
    client.connection.grant(receiver, 2);
    for _ in 0..2 {
        client.delivery().await;
    }
}

#[tokio::test]
async fn links_end_with_the_rule_of_their_queue() {
    let server = server(None, LOCAL).await;
    let rule = rule("r", &[Right::Send]);
    server.add_rule(Some("JOBS"), rule.clone()).await.unwrap();
    let mut client = stranger(&server).await;
    let token = token_of(&rule, "jobs", 100);
    assert_eq!(client.put_token(JOBS, &token).await, 202);
    let sender = client.sender("jobs").await.unwrap();
    server.remove_rule(Some("jobs"), "R").await.unwrap();
    assert_eq!(detached(&mut client, sender).await, UNAUTHORIZED);
    assert_eq!(client.put_token(JOBS, &token).await, 401);
    let missing = server.remove_rule(Some("jobs"), "r").await;
    assert!(matches!(missing, Err(PrincipalError::NotFound("rule", _))));
}

#[tokio::test]
async fn links_end_with_the_key_of_their_token_and_the_others_stay() {
    let server = server(None, LOCAL).await;
    let rule = rule("r", &[Right::Send]);
    server.add_rule(None, rule.clone()).await.unwrap();
    let by_secondary = AuthorizationRule {
        primary_key: rule.secondary_key.clone(),
        ..rule.clone()
    };
    let mut first = stranger(&server).await;
    let mut second = stranger(&server).await;
    let put = first.put_token(JOBS, &token_of(&rule, "jobs", 100)).await;
    assert_eq!(put, 202);
    let token = token_of(&by_secondary, "jobs", 100);
    assert_eq!(second.put_token(JOBS, &token).await, 202);
    let lost = first.sender("jobs").await.unwrap();
    let kept = second.sender("jobs").await.unwrap();
    let rules = server.api.rules();
    let changed = rules.rotate(&RuleScope::Namespace, "r", WhichKey::Primary);
    let changed = changed.await.unwrap();
    assert_eq!(changed.secondary_key, rule.secondary_key);
    assert_eq!(changed.modified_at_ms, BEGIN_S * 1000);
    assert_eq!(detached(&mut first, lost).await, UNAUTHORIZED);
    second.send(kept, 0, message("x")).await;
    let put = first
        .put_token(JOBS, &token_of(&changed, "jobs", 100))
        .await;
    assert_eq!(put, 202);
}

#[tokio::test]
async fn passwords_end_with_their_rule() {
    let server = server(None, LOCAL).await;
    let rule = rule("r", &[Right::Send]);
    server.add_rule(None, rule.clone()).await.unwrap();
    let response = format!("\0r\0{}", rule.primary_key);
    let mut client = server.connect("PLAIN", Some(&response));
    client.begun().await;
    let sender = client.sender("jobs").await.unwrap();
    server.remove_rule(None, "r").await.unwrap();
    assert_eq!(detached(&mut client, sender).await, UNAUTHORIZED);
}

#[tokio::test]
async fn a_rule_of_a_queue_signs_for_no_more_than_that_queue() {
    let server = server(None, LOCAL).await;
    let rule = rule("r", &[Right::Manage]);
    server.add_rule(Some("jobs"), rule.clone()).await.unwrap();
    let mut client = stranger(&server).await;
    for (audience, path, status) in [
        ("sb://localhost/", "", 401),
        ("sb://localhost/steps", "steps", 401),
        ("sb://localhost/steps", "jobs", 401),
        ("sb://localhost/absent", "absent", 401),
        ("sb://localhost/not a queue", "not a queue", 401),
        ("sb://localhost/Jobs/$management", "jobs/$management", 202),
        ("sb://localhost/jobs", "jobs", 202),
    ] {
        let token = token_of(&rule, path, 100);
        assert_eq!(client.put_token(audience, &token).await, status, "{path}");
    }
    client.sender("jobs").await.unwrap();
    assert!(client.sender("steps").await.is_err());
}

#[tokio::test]
async fn the_public_key_is_served_where_it_may_be() {
    let elsewhere = Origin {
        public_key: Err(Barred::Listener),
        ..LOCAL
    };
    let well_known = AuthorizationRule::well_known();
    for (origin, status) in [(LOCAL, 202), (elsewhere, 401)] {
        let server = server(None, origin).await;
        let mut client = stranger(&server).await;
        let token = token_of(&well_known, "jobs", 100);
        assert_eq!(client.put_token(JOBS, &token).await, status);
        // A new rule with the same name is another rule.
        let mut own = rule("other", &[Right::Send]);
        own.name = well_known.name.clone();
        server.add_rule(None, own.clone()).await.unwrap();
        let token = token_of(&own, "jobs", 100);
        assert_eq!(client.put_token(JOBS, &token).await, 202);
    }
}

#[tokio::test]
async fn invalid_rules_are_refused() {
    let server = server(None, LOCAL).await;
    for entity in [None, Some("jobs")] {
        for index in 0..12 {
            let rule = rule(&format!("r{index}"), &[Right::Listen]);
            server.add_rule(entity, rule).await.unwrap();
        }
        let one_more = server.add_rule(entity, rule("r12", &[Right::Send])).await;
        let Err(PrincipalError::Invalid(too_many)) = one_more else {
            panic!("{one_more:?}");
        };
        assert_eq!(
            too_many.downcast_ref::<InvalidRule>(),
            Some(&InvalidRule::TooMany(13))
        );
        let twice = server.add_rule(entity, rule("R3", &[Right::Send])).await;
        assert!(matches!(twice, Err(PrincipalError::Exists(_, name)) if *name == *"R3"));
        let all = server.api.rules().list(&RuleScope::of(entity)).await;
        assert_eq!(all.unwrap().len(), 12);
    }
    let absent = server
        .add_rule(Some("absent"), rule("r", &[Right::Send]))
        .await;
    assert_eq!(
        absent.unwrap_err().to_string(),
        "there is no queue \"absent\""
    );
    let no_name = RuleScope::of(Some("jobs/$deadletterqueue"));
    let no_name = server.api.rules().list(&no_name).await;
    assert!(matches!(no_name, Err(PrincipalError::Invalid(_))));
}

#[tokio::test]
async fn links_end_with_the_right_that_their_rule_loses() {
    let server = server(None, LOCAL).await;
    for (queue, name) in [(None, "all"), (Some("jobs"), "own")] {
        let rule = rule(name, &[Right::Send, Right::Listen]);
        server.add_rule(queue, rule.clone()).await.unwrap();
        let mut client = stranger(&server).await;
        let token = token_of(&rule, "jobs", 100);
        assert_eq!(client.put_token(JOBS, &token).await, 202);
        let sender = client.sender("jobs").await.unwrap();
        let receiver = client.receiver("jobs").await.unwrap();
        let scope = RuleScope::of(queue);
        let listens = |rule: &mut AuthorizationRule| {
            rule.rights = [Right::Listen].into_iter().collect();
        };
        let changed = server.api.rules().change(&scope, name, listens).await;
        let changed = changed.unwrap();
        assert_eq!(changed.primary_key, rule.primary_key);
        assert_eq!(changed.modified_at_ms, BEGIN_S * 1000);
        assert_eq!(detached(&mut client, sender).await, UNAUTHORIZED);
        assert_eq!(
            client.sender("jobs").await.unwrap_err().condition,
            UNAUTHORIZED
        );
        // The remaining rights still apply.
        client.connection.grant(receiver, 1);
        server.trusted().await.send_one("jobs", "y").await;
        client.delivery().await;

        let nothing = |rule: &mut AuthorizationRule| rule.rights = Rights::default();
        let refused = server.api.rules().change(&scope, name, nothing).await;
        assert!(matches!(refused, Err(PrincipalError::Invalid(_))));
        let kept = server.api.rules().find(&scope, name).await.unwrap();
        assert_eq!(kept, changed);
    }
}

/// An issuer whose tokens the server trusts.
struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn issuer(&self) -> Issuer {
        self.issuer_named("https://issuer.example")
    }

    fn issuer_named(&self, name: &str) -> Issuer {
        let point = self.0.public_key().as_ref();
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
        let key = json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "kid": "k",
            "x": part(1..33), "y": part(33..65),
        });
        let issuer = Issuer::new(IssuerOptions::new(name));
        let keys = json!({ "keys": [key] }).to_string();
        issuer.replace_keys(keys.as_bytes()).unwrap();
        issuer
    }

    fn token(&self, claims: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "ES256", "kid": "k"});
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let random = SystemRandom::new();
        let signature = self.0.sign(&random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn claims(role: &str) -> Value {
    json!({
        "iss": "https://issuer.example", "aud": "https://servicebus.azure.net",
        "nbf": BEGIN_S, "exp": BEGIN_S + 100, "sub": "user", "roles": [role],
    })
}

#[tokio::test]
async fn the_audit_log_names_the_user_of_a_token() {
    crate::audit::listen();
    let signer = Signer::new();
    let server = server(Some(signer.issuer()), SECURE).await;
    let mut claims = claims("Azure Service Bus Data Owner");
    claims["sub"] = json!("\u{202e}\"".to_owned() + &"u".repeat(252));
    let bearer = format!("Bearer {}", signer.token(&claims));
    let authorization = [("Authorization", bearer.as_str())];
    let answer = ask_as(&server, "DELETE", "audit.user", &authorization, "").await;
    assert_eq!(answer.status, 404, "{answer:?}");
    let record = crate::audit::record_with("entity=\"audit.user\"").await;
    // Escaped, so that it cannot imitate anything.
    let by = format!("by=\"user \\u{{202e}}\\\"{}\" ", "u".repeat(252));
    assert!(record.contains(&by), "{record}");
    let rule = rule("manager", &[Right::Manage]);
    server.add_rule(Some("jobs"), rule.clone()).await.unwrap();
    let token = token_of(&rule, "jobs", 100);
    let authorization = [("Authorization", token.as_str())];
    let answer = ask_as(&server, "PUT", "jobs", &authorization, "").await;
    assert_eq!(answer.status, 400, "{answer:?}");
    crate::audit::record_with("by=\"rule manager of the queue jobs\"").await;
}

const SECURE: Origin = Origin {
    is_secure: true,
    ..LOCAL
};

#[tokio::test]
async fn tokens_of_the_issuer_have_the_rights_of_their_role() {
    let signer = Signer::new();
    let server = server(Some(signer.issuer()), SECURE).await;
    for (role, may_send, may_listen) in [
        ("Azure Service Bus Data Owner", true, true),
        ("AzureServiceBusDataOwner", true, true),
        ("Azure Service Bus Data Sender", true, false),
        ("Azure Service Bus Data Receiver", false, true),
        ("Storage Queue Data Contributor", false, false),
        ("nobody", false, false),
    ] {
        let mut client = stranger(&server).await;
        let token = signer.token(&claims(role));
        let expected = if may_send || may_listen { 202 } else { 401 };
        assert_eq!(client.put_token(JOBS, &token).await, expected, "{role}");
        assert_eq!(client.sender("steps").await.is_ok(), may_send, "{role}");
        assert_eq!(client.receiver("jobs").await.is_ok(), may_listen, "{role}");
        let requests = client.sender("jobs/$management").await;
        assert_eq!(requests.is_ok(), may_send || may_listen, "{role}");
    }
}

#[tokio::test]
async fn tokens_of_an_issuer_that_do_not_hold_are_refused() {
    let signer = Signer::new();
    let good = claims("Azure Service Bus Data Owner");
    let with = |claim: &str, value: Value| {
        let mut claims = good.clone();
        claims[claim] = value;
        signer.token(&claims)
    };
    let trusting = server(Some(signer.issuer()), SECURE).await;
    let mut client = stranger(&trusting).await;
    let slash = with("aud", json!("https://servicebus.azure.net/"));
    assert_eq!(client.put_token(JOBS, &slash).await, 202);
    for token in [
        with("aud", json!("https://storage.azure.com")),
        with("iss", json!("https://other.example")),
        with("exp", json!(BEGIN_S - 60)),
        with("nbf", json!(BEGIN_S + 61)),
        Signer::new().token(&good),
        "eyJhbGciOi".to_owned(),
    ] {
        assert_eq!(client.put_token(JOBS, &token).await, 401, "{token}");
    }
    let token = signer.token(&good);
    for other in [
        server(None, SECURE).await,
        server(Some(signer.issuer()), LOCAL).await,
    ] {
        let mut client = stranger(&other).await;
        assert_eq!(client.put_token(JOBS, &token).await, 401);
    }
}

#[tokio::test]
async fn each_of_several_issuers_signs_with_its_own_keys() {
    let (one, two) = (Signer::new(), Signer::new());
    let names = ["https://one.example", "https://two.example"];
    let server = server(
        [one.issuer_named(names[0]), two.issuer_named(names[1])],
        SECURE,
    )
    .await;
    let mut client = stranger(&server).await;
    for (signer, name, status) in [
        (&one, names[0], 202),
        (&two, names[1], 202),
        (&one, names[1], 401),
        (&two, names[0], 401),
        (&one, "https://issuer.example", 401),
    ] {
        let mut claims = claims("Azure Service Bus Data Owner");
        claims["iss"] = json!(name);
        // Not every issuer sets the time when a token becomes valid.
        claims.as_object_mut().unwrap().remove("nbf");
        let put = client.put_token(JOBS, &signer.token(&claims)).await;
        assert_eq!(put, status, "{name}");
    }
}

#[tokio::test]
async fn links_end_with_the_token_of_the_issuer() {
    let signer = Signer::new();
    let server = server(Some(signer.issuer()), SECURE).await;
    let mut client = stranger(&server).await;
    let token = signer.token(&claims("Azure Service Bus Data Sender"));
    assert_eq!(client.put_token(JOBS, &token).await, 202);
    let sender = client.sender("jobs").await.unwrap();
    // A change of rules does not affect it.
    server
        .add_rule(None, rule("r", &[Right::Send]))
        .await
        .unwrap();
    later(159);
    client.send(sender, 0, message("x")).await;
    let refused = client.receiver("steps").await.unwrap_err();
    assert_eq!(refused.condition, UNAUTHORIZED);
    later(1);
    // The server checks its clock when it reads something.
    let empty_frame = [0, 0, 0, 8, 2, 0, 0, 0];
    client.stream.write_all(&empty_frame).await.unwrap();
    assert_eq!(detached(&mut client, sender).await, UNAUTHORIZED);
}

/// A subscription is under the rules of its topic and of the namespace.
#[tokio::test]
async fn a_topic_has_rules_and_a_subscription_has_none() {
    let server = Server::start().await;
    let options = BusQueueOptions::default();
    let (topic, subscription) = (queue_named("t"), queue_named("t/subscriptions/s"));
    for create in [
        BusCommand::CreateTopic {
            topic: topic.clone(),
            options: options.clone(),
        },
        BusCommand::CreateSubscription {
            topic,
            subscription,
            options,
            rule: None,
        },
    ] {
        server.order(create).await;
    }
    let api = server.api();
    let rules = api.rules();
    let scope = |name: &str| RuleScope::Queue(name.into());
    let added = rules.add(&scope("T"), rule("r", &[Right::Send])).await;
    added.unwrap();
    let names = |rules: Vec<AuthorizationRule>| {
        let names = rules.into_iter().map(|rule| rule.name.to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(rules.list(&scope("t")).await.unwrap()), ["r"]);
    let of_subscription = scope("t/subscriptions/s");
    let refused = rules
        .add(&of_subscription, rule("r", &[Right::Listen]))
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("use a rule of its topic"), "{refused}");
    assert!(rules.list(&of_subscription).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_rule_of_a_topic_signs_for_its_subscriptions() {
    let server = server(None, LOCAL).await;
    let options = BusQueueOptions::default();
    let topic = queue_named("events");
    server
        .order(BusCommand::CreateTopic {
            topic: topic.clone(),
            options: options.clone(),
        })
        .await;
    for name in ["a", "b"] {
        server
            .order(BusCommand::CreateSubscription {
                topic: topic.clone(),
                subscription: queue_named(&format!("events/subscriptions/{name}")),
                options: options.clone(),
                rule: None,
            })
            .await;
    }
    let rule = rule("r", &[Right::Listen]);
    server.add_rule(Some("events"), rule.clone()).await.unwrap();
    // One token for the topic is for all its subscriptions.
    let mut client = stranger(&server).await;
    for (path, status) in [("jobs", 401), ("events", 202)] {
        let audience = format!("sb://localhost/{path}");
        let token = token_of(&rule, path, 100);
        assert_eq!(client.put_token(&audience, &token).await, status, "{path}");
    }
    for address in ["a", "b", "b/$DeadLetterQueue"] {
        let address = format!("Events/Subscriptions/{address}");
        client.receiver(&address).await.unwrap();
    }
    assert!(client.sender("events").await.is_err());
    assert!(client.receiver("jobs").await.is_err());
    // A token for one subscription is for that one, and ends with the rule of the topic.
    let mut client = stranger(&server).await;
    let token = token_of(&rule, "events/subscriptions/a", 100);
    let audience = "sb://localhost/Events/Subscriptions/A";
    assert_eq!(client.put_token(audience, &token).await, 202);
    let receiver = client.receiver("events/subscriptions/a").await.unwrap();
    assert!(client.receiver("events/subscriptions/b").await.is_err());
    let api = server.api();
    let scope = RuleScope::Queue("events".into());
    api.rules().remove(&scope, "r", ()).await.unwrap();
    assert_eq!(detached(&mut client, receiver).await, UNAUTHORIZED);
}
