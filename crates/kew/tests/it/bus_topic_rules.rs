//! `kew bus rule`: rules of subscriptions, at a service that answers in Azure's form, and at Kew.

use serde_json::{Value, json};

use crate::bus_topics::{S, has, kew_at, with_topic};
use crate::client::{Done, Script, answer, command, finish};
use crate::operate::{json_of, kew, ok, with_server};

/// Runs a command at a service that sends this answer. Returns also the first line of the request.
fn scripted(status: &str, body: &str, arguments: &[&str]) -> (Done, String) {
    let script = Script::start(&[answer(status, "", body)]);
    let connection = format!(
        "Endpoint=sb://{};SharedAccessKeyName=r;SharedAccessKey=k;UseDevelopmentEmulator=true",
        script.address
    );
    let done = kew_at(&connection, arguments);
    (done, script.requests().remove(0))
}

/// A rule in the form of the service.
fn entry(name: &str, elements: &str) -> String {
    format!(
        "<entry xmlns=\"http://www.w3.org/2005/Atom\"><title>{name}</title><content>\
         <RuleDescription xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">{elements}\
         <Name>{name}</Name></RuleDescription></content></entry>"
    )
}

fn feed(entries: &[String]) -> String {
    format!(
        "<feed xmlns=\"http://www.w3.org/2005/Atom\">{}</feed>",
        entries.concat()
    )
}

const RED: &str = "<Filter i:type=\"SqlFilter\"><SqlExpression>color = @c</SqlExpression>\
     <Parameters><KeyValueOfstringanyType><Key>@c</Key><Value i:type=\"l28:string\">red</Value>\
     </KeyValueOfstringanyType></Parameters></Filter>\
     <Action i:type=\"SqlRuleAction\"><SqlExpression>SET seen = 1</SqlExpression></Action>\
     <CreatedAt>2026-01-31T12:00:00Z</CreatedAt>";

const ORDER: &str = "<Filter i:type=\"CorrelationFilter\"><Label>order</Label><Properties>\
     <KeyValueOfstringanyType><Key>size</Key><Value i:type=\"l28:int\">7</Value>\
     </KeyValueOfstringanyType></Properties></Filter><Action i:type=\"EmptyRuleAction\"/>";

#[test]
fn rules_are_shown_like_the_flags_that_make_them() {
    let all = feed(&[
        entry("red", RED),
        entry("order", ORDER),
        entry("$Default", "<Filter i:type=\"TrueFilter\"/>"),
        entry("odd", "<Filter i:type=\"ShapeFilter\"/>"),
        // Earlier versions of Kew took such a rule.
        entry("empty", "<Filter i:type=\"CorrelationFilter\"/>"),
    ]);
    let (done, request) = scripted("200 OK", &all, &["bus", "rule", "list", S]);
    let target = "GET /news/Subscriptions/s/Rules?$skip=0&$top=100&";
    assert!(request.starts_with(target), "{request}");
    let lines: Vec<&str> = done.text().lines().map(str::trim_end).collect();
    assert_eq!(
        lines,
        [
            "RULE      FILTER                                                           ACTION",
            "red       color = @c                                                       SET seen = 1",
            "order     sys.Label=order size={\"int\":7}",
            "$Default  true",
            "odd       ShapeFilter",
            "empty     (a correlation filter without conditions: matches all messages)",
        ],
        "{done:?}"
    );
    let (done, _) = scripted("200 OK", &all, &["bus", "rule", "list", S, "--json"]);
    let expected = json!([
        {
            "name": "red", "sql": "color = @c", "sql_parameters": {"@c": "red"},
            "action": "SET seen = 1", "created_at": "2026-01-31T12:00:00.000Z",
        },
        {"name": "order", "correlation": {"sys.Label": "order", "size": {"int": 7}}},
        {"name": "$Default", "true": true},
        {"name": "odd", "filter": "ShapeFilter"},
        {"name": "empty", "correlation": {}},
    ]);
    assert_eq!(done.json(), expected);
    let show = ["bus", "rule", "show", S, "red"];
    let (done, request) = scripted("200 OK", &entry("red", RED), &show);
    assert!(
        request.starts_with("GET /news/Subscriptions/s/Rules/red?"),
        "{request}"
    );
    assert!(
        done.text().contains("\nname: red\nsql: color = @c\n"),
        "{done:?}"
    );
}

