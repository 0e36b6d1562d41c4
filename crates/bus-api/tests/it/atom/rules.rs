//! Creates, reads, lists, changes and deletes rules of subscriptions.

use super::topics::{CONNECT, create_topic, entries, subscribe, update_subscription};
use super::{Ask, ask};
use crate::client::Server;
use crate::rest::Answer;

const PATH: &str = "/t/Subscriptions/s/Rules";
const EMPTY: &str = "<Action i:type=\"EmptyRuleAction\" />";
const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";

async fn with_subscription() -> Server {
    let server = Server::start().await;
    create_topic(&server, "/t", "").await.check(201);
    subscribe(&server, "/t/Subscriptions/s", "")
        .await
        .check(201);
    server
}

fn put<'a>(path: &'a str, elements: &str) -> Ask<'a> {
    ask("PUT", path).description("RuleDescription", elements)
}

fn update<'a>(path: &'a str, elements: &str) -> Ask<'a> {
    put(path, elements).header("If-Match", "*")
}

fn sql(text: &str) -> String {
    format!("<Filter i:type=\"SqlFilter\"><SqlExpression>{text}</SqlExpression></Filter>")
}

/// The elements of the rule in an answer, without its time.
fn described(answer: &Answer) -> String {
    let (_, after) = answer
        .body
        .split_once(&format!("<RuleDescription {CONNECT}>"))
        .unwrap();
    let (inner, _) = after.split_once("</RuleDescription>").unwrap();
    let at = answer.text("CreatedAt");
    assert!(at.starts_with("20") && at.ends_with('Z'), "{at}");
    inner.replace(&format!("<CreatedAt>{at}</CreatedAt>"), "<CreatedAt/>")
}

