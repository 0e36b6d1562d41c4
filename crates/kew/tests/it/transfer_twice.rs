//! `kew export` of a topic that the command names twice, and `kew import` of a rule that gives a parameter twice.

use serde_json::json;

use crate::client::{Script, answer, command, finish};
use crate::transfer::{ended, export, fact, kew, ok, start, write};

/// A topic in Azure can be named in any case, and comes once.
#[test]
fn a_topic_that_is_named_twice_is_exported_once() {
    let topic = "<entry xmlns=\"http://www.w3.org/2005/Atom\"><id>https://ns.example.net/news</id>\
         <title type=\"text\">news</title><content type=\"application/xml\">\
         <TopicDescription xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\">\
         </TopicDescription></content></entry>";
    let none = "<feed xmlns=\"http://www.w3.org/2005/Atom\"><title type=\"text\">Subscriptions</title></feed>";
    let answers = [topic, none, topic].map(|body| answer("200 OK", "", body));
    let script = Script::start(&answers);
    let connection = format!(
        "Endpoint=sb://{};SharedAccessKeyName=r;SharedAccessKey=k;UseDevelopmentEmulator=true",
        script.address
    );
    let mut export = command("");
    export.args(["export", "--definitions-only", "--retries", "0"]);
    export.args(["--queue", "news", "--queue", "NEWS"]);
    export.args(["--connection-string", &connection]);
    let done = finish(export, b"");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.text().matches("\"topic\"").count(), 1, "{done:?}");
    let requests = script.requests();
    assert!(requests[1].contains("ubscriptions"), "{requests:?}");
    assert!(requests[2].contains("NEWS"), "{requests:?}");
}

/// The message is in the file once, however often its topic is named.
#[test]
fn a_message_of_a_topic_that_is_named_twice_is_exported_once() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    ok(&server, &["bus", "topic", "create", "news"]);
    let create = ["bus", "subscription", "create", "news/subscriptions/a"];
    ok(&server, &create);
    ok(&server, &["bus", "send", "news", "now"]);
    // A namespace need not take this one.
    let later = ["bus", "send", "news", "later", "--delay", "1d"];
    let scheduled = usize::from(kew(&server, &later).code == 0);
    let bus = fact(&server, "KEW_BUS_CONNECTION_STRING");
    let only = [
        "--connection-string",
        bus,
        "--queue",
        "news",
        "--queue",
        "NEWS",
    ];
    let exported = export(&server, &only);
    let messages = exported.iter().filter(|it| it.get("body").is_some());
    assert_eq!(messages.count(), 1 + scheduled, "{exported:?}");
    server.terminate();
}

/// An earlier version has stored such a rule, and exported it.
#[test]
fn a_rule_of_an_old_file_that_gives_a_parameter_twice_is_imported() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(&place.path().join("data"));
    let topic = json!({"version": 1, "service": "service-bus", "topic": "news", "definition": {}});
    let subscription = json!({
        "version": 1, "service": "service-bus", "topic": "news", "subscription": "mail", "definition": {},
    });
    let rule = |parameters| {
        json!({
            "version": 1, "service": "service-bus", "topic": "news", "subscription": "mail", "rule": "large",
            "filter": {"sql": {"text": "size > @least", "parameters": parameters}},
        })
    };
    let twice = rule(json!({"@LEAST": {"long": 1}, "@least": {"long": 10}}));
    let file = write(place.path(), &ended(&[topic, subscription, twice]));
    let file = file.to_str().expect("UTF-8");
    // The second time finds it as it is.
    for created in [1, 0] {
        let imported = ok(&server, &["import", "--json", "--file", file]);
        assert_eq!(imported.json()["rules_created"], created, "{imported:?}");
        let told = "the rule large of the subscription news/subscriptions/mail gives the parameter @LEAST twice";
        assert!(imported.err.contains(told), "{imported:?}");
        assert!(!imported.err.contains("differ"), "{imported:?}");
    }
    let exported = export(&server, &[]);
    let once = rule(json!({"@least": {"long": 10}}));
    assert!(exported.contains(&once), "{exported:?}");
    server.terminate();
}