#[test]
fn rules_are_added_set_and_removed() {
    let rule = entry("red", RED);
    let add = [
        "bus",
        "rule",
        "add",
        S,
        "red",
        "--sql",
        "color = @c",
        "--parameter",
        "@c=red",
        "--action",
        "SET seen = 1",
    ];
    let (done, request) = scripted("201 Created", &rule, &add);
    assert_eq!(
        (done.code, done.text()),
        (0, "added red of news/subscriptions/s\n"),
        "{done:?}"
    );
    assert!(
        request.starts_with("PUT /news/Subscriptions/s/Rules/red?"),
        "{request}"
    );
    let error = "<Error><Code>409</Code><Detail>SubCode=40900. There is one.</Detail></Error>";
    let (done, _) = scripted("409 Conflict", error, &add);
    done.check_error(1, &["There is one", "409"]);
    let (done, _) = scripted(
        "409 Conflict",
        error,
        &[&add[..], &["--if-not-exists", "--json"]].concat(),
    );
    assert_eq!(
        done.json(),
        json!({"subscription": S, "rule": "red", "added": false})
    );
    let set = ["bus", "rule", "set", S, "red", "--correlation", "sys.To=x"];
    let (done, _) = scripted("200 OK", &rule, &set);
    assert_eq!(done.text(), "set red of news/subscriptions/s\n", "{done:?}");
    let remove = ["bus", "rule", "remove", S, "red"];
    let (done, request) = scripted("200 OK", "", &remove);
    assert_eq!(
        done.text(),
        "removed red of news/subscriptions/s\n",
        "{done:?}"
    );
    assert!(
        request.starts_with("DELETE /news/Subscriptions/s/Rules/red?"),
        "{request}"
    );
    let error = "<Error><Code>404</Code><Detail>SubCode=40400. None.</Detail></Error>";
    let (done, _) = scripted("404 Not Found", error, &remove);
    done.check_error(1, &["None", "404"]);
    let (done, _) = scripted(
        "404 Not Found",
        error,
        &[&remove[..], &["--if-exists"]].concat(),
    );
    assert_eq!(done.text(), "did not exist: red of news/subscriptions/s\n");
}

#[test]
fn rules_of_a_subscription_are_tested() {
    let rules = feed(&[entry("red", RED), entry("order", ORDER)]);
    let script = Script::start(&[answer("200 OK", "", &rules), answer("200 OK", "", &rules)]);
    let connection = format!(
        "Endpoint=sb://{};SharedAccessKeyName=r;SharedAccessKey=k;UseDevelopmentEmulator=true",
        script.address
    );
    let lines = [
        json!({"version": 1, "service": "service-bus", "properties": {"color": "red"}}),
        json!({"version": 1, "service": "service-bus", "subject": "order",
            "properties": {"size": {"int": 7}}}),
    ];
    let input = lines.map(|line| line.to_string()).join("\n");
    let test = |more: &[&str]| {
        let mut command = command("");
        command.env("KEW_BUS_CONNECTION_STRING", &connection);
        command
            .args(["bus", "rule", "test", "--subscription", S])
            .args(more);
        finish(command, input.as_bytes())
    };
    let expected = "line 1, rule red: matched\n  seen: set to {\"long\":1}\n\
         line 1, rule order: not matched\n\
         line 2, rule red: not matched\n\
         line 2, rule order: matched\n\
         2 messages on 2 rules: 2 matched, 2 not matched, 0 failed\n";
    let done = test(&[]);
    assert_eq!((done.code, done.text()), (0, expected), "{done:?}");
    let done = test(&["--json", "-n", "1"]);
    let objects: Vec<Value> = done
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(objects.len(), 3);
    has(
        &objects[1],
        &json!({"line": 1, "rule": "order", "outcome": "not_matched"}),
    );
    has(
        &objects[2],
        &json!({"messages": 1, "rules": 2, "matched": 1, "not_matched": 1}),
    );
    script.requests();
    let odd = feed(&[entry("odd", "<Filter i:type=\"ShapeFilter\"/>")]);
    let (done, _) = scripted(
        "200 OK",
        &odd,
        &["bus", "rule", "test", "--subscription", S],
    );
    done.check_error(1, &["the rule odd of news/subscriptions/s", "ShapeFilter"]);
}

