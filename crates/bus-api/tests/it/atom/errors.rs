//! Every refusal, in the service's form.

use kew_bus_api::{AuthorizationRule, Right, WELL_KNOWN_KEY};

use super::{ask, create, update};
use crate::client::{Server, token, token_by};

#[tokio::test]
async fn existing_and_missing_queues() {
    let server = Server::start().await;
    create(&server, "/jobs", "")
        .await
        .check_refused(409, 40_900, "'jobs' exists already");
    update(&server, "/nothing", "")
        .await
        .check_refused(404, 40_400, "'nothing'");
    let other = ask("PUT", "/jobs")
        .header("If-Match", "\"1\"")
        .queue("")
        .of(&server)
        .await;
    other.check_refused(400, 40_000, "must be *");
    ask("DELETE", "/nothing")
        .of(&server)
        .await
        .check_refused(404, 40_400, "'nothing'");
    let posted = ask("POST", "/jobs").of(&server).await.check(405);
    assert!(
        posted.head.contains("allow: GET, PUT, DELETE"),
        "{}",
        posted.head
    );
}

#[tokio::test]
async fn names_that_no_queue_can_have() {
    let server = Server::start().await;
    let long = "a".repeat(261);
    for name in ["a b", "-a", "a/$DeadLetterQueue", "$x", &long] {
        let path = format!("/{}", name.replace(' ', "%20"));
        create(&server, &path, "")
            .await
            .check_refused(400, 40_000, "not valid");
        ask("GET", &path)
            .of(&server)
            .await
            .check_refused(404, 40_400, name);
        ask("DELETE", &path)
            .of(&server)
            .await
            .check_refused(404, 40_400, name);
    }
    // A sub-queue exists, but is not managed.
    let read = ask("GET", "/jobs/$DeadLetterQueue").of(&server).await;
    read.check_refused(404, 40_400, "jobs/$DeadLetterQueue");
}

#[tokio::test]
async fn an_invalid_value_is_named_with_the_allowed_ones() {
    let server = Server::start().await;
    for (name, value, says) in [
        ("LockDuration", "1 minute", "a duration of ISO 8601"),
        ("LockDuration", "", "a duration of ISO 8601"),
        ("LockDuration", "PT4S", "5 s to 5 min"),
        ("LockDuration", "PT6M", "5 s to 5 min"),
        ("MaxSizeInMegabytes", "0", "1 to 1073741824"),
        ("MaxSizeInMegabytes", "x", "1 to 1073741824"),
        ("RequiresSession", "yes", "true or false"),
        ("DefaultMessageTimeToLive", "PT0.5S", "at least 1 s"),
        ("MaxDeliveryCount", "0", "1 to 2147483647"),
        ("MaxDeliveryCount", "2147483648", "1 to 2147483647"),
        ("IsAnonymousAccessible", "true", "must be false"),
        (
            "Status",
            "Restoring",
            "Active, Disabled, SendDisabled or ReceiveDisabled",
        ),
        ("AutoDeleteOnIdle", "PT4M", "at least 5 min"),
        ("MaxMessageSizeInKilobytes", "1025", "1 to 1024"),
        ("UserMetadata", &"m".repeat(1025), "at most 1024 characters"),
        (
            "LockDuration",
            "PT1M</LockDuration><LockDuration>PT1M",
            "a second LockDuration",
        ),
    ] {
        let elements = format!("<{name}>{value}</{name}>");
        let refused = create(&server, "/new", &elements).await;
        assert!(refused.body.contains(name), "{refused:?}");
        refused.check_refused(400, 40_000, says);
    }
    let window = "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>\
        <DuplicateDetectionHistoryTimeWindow>PT19S</DuplicateDetectionHistoryTimeWindow>";
    create(&server, "/new", window)
        .await
        .check_refused(400, 40_000, "20 s to 7 days");
    ask("GET", "/new").of(&server).await.check(404);
}

#[tokio::test]
async fn rules_that_cannot_be() {
    let server = Server::start().await;
    let listen = "<Rights><AccessRights>Listen</AccessRights></Rights>";
    let named = |name: &str| {
        format!("<AuthorizationRule>{listen}<KeyName>{name}</KeyName></AuthorizationRule>")
    };
    let rule = |inner: &str| format!("<AuthorizationRule>{inner}</AuthorizationRule>");
    for (rules, says) in [
        (rule(listen), "KeyName"),
        (rule("<KeyName>r</KeyName>"), "no right"),
        (named("a b"), "a b"),
        (named("r") + &named("R"), "two rules"),
        (
            (0..13).map(|n| named(&n.to_string())).collect(),
            "13 authorization rules",
        ),
        (
            rule("<KeyName>r</KeyName><Rights><AccessRights>All</AccessRights></Rights>"),
            "Manage, Send or Listen",
        ),
        (
            rule(&format!(
                "<ClaimType>X</ClaimType>{listen}<KeyName>r</KeyName>"
            )),
            "SharedAccessKey",
        ),
        ("<Rule/>".to_owned(), "Rule"),
    ] {
        let elements = format!("<AuthorizationRules>{rules}</AuthorizationRules>");
        create(&server, "/new", &elements)
            .await
            .check_refused(400, 40_000, says);
    }
}

