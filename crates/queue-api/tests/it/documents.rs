//! XML that costs more to read than to send, or refers to external resources.

use std::time::{Duration, Instant};

use crate::client::{Door, call};

/// A body that is parsed: its sender, and the elements that it needs.
struct Place {
    method: &'static str,
    target: &'static str,
    root: &'static str,
    child: &'static str,
}

const PLACES: [Place; 3] = [
    Place {
        method: "POST",
        target: "/orders/messages",
        root: "QueueMessage",
        child: "MessageText",
    },
    Place {
        method: "PUT",
        target: "/orders?comp=acl",
        root: "SignedIdentifiers",
        child: "SignedIdentifier",
    },
    Place {
        method: "PUT",
        target: "/?restype=service&comp=properties",
        root: "StorageServiceProperties",
        child: "Cors",
    },
];

/// Time for all documents of a place, on a busy machine. Quadratic parsing would take many times
/// that.
const PATIENCE: Duration = Duration::from_secs(20);

const BODY_SIZE_BYTES: usize = 390_000;

fn filled(part: &str) -> String {
    part.repeat(BODY_SIZE_BYTES / part.len())
}

fn numbered(count: usize, of: impl Fn(usize) -> String) -> String {
    (0..count).map(of).collect()
}

/// Hostile documents by name. `@` and `#` stand for the root and its child.
fn documents() -> Vec<(&'static str, String)> {
    let laughs = numbered(9, |n| {
        format!("<!ENTITY l{} '{}'>", n + 1, format!("&l{n};").repeat(10))
    });
    vec![
        (
            "an entity of its own",
            "<!DOCTYPE @ [<!ENTITY a 'b'>]><@><#>&a;</#></@>".into(),
        ),
        (
            "a billion laughs",
            format!("<!DOCTYPE @ [<!ENTITY l0 'ha'>{laughs}]><@><#>&l9;</#></@>"),
        ),
        (
            "a long entity, often",
            format!(
                "<!DOCTYPE @ [<!ENTITY a '{}'>]><@><#>{}</#></@>",
                "x".repeat(50_000),
                "&a;".repeat(50_000)
            ),
        ),
        (
            "an entity from a file",
            "<!DOCTYPE @ [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><@><#>&a;</#></@>".into(),
        ),
        (
            "an entity from elsewhere",
            "<!DOCTYPE @ [<!ENTITY a PUBLIC 'x' 'http://127.0.0.1/x'>]><@><#>&a;</#></@>".into(),
        ),
        (
            "a parameter entity",
            "<!DOCTYPE @ [<!ENTITY % a SYSTEM 'http://127.0.0.1/x.dtd'>%a;]><@><#/></@>".into(),
        ),
        (
            "a document type from elsewhere",
            "<!DOCTYPE @ SYSTEM 'http://127.0.0.1/x.dtd'><@><#/></@>".into(),
        ),
        ("a document type alone", "<!DOCTYPE @ []>".into()),
        (
            "a document type without end",
            format!("<!DOCTYPE @ [{}", filled("<!")),
        ),
        (
            "an entity that is not declared",
            "<@><#>&nothing;</#></@>".into(),
        ),
        ("ampersands", format!("<@><#>{}</#></@>", filled("&"))),
        ("a character above all", "<@><#>&#1114112;</#></@>".into()),
        (
            "a character of many digits",
            format!("<@><#>&#{};</#></@>", filled("9")),
        ),
        ("a character that ends text", "<@><#>&#0;</#></@>".into()),
        ("half a character", "<@><#>&#xD800;</#></@>".into()),
        (
            "depth 17",
            format!("<@><#>{}{}</#></@>", "<a>".repeat(15), "</a>".repeat(15)),
        ),
        ("depth without end", format!("<@><#>{}", filled("<a>"))),
        ("depth of the root", "<@>".repeat(20_000)),
        (
            "empty elements",
            format!("<@><#>{}</#></@>", filled("<a/>")),
        ),
        (
            "10,000 attributes",
            format!("<@{}><#/></@>", numbered(10_000, |n| format!(" a{n}=''"))),
        ),
        (
            "10,000 attributes of the text",
            format!("<@><#{}/></@>", numbered(10_000, |n| format!(" a{n}=''"))),
        ),
        (
            "10,000 attributes within the text",
            format!(
                "<@><#><a{}/></#></@>",
                numbered(10_000, |n| format!(" a{n}=''"))
            ),
        ),
        (
            "one attribute again and again",
            format!("<@{}><#/></@>", filled(" a=''")),
        ),
        (
            "10,000 namespaces",
            format!(
                "<@{}><#/></@>",
                numbered(10_000, |n| format!(" xmlns:n{n}='u'"))
            ),
        ),
        ("a long name", format!("<{}/>", filled("n"))),
        (
            "a long name of a child",
            format!("<@><{}/></@>", "n".repeat(190_000)),
        ),
        (
            "a long name of a reference",
            format!("<@><#>&{};</#></@>", filled("n")),
        ),
        ("an attribute without end", format!("<@ a='{}", filled("x"))),
        ("a comment without end", format!("<@><!-- {}", filled("x"))),
        ("comments in comments", format!("<@>{}</@>", filled("<!--"))),
        (
            "text without end",
            format!("<@><#><![CDATA[{}", filled("]]")),
        ),
        ("an instruction without end", format!("<?{}", filled("x"))),
        ("less-than signs", filled("<")),
        ("greater-than signs", filled(">")),
        ("nothing that is XML", filled("x")),
        ("NULs", filled("\0")),
        (
            "an inclusion",
            "<@><xi:include href='file:///etc/passwd'/></@>".into(),
        ),
        (
            "another encoding",
            "<?xml version='1.0' encoding='utf-7'?><@><#/></@>".into(),
        ),
        ("ends that are others", "<@><#></@></#>".into()),
        ("a root twice", "<@><#/></@><@><#/></@>".into()),
        ("text after the end", "<@><#/></@>x".into()),
        ("nothing", " ".into()),
    ]
}

