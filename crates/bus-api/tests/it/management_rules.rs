//! Requests about rules to `$management` of a subscription.

use bytes::{Bytes, BytesMut};
use kew_amqp::Outgoing;
use kew_amqp::codec::{Descriptor, Encode, Map, Raw, Value, hex};
use kew_amqp::message::{Message, write_application_properties, write_value};
use kew_amqp::performative::{Attach, Role, Source, Tag, Target};

use crate::client::{Client, Server};
use crate::management::told;
use crate::rest::ask;

const NODE: &str = "events/subscriptions/all/$management";

async fn ask_at(client: &mut Client, node: &str, operation: &str, body: &impl Encode) -> Map {
    let operation = format!("com.microsoft:{operation}");
    let properties = Map::build(|map| map.entry("operation", operation.as_str()));
    client.ask(node, &properties, body).await
}

fn sql(text: &str) -> Map {
    let filter = Map::build(|map| map.entry("expression", text));
    Map::build(|map| map.entry("sql-filter", &filter))
}

fn rule(name: &str, description: &impl Encode) -> Map {
    Map::build(|map| {
        map.entry("rule-name", name);
        map.entry("rule-description", description);
    })
}

fn named(name: &str) -> Map {
    Map::build(|map| map.entry("rule-name", name))
}

fn status(answer: &Map) -> i64 {
    answer
        .get("statusCode")
        .unwrap()
        .value()
        .as_integer()
        .unwrap()
}

async fn add(client: &mut Client, body: &Map) {
    let answer = ask_at(client, NODE, "add-rule", body).await;
    assert_eq!(status(&answer), 200, "{answer:?}");
}

/// The rules of a page.
async fn listed(client: &mut Client, skip: i32, top: i32) -> Vec<Listed> {
    let properties = Map::build(|map| map.entry("operation", "com.microsoft:enumerate-rules"));
    let answer = client.ask_for(NODE, &properties, &page(skip, top)).await;
    rules_of(&answer)
}

fn page(skip: i32, top: i32) -> Map {
    Map::build(|map| {
        map.entry("skip", &skip);
        map.entry("top", &top);
    })
}

fn rules_of(answer: &Message) -> Vec<Listed> {
    let body = answer.body_values().next().unwrap().value();
    let Value::Map(body) = body else {
        panic!("{body:?}")
    };
    if status(&answer.application_properties()) == 204 {
        assert!(body.is_empty());
        return Vec::new();
    }
    let Some(Value::List(rules)) = body.get("rules").map(|it| it.value()) else {
        panic!("{body:?}")
    };
    rules.iter().map(|rule| Listed::of(&rule.value())).collect()
}

/// A rule in a list.
#[derive(Debug, PartialEq)]
struct Listed {
    name: String,
    filter: u64,
    filter_fields: Vec<Value>,
    action: u64,
    action_fields: Vec<Value>,
}

impl Listed {
    fn of(entry: &Value) -> Self {
        let Value::Map(entry) = entry else {
            panic!("{entry:?}")
        };
        assert_eq!(entry.len(), 1);
        let (code, fields) = described(&entry.get("rule-description").unwrap());
        assert_eq!(code, 0x0137_0000_0004);
        let [filter, action, Value::String(name), Value::Timestamp(at)] = &fields[..] else {
            panic!("{fields:?}")
        };
        assert!(at.0 > 1_600_000_000_000, "{at:?}");
        let (filter, filter_fields) = described(&Raw::of(filter));
        let (action, action_fields) = described(&Raw::of(action));
        let name = name.as_str().to_owned();
        Self {
            name,
            filter,
            filter_fields,
            action,
            action_fields,
        }
    }
}

/// The descriptor of a described list, and its fields.
fn described(raw: &Raw) -> (u64, Vec<Value>) {
    let Value::Described(described) = raw.value() else {
        panic!("{raw:?}")
    };
    let (Descriptor::Code(code), Value::List(list)) =
        (described.descriptor, described.value.value())
    else {
        panic!("{raw:?}")
    };
    (code, list.iter().map(|it| it.value()).collect())
}

fn names(rules: &[Listed]) -> Vec<&str> {
    rules.iter().map(|it| it.name.as_str()).collect()
}

