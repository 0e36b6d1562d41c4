//! Which credentials allow which operations.

use std::time::{Duration, SystemTime};

use kew_broker::Broker;
use kew_queue_api::{Account, AccountKey, QueueApiOptions};

use crate::client::{ACCOUNT, Answer, Call, Door, KEY, call, md5_of, message, put};

fn dated(call: Call, offset_seconds: i64) -> Call {
    let offset = Duration::from_secs(offset_seconds.unsigned_abs());
    let now = SystemTime::now();
    let at = if offset_seconds < 0 {
        now - offset
    } else {
        now + offset
    };
    call.header("x-ms-date", &httpdate::fmt_http_date(at))
}

#[tokio::test]
async fn signatures_of_every_form_verify() {
    let door = Door::open();
    door.send(call("PUT", "/orders")).await.check_status(201);
    for list in [
        call("GET", "/?comp=list&prefix=a%2Fb&include=metadata"),
        call("GET", "?comp=list"),
        call("GET", "/?comp=list").lite(),
        call("GET", "/?comp=list").version("2011-08-18"),
        call("GET", "/?comp=list").version("2009-07-17"),
        call("GET", "/?comp=list").without("x-ms-version"),
        call("GET", "/?comp=list").body(""),
        call("GET", "/?comp=list").body("").version("2014-02-14"),
        call("GET", "/?comp=list")
            .without("x-ms-date")
            .header("Date", &httpdate::fmt_http_date(SystemTime::now())),
        call("GET", "/?comp=list")
            .header("x-ms-client-request-id", "a b")
            .header("x-ms-zzz", "1"),
    ] {
        door.send(list).await.check_status(200);
    }
    door.send(put("orders", "", "x").header("Content-Type", "application/xml"))
        .await
        .check_status(201);
}

#[tokio::test]
async fn headers_sort_both_ways() {
    // The client sorts by bytes; the other order is checked by the unit tests.
    let door = Door::open();
    let create = call("PUT", "/orders")
        .header("x-ms-meta-a_b", "1")
        .header("x-ms-meta-ab", "2")
        .header("x-ms-meta-a1", "3");
    door.send(create).await.check_status(201);
}

#[tokio::test]
async fn few_readings_of_a_request_are_tried() {
    let door = Door::open();
    let create = call("PUT", "/orders?extra=a%20b");
    let odd = create.clone().header("x-ms-meta-a1", "two  spaces");
    // The client reads the plus as a space, and signs odd headers by their bytes and unchanged.
    for (create, status) in [
        (create, 201),
        (odd.clone().header("x-ms-meta-ac", "1"), 409),
        (odd.header("x-ms-meta-a_b", "1"), 403),
    ] {
        let signed = String::from_utf8(create.to_bytes()).unwrap();
        let mut wire = door.connect();
        wire.write(signed.replacen("%20", "+", 1).as_bytes()).await;
        wire.answer(false).await.check_status(status);
    }
}

#[tokio::test]
async fn runs_of_spaces_verify_as_they_were_sent() {
    // The client signs them unchanged, as the Python SDK does; folding is checked by the unit tests.
    let door = Door::open();
    let create = call("PUT", "/orders").header("x-ms-meta-note", "two  spaces\tand a tab");
    door.send(create).await.check_status(201);
    let read = door.send(call("GET", "/orders?comp=metadata")).await;
    assert_eq!(
        read.header("x-ms-meta-note"),
        Some("two  spaces\tand a tab")
    );
}

#[tokio::test]
async fn host_style() {
    let door = Door::open();
    let host = format!("{ACCOUNT}.queue.localhost:10001");
    let list = call("GET", "").target("/?comp=list").header("Host", &host);
    let answer = door.send(list).await;
    answer.check_status(200);
    let endpoint = format!("ServiceEndpoint=\"http://{host}/\"");
    assert!(answer.body.contains(&endpoint), "{answer:?}");
}

#[tokio::test]
async fn a_wrong_signature_gets_the_string_to_sign() {
    let door = Door::open();
    let list = call("GET", "/?comp=list").key(ACCOUNT, "d3Jvbmc=");
    let expected = format!(
        "Server used following string to sign: '{}'.",
        list.string_to_sign()
    );
    let answer = door.send(list).await;
    let detail = answer
        .check_error(403, "AuthenticationFailed")
        .element("AuthenticationErrorDetail")
        .unwrap();
    assert!(detail.starts_with("The MAC signature found in the HTTP request '"));
    assert!(detail.ends_with(&expected), "{detail}");
    assert!(!answer.body.contains(KEY));
}

#[tokio::test]
async fn a_long_string_to_sign_is_shown_in_part() {
    let door = Door::open();
    let list = call("GET", "/?comp=list").key(ACCOUNT, "d3Jvbmc=");
    let answer = door
        .send(list.header("x-ms-long", &"x".repeat(30_000)))
        .await;
    answer.check_error(403, "AuthenticationFailed");
    assert!(answer.body.len() < 6_000, "{}", answer.body.len());
    assert!(answer.body.contains("x...'."), "{answer:?}");
    let signature = format!("SharedKey {ACCOUNT}:{}", "A".repeat(30_000));
    let list = call("GET", "/?comp=list").authorization(&signature);
    let answer = door.send(list).await;
    answer.check_error(403, "AuthenticationFailed");
    assert!(answer.body.len() < 6_000, "{}", answer.body.len());
}

