//! Web pages with the public key: under their own name for this machine, or as another origin.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_broker::Broker;
use kew_listen::{ServerNames, ServerNamesOptions};
use kew_queue_api::{Account, AccountKey, Accounts, QueueApiOptions, Reach};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::client::{ACCOUNT, Call, Door, KEY, Wire, call, message, put};
use crate::properties::cors as rule;

const OTHER: &str = "team1";

/// A server with the name `kew.example`, the well-known account and another one with the same key.
fn door() -> Door {
    let key = AccountKey::from_base64(KEY).unwrap();
    let accounts = [ACCOUNT, OTHER];
    let accounts = accounts.map(|name| Account::new(name, key.clone(), key.clone()).unwrap());
    let names = ServerNamesOptions {
        given: vec!["kew.example".parse().unwrap()],
        ..ServerNamesOptions::default()
    };
    let options = QueueApiOptions {
        accounts: Accounts::from_iter(accounts),
        names: ServerNames::new(names),
        ..QueueApiOptions::default()
    };
    Door::with_options(Broker::start_in_memory().unwrap(), options)
}

/// A signature for everything in an account, as in the links of a page.
fn sas(account: &str) -> String {
    let (permissions, expiry, version) = ("rwdlacup", "2999-01-01T00:00:00Z", "2019-02-02");
    let signed = format!("{account}\n{permissions}\nq\nsco\n\n{expiry}\n\n\n{version}\n");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(KEY).unwrap());
    let signature = STANDARD.encode(hmac::sign(&key, signed.as_bytes()));
    let signature = utf8_percent_encode(&signature, NON_ALPHANUMERIC);
    format!("sv={version}&ss=q&srt=sco&sp={permissions}&se={expiry}&sig={signature}")
}

/// A request that a page can send without a preflight: no header of its own, and everything in the
/// link.
fn linked(method: &'static str, account: &str, rest: &str) -> Call {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let target = format!("/{account}{path}?{query}&{}", sas(account));
    call(method, "")
        .target(&target)
        .anonymous()
        .without("x-ms-version")
        .without("x-ms-date")
}

fn linked_put(account: &str) -> Call {
    linked("POST", account, "/orders/messages")
        .header("Content-Type", "text/plain")
        .body(message("from a page"))
}

async fn begin(wire: &mut Wire) {
    for account in [ACCOUNT, OTHER] {
        let create = linked("PUT", account, "/orders");
        wire.send(create).await.check_status(201);
    }
    wire.send(put("orders", "", "mine")).await.check_status(201);
}

/// Checks the number of messages, and that the first one is visible.
async fn check_untouched(wire: &mut Wire, count: &str) {
    let read = wire.send(call("GET", "/orders?comp=metadata")).await;
    let found = read.header("x-ms-approximate-messages-count");
    assert_eq!(found, Some(count), "{read:?}");
    let peek = call("GET", "/orders/messages?peekonly=true");
    wire.send(peek).await.check_element("MessageText", "mine");
}

#[tokio::test]
async fn a_name_that_points_here_is_refused_with_the_public_key() {
    let door = door();
    let wire = &mut door.connect();
    begin(wire).await;
    for host in [
        "evil.example:10001",
        "devstoreaccount1.evil.example:10001",
        "devstoreaccount1.queue.evil.example",
        "localhost.evil.example",
        "10.0.0.5:10001",
    ] {
        for (page, site) in [
            (None, None),
            (Some(format!("http://{host}")), Some("same-origin")),
        ] {
            let with = |call: Call| {
                let call = call.header("Host", host);
                let call = page
                    .iter()
                    .fold(call, |call, page| call.header("Origin", page));
                site.iter()
                    .fold(call, |call, site| call.header("Sec-Fetch-Site", site))
            };
            let in_host = host.starts_with(ACCOUNT);
            let target = if in_host { "/orders/messages" } else { "" };
            let get = call("GET", "/orders/messages");
            let get = if in_host { get.target(target) } else { get };
            let refused = wire.send(with(get)).await;
            refused.check_error(403, "AuthorizationFailure");
            for says in ["--server-name", &format!("'{host}'")] {
                assert!(refused.body.contains(says), "{says}: {refused:?}");
            }
        }
        if !host.starts_with(ACCOUNT) {
            let link = linked("GET", ACCOUNT, "/orders/messages?visibilitytimeout=604800");
            let refused = wire.send(link.header("Host", host)).await;
            refused.check_error(403, "AuthorizationFailure");
        }
        // A secret key is enough.
        let own = linked("GET", OTHER, "/orders/messages").header("Host", host);
        wire.send(own)
            .await
            .check_status(if host.starts_with(ACCOUNT) { 400 } else { 200 });
    }
    check_untouched(wire, "1").await;
}

