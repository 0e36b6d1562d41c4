//! Messages: put, get, peek, update, delete, clear.

use crate::client::{Answer, Door, Wire, call, escape, md5_of, message, put};

/// A door with a queue `orders`, and a connection through it.
async fn orders() -> Wire {
    let mut wire = Door::open().connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    wire
}

/// The address of the first message in an answer, with its receipt.
fn place(answer: &Answer) -> String {
    let id = answer.element("MessageId").unwrap();
    let receipt = escape(answer.element("PopReceipt").unwrap());
    format!("/orders/messages/{id}?popreceipt={receipt}")
}

async fn get(wire: &mut Wire) -> Answer {
    let answer = wire.send(call("GET", "/orders/messages")).await;
    answer.check_status(200);
    answer
}

async fn count(wire: &mut Wire) -> String {
    let answer = wire.send(call("HEAD", "/orders?comp=metadata")).await;
    let count = answer.header("x-ms-approximate-messages-count");
    count.unwrap().to_owned()
}

#[tokio::test]
async fn a_message_goes_in_and_comes_out() {
    let wire = &mut orders().await;
    let sent = wire.send(put("orders", "?messagettl=60", "hello")).await;
    sent.check_status(201);
    for name in ["InsertionTime", "ExpirationTime", "TimeNextVisible"] {
        let time = sent.element(name).unwrap();
        assert!(httpdate::parse_http_date(time).is_ok(), "{time}");
        assert!(time.ends_with(" GMT"));
    }
    assert_eq!(
        sent.element("InsertionTime"),
        sent.element("TimeNextVisible")
    );

    let peeked = wire
        .send(call("GET", "/orders/messages?peekonly=true"))
        .await;
    peeked
        .check_element("DequeueCount", "0")
        .check_element("MessageText", "hello");
    assert_eq!(peeked.element("PopReceipt"), None);

    let received = get(wire).await;
    received
        .check_element("MessageId", sent.element("MessageId").unwrap())
        .check_element("DequeueCount", "1")
        .check_element("MessageText", "hello");
    assert_eq!(received.header("content-type"), Some("application/xml"));

    let empty = get(wire).await;
    assert!(empty.body.ends_with("?><QueueMessagesList />"), "{empty:?}");
    assert_eq!(count(wire).await, "1");
    wire.send(call("DELETE", &place(&received)))
        .await
        .check_status(204);
    wire.send(call("DELETE", &place(&received)))
        .await
        .check_error(404, "MessageNotFound");
    assert_eq!(count(wire).await, "0");
}

#[tokio::test]
async fn the_receipt_of_a_put_is_good_at_once() {
    let wire = &mut orders().await;
    let sent = wire.send(put("orders", "", "x")).await;
    wire.send(call("DELETE", &place(&sent)))
        .await
        .check_status(204);
}

#[tokio::test]
async fn an_update_makes_a_new_receipt() {
    let wire = &mut orders().await;
    wire.send(put("orders", "", "old")).await.check_status(201);
    let received = get(wire).await;
    let old_place = place(&received);
    let id = received.element("MessageId").unwrap();

    let update = |place: &str| call("PUT", &format!("{place}&visibilitytimeout=0"));
    let updated = wire.send(update(&old_place).body(message("n&amp;w"))).await;
    updated.check_status(204);
    let receipt = updated.header("x-ms-popreceipt").unwrap();
    let next_visible = updated.header("x-ms-time-next-visible").unwrap();
    assert!(httpdate::parse_http_date(next_visible).is_ok());
    wire.send(call("DELETE", &old_place))
        .await
        .check_error(404, "MessageNotFound");

    // Without a body the text stays; an empty one empties it.
    let new_place = format!("/orders/messages/{id}?popreceipt={}", escape(receipt));
    let updated = wire.send(update(&new_place)).await;
    updated.check_status(204);
    let received = get(wire).await;
    received
        .check_element("MessageText", "n&amp;w")
        .check_element("DequeueCount", "2");
    let emptied = update(&place(&received)).body("<QueueMessage><MessageText/></QueueMessage>");
    wire.send(emptied).await.check_status(204);
    assert!(get(wire).await.body.contains("<MessageText />"));
}

#[tokio::test]
async fn clear_removes_hidden_messages() {
    let wire = &mut orders().await;
    for text in ["a", "b", "c"] {
        wire.send(put("orders", "", text)).await.check_status(201);
    }
    get(wire).await;
    wire.send(call("DELETE", "/orders/messages"))
        .await
        .check_status(204);
    assert_eq!(count(wire).await, "0");
    wire.send(call("DELETE", "/orders/messages"))
        .await
        .check_status(204);
}

#[tokio::test]
async fn up_to_32_at_once() {
    let wire = &mut orders().await;
    for number in 0..40 {
        let text = number.to_string();
        wire.send(put("orders", "", &text)).await.check_status(201);
    }
    let answer = wire
        .send(call("GET", "/orders/messages?numofmessages=32"))
        .await;
    let expected: Vec<_> = (0..32).map(|number| number.to_string()).collect();
    assert_eq!(answer.elements("MessageText"), expected);
    let rest = wire
        .send(call("GET", "/orders/messages?numofmessages=32"))
        .await;
    assert_eq!(rest.elements("MessageText").len(), 8);
}