#[tokio::test]
async fn every_signed_part_must_stay() {
    let door = Door::open();
    door.send(call("PUT", "/orders")).await.check_status(201);
    let body = message("x");
    let call = put("orders", "?messagettl=60", "x")
        .header("Content-Type", "application/xml")
        .header("Content-MD5", &md5_of(&body))
        .header("x-ms-meta-note", "a b");
    let signed = String::from_utf8(call.to_bytes()).unwrap();
    let mut wire = door.connect();
    wire.write(signed.as_bytes()).await;
    wire.answer(false).await.check_status(201);
    let length = format!("Content-Length: {}", body.len());
    for (from, to) in [
        ("messagettl=60", "messagettl=61"),
        ("messagettl=60", "messagettl=60&visibilitytimeout=1"),
        ("?messagettl=60", ""),
        ("/orders/", "/orderz/"),
        ("POST", "PUT"),
        ("x-ms-version: 2026-10-06", "x-ms-version: 2026-06-06"),
        ("Host:", "x-ms-more: 1\r\nHost:"),
        ("x-ms-meta-note: a b", "x-ms-meta-note: ab"),
        ("x-ms-meta-note: a b\r\n", ""),
        ("Content-Type: application/xml", "Content-Type: text/xml"),
        ("Content-Type: application/xml\r\n", ""),
        ("Content-MD5: ", "Content-MD5: A"),
        ("Content-MD5: ", "X-Content-MD5: "),
        (&*length, "Content-Length: 5"),
        (&*length, "Transfer-Encoding: chunked"),
        (":00 GMT", ":59 GMT"),
    ] {
        // The date comes from the clock, with any seconds.
        let from = if from == ":00 GMT" {
            let end = signed.find(" GMT").unwrap();
            &signed[end - 3..end + 4]
        } else {
            from
        };
        let altered = signed.replacen(from, to, 1);
        if altered == signed {
            continue;
        }
        let mut wire = door.connect();
        wire.write(altered.as_bytes()).await;
        let answer = wire.answer(false).await;
        if to == "PUT" {
            answer.check_error(405, "UnsupportedHttpVerb");
        } else {
            answer.check_error(403, "AuthenticationFailed");
        }
    }
}

/// Replaces the query of a signed request.
async fn with_query(door: &Door, signed: &Call, query: &str) -> Answer {
    let text = String::from_utf8(signed.to_bytes()).unwrap();
    let (start, rest) = text.split_once('?').unwrap();
    let (_, end) = rest.split_once(' ').unwrap();
    let mut wire = door.connect();
    wire.write(format!("{start}?{query} {end}").as_bytes())
        .await;
    wire.answer(false).await
}

#[tokio::test]
async fn no_two_queries_have_one_signature() {
    let door = Door::open();
    door.send(call("PUT", "/orders")).await.check_status(201);
    door.send(put("orders", "", "x")).await.check_status(201);
    let peek = call("GET", "/orders/messages?numofmessages=5&peekonly=true");
    for query in [
        // Each of these once had the same string to sign as the first.
        "numofmessages%3A5%0Apeekonly=true",
        "numofmessages=5%0Apeekonly:true",
        "numofmessages=5%0Apeekonly%3Atrue",
        "%0Anumofmessages=5&peekonly=true",
        "numofmessages=5&peekonly=true&numofmessages=5",
    ] {
        with_query(&door, &peek, query)
            .await
            .check_error(400, "InvalidQueryParameterValue");
    }
    // U+212A is a `k` in lower case, but it must not make this the parameter `marker`.
    let list = call("GET", "/?comp=list&marker=abc");
    for query in [
        "comp=list&mar\u{212A}er=abc",
        "comp=list&mar%E2%84%AAer=abc",
    ] {
        with_query(&door, &list, query)
            .await
            .check_error(400, "InvalidQueryParameterValue");
    }
    // The order, the case of names and the escapes do not matter.
    let answer = with_query(&door, &peek, "PeekOnly=t%72ue&&%6eumofmessages=5").await;
    answer.check_status(200).check_element("DequeueCount", "0");
}

#[tokio::test]
async fn the_host_does_not_change_the_string_to_sign() {
    let door = Door::open();
    for queue in [ACCOUNT, "messages"] {
        let create = call("PUT", &format!("/{queue}"));
        door.send(create).await.check_status(201);
    }
    door.send(put(ACCOUNT, "", "x")).await.check_status(201);
    let delete = String::from_utf8(call("DELETE", "/messages").to_bytes()).unwrap();
    let host = format!("{ACCOUNT}.queue.localhost:10001");
    let mut wire = door.connect();
    wire.write(delete.replace("127.0.0.1:10001", &host).as_bytes())
        .await;
    wire.answer(false).await.check_error(400, "InvalidUri");
    let get = call("GET", &format!("/{ACCOUNT}/messages"));
    door.send(get).await.check_element("MessageText", "x");
}

