//! Sharing with browsers: checklist 86.

use crate::client::{Answer, Call, Door, Wire, call};
use crate::properties::cors as rule;

async fn set(wire: &mut Wire, rules: &[String]) {
    let body = format!(
        "<StorageServiceProperties><Cors>{}</Cors></StorageServiceProperties>",
        rules.concat()
    );
    let set = call("PUT", "/?restype=service&comp=properties").body(body);
    wire.send(set).await.check_status(202);
}

/// A browser's preflight for a get, from a page of this origin.
fn preflight(origin: &str, target: &str) -> Call {
    call("OPTIONS", target)
        .anonymous()
        .without("x-ms-version")
        .without("x-ms-date")
        .header("Origin", origin)
        .header("Access-Control-Request-Method", "GET")
}

#[track_caller]
fn check_shared(answer: &Answer, origin: Option<&str>) {
    assert_eq!(
        answer.header("access-control-allow-origin"),
        origin,
        "{answer:?}"
    );
}

#[tokio::test]
async fn item_86_preflight() {
    let door = Door::open();
    let wire = &mut door.connect();
    let ask = |origin| preflight(origin, "/orders/messages?numofmessages=1");
    wire.send(ask("http://a"))
        .await
        .check_error(403, "CorsPreflightFailure");
    set(wire, &[rule("http://a"), rule("http://b,http://c")]).await;

    // It needs neither an existing queue nor a credential.
    let headers = "x-ms-version,x-ms-date";
    let asked = ask("http://c").header("Access-Control-Request-Headers", headers);
    let answer = wire.send(asked).await;
    answer.check_status(200);
    for (name, value) in [
        ("access-control-allow-origin", "http://c"),
        ("access-control-allow-methods", "GET"),
        ("access-control-allow-headers", headers),
        ("access-control-max-age", "200"),
        ("access-control-allow-credentials", "true"),
        ("content-length", "0"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{answer:?}");
    }
    assert!(answer.header("x-ms-request-id").is_some());
    for refused in [
        ask("http://d"),
        ask("http://a").header("Access-Control-Request-Method", "PUT"),
        ask("http://a").header("Access-Control-Request-Headers", "authorization"),
    ] {
        let answer = wire.send(refused).await;
        answer.check_error(403, "CorsPreflightFailure");
        check_shared(&answer, None);
    }
    for (lacking, name) in [
        (ask("x").without("Origin"), "Origin"),
        (
            ask("x").without("Access-Control-Request-Method"),
            "Access-Control-Request-Method",
        ),
    ] {
        let answer = wire.send(lacking.version("2026-10-06")).await;
        answer
            .check_error(400, "InvalidHeaderValue")
            .check_element("HeaderName", name);
        let message = answer.element("Message").unwrap();
        assert!(message.starts_with("A required CORS header is not present.\n"));
    }
    for target in [
        "/",
        "/?comp=list",
        "/orders",
        "/orders/messages/1?popreceipt=x",
    ] {
        wire.send(preflight("http://a", target))
            .await
            .check_status(200);
    }
    wire.send(preflight("http://a", "").target("/nobody/orders"))
        .await
        .check_error(404, "ResourceNotFound");
}

#[tokio::test]
async fn item_86_actual_requests_and_errors_are_shared() {
    let door = Door::open();
    let wire = &mut door.connect();
    let list = |origin: &str| call("GET", "/?comp=list").header("Origin", origin);
    let answer = wire.send(list("http://a")).await;
    check_shared(&answer, None);
    assert_eq!(answer.header("vary"), None);
    set(wire, &[rule("http://a")]).await;

    let missing = call("GET", "/orders/messages").header("Origin", "http://a");
    for (call, status) in [
        (list("http://a"), 200),
        (missing.clone(), 404),
        (missing.clone().anonymous(), 401),
        (list("http://a").authorization("SharedKey x"), 400),
    ] {
        let answer = wire.send(call).await;
        answer.check_status(status);
        check_shared(&answer, Some("http://a"));
        assert_eq!(answer.header("vary"), Some("Origin"));
        assert_eq!(
            answer.header("access-control-allow-credentials"),
            Some("true")
        );
        let exposed = answer.header("access-control-expose-headers").unwrap();
        assert!(
            exposed.split(',').any(|name| name == "x-ms-request-id"),
            "{exposed}"
        );
    }
    let put = call("PUT", "/orders").header("Origin", "http://a");
    // With the public key, a request that no rule allows is refused.
    for call in [list("http://b"), put] {
        let answer = wire.send(call).await;
        answer.check_error(403, "AuthorizationFailure");
        check_shared(&answer, None);
        assert_eq!(answer.header("vary"), Some("Origin"));
    }
    let answer = wire.send(call("GET", "/?comp=list")).await;
    check_shared(&answer, None);
}

#[tokio::test]
async fn item_86_rules_act_at_once_on_every_connection() {
    let door = Door::open();
    let (one, two) = (&mut door.connect(), &mut door.connect());
    let list = |origin: &str| call("GET", "/?comp=list").header("Origin", origin);
    for number in 0..10 {
        let origin = format!("http://{number}");
        set(one, &[rule(&origin)]).await;
        check_shared(&two.send(list(&origin)).await, Some(&origin));
        check_shared(&two.send(list("http://other")).await, None);
    }
    set(one, &[rule("*")]).await;
    let answer = two.send(list("http://any")).await;
    check_shared(&answer, Some("*"));
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    set(one, &[]).await;
    check_shared(&two.send(list("http://any")).await, None);
}

#[tokio::test]
async fn item_86_a_page_can_read_the_error_of_its_query() {
    let door = Door::open();
    let wire = &mut door.connect();
    set(wire, &[rule("http://a")]).await;
    for wrong in ["timeout=soon", "prefix=a&prefix=b"] {
        let target = format!("/?comp=list&{wrong}");
        let list = call("GET", "").target(&format!("/devstoreaccount1{target}"));
        let answer = wire.send(list.header("Origin", "http://a")).await;
        answer.check_status(400);
        check_shared(&answer, Some("http://a"));
    }
}

#[tokio::test]
async fn item_86_the_cached_rules_are_those_set_last() {
    let door = Door::open();
    let target = "/?restype=service&comp=properties";
    for round in 0..20 {
        let origins: Vec<String> = (0..4).map(|n| format!("http://{round}.{n}")).collect();
        let setting = origins.iter().map(|origin| {
            let mut wire = door.connect();
            let rules = [rule(origin)];
            async move { set(&mut wire, &rules).await }
        });
        let tasks: Vec<_> = setting.map(tokio::spawn).collect();
        for task in tasks {
            task.await.unwrap();
        }
        let stored = door.send(call("GET", target)).await;
        let last = stored.element("AllowedOrigins").unwrap();
        let list = call("GET", "/?comp=list").header("Origin", last);
        check_shared(&door.send(list).await, Some(last));
    }
}