fn names(page: &Answer) -> Vec<String> {
    entries(page).into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn rules_are_created_read_changed_and_deleted() {
    let server = with_subscription().await;
    let version = "api-version=2021-05";
    let path = format!("{PATH}/Red?{version}");
    let created = put(&path, &sql("color = 'red'")).of(&server).await;
    let created = created.check(201);
    let expected = format!(
        "<Filter i:type=\"SqlFilter\"><SqlExpression>color = 'red'</SqlExpression>\
         <CompatibilityLevel>20</CompatibilityLevel><Parameters /></Filter>{EMPTY}<CreatedAt/><Name>Red</Name>"
    );
    assert_eq!(described(&created), expected);
    // JavaScript takes the names from the path of the id, .NET from the title.
    let head = "<entry xmlns=\"http://www.w3.org/2005/Atom\">\
        <id>http://ns.example:5300/t/Subscriptions/s/Rules/Red?api-version=2021-05</id>\
        <title type=\"text\">Red</title>";
    assert!(created.body.starts_with(head), "{}", created.body);
    // Names are the same in any case.
    for path in [
        "/T/subscriptions/S/rules/RED",
        "/t/Subscriptions/s/Rules/red/",
    ] {
        let read = ask("GET", path).of(&server).await.check(200);
        assert_eq!(described(&read), expected);
    }
    let again = put("/t/subscriptions/s/rules/RED", &sql("1=1"))
        .of(&server)
        .await;
    again.check_refused(409, 40_900, "the rule 'RED' exists already");

    let blue = format!(
        "{}<Action i:type=\"SqlRuleAction\"><SqlExpression>SET a = 1</SqlExpression></Action><Name>x</Name>",
        sql("color = 'blue'")
    );
    let changed = update(&path, &blue).of(&server).await.check(200);
    assert_eq!(changed.text("Name"), "Red");
    let read = ask("GET", &path).of(&server).await.check(200);
    assert_eq!(read.text("SqlExpression"), "color = 'blue'");
    let action = "<Action i:type=\"SqlRuleAction\"><SqlExpression>SET a = 1</SqlExpression>\
        <CompatibilityLevel>20</CompatibilityLevel><Parameters /></Action>";
    assert!(read.body.contains(action), "{}", read.body);
    let missing = update(&format!("{PATH}/blue"), &blue).of(&server).await;
    missing.check_refused(404, 40_400, "the rule 'blue' could not be found");

    ask("DELETE", &path).of(&server).await.check(200);
    for method in ["GET", "DELETE"] {
        let gone = ask(method, &path).of(&server).await;
        gone.check_refused(404, 40_400, "the rule 'Red' could not be found");
    }
}

#[tokio::test]
async fn every_kind_of_filter_is_shown_as_it_was_given() {
    let server = with_subscription().await;
    let default = ask("GET", &format!("{PATH}/$Default")).of(&server).await;
    let all = "<Filter i:type=\"TrueFilter\"><SqlExpression>1=1</SqlExpression>\
        <CompatibilityLevel>20</CompatibilityLevel><Parameters /></Filter>";
    let expected = format!("{all}{EMPTY}<CreatedAt/><Name>$Default</Name>");
    assert_eq!(described(&default.check(200)), expected);
    let value = |kind: &str, namespace: &str, text: &str| {
        format!(
            "<KeyValueOfstringanyType><Key>{kind}</Key>\
             <Value i:type=\"d6p1:{kind}\" xmlns:d6p1=\"{namespace}\">{text}</Value></KeyValueOfstringanyType>"
        )
    };
    let serialization = "http://schemas.microsoft.com/2003/10/Serialization/";
    let values: String = [
        ("string", SCHEMA, " a &lt; b "),
        ("int", SCHEMA, "-5"),
        ("long", SCHEMA, "3000000000"),
        ("double", SCHEMA, "1.5"),
        ("boolean", SCHEMA, "true"),
        ("dateTime", SCHEMA, "2020-07-05T11:12:13Z"),
        ("duration", serialization, "P1DT2H3M"),
        (
            "guid",
            serialization,
            "6e9a8a3e-0d4c-4f43-9a53-2b1e0a5f2d11",
        ),
    ]
    .into_iter()
    .map(|(kind, namespace, text)| value(kind, namespace, text))
    .collect();
    let correlation = format!(
        "<Filter i:type=\"CorrelationFilter\"><CorrelationId>c</CorrelationId><MessageId>m</MessageId>\
         <To>t</To><ReplyTo>r</ReplyTo><Label>l</Label><SessionId>s</SessionId>\
         <ReplyToSessionId>rs</ReplyToSessionId><ContentType>ct</ContentType>\
         <Properties>{values}</Properties></Filter>"
    );
    let with_parameters = format!(
        "<Filter i:type=\"SqlFilter\"><SqlExpression>a = @int</SqlExpression>\
         <CompatibilityLevel>17</CompatibilityLevel><Parameters>{values}</Parameters></Filter>"
    );
    let action = format!(
        "<Action i:type=\"SqlRuleAction\"><SqlExpression>SET a = @int</SqlExpression>\
         <CompatibilityLevel>20</CompatibilityLevel><Parameters>{values}</Parameters></Action>"
    );
    let nothing = all.replace("True", "False").replace("1=1", "1=0");
    for (name, filter, action) in [
        ("correlation", correlation.as_str(), EMPTY),
        ("parameters", &with_parameters, &action),
        ("nothing", &nothing, EMPTY),
        ("all", all, EMPTY),
    ] {
        let path = format!("{PATH}/{name}");
        let elements = format!("{filter}{action}");
        let expected = format!("{elements}<CreatedAt/><Name>{name}</Name>");
        let created = put(&path, &elements).of(&server).await.check(201);
        assert_eq!(described(&created), expected);
        let read = ask("GET", &path).of(&server).await.check(200);
        assert_eq!(described(&read), expected);
        // A client sends back what it got.
        let changed = update(&path, &expected).of(&server).await.check(200);
        assert_eq!(described(&changed), expected);
    }
}

#[tokio::test]
async fn rules_are_listed_in_pages() {
    let server = with_subscription().await;
    for number in 0..3 {
        let path = format!("{PATH}/r{number}");
        put(&path, &sql("a = 1")).of(&server).await.check(201);
    }
    let page = ask("GET", &format!("{PATH}?$skip=0&$top=3"))
        .of(&server)
        .await;
    let page = page.check(200);
    assert!(page.body.contains("<title type=\"text\">Rules</title>"));
    assert_eq!(names(&page), ["$Default", "r0", "r1"]);
    assert!(
        page.body.contains("%24skip=3&amp;%24top=3"),
        "{}",
        page.body
    );
    let path = "t/Subscriptions/s/Rules/r1";
    assert_eq!(entries(&page)[2].1, path);
    // Go puts a slash behind it.
    let page = ask("GET", &format!("{PATH}/?$skip=3&$top=3"))
        .of(&server)
        .await;
    let page = page.check(200);
    assert_eq!(names(&page), ["r2"]);
    assert!(!page.body.contains("rel=\"next\""));
    let page = ask("GET", &format!("{PATH}?$skip=4")).of(&server).await;
    assert_eq!(names(&page.check(200)), Vec::<String>::new());
    let refused = ask("GET", &format!("{PATH}?$top=x")).of(&server).await;
    refused.check_refused(400, 40_000, "$top is 'x'");
}

/// .NET asks for no more pages when one has fewer rules than it asked for.
#[tokio::test]
async fn a_page_of_large_rules_is_whole() {
    let server = with_subscription().await;
    let value = "x".repeat(30_000);
    for number in 0..40 {
        let filter = format!(
            "<Filter i:type=\"CorrelationFilter\"><Properties><KeyValueOfstringanyType><Key>a</Key>\
             <Value i:type=\"d6p1:string\">{value}</Value></KeyValueOfstringanyType></Properties></Filter>"
        );
        let path = format!("{PATH}/r{number:02}");
        put(&path, &filter).of(&server).await.check(201);
    }
    let page = ask("GET", &format!("{PATH}?$top=40"))
        .of(&server)
        .await
        .check(200);
    assert_eq!(names(&page).len(), 40);
    assert!(page.body.contains("%24skip=40&amp;"));
}

/// Go leaves the name out of the path.
#[tokio::test]
async fn a_rule_may_be_named_by_its_description() {
    let server = with_subscription().await;
    let path = format!("{PATH}/$default");
    ask("DELETE", &path).of(&server).await.check(200);
    let nothing = "<Filter i:type=\"FalseFilter\"/>";
    let path = format!("{PATH}/");
    let created = put(&path, &format!("{nothing}<Name>$Default</Name>"));
    assert_eq!(
        created.of(&server).await.check(201).text("Name"),
        "$Default"
    );
    let exists = put(&path, nothing).of(&server).await;
    exists.check_refused(409, 40_900, "the rule '$Default' exists already");
    let created = put(&path, &format!("{nothing}<Name>mine</Name>"));
    assert_eq!(created.of(&server).await.check(201).text("Name"), "mine");
    let listed = ask("GET", PATH).of(&server).await.check(200);
    assert_eq!(names(&listed), ["$Default", "mine"]);
}

#[tokio::test]
async fn a_subscription_may_begin_with_a_rule() {
    let server = Server::start().await;
    create_topic(&server, "/t", "").await.check(201);
    let rule =
        |elements: &str| format!("<DefaultRuleDescription>{elements}</DefaultRuleDescription>");
    let action =
        "<Action i:type=\"SqlRuleAction\"><SqlExpression>SET a = 1</SqlExpression></Action>";
    for (name, elements, shown, has) in [
        (
            "a",
            sql("color = 'red'") + "<Name>Red</Name>",
            "Red",
            "color = 'red'",
        ),
        ("b", sql("1=1") + action, "$Default", "SET a = 1"),
        (
            "c",
            "<Filter i:type=\"TrueFilter\"><SqlExpression>1=1</SqlExpression></Filter>\
             <Action i:type=\"EmptyRuleAction\"/><Name>$default</Name>"
                .into(),
            "$Default",
            "TrueFilter",
        ),
    ] {
        let path = format!("/t/Subscriptions/{name}");
        subscribe(&server, &path, &rule(&elements)).await.check(201);
        let listed = ask("GET", &format!("{path}/Rules")).of(&server).await;
        let listed = listed.check(200);
        assert_eq!(names(&listed), [shown]);
        assert!(listed.body.contains(has), "{}", listed.body);
    }
    for (elements, says) in [
        (sql("color ="), "column 8"),
        (
            "<Filter i:type=\"JsonFilter\"/>".into(),
            "'JsonFilter', and must be",
        ),
        (sql("1=1") + "<Name>a/b</Name>", "the character '/'"),
        (
            sql("1=1") + &format!("<Name>{}</Name>", "x".repeat(51)),
            "1 to 50 characters",
        ),
    ] {
        let refused = subscribe(&server, "/t/Subscriptions/d", &rule(&elements)).await;
        refused.check_refused(400, 40_000, says);
    }
    let missing = ask("GET", "/t/Subscriptions/d").of(&server).await;
    missing.check_refused(404, 40_400, "could not be found");
    // Clients send the rule that a subscription has anyway with an update, too.
    let all = rule("<Filter i:type=\"TrueFilter\"/><Name>$Default</Name>");
    update_subscription(&server, "/t/Subscriptions/a", &all)
        .await
        .check(200);
    let refused = update_subscription(&server, "/t/Subscriptions/a", &rule(&sql("1=0"))).await;
    refused.check_refused(
        400,
        40_000,
        "DefaultRuleDescription is only for a new subscription",
    );
}

#[tokio::test]
async fn what_is_no_rule_is_refused() {
    let server = with_subscription().await;
    let long = "x".repeat(51);
    let large = format!(
        "<Filter i:type=\"CorrelationFilter\"><Label>{}</Label></Filter>",
        "x".repeat(33_000)
    );
    for (name, elements, says) in [
        ("r", String::new(), "must have a Filter"),
        ("r", sql("a ="), "the filter is not valid: column 4"),
        ("r", sql(""), "the filter is not valid"),
        ("r", sql("a = @p"), "the parameter @p has no value"),
        ("r", "<Filter i:type=\"Sql\"/>".into(), "must be SqlFilter"),
        (
            "r",
            "<Filter i:type=\"TrueFilter\"/><Action i:type=\"SqlRuleAction\"><SqlExpression>RUN</SqlExpression></Action>".into(),
            "the action is not valid",
        ),
        ("r", large, "the maximum is 32768"),
        (long.as_str(), sql("1=1"), "51 characters, and must be 1 to 50 characters"),
        ("a/b", sql("1=1"), "the character '/'"),
        ("a%3Fb", sql("1=1"), "the character '?'"),
    ] {
        let path = format!("{PATH}/{name}");
        let refused = put(&path, &elements).of(&server).await;
        refused.check_refused(400, 40_000, says);
        let missing = ask("GET", &path).of(&server).await;
        missing.check_refused(404, 40_400, "could not be found");
    }
    let path = format!("{PATH}/r");
    let wrong = ask("PUT", &path).queue("").of(&server).await;
    wrong.check_refused(400, 40_000, "must be RuleDescription");
    let wrong = put(&path, &sql("1=1")).header("If-Match", "\"1\"");
    wrong
        .of(&server)
        .await
        .check_refused(400, 40_000, "If-Match is");
    let wrong = put("/q", &sql("1=1")).of(&server).await;
    wrong.check_refused(400, 40_000, "TOPIC/Subscriptions/SUBSCRIPTION/Rules/NAME");
    let wrong = ask("DELETE", PATH).of(&server).await.check(405);
    assert!(wrong.head.contains("allow: GET, PUT"), "{}", wrong.head);
    for path in [
        "/t/Subscriptions/none/Rules/r",
        "/none/Subscriptions/s/Rules/r",
        "/jobs/Subscriptions/s/Rules/r",
    ] {
        for request in [
            put(path, &sql("1=1")),
            update(path, &sql("1=1")),
            ask("GET", path),
            ask("DELETE", path),
        ] {
            let missing = request.of(&server).await;
            missing.check_refused(404, 40_400, "could not be found");
        }
    }
    // Nothing of this was done.
    let listed = ask("GET", PATH).of(&server).await.check(200);
    assert_eq!(names(&listed), ["$Default"]);
    let unknown = put(&path, &sql("1=1")).plain(&server).await;
    assert_eq!(unknown.status, 401);
}

#[tokio::test]
async fn rules_end_with_their_subscription() {
    let server = with_subscription().await;
    let path = format!("{PATH}/r");
    put(&path, &sql("1=1")).of(&server).await.check(201);
    ask("DELETE", "/t/Subscriptions/s")
        .of(&server)
        .await
        .check(200);
    subscribe(&server, "/t/Subscriptions/s", "")
        .await
        .check(201);
    let listed = ask("GET", PATH).of(&server).await.check(200);
    assert_eq!(names(&listed), ["$Default"]);
}
