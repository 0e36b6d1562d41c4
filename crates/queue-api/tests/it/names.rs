//! Names that look like something else: a path, a device, another name.

use crate::client::{Call, Door, call};

const REFUSED: (u16, &str) = (400, "InvalidResourceName");
const TOO_LONG: (u16, &str) = (400, "OutOfRangeInput");
const NO_URI: (u16, &str) = (400, "InvalidUri");

/// In the form of a path, and how a queue of that name is refused.
#[rustfmt::skip]
const NAMES: [(&str, (u16, &str)); 52] = [
    // Paths.
    (".", REFUSED),
    ("..", REFUSED),
    ("...", REFUSED),
    ("%2e%2e", REFUSED),
    ("%2E%2e", REFUSED),
    ("%252e%252e", REFUSED),
    ("..%2f..%2fetc%2fpasswd", REFUSED),
    ("%2fetc%2fpasswd", REFUSED),
    ("..%5c..%5cwindows", REFUSED),
    ("..\\..\\windows", REFUSED),
    ("c%3a%5cwindows", REFUSED),
    ("file:%2f%2f%2fetc%2fpasswd", REFUSED),
    ("../../../etc/passwd", NO_URI),
    ("../../../../lock", NO_URI),
    ("../lock", NO_URI),
    ("./abc", NO_URI),
    ("/abc", NO_URI),
    ("abc/", NO_URI),
    ("abc/..", NO_URI),
    ("abc%2f..%2fdef", REFUSED),
    ("~root", REFUSED),
    ("$home", REFUSED),
    ("%25SystemRoot%25", REFUSED),
    // Bytes that end a name, or a line.
    ("%00", REFUSED),
    ("abc%00", REFUSED),
    ("abc%00.txt", REFUSED),
    ("%00%00%00", REFUSED),
    ("abc%0d%0aset-cookie:%20x", REFUSED),
    ("abc%0a", REFUSED),
    ("abc%20", REFUSED),
    ("%20abc", REFUSED),
    ("abc%7f", REFUSED),
    ("abc%1b%5b31m", REFUSED),
    // Not well encoded.
    ("%", REFUSED),
    ("abc%2", REFUSED),
    ("abc%zz", REFUSED),
    ("%u002e%u002e", REFUSED),
    ("%c0%ae%c0%ae", REFUSED),
    ("%e0%80%ae%e0%80%ae", REFUSED),
    ("%c0%afetc", REFUSED),
    ("%ff%fe", REFUSED),
    ("%ed%a0%80%ed%b0%80", REFUSED),
    // Letters that some readers treat as other letters.
    ("ORDERS", REFUSED),
    ("Orders", REFUSED),
    ("order%c5%bf", REFUSED),
    ("%e2%84%aaew", REFUSED),
    ("%ef%bd%8frders", REFUSED),
    ("o%cc%88rders", REFUSED),
    ("orders%e2%80%8b", REFUSED),
    ("%e2%80%aeorders", REFUSED),
    // Shells and patterns.
    ("abc*", REFUSED),
    ("-rf", REFUSED),
];

/// Names with a special meaning elsewhere, which are ordinary names of queues.
const ALLOWED: [&str; 9] = [
    "con",
    "nul",
    "aux",
    "prn",
    "com1",
    "lpt1",
    "lock",
    "manifest",
    "partition-0",
];

/// A pop receipt in form, of no message.
const RECEIPT: &str = "AptH4yfn%2FsNs7gLJVZAspQ%3D%3D";

fn in_path(name: &str, rest: &str) -> String {
    format!("/{name}{rest}")
}

#[tokio::test]
async fn invalid_names_are_refused_in_every_place() {
    let door = Door::open();
    let wire = &mut door.connect();
    let long = [
        "q".repeat(64),
        "q".repeat(260),
        "q".repeat(4096),
        "%71".repeat(64),
    ];
    let long = long.iter().map(|name| (name.as_str(), TOO_LONG));
    for (name, (status, code)) in NAMES.into_iter().chain(long) {
        for call in [
            call("PUT", &in_path(name, "")),
            call("DELETE", &in_path(name, "")),
            call("GET", &in_path(name, "?comp=metadata")),
        ] {
            let answer = wire.send(call).await;
            assert_eq!(
                (answer.status, answer.header("x-ms-error-code")),
                (status, Some(code)),
                "{name:?}: {answer:?}"
            );
        }
        if code != NO_URI.1 {
            let get = call("GET", &in_path(name, "/messages"));
            wire.send(get).await.check_error(status, code);
        }
    }
    let list = wire.send(call("GET", "/?comp=list")).await;
    assert!(list.elements("Name").is_empty(), "{list:?}");
}

#[tokio::test]
async fn names_of_devices_and_files_are_names() {
    let door = Door::open();
    let wire = &mut door.connect();
    for name in ALLOWED {
        wire.send(call("PUT", &in_path(name, "")))
            .await
            .check_status(201);
    }
    let list = wire.send(call("GET", "/?comp=list")).await;
    let mut expected = ALLOWED;
    expected.sort_unstable();
    assert_eq!(list.elements("Name"), expected);
}

#[tokio::test]
async fn accounts_messages_and_marks_are_no_paths() {
    let door = Door::open();
    let wire = &mut door.connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    let foreign = |target: &str| call("PUT", "").target(target);
    let message = |id: &str, receipt: &str| {
        let target = format!("/orders/messages/{id}?popreceipt={receipt}");
        call("DELETE", &target)
    };
    let list = |query: &str| call("GET", &format!("/?comp=list&{query}"));
    let cases: [(Call, u16, &str); 11] = [
        (foreign("/../orders"), 404, "ResourceNotFound"),
        (foreign("/%2e%2e/orders"), 404, "ResourceNotFound"),
        (foreign("/DEVSTOREACCOUNT1/orders"), 404, "ResourceNotFound"),
        (
            foreign("/devstoreaccount1%00/orders"),
            404,
            "ResourceNotFound",
        ),
        (
            foreign("/devstoreaccount1%2forders"),
            400,
            "MissingRequiredQueryParameter",
        ),
        (foreign("//devstoreaccount1/orders"), 400, "InvalidUri"),
        (message("..", RECEIPT), 404, "MessageNotFound"),
        (message("..%2f..%2flock", RECEIPT), 404, "MessageNotFound"),
        (message(&"0".repeat(5000), RECEIPT), 404, "MessageNotFound"),
        (list("marker=..%2f..%2flock"), 400, "InvalidMarker"),
        (list("marker=%00"), 400, "InvalidQueryParameterValue"),
    ];
    for (call, status, code) in cases {
        let target = format!("{:?}", String::from_utf8_lossy(&call.to_bytes()));
        let answer = wire.send(call).await;
        let seen = (answer.status, answer.header("x-ms-error-code"));
        assert_eq!(seen, (status, Some(code)), "{target}: {answer:?}");
    }
    let answer = wire.send(list("prefix=..%2f")).await;
    assert!(answer.elements("Name").is_empty(), "{answer:?}");
}
