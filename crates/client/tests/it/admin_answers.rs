//! Management at a service that answers as a test says, in Azure's form.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kew_client::{
    AdminOptions, BearerToken, BusAdmin, BusNamespace, EntityStatus, ErrorKind, QueueSettings,
    Right, Secret, TokenFuture, TokenSource,
};
use tokio::time::Instant;

use crate::script::{Door, Reply, Script, answer};

const AZURE: &str = "Endpoint=http://ns.example.net/;SharedAccessKeyName=r;SharedAccessKey=k";

impl Script {
    pub(crate) fn admin(self: &Arc<Self>) -> BusAdmin {
        self.admin_of(BusNamespace::parse(AZURE).unwrap())
    }

    fn admin_of(self: &Arc<Self>, namespace: BusNamespace) -> BusAdmin {
        let options = AdminOptions {
            dial: Some(Arc::new(Door(self.clone()))),
            ..AdminOptions::default()
        };
        BusAdmin::new(namespace, options).unwrap()
    }
}

pub(crate) fn reply(status: &str, body: &str) -> Reply {
    answer(&format!(
        "HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: application/atom+xml;type=entry;charset=utf-8\r\n\
         Server: Microsoft-HTTPAPI/2.0\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    ))
}

pub(crate) fn error(status: u16, detail: &str) -> Reply {
    let body = format!("<Error><Code>{status}</Code><Detail>{detail}</Detail></Error>");
    reply(&format!("{status} Told"), &body)
}

pub(crate) fn entry(name: &str, content: &str) -> String {
    format!(
        "<entry xmlns=\"http://www.w3.org/2005/Atom\"><id>https://ns.example.net/{name}</id>\
         <title type=\"text\">{name}</title><published>2024-01-01T00:00:00Z</published>\
         <author><name>ns</name></author><link rel=\"self\" href=\"https://ns.example.net/{name}\"/>\
         <content type=\"application/xml\" xmlns:f=\"urn:f\">{content}</content></entry>"
    )
}

fn queue(name: &str, settings: &str) -> String {
    let content = format!(
        "<QueueDescription xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
         xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">{settings}</QueueDescription>"
    );
    entry(name, &content)
}

pub(crate) fn feed(entries: &str, links: &str) -> Reply {
    let body = format!(
        "<feed xmlns=\"http://www.w3.org/2005/Atom\"><title type=\"text\">Queues</title>\
         <link rel=\"self\" href=\"https://ns.example.net/$Resources/queues\"/>{links}{entries}</feed>"
    );
    reply("200 OK", &body)
}

/// The elements inside the description of a request.
fn sent(body: &str) -> &str {
    sent_of("QueueDescription", body)
}

pub(crate) fn sent_of<'a>(description: &str, body: &'a str) -> &'a str {
    let (_, rest) = body.split_once(&format!("<{description} ")).unwrap();
    let (_, rest) = rest.split_once('>').unwrap();
    let (elements, _) = rest.split_once(&format!("</{description}>")).unwrap();
    elements
}

const NEWER: &str = "<f:Shape f:kind=\"a &quot;b&quot;\"><Depth>1&amp;2</Depth></f:Shape>";