#[tokio::test]
async fn texts_round_trip() {
    let wire = &mut orders().await;
    for (sent, received) in [
        ("  ", "  "),
        ("a&lt;b&amp;c", "a&lt;b&amp;c"),
        ("\"'\t😀é", "\"'\t😀é"),
        ("a\r\nb", "a\nb"),
        ("a&#13;&#10;b", "a&#xD;\nb"),
        ("<![CDATA[<x>]]>", "&lt;x&gt;"),
        ("a<b>c</b>d", "acd"),
    ] {
        let call = call("POST", "/orders/messages").body(message(sent));
        wire.send(call).await.check_status(201);
        let answer = get(wire).await;
        answer.check_element("MessageText", received);
        wire.send(call_delete(&answer)).await.check_status(204);
    }
}

fn call_delete(answer: &Answer) -> crate::client::Call {
    call("DELETE", &place(answer))
}

#[tokio::test]
async fn the_size_limit_counts_decoded_bytes() {
    let wire = &mut orders().await;
    for text in ["a".repeat(65_536), "<".repeat(65_536), "😀".repeat(16_384)] {
        wire.send(put("orders", "", &text)).await.check_status(201);
        wire.send(put("orders", "", &format!("{text}a")))
            .await
            .check_error(413, "RequestBodyTooLarge")
            .check_element("MaxLimit", "65536");
    }
}

#[tokio::test]
async fn bad_xml_is_refused() {
    let wire = &mut orders().await;
    for (body, code) in [
        ("", "InvalidXmlDocument"),
        ("<QueueMessage>", "InvalidXmlDocument"),
        ("<Other/>", "InvalidXmlDocument"),
        ("<QueueMessage/>", "MissingRequiredXmlNode"),
        (
            "<QueueMessage><Other/></QueueMessage>",
            "UnsupportedXmlNode",
        ),
        (&message("a\u{1}"), "InvalidXmlDocument"),
        (
            &format!("<!DOCTYPE a>{}", message("a")),
            "InvalidXmlDocument",
        ),
    ] {
        let answer = wire.send(call("POST", "/orders/messages").body(body)).await;
        answer.check_error(400, code);
    }
    let answer = wire
        .send(call("POST", "/orders/messages").body("<QueueMessage>&x;"))
        .await;
    answer
        .check_element("LineNumber", "1")
        .check_element("LinePosition", "15");
}

#[tokio::test]
async fn parameters_are_checked() {
    let wire = &mut orders().await;
    let id = "00112233-4455-6677-8899-aabbccddeeff";
    let out_of_range = "OutOfRangeQueryParameterValue";
    let invalid = "InvalidQueryParameterValue";
    let missing = "MissingRequiredQueryParameter";
    let on_message = format!("/orders/messages/{id}");
    for (method, target, code, name) in [
        (
            "GET",
            "/orders/messages?numofmessages=0",
            out_of_range,
            "numofmessages",
        ),
        (
            "GET",
            "/orders/messages?numofmessages=33",
            out_of_range,
            "numofmessages",
        ),
        (
            "GET",
            "/orders/messages?numofmessages=x",
            invalid,
            "numofmessages",
        ),
        (
            "GET",
            "/orders/messages?visibilitytimeout=0",
            out_of_range,
            "visibilitytimeout",
        ),
        (
            "GET",
            "/orders/messages?visibilitytimeout=604801",
            out_of_range,
            "visibilitytimeout",
        ),
        (
            "GET",
            "/orders/messages?peekonly=perhaps",
            invalid,
            "peekonly",
        ),
        ("GET", "/orders/messages?timeout=-1", invalid, "timeout"),
        (
            "POST",
            "/orders/messages?messagettl=0",
            invalid,
            "messagettl",
        ),
        (
            "POST",
            "/orders/messages?messagettl=-2",
            invalid,
            "messagettl",
        ),
        (
            "POST",
            "/orders/messages?visibilitytimeout=604801",
            out_of_range,
            "visibilitytimeout",
        ),
        (
            "POST",
            "/orders/messages?visibilitytimeout=604800",
            invalid,
            "visibilitytimeout",
        ),
        (
            "POST",
            "/orders/messages?messagettl=5&visibilitytimeout=5",
            invalid,
            "visibilitytimeout",
        ),
        ("DELETE", &on_message, missing, "popreceipt"),
        (
            "DELETE",
            &format!("{on_message}?popreceipt=invalid"),
            invalid,
            "popreceipt",
        ),
        (
            "PUT",
            &format!("{on_message}?visibilitytimeout=0"),
            missing,
            "popreceipt",
        ),
        (
            "PUT",
            &format!("{on_message}?popreceipt=AAAAAAAAAAAAAAAAAAAAAA=="),
            missing,
            "visibilitytimeout",
        ),
    ] {
        let answer = wire.send(call(method, target).body(message("x"))).await;
        answer
            .check_error(400, code)
            .check_element("QueryParameterName", name);
    }
    let answer = wire
        .send(call("GET", "/orders/messages?numofmessages=100"))
        .await;
    answer
        .check_element("QueryParameterValue", "100")
        .check_element("MinimumAllowed", "1")
        .check_element("MaximumAllowed", "32");
    for ok in [
        "?messagettl=-1&visibilitytimeout=604800",
        "?messagettl=2147483647",
        "?messagettl=9007199254740991",
    ] {
        wire.send(put("orders", ok, "x")).await.check_status(201);
    }
    let answer = wire
        .send(put("orders", "?messagettl=5&visibilitytimeout=5", "x"))
        .await;
    answer.check_element(
        "Reason",
        "messagettl must be greater than visibilitytimeout",
    );
    let answer = wire
        .send(call("DELETE", &format!("{on_message}?popreceipt=invalid")))
        .await;
    answer.check_element("Reason", "Invalid pop receipt format");
}

