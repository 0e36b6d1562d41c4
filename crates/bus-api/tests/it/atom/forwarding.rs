//! Destinations of forwarding, under all their names.

use kew_bus_api::{AuthorizationRule, Right, WELL_KNOWN_KEY};

use super::ask;
use crate::client::{Server, token, token_by};
use crate::rest;

#[tokio::test]
async fn every_name_of_the_server_may_stand_in_a_destination() {
    let server = Server::start().await;
    for address in [
        "sb://localhost:1/jobs",
        "amqps://127.0.0.1/jobs",
        "https://127.1.2.3:5300/jobs",
        "sb://[::1]:5672/jobs",
        "sb://[0:0:0:0:0:0:0:1]/jobs",
        "sb://192.0.2.1/jobs",
        "sb://sbemulatorns/jobs",
        "sb://h:9/jobs",
    ] {
        let elements = format!("<ForwardTo>{address}</ForwardTo>");
        let put = ask("PUT", "/from").queue(&elements).forwards();
        let created = put.of(&server).await.check(201);
        assert_eq!(created.text("ForwardTo"), "sb://ns.example:5300/jobs");
        // A name grants nothing: without a right to the destination the request is refused.
        let own = token("sb://ns.example/other", WELL_KNOWN_KEY, 100);
        let other = ask("PUT", "/other").queue(&elements);
        let other = other
            .header("Authorization", &own)
            .header("ServiceBusSupplementaryAuthorization", &own);
        other.plain(&server).await.check(401);
        ask("DELETE", "/from").of(&server).await.check(200);
    }
}

#[tokio::test]
async fn a_queue_may_forward_to_itself_and_from_sessions() {
    let server = Server::start().await;
    for elements in [
        "<ForwardTo>sb://ns.example/from</ForwardTo>",
        "<ForwardDeadLetteredMessagesTo>FROM</ForwardDeadLetteredMessagesTo>",
        "<RequiresSession>true</RequiresSession><ForwardTo>jobs</ForwardTo>",
    ] {
        let put = || ask("PUT", "/from").queue(elements).forwards();
        put().of(&server).await.check(201);
        put().header("If-Match", "*").of(&server).await.check(200);
        ask("DELETE", "/from").of(&server).await.check(200);
    }
}

#[tokio::test]
async fn a_dead_letter_says_that_its_destination_is_unavailable() {
    let server = Server::start().await;
    let put = ask("PUT", "/from").queue("<ForwardTo>jobs</ForwardTo>");
    put.forwards().of(&server).await.check(201);
    ask("DELETE", "/jobs").of(&server).await.check(200);
    let sent = rest::ask(&server, "POST", "from/messages", &[], "x").await;
    assert_eq!(sent.status, 201, "{sent:?}");
    let path = "from/$DeadLetterQueue/messages/head?timeout=10";
    let dead = rest::ask(&server, "DELETE", path, &[], "").await;
    assert_eq!((dead.status, dead.body.as_str()), (200, "x"));
    assert_eq!(
        dead.header("DeadLetterReason"),
        Some("\"ForwardingDestinationUnavailable\"")
    );
}

#[tokio::test]
async fn a_host_that_a_client_made_up_is_not_the_namespace() {
    let server = Server::start().await;
    let rule = AuthorizationRule::generate("r", [Right::Manage].into_iter().collect(), 1).unwrap();
    server.add_rule(None, rule.clone()).await.unwrap();
    let expiry = u64::MAX / 2;
    let own = token_by("r", "sb://tenant1/tenant1", &rule.primary_key, expiry);
    for (host, status) in [("tenant1", 401), ("localhost", 201)] {
        let bare = token_by("r", host, &rule.primary_key, expiry);
        let put = ask("PUT", "/tenant1").queue("<ForwardTo>jobs</ForwardTo>");
        let put = put
            .header("Host", host)
            .header("Authorization", &own)
            .header("ServiceBusSupplementaryAuthorization", &bare);
        put.plain(&server).await.check(status);
    }
}