#[tokio::test]
async fn the_servers_own_names_work_with_and_without_the_account() {
    let door = door();
    let wire = &mut door.connect();
    begin(wire).await;
    for host in [
        "localhost",
        "127.0.0.1:10001",
        "127.4.5.6",
        "[::1]:10001",
        "kew.example",
    ] {
        let list = call("GET", "/?comp=list").header("Host", host);
        wire.send(list).await.check_status(200);
    }
    for host in [
        "devstoreaccount1.queue.localhost:10001",
        "DevStoreAccount1.queue.kew.example",
        "devstoreaccount1.kew.example:10001",
        "devstoreaccount1-secondary.queue.localhost",
    ] {
        let list = call("GET", "").target("/?comp=list").header("Host", host);
        wire.send(list).await.check_status(200);
    }
}

#[tokio::test]
async fn a_page_of_another_origin_is_refused_with_the_public_key() {
    let door = door();
    let wire = &mut door.connect();
    begin(wire).await;
    let hide = |account| linked("GET", account, "/orders/messages?visibilitytimeout=604800");
    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        // For example an image, which has no origin.
        ("Sec-Fetch-Site", "cross-site"),
    ] {
        for asked in [linked_put(ACCOUNT), hide(ACCOUNT)] {
            let refused = wire.send(asked.header(name, value)).await;
            refused.check_error(403, "AuthorizationFailure");
            assert!(refused.body.contains("header Origin"), "{refused:?}");
        }
        let own = linked_put(OTHER).header(name, value);
        wire.send(own).await.check_status(201);
    }
    check_untouched(wire, "1").await;
    // Pages of this machine, of the server itself, and those that a rule of the account allows.
    for (host, page) in [
        ("localhost:10001", "http://localhost:3000"),
        ("kew.example:10001", "http://kew.example:10001"),
    ] {
        let asked = linked_put(ACCOUNT).header("Host", host);
        let answer = wire.send(asked.header("Origin", page)).await;
        answer.check_status(201);
    }
    check_untouched(wire, "3").await;
    let rules = rule("http://evil.example").replace("GET", "GET,POST");
    let body = format!("<StorageServiceProperties><Cors>{rules}</Cors></StorageServiceProperties>");
    let set = call("PUT", "/?restype=service&comp=properties").body(body);
    wire.send(set).await.check_status(202);
    let allowed = linked_put(ACCOUNT).header("Origin", "http://evil.example");
    wire.send(allowed).await.check_status(201);
    let other = linked_put(ACCOUNT).header("Origin", "http://other.example");
    wire.send(other)
        .await
        .check_error(403, "AuthorizationFailure");
}

#[tokio::test]
async fn metrics_are_not_read_by_a_name_that_points_here() {
    let door = door();
    let metrics = |host: &str| {
        let metrics = call("GET", "").target("/metrics").anonymous();
        metrics.header("Host", host)
    };
    for (reach, host, status) in [
        (Reach::Loopback, "evil.example:9090", 403),
        (Reach::Loopback, "10.0.0.5", 403),
        (Reach::Loopback, "localhost:9090", 200),
        (Reach::Loopback, "kew.example", 200),
        (Reach::Anywhere, "prometheus.example", 200),
    ] {
        let answer = door.connect_operator_with(reach).send(metrics(host)).await;
        answer.check_status(status);
        assert_eq!(answer.body.contains("kew_"), status == 200, "{answer:?}");
    }
    let health = call("GET", "").target("/health/ready").anonymous();
    let health = health.header("Host", "evil.example");
    door.connect_operator().send(health).await.check_status(200);
}