#[tokio::test]
async fn rules_are_added_listed_and_removed() {
    let server = Server::with_topic(&["all", "more"]).await;
    let mut client = server.trusted().await;
    let default = listed(&mut client, 0, 100).await;
    assert_eq!(names(&default), ["$Default"]);
    assert_eq!(
        (default[0].filter, default[0].action),
        (0x0013_7000_0007, 0x0137_0000_0005)
    );

    add(&mut client, &rule("Red", &sql("color = 'red'"))).await;
    let properties = Map::build(|map| {
        map.entry("n", &2_i64);
        map.entry("text", "t");
    });
    let correlation = Map::build(|map| {
        map.entry("correlation-id", "c");
        map.entry("message-id", &Value::Null);
        map.entry("content-type", "text/plain");
        map.entry("properties", &properties);
    });
    let action = Map::build(|map| map.entry("expression", "SET a = 1"));
    let blue = Map::build(|map| {
        map.entry("correlation-filter", &correlation);
        map.entry("sql-rule-action", &action);
        map.entry("rule-name", "Blue");
    });
    add(&mut client, &rule("Blue", &blue)).await;
    let rules = listed(&mut client, 0, i32::MAX).await;
    assert_eq!(names(&rules), ["$Default", "Blue", "Red"]);
    let [_, blue, red] = &rules[..] else {
        panic!("{rules:?}")
    };
    let text = |text: &str| Value::String(text.into());
    assert_eq!(
        (red.filter, red.action),
        (0x0013_7000_0006, 0x0137_0000_0005)
    );
    assert_eq!(red.filter_fields, [text("color = 'red'"), Value::Int(20)]);
    assert_eq!(
        (blue.filter, blue.action),
        (0x0013_7000_0009, 0x0137_0000_0006)
    );
    let null = || Value::Null;
    assert_eq!(
        blue.filter_fields,
        [
            text("c"),
            null(),
            null(),
            null(),
            null(),
            null(),
            null(),
            text("text/plain"),
            Value::Map(properties),
        ]
    );
    assert_eq!(blue.action_fields, [text("SET a = 1"), Value::Int(20)]);
    // The next page, and the one behind the last rule.
    assert_eq!(names(&listed(&mut client, 1, 1).await), ["Blue"]);
    assert_eq!(listed(&mut client, 3, 100).await, []);
    // What HTTP shows is the same.
    let shown = ask(
        &server,
        "GET",
        "events/subscriptions/all/rules/blue",
        &[],
        "",
    )
    .await;
    assert!(
        shown.body.contains("<ContentType>text/plain</ContentType>"),
        "{shown:?}"
    );

    for name in ["BLUE", "$default", "Red"] {
        let removed = ask_at(&mut client, NODE, "remove-rule", &named(name)).await;
        assert_eq!(status(&removed), 200);
        let again = ask_at(&mut client, NODE, "remove-rule", &named(name)).await;
        assert_eq!(told(&again), (404, "amqp:not-found".into()));
        let text = again.get("statusDescription").unwrap().value();
        // JavaScript knows the error by this text.
        let expected = format!("The messaging entity '{name}', a rule, could not be found.");
        assert_eq!(text.as_str(), Some(expected.as_str()));
    }
    assert_eq!(listed(&mut client, 0, 100).await, []);
}

#[tokio::test]
async fn what_is_no_rule_is_refused() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = server.trusted().await;
    add(&mut client, &rule("there", &sql("1=1"))).await;
    let both = Map::build(|map| {
        map.entry("sql-filter", &Map::default());
        map.entry("correlation-filter", &Map::default());
    });
    let unknown = Map::build(|map| map.entry("true-filter", &Map::default()));
    let large = Map::build(|map| map.entry("label", "x".repeat(33_000).as_str()));
    let large = Map::build(|map| map.entry("correlation-filter", &large));
    let bad_type = Map::build(|map| map.entry("session-id", &1));
    let bad_type = Map::build(|map| map.entry("correlation-filter", &bad_type));
    let only_name = named("r");
    let only_rule = Map::build(|map| map.entry("rule-description", &sql("1=1")));
    let number = Map::build(|map| {
        map.entry("rule-name", &1);
        map.entry("rule-description", &sql("1=1"));
    });
    let (argument, range) = (
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
    );
    let exists = "com.microsoft:entity-already-exists";
    for (body, code, condition, says) in [
        (
            rule("THERE", &sql("1=0")),
            409,
            exists,
            "the rule 'THERE' exists already",
        ),
        (
            rule("r", &sql("color =")),
            400,
            argument,
            "the filter is not valid: column 8",
        ),
        (
            rule("r", &sql("")),
            400,
            argument,
            "the filter is not valid",
        ),
        (
            rule("r", &Map::default()),
            400,
            argument,
            "either a sql-filter or",
        ),
        (rule("r", &both), 400, argument, "either a sql-filter or"),
        (rule("r", &unknown), 400, argument, "either a sql-filter or"),
        (rule("r", &bad_type), 400, argument, "the session-id of"),
        (rule("r", &large), 400, argument, "the maximum is 32768"),
        (
            rule("r", &1),
            400,
            argument,
            "'rule-description' of the request must be a map",
        ),
        (
            only_name,
            400,
            argument,
            "'rule-description' of the request must be a map",
        ),
        (
            only_rule,
            400,
            argument,
            "'rule-name' of the request must be a string",
        ),
        (
            number,
            400,
            argument,
            "'rule-name' of the request must be a string",
        ),
        (rule("a/b", &sql("1=1")), 400, argument, "the character '/'"),
        (rule("", &sql("1=1")), 400, range, "1 to 50 characters"),
        (
            rule(&"x".repeat(51), &sql("1=1")),
            400,
            range,
            "1 to 50 characters",
        ),
    ] {
        let answer = ask_at(&mut client, NODE, "add-rule", &body).await;
        assert_eq!(told(&answer), (code, condition.into()), "{says}");
        let text = answer.get("statusDescription").unwrap().value();
        let text = text.as_str().unwrap();
        assert!(text.contains(says), "{text} does not say {says}");
    }
    let no_map = ask_at(&mut client, NODE, "add-rule", &1).await;
    assert_eq!(told(&no_map), (400, argument.into()));
    for (operation, body) in [
        ("remove-rule", Map::default()),
        ("enumerate-rules", Map::default()),
        ("enumerate-rules", page(0, 0)),
        ("enumerate-rules", page(-1, 1)),
    ] {
        let answer = ask_at(&mut client, NODE, operation, &body).await;
        assert_eq!(told(&answer), (400, argument.into()), "{operation}");
    }
    assert_eq!(
        names(&listed(&mut client, 0, 100).await),
        ["$Default", "there"]
    );
}

