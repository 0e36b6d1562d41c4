//! Queues: create, delete, list, and their metadata.

use std::time::Duration;

use kew_broker::Broker;
use kew_queue_api::{Accounts, QueueApiOptions};

use crate::client::{Door, call};

#[tokio::test]
async fn create_is_idempotent_and_compares_metadata() {
    let door = Door::open();
    let create = || call("PUT", "/orders");
    let with = |value| create().header("x-ms-meta-owner", value);

    let created = door.send(with("billing")).await;
    created.check_status(201);
    assert_eq!(created.header("content-length"), Some("0"));
    door.send(with("billing")).await.check_status(204);
    door.send(create().header("X-MS-Meta-OWNER", "billing"))
        .await
        .check_status(204);
    for other in [with("Billing"), create()] {
        door.send(other)
            .await
            .check_error(409, "QueueAlreadyExists");
    }
}

#[tokio::test]
async fn delete_frees_the_name() {
    let door = Door::open();
    door.send(call("PUT", "/orders")).await.check_status(201);
    door.send(call("DELETE", "/orders")).await.check_status(204);
    door.send(call("DELETE", "/orders"))
        .await
        .check_error(404, "QueueNotFound");
    door.send(call("PUT", "/orders")).await.check_status(201);
}

#[tokio::test]
async fn item_100_the_name_of_a_deleted_queue_may_be_reserved() {
    let options = QueueApiOptions {
        accounts: Accounts::well_known(),
        queue_deletion_delay: Duration::from_secs(30),
        ..QueueApiOptions::default()
    };
    let door = Door::with_options(Broker::start_in_memory().unwrap(), options);
    let wire = &mut door.connect();
    let create = || call("PUT", "/orders");
    wire.send(create()).await.check_status(201);
    wire.send(call("DELETE", "/orders")).await.check_status(204);
    for _ in 0..2 {
        wire.send(create())
            .await
            .check_error(409, "QueueBeingDeleted");
    }
    for (method, target) in [
        ("DELETE", "/orders"),
        ("GET", "/orders?comp=metadata"),
        ("PUT", "/orders?comp=metadata"),
        ("GET", "/orders/messages"),
        ("DELETE", "/orders/messages"),
    ] {
        let answer = wire.send(call(method, target)).await;
        answer.check_error(404, "QueueNotFound");
    }
    let list = wire.send(call("GET", "/?comp=list")).await;
    assert!(list.body.contains("<Queues />"), "{list:?}");
    wire.send(call("PUT", "/others")).await.check_status(201);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(30)).await;
    tokio::time::resume();
    wire.send(create()).await.check_status(201);
}

#[tokio::test]
async fn names_are_checked() {
    let door = Door::open();
    for (name, code) in [
        ("ab", "OutOfRangeInput"),
        ("Orders", "InvalidResourceName"),
        ("or--ders", "InvalidResourceName"),
        ("-orders", "InvalidResourceName"),
        ("or_ders", "InvalidResourceName"),
        ("or%2Fders", "InvalidResourceName"),
    ] {
        let answer = door.send(call("PUT", &format!("/{name}"))).await;
        answer.check_error(400, code);
    }
    let answer = door.send(call("PUT", "/Orders")).await;
    let message = answer.element("Message").unwrap();
    assert!(message.starts_with("The specifed resource name contains invalid characters.\n"));
}

#[tokio::test]
async fn metadata_is_replaced() {
    let door = Door::open();
    let get = |method| call(method, "/orders?comp=metadata");
    for method in ["GET", "PUT"] {
        door.send(get(method))
            .await
            .check_error(404, "QueueNotFound");
    }
    door.send(call("PUT", "/orders").header("x-ms-meta-a", "1"))
        .await
        .check_status(201);

    for method in ["GET", "HEAD"] {
        let answer = door.send(get(method)).await;
        answer.check_status(200);
        assert_eq!(answer.header("x-ms-meta-a"), Some("1"));
        assert_eq!(answer.header("x-ms-approximate-messages-count"), Some("0"));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
    }
    door.send(get("PUT").header("x-ms-meta-b", "two words"))
        .await
        .check_status(204);
    let answer = door.send(get("GET")).await;
    assert_eq!(answer.header("x-ms-meta-a"), None);
    assert_eq!(answer.header("x-ms-meta-b"), Some("two words"));
    door.send(get("PUT")).await.check_status(204);
    let answer = door.send(get("GET")).await;
    assert_eq!(answer.header("x-ms-meta-b"), None);
}

#[tokio::test]
async fn metadata_is_checked() {
    let door = Door::open();
    for (name, value, code) in [
        ("x-ms-meta-1bad", "v", "InvalidMetadata"),
        ("x-ms-meta-", "v", "EmptyMetadataKey"),
        ("x-ms-meta-a", &*"v".repeat(9000), "MetadataTooLarge"),
    ] {
        let answer = door.send(call("PUT", "/orders").header(name, value)).await;
        answer.check_error(400, code);
    }
    let twice = call("PUT", "/orders")
        .header("x-ms-meta-a", "1")
        .and_header("x-ms-meta-A", "2");
    door.send(twice).await.check_error(400, "InvalidMetadata");
}

#[tokio::test]
async fn metadata_may_be_many_short_pairs() {
    let door = Door::open();
    let mut create = call("PUT", "/orders");
    for number in 0..900 {
        create = create.header(&format!("x-ms-meta-k{number}"), "v");
    }
    door.send(create).await.check_status(201);
    let answer = door.send(call("GET", "/orders?comp=metadata")).await;
    assert_eq!(answer.header("x-ms-meta-k899"), Some("v"));
}