#[tokio::test]
async fn bodies_that_are_no_descriptions() {
    let server = Server::start().await;
    for body in [
        "",
        "text",
        "<entry/>",
        "<entry><content/></entry>",
        "<feed><content><QueueDescription/></content></feed>",
        "<entry><content><Other/></content></entry>",
        "<!DOCTYPE entry [<!ENTITY x 'y'>]><entry><content><QueueDescription/></content></entry>",
        "<entry><content><QueueDescription>",
    ] {
        let mut put = ask("PUT", "/new");
        put.body = body.to_owned();
        put.of(&server).await.check_refused(400, 40_000, "");
    }
}

#[tokio::test]
async fn requests_without_the_right_to_manage_are_refused() {
    let server = Server::start().await;
    let elements = "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights>\
        </Rights><KeyName>RootManageSharedAccessKey</KeyName><PrimaryKey>own</PrimaryKey>\
        </AuthorizationRule></AuthorizationRules>";
    create(&server, "/own", elements).await.check(201);
    let sends = token("http://ns.example/own", "own", 100);
    for method in ["GET", "PUT", "DELETE"] {
        let refused = ask(method, "/own")
            .queue("")
            .header("Authorization", &sends);
        let refused = refused.plain(&server).await.check(401);
        assert!(
            refused.body.contains("'Manage' claim(s) are required"),
            "{refused:?}"
        );
    }
    // A token for one queue opens neither another nor the namespace.
    let jobs = token("http://ns.example/jobs", WELL_KNOWN_KEY, 100);
    for path in ["/steps", "/$Resources/queues", "/$namespaceinfo"] {
        let refused = ask("GET", path).header("Authorization", &jobs);
        refused.plain(&server).await.check(401);
    }
    // SDKs sign the address of the request, some with its query.
    for resource in [
        "http://ns.example:5300/jobs",
        "http://ns.example/jobs?api-version=2021-05",
    ] {
        let token = token(resource, WELL_KNOWN_KEY, 100);
        let read = ask("GET", "/jobs?api-version=2021-05").header("Authorization", &token);
        read.plain(&server).await.check(200);
    }
}

#[tokio::test]
async fn a_refusal_has_the_id_that_is_in_the_log() {
    let server = Server::start().await;
    let begins = |answer: &super::Answer, detail: &str| {
        let begin = format!("<Error><Code>401</Code><Detail>{detail}");
        assert!(answer.body.starts_with(&begin), "{answer:?}");
        let id = " TrackingId:";
        assert_eq!(answer.body.matches(id).count(), 1, "{answer:?}");
        assert!(
            answer.body.contains(", SystemTracker:sbemulatorns:"),
            "{answer:?}"
        );
    };
    let wrong = token("http://ns.example", "wrong", 100);
    let narrow = token("http://ns.example/other", WELL_KNOWN_KEY, 100);
    for (method, target) in [
        ("GET", "/jobs"),
        ("PUT", "/jobs"),
        ("GET", "/$Resources/queues"),
        ("POST", "/jobs/messages"),
        ("DELETE", "/jobs/messages/head"),
    ] {
        let nobody = ask(method, target).plain(&server).await.check(401);
        begins(&nobody, "MissingToken: ");
        for (token, detail) in [
            (&wrong, "InvalidSignature: "),
            (&narrow, "InvalidAudience: "),
        ] {
            let asked = ask(method, target).header("Authorization", token);
            begins(&asked.plain(&server).await.check(401), detail);
        }
    }
    // The token is valid, but lacks the right.
    let rule = rule("sends", Right::Send);
    server.add_rule(None, rule.clone()).await.unwrap();
    let expiry = u64::MAX / 2;
    let token = token_by(&rule.name, "http://ns.example", &rule.primary_key, expiry);
    for (method, target, right) in [
        ("GET", "/jobs", "Manage"),
        ("DELETE", "/jobs/messages/head", "Listen"),
    ] {
        let asked = ask(method, target).header("Authorization", &token);
        let answer = asked.plain(&server).await.check(401);
        begins(
            &answer,
            &format!("SubCode=40100. Unauthorized: '{right}' claim(s) are required"),
        );
    }
}

fn rule(name: &str, right: Right) -> AuthorizationRule {
    AuthorizationRule::generate(name, [right].into_iter().collect(), 1).unwrap()
}