#[tokio::test]
async fn an_update_loses_nothing_of_newer_services() {
    let settings = format!(
        "<LockDuration>PT1M</LockDuration>{NEWER}<SizeInBytes>7</SizeInBytes>\
         <AuthorizationRules><AuthorizationRule i:type=\"SharedAccessAuthorizationRule\">\
         <ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>\
         <Rights><AccessRights>Send</AccessRights></Rights>\
         <CreatedTime>2024-01-01T00:00:00Z</CreatedTime><KeyName>r</KeyName>\
         <PrimaryKey>one</PrimaryKey><SecondaryKey>two</SecondaryKey><f:Ends>never</f:Ends>\
         </AuthorizationRule></AuthorizationRules><Status>Restoring</Status>\
         <UserMetadata> a &amp; b </UserMetadata><AccessedAt>0001-01-01T00:00:00Z</AccessedAt>\
         <CountDetails xmlns:d2p1=\"urn:counts\"><d2p1:ActiveMessageCount>5</d2p1:ActiveMessageCount>\
         </CountDetails><IsCold />"
    );
    let described = queue("jobs", &settings);
    let script = Script::of([reply("200 OK", &described), reply("200 OK", &described)]);
    let admin = script.admin();
    let mut queue = admin.queue("jobs").await.unwrap();
    assert_eq!(
        queue.settings.status,
        Some(EntityStatus::Other("Restoring".into()))
    );
    assert_eq!(queue.state.active_count, Some(5));
    assert_eq!(queue.state.accessed_at, None);
    let names: Vec<_> = queue.settings.unknown.names().collect();
    assert_eq!(names, ["Shape", "IsCold"]);
    queue.settings.max_delivery_count = Some(4);
    admin.update_queue("jobs", &queue.settings).await.unwrap();
    let body = &script.bodies()[1];
    assert_eq!(
        sent(body),
        format!(
            "<LockDuration>PT1M</LockDuration><MaxDeliveryCount>4</MaxDeliveryCount>\
             <AuthorizationRules><AuthorizationRule xmlns:f=\"urn:f\" \
             xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\" \
             i:type=\"SharedAccessAuthorizationRule\"><ClaimType>SharedAccessKey</ClaimType>\
             <ClaimValue>None</ClaimValue><Rights><AccessRights>Send</AccessRights></Rights>\
             <KeyName>r</KeyName><PrimaryKey>one</PrimaryKey><SecondaryKey>two</SecondaryKey>\
             <f:Ends>never</f:Ends></AuthorizationRule></AuthorizationRules>\
             <Status>Restoring</Status><UserMetadata> a &amp; b </UserMetadata>{NEWER}<IsCold />"
        )
    );
    assert!(
        body.contains("connect\" xmlns:f=\"urn:f\" xmlns:i="),
        "{body}"
    );
    let head = &script.heads()[1];
    assert!(
        head.starts_with("put /jobs?api-version=2021-05 http/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nif-match: *\r\n"), "{head}");
}

#[tokio::test]
async fn rules_of_another_kind_stay_where_they_were() {
    let rules = "<AuthorizationRules><AuthorizationRule i:type=\"AllowRule\">\
         <IssuerName>acs</IssuerName></AuthorizationRule></AuthorizationRules>";
    let described = queue("jobs", &format!("{rules}<Status>Active</Status>"));
    let replies = (0..3).map(|_| reply("200 OK", &described));
    let script = Script::of(replies);
    let admin = script.admin();
    let mut settings = admin.queue("jobs").await.unwrap().settings;
    assert!(settings.authorization_rules.is_none());
    admin.update_queue("jobs", &settings).await.unwrap();
    assert_eq!(
        sent(&script.bodies()[1]),
        format!("{rules}<Status>Active</Status>")
    );
    settings.authorization_rules = Some(Vec::new());
    admin.update_queue("jobs", &settings).await.unwrap();
    let none = "<AuthorizationRules></AuthorizationRules><Status>Active</Status>";
    assert_eq!(sent(&script.bodies()[2]), none);
    assert_eq!(Right::Manage.as_str(), "Manage");
}

#[tokio::test(start_paused = true)]
async fn a_busy_service_is_given_time() {
    let busy = || {
        error(
            503,
            "SubCode=50004. The request was terminated. TrackingId:1",
        )
    };
    let conflict = error(
        409,
        "SubCode=40901. Another conflicting operation is in progress.",
    );
    let created = reply("201 Created", &queue("jobs", ""));
    let script = Script::of([busy(), busy(), conflict, created]);
    let began = Instant::now();
    let settings = QueueSettings::default();
    script
        .admin()
        .create_queue("jobs", &settings)
        .await
        .unwrap();
    assert!(began.elapsed() >= Duration::from_secs(8));
    assert_eq!(script.heads().len(), 4);
    let script = Script::of((0..4).map(|_| busy()));
    let told = script.admin().delete_queue("jobs").await.unwrap_err();
    assert!(
        told.is_busy() && told.kind() == ErrorKind::TryAgainLater,
        "{told}"
    );
    assert_eq!(told.status(), Some(503));
    assert_eq!(script.heads().len(), 4);
}