#[tokio::test]
async fn a_page_of_much_metadata_is_short_and_names_the_next() {
    let door = Door::open();
    let wire = &mut door.connect();
    for number in 0..140 {
        let create = call("PUT", &format!("/queue-{number:03}"))
            .header("x-ms-meta-k", &"v".repeat(8 * 1024 - 1));
        wire.send(create).await.check_status(201);
    }
    let list = |marker: &str| {
        let target = format!("/?comp=list&include=metadata&marker={marker}");
        call("GET", &target)
    };
    let first = wire.send(list("")).await;
    let next = first.element("NextMarker").unwrap();
    let second = wire.send(list(next)).await;
    let names = [first.elements("Name"), second.elements("Name")].concat();
    let expected: Vec<_> = (0..140)
        .map(|number| format!("queue-{number:03}"))
        .collect();
    assert_eq!(names, expected);
    assert_eq!(second.element("NextMarker"), None);
}

#[tokio::test]
async fn listing_pages_through_every_queue_once() {
    let door = Door::open();
    for name in ["ccc", "aaa", "bbb", "aab"] {
        door.send(call("PUT", &format!("/{name}")).header("x-ms-meta-k", name))
            .await
            .check_status(201);
    }
    let mut names = Vec::new();
    let mut marker = String::new();
    loop {
        let target = format!("/?comp=list&maxresults=1&marker={marker}");
        let answer = door.send(call("GET", &target)).await;
        answer.check_status(200).check_element("MaxResults", "1");
        names.extend(answer.elements("Name").into_iter().map(str::to_owned));
        match answer.element("NextMarker") {
            Some(next) => marker = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(names, ["aaa", "aab", "bbb", "ccc"]);

    let answer = door
        .send(call("GET", "?comp=list&prefix=aa&include=metadata"))
        .await;
    assert_eq!(answer.elements("Name"), ["aaa", "aab"]);
    assert_eq!(answer.elements("k"), ["aaa", "aab"]);
    assert!(answer.body.contains(
        "<EnumerationResults ServiceEndpoint=\"http://127.0.0.1:10001/devstoreaccount1/\">\
         <Prefix>aa</Prefix><Queues>"
    ));
    assert!(answer.body.ends_with("<NextMarker /></EnumerationResults>"));
}

#[tokio::test]
async fn listing_parameters_are_checked() {
    let door = Door::open();
    door.send(call("GET", "/?comp=list&maxresults=0"))
        .await
        .check_error(400, "OutOfRangeQueryParameterValue")
        .check_element("MinimumAllowed", "1")
        .check_element("MaximumAllowed", "5000");
    door.send(call("GET", "/?comp=list&marker=!"))
        .await
        .check_error(400, "InvalidMarker");
    door.send(call("GET", "/?comp=list&include=acl"))
        .await
        .check_error(400, "InvalidQueryParameterValue")
        .check_element("QueryParameterName", "include");
}

#[tokio::test]
async fn names_of_metadata_keep_their_case() {
    let door = Door::open();
    let create = |name| call("PUT", "/orders").header(name, "x");
    door.send(create("X-Ms-Meta-OwnerName"))
        .await
        .check_status(201);
    // The same except for its case, so the first spelling stays.
    door.send(create("x-ms-meta-OWNERNAME"))
        .await
        .check_status(204);
    for method in ["GET", "HEAD"] {
        let answer = door.send(call(method, "/orders?comp=metadata")).await;
        let is_there = |(name, _): &(String, String)| name == "x-ms-meta-OwnerName";
        assert!(answer.headers.iter().any(is_there), "{answer:?}");
    }
    let list = call("GET", "/?comp=list&include=metadata");
    door.send(list).await.check_element("OwnerName", "x");
}

#[tokio::test]
async fn case_survives_keep_alive_and_narrow_pipes() {
    let door = Door::open();
    let wire = &mut door.connect_through(7);
    for (queue, name) in [("aaa", "Tier"), ("bbb", "TIER"), ("ccc", "tier")] {
        let create = call("PUT", &format!("/{queue}")).header(&format!("x-ms-meta-{name}"), "1");
        wire.send(create).await.check_status(201);
    }
    for (queue, name) in [("bbb", "TIER"), ("aaa", "Tier"), ("ccc", "tier")] {
        let get = call("GET", &format!("/{queue}?comp=metadata"));
        let answer = wire.send(get).await;
        let expected = format!("x-ms-meta-{name}");
        let is_there = |(name, _): &(String, String)| *name == expected;
        assert!(answer.headers.iter().any(is_there), "{answer:?}");
    }
}

#[tokio::test]
async fn case_survives_pipelining() {
    let door = Door::open();
    let create = |queue: &str| call("PUT", &format!("/{queue}"));
    let mut bytes = create("aaa").to_bytes();
    bytes.extend(create("bbb").header("x-ms-meta-Tier", "1").to_bytes());
    bytes.extend(create("ccc").body("").to_bytes());
    bytes.extend(create("ddd").header("x-ms-meta-TIER", "1").to_bytes());
    bytes.extend(call("GET", "/?comp=list&include=metadata").to_bytes());
    let wire = &mut door.connect();
    wire.write(&bytes).await;
    for _ in 0..4 {
        wire.answer(false).await.check_status(201);
    }
    let list = wire.answer(false).await;
    assert_eq!(
        list.elements("Metadata"),
        ["<Tier>1</Tier>", "<TIER>1</TIER>"]
    );
}