#[test]
fn rules_of_the_server_are_managed_and_tested() {
    with_server(|server| {
        with_topic(server);
        let red = [
            "bus",
            "subscription",
            "create",
            "news/subscriptions/red",
            "--sql",
            "color = 'red'",
        ];
        ok(server, &[&red[..], &["--rule-name", "first"]].concat());
        let listed = json_of(server, &["bus", "rule", "list", "news/subscriptions/red"]);
        assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
        has(
            &listed[0],
            &json!({"name": "first", "sql": "color = 'red'", "action": null}),
        );
        let add = [
            "bus",
            "rule",
            "add",
            S,
            "large",
            "--sql",
            "size > @least",
            "--parameter",
            "@least=10",
            "--parameter",
            "@more=1",
            "--action",
            "SET seen = @LEAST + @more",
        ];
        assert_eq!(ok(server, &add), "added large of news/subscriptions/s\n");
        kew(server, &add).check_error(1, &["409"]);
        let wrong = ["bus", "rule", "add", S, "wrong", "--sql", "a = = 1"];
        kew(server, &wrong).check_error(1, &["column 5", "400"]);
        let shown = json_of(server, &["bus", "rule", "show", S, "LARGE"]);
        has(
            &shown,
            &json!({
                "name": "large", "sql": "size > @least", "sql_parameters": {"@least": {"int": 10}},
                "action": "SET seen = @LEAST + @more",
                "action_parameters": {"@least": {"int": 10}, "@more": {"int": 1}},
            }),
        );
        ok(server, &["bus", "rule", "remove", S, "$Default"]);
        let set = [
            "bus",
            "rule",
            "set",
            S,
            "large",
            "--correlation",
            "sys.Label=order",
            "--correlation",
            "size=7",
        ];
        ok(server, &set);
        let listed = json_of(server, &["bus", "rule", "list", S]);
        let conditions = json!({"sys.Label": "order", "size": {"int": 7}});
        assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
        has(
            &listed[0],
            &json!({"name": "large", "correlation": conditions, "sql": null, "action": null}),
        );
        let missing = ["bus", "rule", "show", S, "none"];
        kew(server, &missing).check_error(1, &["404"]);
        // Messages of a queue, on the rules of a subscription.
        for (subject, size) in [("order", "7"), ("order", "8")] {
            let property = format!("size={size}");
            ok(
                server,
                &[
                    "bus",
                    "send",
                    "orders",
                    "x",
                    "--subject",
                    subject,
                    "--property",
                    &property,
                ],
            );
        }
        let tested = ok(
            server,
            &["bus", "rule", "test", "orders", "--subscription", S],
        );
        let expected = "1, rule large: matched\n2, rule large: not matched\n\
             2 messages on 1 rule: 1 matched, 1 not matched, 0 failed\n";
        assert_eq!(tested, expected);
        let of_queue = json_of(server, &["bus", "peek", "orders"]);
        assert_eq!(of_queue.as_array().map(Vec::len), Some(2), "they stay");
        // Of a subscription that has messages: its own ones.
        let own = [
            "bus",
            "rule",
            "test",
            "news/subscriptions/red",
            "--subscription",
            S,
        ];
        assert_eq!(
            ok(server, &own),
            "0 messages on 1 rule: 0 matched, 0 not matched, 0 failed\n"
        );
    });
}