#[tokio::test]
async fn each_key_of_an_account_signs() {
    let keys = ["b25l", "dHdv"];
    let [one, two] = keys.map(|key| AccountKey::from_base64(key).unwrap());
    let account = Account::new(ACCOUNT, one, two).unwrap();
    let options = QueueApiOptions {
        accounts: [account].into_iter().collect(),
        ..QueueApiOptions::default()
    };
    let door = Door::with_options(Broker::start_in_memory().unwrap(), options);
    for key in keys {
        door.send(call("GET", "/?comp=list").key(ACCOUNT, key))
            .await
            .check_status(200);
    }
    door.send(call("GET", "/?comp=list").key(ACCOUNT, "dGhyZWU="))
        .await
        .check_error(403, "AuthenticationFailed");
}

#[tokio::test]
async fn malformed_credentials() {
    let door = Door::open();
    for value in [
        "SharedKey",
        "SharedKey devstoreaccount1",
        "SharedKey devstoreaccount1:not base64!",
        "Digest a:b",
        "",
    ] {
        door.send(call("GET", "/?comp=list").authorization(value))
            .await
            .check_error(400, "InvalidAuthenticationInfo");
    }
    for value in [
        "SharedKey devstoreaccount1:",
        "SharedKey devstoreaccount1:AAAA",
    ] {
        door.send(call("GET", "/?comp=list").authorization(value))
            .await
            .check_error(403, "AuthenticationFailed");
    }
    door.send(call("GET", "/?comp=list").key("another", KEY))
        .await
        .check_error(403, "AuthenticationFailed");
}

#[tokio::test]
async fn a_space_after_the_colon_is_accepted() {
    let door = Door::open();
    let bytes = call("GET", "/?comp=list").to_bytes();
    let text = String::from_utf8(bytes).unwrap();
    let mut wire = door.connect();
    wire.write(text.replace("account1:", "account1: ").as_bytes())
        .await;
    wire.answer(false).await.check_status(200);
}

#[tokio::test]
async fn without_a_credential() {
    let door = Door::open();
    let answer = door.send(call("GET", "/?comp=list").anonymous()).await;
    answer.check_error(401, "NoAuthenticationInformation");
    let challenge = answer.header("www-authenticate").unwrap();
    assert!(challenge.starts_with("Bearer authorization_uri=https://"));
    assert!(challenge.ends_with(" resource_id=https://storage.azure.com"));
    assert_eq!(answer.header("x-ms-version"), None);
    door.send(call("GET", "/?comp=list").anonymous().version("2018-03-28"))
        .await
        .check_error(404, "ResourceNotFound");
}

#[tokio::test]
async fn unsupported_schemes_are_refused_by_name() {
    let door = Door::open();
    door.send(call("GET", "/?comp=list").authorization("Bearer x.y.z"))
        .await
        .check_error(401, "InvalidAuthenticationInfo");
}

#[tokio::test]
async fn dates_are_recent() {
    let door = Door::open();
    for offset_seconds in [-14 * 60, 14 * 60] {
        door.send(dated(call("GET", "/?comp=list"), offset_seconds))
            .await
            .check_status(200);
    }
    for offset_seconds in [-16 * 60, 16 * 60, -86_400 * 700] {
        let answer = door
            .send(dated(call("GET", "/?comp=list"), offset_seconds))
            .await;
        let detail = answer
            .check_error(403, "AuthenticationFailed")
            .element("AuthenticationErrorDetail");
        assert!(
            detail
                .unwrap()
                .starts_with("Request date header too old: '")
        );
    }
    for call in [
        call("GET", "/?comp=list").without("x-ms-date"),
        call("GET", "/?comp=list").header("x-ms-date", "yesterday"),
    ] {
        door.send(call)
            .await
            .check_error(403, "AuthenticationFailed");
    }
}

#[tokio::test]
async fn unknown_accounts() {
    let door = Door::open();
    door.send(call("GET", "").target("/nobody/?comp=list"))
        .await
        .check_error(404, "ResourceNotFound");
}

#[tokio::test]
async fn the_secondary_is_read_only() {
    let door = Door::open();
    let secondary =
        |method, rest: &str| call(method, "").target(&format!("/{ACCOUNT}-secondary{rest}"));
    door.send(secondary("GET", "/?comp=list"))
        .await
        .check_status(200);
    // Some clients sign the path of the primary.
    let signed = String::from_utf8(call("GET", "/?comp=list").to_bytes()).unwrap();
    let mut wire = door.connect();
    let asked = signed.replacen(ACCOUNT, &format!("{ACCOUNT}-secondary"), 1);
    wire.write(asked.as_bytes()).await;
    wire.answer(false).await.check_status(200);
    for (method, rest) in [
        ("PUT", "/orders"),
        ("GET", "/orders/messages"),
        ("DELETE", "/orders/messages"),
    ] {
        door.send(secondary(method, rest))
            .await
            .check_error(403, "InsufficientAccountPermissions");
    }
}
