//! Behaviour of messages and listings that other files do not test, by the numbers in
//! `docs/queue-storage.md`.

use std::sync::Arc;
use std::time::Duration;

use kew_broker::{Broker, BrokerOptions};
use kew_log::MemoryStorage;
use tokio::time::{Instant, sleep};

use crate::client::{Answer, Call, Door, Wire, call, escape, message, put};

async fn orders() -> Wire {
    let mut wire = Door::open().connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    wire
}

fn get(query: &str) -> Call {
    call("GET", &format!("/orders/messages{query}"))
}

/// An operation on the message in an answer, with its receipt.
fn on(method: &'static str, answer: &Answer, query: &str) -> Call {
    let id = answer.element("MessageId").unwrap();
    let receipt = escape(answer.element("PopReceipt").unwrap());
    call(
        method,
        &format!("/orders/messages/{id}?popreceipt={receipt}{query}"),
    )
}

/// Gets until there is a message.
async fn get_at_last(wire: &mut Wire, query: &str) -> Answer {
    let start = Instant::now();
    loop {
        let answer = wire.send(get(query)).await;
        if answer.element("MessageId").is_some() {
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "never shown");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The names of the elements in the first message of an answer.
fn element_names(answer: &Answer) -> Vec<&str> {
    let first = answer.element("QueueMessage").unwrap();
    let tags = first.split('<').skip(1).filter(|tag| !tag.starts_with('/'));
    tags.map(|tag| tag.split(['>', ' ']).next().unwrap())
        .collect()
}

#[tokio::test]
async fn items_10_to_12_elements_are_in_order() {
    let wire = &mut orders().await;
    let sent = wire.send(put("orders", "", "x")).await;
    let times = ["InsertionTime", "ExpirationTime"];
    let [inserted, expires] = times;
    assert_eq!(
        element_names(&sent),
        [
            "MessageId",
            inserted,
            expires,
            "PopReceipt",
            "TimeNextVisible"
        ]
    );
    let peeked = wire.send(get("?peekonly=true")).await;
    assert_eq!(
        element_names(&peeked),
        [
            "MessageId",
            inserted,
            expires,
            "DequeueCount",
            "MessageText"
        ]
    );
    let got = wire.send(get("")).await;
    assert_eq!(
        element_names(&got),
        [
            "MessageId",
            inserted,
            expires,
            "PopReceipt",
            "TimeNextVisible",
            "DequeueCount",
            "MessageText"
        ]
    );
}

#[tokio::test]
async fn items_11_and_14_to_16_a_lease_ends_in_time_and_its_receipt_with_the_next() {
    let wire = &mut orders().await;
    wire.send(put("orders", "", "x")).await.check_status(201);
    let start = Instant::now();
    let first = wire.send(get("?visibilitytimeout=1")).await;
    first.check_element("DequeueCount", "1");
    let hidden = wire.send(get("?peekonly=true")).await;
    // If the request arrives in time.
    let is_over = start.elapsed() >= Duration::from_secs(1);
    assert!(
        is_over || hidden.element("MessageId").is_none(),
        "{hidden:?}"
    );
    let second = get_at_last(wire, "?visibilitytimeout=1").await;
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(900), "{waited:?}");
    second.check_element("DequeueCount", "2");
    wire.send(on("DELETE", &first, ""))
        .await
        .check_error(404, "MessageNotFound");
    wire.send(on("PUT", &first, "&visibilitytimeout=0"))
        .await
        .check_error(404, "MessageNotFound");
    // It is visible again and no client has received it, so the last receipt deletes it.
    let peek = Instant::now();
    while wire
        .send(get("?peekonly=true"))
        .await
        .element("MessageId")
        .is_none()
    {
        assert!(peek.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(20)).await;
    }
    wire.send(on("DELETE", &second, "")).await.check_status(204);
    wire.send(on("DELETE", &second, ""))
        .await
        .check_error(404, "MessageNotFound");
}

#[tokio::test]
async fn items_34_to_38_an_update_changes_only_text_and_visibility() {
    let wire = &mut orders().await;
    wire.send(put("orders", "?messagettl=100", "x"))
        .await
        .check_status(201);
    let got = wire.send(get("")).await;
    // It may be hidden beyond its expiry.
    let update = on("PUT", &got, "&visibilitytimeout=604800");
    let updated = wire.send(update).await;
    updated.check_status(204);
    let id = got.element("MessageId").unwrap();
    let receipt = escape(updated.header("x-ms-popreceipt").unwrap());
    let show = format!("/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0");
    wire.send(call("PUT", &show)).await.check_status(204);
    let shown = wire.send(get("?peekonly=true")).await;
    for name in [
        "MessageId",
        "InsertionTime",
        "ExpirationTime",
        "DequeueCount",
        "MessageText",
    ] {
        assert_eq!(shown.element(name), got.element(name), "{name}");
    }
}

#[tokio::test]
async fn item_49_an_expired_message_is_gone_with_its_receipt_also_after_a_restart() {
    let disk = Arc::new(MemoryStorage::new());
    let start = || {
        Broker::start(disk.clone(), BrokerOptions::default())
            .unwrap()
            .0
    };
    let broker = start();
    let wire = &mut Door::with_broker(broker.clone()).connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    // Long enough for the next request to find it.
    wire.send(put("orders", "?messagettl=3", "x"))
        .await
        .check_status(201);
    let hidden = wire.send(get("?visibilitytimeout=100")).await;
    let began = Instant::now();
    wire.send(put("orders", "?messagettl=3", "y"))
        .await
        .check_status(201);
    while wire
        .send(get("?peekonly=true"))
        .await
        .element("MessageId")
        .is_some()
    {
        assert!(began.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(20)).await;
    }
    assert!(began.elapsed() >= Duration::from_millis(2900));
    let check_gone = async |wire: &mut Wire| {
        for query in ["", "?peekonly=true"] {
            let answer = wire.send(get(query)).await;
            assert!(answer.body.ends_with("<QueueMessagesList />"), "{answer:?}");
        }
        wire.send(on("DELETE", &hidden, ""))
            .await
            .check_error(404, "MessageNotFound");
    };
    check_gone(wire).await;
    broker.stop();
    drop(broker);
    check_gone(&mut Door::with_broker(start()).connect()).await;
}

#[tokio::test]
async fn item_24_leases_and_receipts_survive_a_restart() {
    let disk = Arc::new(MemoryStorage::new());
    let start = || {
        Broker::start(disk.clone(), BrokerOptions::default())
            .unwrap()
            .0
    };
    let broker = start();
    let wire = &mut Door::with_broker(broker.clone()).connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    wire.send(put("orders", "", "x")).await.check_status(201);
    let got = wire.send(get("?visibilitytimeout=100")).await;
    broker.stop();
    drop(broker);
    let wire = &mut Door::with_broker(start()).connect();
    let none = wire.send(get("")).await;
    assert!(none.body.ends_with("<QueueMessagesList />"), "{none:?}");
    let updated = wire.send(on("PUT", &got, "&visibilitytimeout=0")).await;
    updated.check_status(204);
    let again = wire.send(get("")).await;
    again.check_element("DequeueCount", "2");
}

#[tokio::test]
async fn items_46_to_48_documents_in_utf_8_with_the_right_root() {
    let wire = &mut orders().await;
    let text = message("é");
    let put = |body: Vec<u8>| call("POST", "/orders/messages").body(body);
    for good in [
        text.clone(),
        format!("\u{FEFF}{text}"),
        format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>{text}"),
        format!("\u{FEFF}<?xml version='1.0' encoding='UTF-8'?>\n{text}\n"),
        format!("<?xml version=\"1.0\"?>{text}"),
    ] {
        wire.send(put(good.clone().into_bytes()))
            .await
            .check_status(201);
        let got = wire.send(get("")).await;
        got.check_element("MessageText", "é");
        wire.send(on("DELETE", &got, "")).await.check_status(204);
    }
    let wide: Vec<u8> = format!("\u{FEFF}{text}")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let bomb = "<!DOCTYPE q [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;'>]>";
    for bad in [
        wide,
        format!("<?xml version='1.0' encoding='utf-16'?>{text}").into_bytes(),
        b"<Message><MessageText>x</MessageText></Message>".to_vec(),
        format!("{bomb}{}", message("&b;")).into_bytes(),
        message("a & b").into_bytes(),
        message("&#0;").into_bytes(),
        message("&#xFFFE;").into_bytes(),
    ] {
        let start = Instant::now();
        wire.send(put(bad))
            .await
            .check_error(400, "InvalidXmlDocument");
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn item_55_names_have_3_to_63_characters() {
    let wire = &mut Door::open().connect();
    for (name, status) in [
        ("ab".to_owned(), 400),
        ("abc".to_owned(), 201),
        ("a".repeat(63), 201),
        ("a".repeat(64), 400),
        ("0-0".to_owned(), 201),
        ("orders-".to_owned(), 400),
    ] {
        let answer = wire.send(call("PUT", &format!("/{name}"))).await;
        answer.check_status(status);
    }
}

#[tokio::test]
async fn items_56_to_62_listings() {
    let wire = &mut Door::open().connect();
    for name in ["c-1", "b-1", "a-1"] {
        let create = call("PUT", &format!("/{name}"));
        wire.send(create).await.check_status(201);
    }
    let list = |query: &str| call("GET", &format!("/?comp=list{query}"));
    let all = wire.send(list("&maxresults=6000")).await;
    all.check_status(200).check_element("MaxResults", "6000");
    assert_eq!(all.elements("Name"), ["a-1", "b-1", "c-1"]);
    for (query, shown) in [
        ("", ""),
        ("&prefix=", "<Prefix />"),
        ("&prefix=a", "<Prefix>a</Prefix>"),
        ("&marker=b-1", "<Marker>b-1</Marker>"),
        (
            "&maxresults=7&prefix=a",
            "<Prefix>a</Prefix><MaxResults>7</MaxResults>",
        ),
    ] {
        let answer = wire.send(list(query)).await;
        assert!(
            answer.body.contains(&format!("/\">{shown}<Queues>")),
            "{answer:?}"
        );
        assert!(answer.body.ends_with("<NextMarker /></EnumerationResults>"));
    }
    let plain = wire.send(list("")).await;
    assert_eq!(plain.element("Metadata"), None);

    // The first queue of the next page is deleted, and a new one comes before it.
    let first = wire.send(list("&maxresults=1")).await;
    assert_eq!(first.elements("Name"), ["a-1"]);
    let marker = first.element("NextMarker").unwrap();
    wire.send(call("DELETE", "/b-1")).await.check_status(204);
    wire.send(call("PUT", "/a-2")).await.check_status(201);
    let rest = wire.send(list(&format!("&marker={marker}"))).await;
    assert_eq!(rest.elements("Name"), ["c-1"]);
    for (query, code) in [
        ("&maxresults=-1", "OutOfRangeQueryParameterValue"),
        ("&maxresults=x", "InvalidQueryParameterValue"),
        ("&marker=/other/b-1", "InvalidMarker"),
        ("&marker=//", "InvalidMarker"),
    ] {
        wire.send(list(query)).await.check_error(400, code);
    }
}