#[tokio::test]
async fn only_subscriptions_have_rules() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = server.trusted().await;
    for (entity, code, condition, says) in [
        (
            "jobs",
            400,
            "amqp:not-allowed",
            "'jobs' is a queue: only subscriptions",
        ),
        ("events", 400, "amqp:not-allowed", "'events' is a topic"),
        (
            "events/subscriptions/all/$DeadLetterQueue",
            400,
            "amqp:not-allowed",
            "is a sub-queue of a subscription",
        ),
        (
            "events/subscriptions/none",
            404,
            "amqp:not-found",
            "could not be found",
        ),
        ("none", 404, "amqp:not-found", "could not be found"),
    ] {
        let node = format!("{entity}/$management");
        for (operation, body) in [
            ("add-rule", rule("r", &sql("1=1"))),
            ("remove-rule", named("$Default")),
            ("enumerate-rules", page(0, 1)),
        ] {
            let answer = ask_at(&mut client, &node, operation, &body).await;
            assert_eq!(
                told(&answer),
                (code, condition.into()),
                "{entity} {operation}"
            );
            let text = answer.get("statusDescription").unwrap().value();
            let text = text.as_str().unwrap();
            assert!(text.contains(says), "{text} does not say {says}");
        }
    }
}

/// What an SDK of .NET sends, byte for byte: all fields of a correlation filter, those that are not set as nulls, and no
/// action.
#[tokio::test]
async fn nulls_are_fields_that_are_not_set() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = server.trusted().await;
    let filter = Map::build(|map| {
        for name in [
            "correlation-id",
            "message-id",
            "to",
            "reply-to",
            "session-id",
            "reply-to-session-id",
            "content-type",
        ] {
            map.entry(name, &Value::Null);
        }
        map.entry("label", "l");
        map.entry("properties", &Map::default());
    });
    let description = Map::build(|map| {
        map.entry("correlation-filter", &filter);
        map.entry("sql-rule-action", &Value::Null);
        map.entry("rule-name", "r");
    });
    add(&mut client, &rule("r", &description)).await;
    let rules = listed(&mut client, 1, 1).await;
    assert_eq!(rules[0].filter_fields[4], Value::String("l".into()));
    assert_eq!(rules[0].filter_fields[8], Value::Map(Map::default()));
    // An empty map in its shortest form.
    let bytes: &Bytes = &Bytes::copy_from_slice(Raw::of(&rules[0].filter_fields[8]).as_bytes());
    assert_eq!(hex(bytes), "c10100");
}

/// Java asks for all rules in one request.
#[tokio::test]
async fn a_list_may_be_long() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = server.trusted().await;
    let value = "x".repeat(30_000);
    for number in 0..50 {
        let filter = Map::build(|map| map.entry("label", value.as_str()));
        let filter = Map::build(|map| map.entry("correlation-filter", &filter));
        add(&mut client, &rule(&format!("r{number:02}"), &filter)).await;
    }
    // The answer exceeds the size that this client accepts otherwise.
    let mut attach = Attach::new("long".into(), Role::Receiver);
    attach.source = Some(Source::new(NODE.into()));
    attach.target = Some(Target::new("long".into()));
    attach.max_message_size = Some(8 << 20);
    let (answers, _) = client.attach(attach).await.unwrap();
    client.connection.grant(answers, 1);
    let requests = client.sender(NODE).await.unwrap();
    client.can_send(requests).await;
    let mut payload = BytesMut::new();
    let properties = Map::build(|map| map.entry("operation", "com.microsoft:enumerate-rules"));
    write_application_properties(&mut payload, &properties);
    write_value(&mut payload, &page(0, i32::MAX));
    let outgoing = Outgoing {
        tag: Tag::from([1; 16]),
        message_format: 0,
        is_settled: true,
        state: None,
    };
    let parts = [payload.freeze(), Bytes::new()];
    client.connection.send(requests, outgoing, parts).unwrap();
    let answer = Message::scan(client.delivery().await.payload).unwrap();
    assert_eq!(rules_of(&answer).len(), 51);
}