#[tokio::test]
async fn never_is_the_end_of_9999() {
    let wire = &mut orders().await;
    let answer = wire.send(put("orders", "?messagettl=-1", "x")).await;
    answer.check_element("ExpirationTime", "Fri, 31 Dec 9999 23:59:59 GMT");
}

#[tokio::test]
async fn everything_needs_its_queue() {
    let wire = &mut Door::open().connect();
    let on_message = "/orders/messages/00112233-4455-6677-8899-aabbccddeeff\
                      ?popreceipt=AAAAAAAAAAAAAAAAAAAAAA==&visibilitytimeout=0";
    for (method, target) in [
        ("POST", "/orders/messages"),
        ("GET", "/orders/messages"),
        ("GET", "/orders/messages?peekonly=true"),
        ("DELETE", "/orders/messages"),
        ("PUT", on_message),
        ("DELETE", on_message),
        ("DELETE", "/orders"),
        ("GET", "/orders?comp=metadata"),
        ("PUT", "/orders?comp=metadata"),
    ] {
        let answer = wire.send(call(method, target).body(message("x"))).await;
        answer.check_error(404, "QueueNotFound");
    }
}

#[tokio::test]
async fn a_missing_queue_is_reported_before_a_wrong_id_or_receipt() {
    let own = "AAAAAAAAAAAAAAAAAAAAAA==";
    // In the service's form.
    let foreign = "AgAAAAMAAAAAAAAAzpYJ2yQg1QE%3D";
    let id = "00112233-4455-6677-8899-aabbccddeeff";
    let of_queue = |id: &str, receipt: &str| {
        let target = format!("/orders/messages/{id}?popreceipt={receipt}");
        let update = format!("{target}&visibilitytimeout=0");
        [
            call("DELETE", &target),
            call("PUT", &update).body(message("x")),
            call("PUT", &update).body(""),
        ]
    };
    let empty = &mut Door::open().connect();
    let wire = &mut orders().await;
    for (id, receipt, status, code) in [
        (id, own, 404, "MessageNotFound"),
        ("nonsense", own, 404, "MessageNotFound"),
        (id, foreign, 404, "MessageNotFound"),
        ("nonsense", foreign, 404, "MessageNotFound"),
        (id, "invalid", 400, "InvalidQueryParameterValue"),
        ("nonsense", "invalid", 400, "InvalidQueryParameterValue"),
    ] {
        for call in of_queue(id, receipt) {
            let missing = empty.send(call.clone()).await;
            missing.check_error(404, "QueueNotFound");
            wire.send(call).await.check_error(status, code);
        }
    }
    // A receipt of another server does not affect an existing message.
    let put = wire.send(put("orders", "", "x")).await;
    let id = put.element("MessageId").unwrap();
    for call in of_queue(id, foreign) {
        wire.send(call).await.check_error(404, "MessageNotFound");
    }
    assert_eq!(count(wire).await, "1");
}

#[tokio::test]
async fn a_lost_id_does_not_clear_the_queue() {
    let wire = &mut orders().await;
    wire.send(put("orders", "", "x")).await.check_status(201);
    wire.send(call("DELETE", "/orders/messages/?popreceipt=AAAA"))
        .await
        .check_error(400, "InvalidUri");
    assert_eq!(count(wire).await, "1");
}

#[tokio::test]
async fn md5_is_checked() {
    let wire = &mut orders().await;
    for (stated, code) in [
        ("X", "InvalidMd5"),
        ("YWJj", "InvalidMd5"),
        (&*md5_of("something else"), "Md5Mismatch"),
    ] {
        let call = put("orders", "", "x").header("Content-MD5", stated);
        wire.send(call).await.check_error(400, code);
    }
    assert_eq!(count(wire).await, "0");
    let call = put("orders", "", "x").header("Content-MD5", &md5_of(&message("x")));
    wire.send(call).await.check_status(201);
}