#[tokio::test]
async fn hostile_documents_are_refused_at_little_cost() {
    for place in PLACES {
        let door = Door::open();
        door.send(call("PUT", "/orders")).await.check_status(201);
        let began = Instant::now();
        for (name, document) in documents() {
            let document = document.replace('@', place.root).replace('#', place.child);
            // The `#` of a character reference stays.
            let document = document.replace(&format!("&{}", place.child), "&#");
            let document = document.into_bytes();
            let call = call(place.method, place.target).body(document);
            let answer = door.send(call).await;
            assert!((400..500).contains(&answer.status), "{name}: {answer:?}");
            let code = answer.header("x-ms-error-code");
            assert!(
                matches!(
                    code,
                    Some(
                        "InvalidXmlDocument"
                            | "InvalidXmlNodeValue"
                            | "MissingRequiredXmlNode"
                            | "UnsupportedXmlNode"
                            | "RequestBodyTooLarge"
                    )
                ),
                "{name}: {answer:?}"
            );
            // The error is short, and does not repeat the input.
            assert!(
                answer.body.len() < 16 << 10,
                "{name}: {}",
                answer.body.len()
            );
        }
        let took = began.elapsed();
        assert!(took < PATIENCE, "{} took {took:?}", place.root);
        let orders = door.send(call("HEAD", "/orders?comp=metadata")).await;
        assert_eq!(orders.header("x-ms-approximate-messages-count"), Some("0"));
    }
}

#[tokio::test]
async fn ten_mebibytes_of_junk_are_not_kept() {
    for place in PLACES {
        let door = Door::open();
        let post = call(place.method, place.target);
        let length = (10 << 20).to_string();
        let wire = &mut door.connect_tcp().await;
        wire.write(&post.clone().header("Content-Length", &length).head())
            .await;
        wire.write(&vec![b'<'; 2 << 20]).await;
        let answer = wire.answer(false).await;
        answer.check_error(413, "RequestBodyTooLarge");
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(wire.is_closed().await);
        // Without a length to see it by.
        let wire = &mut door.connect();
        let mut chunks = post.header("Transfer-Encoding", "chunked").head();
        for _ in 0..60 {
            chunks.extend(b"8000\r\n");
            chunks.extend([b'<'; 0x8000]);
            chunks.extend(b"\r\n");
        }
        wire.write(&chunks).await;
        let answer = wire.answer(false).await;
        answer.check_error(413, "RequestBodyTooLarge");
    }
}