/// The other interfaces of a service, too, if that is wanted; and never what was not answered.
#[tokio::test(start_paused = true)]
async fn a_request_of_another_interface_is_sent_again_while_the_service_is_busy() {
    let busy = || error(503, "The server is busy.");
    let limited = || error(429, "Too many.");
    let done = || reply("200 OK", "{}");
    let path = "$kew/v1/deposit/jobs";
    let body = || Some(("application/octet-stream", Bytes::from_static(b"x")));
    let script = Script::of([busy(), limited(), done()]);
    let began = Instant::now();
    let answer = script.admin().ask_with("POST", path, body()).await.unwrap();
    assert_eq!(answer.status, 200);
    assert!(began.elapsed() >= Duration::from_secs(8));
    assert_eq!(script.bodies(), ["x"; 3]);
    // The last answer says more than an error could.
    let script = Script::of((0..4).map(|_| busy()));
    let answer = script.admin().ask_with("POST", path, body()).await.unwrap();
    assert_eq!((answer.status, script.heads().len()), (503, 4));
    assert!(answer.body.ends_with(b"busy.</Detail></Error>"));
    let script = Script::of([Reply::Close, done()]);
    let told = script.admin().ask_with("POST", path, body()).await;
    assert_eq!(told.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(script.heads().len(), 1);
    // A command that has its own way to wait asks once.
    let script = Script::of([limited(), done()]);
    let answer = script.admin().ask("POST", path, None).await.unwrap();
    assert_eq!((answer.status, script.heads().len()), (429, 1));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_not_answered_has_an_unknown_outcome() {
    let html = || reply("200 OK", "<html/>");
    for reply in [
        || Reply::Close,
        || Reply::Silence,
        || error(500, "SubCode=50000. Internal error."),
    ] {
        for number in 0..3 {
            let script = Script::of([reply()]);
            let (admin, settings) = (script.admin(), QueueSettings::default());
            let told = match number {
                0 => admin.create_queue("jobs", &settings).await.map(drop),
                1 => admin.update_queue("jobs", &settings).await.map(drop),
                _ => admin.delete_queue("jobs").await,
            };
            let told = told.unwrap_err();
            assert_eq!(told.kind(), ErrorKind::OutcomeUnknown, "{told}");
            assert_eq!(script.heads().len(), 1, "it is not sent again");
        }
    }
    // A read is sent again, unless the silence took all the time that there was.
    let script = Script::of([Reply::Close, error(500, "none"), reply_of_queue()]);
    assert_eq!(script.admin().queue("jobs").await.unwrap().name, "jobs");
    let script = Script::of([Reply::Silence]);
    let told = script.admin().queue("jobs").await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::TryAgainLater);
    let script = Script::of([html(), html()]);
    let settings = QueueSettings::default();
    let told = script.admin().create_queue("jobs", &settings).await;
    assert_eq!(told.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    let told = script.admin().queue("jobs").await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Refused);
}

fn reply_of_queue() -> Reply {
    reply("200 OK", &queue("jobs", ""))
}

#[tokio::test]
async fn what_is_no_queue_is_not_there() {
    let topic = entry("jobs", "<TopicDescription xmlns=\"urn:x\"/>");
    for missing in [
        || feed("", ""),
        || error(404, "SubCode=40400. Not Found."),
        || error(404, "There is none."),
    ] {
        let script = Script::of([missing(), missing()]);
        assert!(!script.admin().queue_exists("jobs").await.unwrap());
        let told = script.admin().queue("jobs").await.unwrap_err();
        assert_eq!(
            (told.kind(), told.status()),
            (ErrorKind::Refused, Some(404))
        );
    }
    let script = Script::of([reply("200 OK", &topic)]);
    let told = script.admin().queue("jobs").await.unwrap_err();
    assert_eq!(told.code(), Some("40400"));
    assert!(told.text().contains("TopicDescription"), "{told}");
    let script = Script::of([error(401, "MissingToken: none. TrackingId:7")]);
    let told = script.admin().queue_exists("jobs").await.unwrap_err();
    assert_eq!(told.status(), Some(401));
    assert!(told.text().contains("TrackingId:7"), "{told}");
}

#[tokio::test]
async fn lists_go_on_where_the_service_says() {
    let next = |skip: &str| {
        format!(
            "<link rel=\"next\" href=\"https://ns.example.net/$Resources/queues?{skip}&amp;%24top=100\"/>"
        )
    };
    let one = queue("jobs", "<MaxDeliveryCount>10</MaxDeliveryCount>");
    let full: String = (0..100)
        .map(|number| queue(&format!("q{number}"), ""))
        .collect();
    let script = Script::of([
        feed(&one, &next("%24skip=7")),
        feed(&one, ""),
        feed(&full, ""),
        feed("", ""),
        feed(&one, &next("$skip=5")),
        feed(&one, &next("skip")),
    ]);
    let admin = script.admin();
    let page = admin.queues(0).await.unwrap();
    assert_eq!((page.items[0].name.as_str(), page.next), ("jobs", Some(7)));
    assert_eq!(page.items[0].settings.max_delivery_count, Some(10));
    assert_eq!(admin.queues(7).await.unwrap().next, None);
    // A full page without a link may have another one after it.
    assert_eq!(admin.queues(0).await.unwrap().next, Some(100));
    assert!(admin.queues(100).await.unwrap().items.is_empty());
    for _ in 0..2 {
        let endless = admin.queues(5).await.unwrap_err();
        assert_eq!(endless.kind(), ErrorKind::Refused, "{endless}");
    }
    let head = &script.heads()[1];
    let target = "get /$resources/queues?$skip=7&$top=100&api-version=2021-05 http/1.1\r\n";
    assert!(head.starts_with(target), "{head}");
    assert!(
        head.contains("sr=sb%3a%2f%2fns%2eexample%2enet%2f&"),
        "{head}"
    );
}

#[tokio::test]
async fn destinations_have_tokens_of_their_own() {
    let script = Script::of([reply("201 Created", &queue("a b", ""))]);
    let settings = QueueSettings {
        forward_to: Some("x/y".to_owned()),
        forward_dead_letters_to: Some("sb://ns.example.net/dead".to_owned()),
        ..QueueSettings::default()
    };
    script.admin().create_queue("a b", &settings).await.unwrap();
    let head = &script.heads()[0];
    assert!(head.starts_with("put /a%20b?"), "{head}");
    for (name, resource) in [
        ("authorization", "a%20b"),
        ("servicebussupplementaryauthorization", "x%2fy"),
        ("servicebusdlqsupplementaryauthorization", "dead"),
    ] {
        let header = format!(
            "\r\n{name}: sharedaccesssignature sr=sb%3a%2f%2fns%2eexample%2enet%2f{resource}&"
        );
        assert!(head.contains(&header), "{name}: {head}");
    }
    let elements = "<ForwardTo>sb://ns.example.net/x/y</ForwardTo><ForwardDeadLetteredMessagesTo>\
         sb://ns.example.net/dead</ForwardDeadLetteredMessagesTo>";
    assert_eq!(sent(&script.bodies()[0]), elements);
    let odd = QueueSettings {
        user_metadata: Some("\u{1}".to_owned()),
        ..QueueSettings::default()
    };
    let refused = script.admin().create_queue("jobs", &odd).await.unwrap_err();
    assert!(refused.text().contains("XML"), "{refused}");
    assert_eq!(script.heads().len(), 1);
}

/// Counts how often it is asked.
struct Source(Mutex<u32>);

impl TokenSource for Source {
    fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a> {
        Box::pin(async move {
            assert_eq!(scope, "https://servicebus.azure.net/.default");
            *self.0.lock().unwrap() += 1;
            Ok(BearerToken {
                text: Secret::new("a.b.c"),
                expires_at: SystemTime::now() + Duration::from_hours(1),
            })
        })
    }
}

#[tokio::test]
async fn bearer_tokens_are_kept() {
    let script = Script::of([reply_of_queue(), reply_of_queue()]);
    let source = Arc::new(Source(Mutex::new(0)));
    let namespace = BusNamespace::with_tokens("http://localhost", source.clone()).unwrap();
    let admin = script.admin_of(namespace);
    for _ in 0..2 {
        admin.queue("jobs").await.unwrap();
    }
    assert_eq!(*source.0.lock().unwrap(), 1);
    assert!(script.heads()[1].contains("\r\nauthorization: bearer a.b.c\r\n"));
}
