//! Queue Storage from a service that answers as a test says, in Azure's form.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use kew_client::{
    BearerToken, ErrorKind, PutOptions, QueueAccount, QueueClient, QueueOptions, Secret,
    TokenFuture, TokenSource,
};

use crate::script::{Door, Reply, Script, answer};

impl Script {
    fn client(self: &Arc<Self>, options: QueueOptions) -> QueueClient {
        let account = "AccountName=acct;AccountKey=c2VjcmV0";
        let options = QueueOptions {
            dial: Some(Arc::new(Door(self.clone()))),
            ..options
        };
        let account = QueueAccount::parse(&format!("{account};QueueEndpoint=http://h/acct"));
        QueueClient::new(account.unwrap(), options).unwrap()
    }
}

const EMPTY: &str = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n";

/// In Azure's form: with a byte order mark, in chunks.
fn azure_messages() -> Reply {
    let body = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList><QueueMessage>\
         <MessageId>3a2cf5f0-6b5c-4b1e-a1f4-4a2f6f3f4ed1</MessageId>\
         <InsertionTime>Tue, 25 Jun 2019 20:45:00 GMT</InsertionTime>\
         <ExpirationTime>Tue, 02 Jul 2019 20:45:00 GMT</ExpirationTime>\
         <PopReceipt>AgAAAAMAAAAAAAAAq7x8YZcr1QE=</PopReceipt>\
         <TimeNextVisible>Tue, 25 Jun 2019 20:45:30 GMT</TimeNextVisible>\
         <DequeueCount>1</DequeueCount><MessageText>a&amp;b</MessageText></QueueMessage></QueueMessagesList>";
    Reply::Answer(format!(
        "HTTP/1.1 200 OK\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: application/xml\r\nServer: Windows-Azure-Queue/1.0 Microsoft-HTTPAPI/2.0\r\n\
         x-ms-request-id: 6ba1d1a2-0003-0047-2f95-2b2bd0000000\r\nx-ms-version: 2024-11-04\r\n\r\n\
         {:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    ))
}

fn azure_busy() -> Reply {
    let body = "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>ServerBusy</Code>\
         <Message>Operations per second is over the account limit.</Message></Error>";
    Reply::Answer(format!(
        "HTTP/1.1 503 Server Busy\r\nContent-Length: {}\r\nContent-Type: application/xml\r\n\
         x-ms-error-code: ServerBusy\r\n\r\n{body}",
        body.len()
    ))
}

const AZURE_TIMEOUT: &str = "HTTP/1.1 500 Operation Timed Out\r\nContent-Length: 0\r\nx-ms-error-code: OperationTimedOut\r\n\r\n";

#[tokio::test]
async fn answers_of_azure_are_read() {
    let script = Script::of([azure_messages()]);
    let client = script.client(QueueOptions::default());
    let got = client.get("jobs", 1, None).await.unwrap();
    assert_eq!(got[0].text, "a&b");
    let receipt = got[0].receipt.as_ref().unwrap();
    assert_eq!(receipt.value, "AgAAAAMAAAAAAAAAq7x8YZcr1QE=");
    let head = script.heads()[0].clone();
    assert!(
        head.starts_with("get /acct/jobs/messages?numofmessages=1 http/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains("\r\nauthorization: sharedkey acct:"),
        "{head}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_busy_service_is_given_time() {
    let script = Script::of([azure_busy(), azure_busy(), answer(EMPTY)]);
    let client = script.client(QueueOptions::default());
    let began = tokio::time::Instant::now();
    client
        .delete_message("jobs", "id", "receipt")
        .await
        .unwrap();
    assert!(began.elapsed() >= Duration::from_secs(8));
    let script = Script::of((0..10).map(|_| azure_busy()));
    let client = script.client(QueueOptions::default());
    let error = client.put("jobs", "x", PutOptions::default()).await;
    let error = error.unwrap_err();
    assert!(
        error.is_busy() && error.kind() == ErrorKind::TryAgainLater,
        "{error}"
    );
    assert_eq!(script.heads().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_and_not_answered_has_an_unknown_outcome() {
    for reply in [|| Reply::Close, || Reply::Silence, || answer(AZURE_TIMEOUT)] {
        let script = Script::of([reply()]);
        let client = script.client(QueueOptions::default());
        let error = client.put("jobs", "x", PutOptions::default()).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert_eq!(script.heads().len(), 1, "it is not sent again");
    }
    for reply in [|| Reply::Close, || Reply::Silence, || answer(AZURE_TIMEOUT)] {
        let script = Script::of([reply()]);
        let client = script.client(QueueOptions::default());
        let error = client.get("jobs", 32, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert_eq!(script.heads().len(), 1, "each time hides messages");
    }
    // What can be repeated is. Its outcome is unknown all the same, if no answer comes in the end.
    let script = Script::of([Reply::Close, answer(AZURE_TIMEOUT), answer(EMPTY)]);
    let client = script.client(QueueOptions::default());
    client.clear("jobs").await.unwrap();
    let script = Script::of((0..8).map(|_| Reply::Close));
    let client = script.client(QueueOptions::default());
    let created = client.create_queue("jobs", &[]).await.unwrap_err();
    assert_eq!(created.kind(), ErrorKind::OutcomeUnknown, "{created}");
    assert_eq!(script.heads().len(), 4);
    let read = client.queue_properties("jobs").await.unwrap_err();
    assert_eq!(read.kind(), ErrorKind::TryAgainLater, "{read}");
    assert_eq!(script.heads().len(), 8);
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_was_kept_loses_nothing() {
    let closing = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let script = Script::of([answer(closing), answer(EMPTY), answer(EMPTY)]);
    let client = script.client(QueueOptions::default());
    for _ in 0..3 {
        client
            .delete_message("jobs", "id", "receipt")
            .await
            .unwrap();
    }
    assert_eq!(*script.connections.lock().unwrap(), 2);
}

#[tokio::test]
async fn answers_that_are_none_are_told() {
    let html = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>";
    let moved = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://elsewhere/\r\n\r\n";
    let script = Script::of([answer(html), answer(moved)]);
    let client = script.client(QueueOptions::default());
    for _ in 0..2 {
        let error = client.peek("jobs", 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        let text = "the service answered something that is not Queue Storage";
        assert!(error.text().starts_with(text), "{error}");
    }
    let created = "HTTP/1.1 201 Created\r\nContent-Length: 6\r\n\r\n<html>";
    let script = Script::of([answer(created)]);
    let client = script.client(QueueOptions::default());
    let error = client.put("jobs", "x", PutOptions::default()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_dropped_give_their_places_back() {
    let silence = (0..3).map(|_| Reply::Silence);
    let script = Script::of(silence.chain([answer(EMPTY)]));
    let client = script.client(QueueOptions {
        connections_max: 1,
        ..QueueOptions::default()
    });
    for _ in 0..3 {
        let delete = client.delete_message("jobs", "id", "receipt");
        let waited = tokio::time::timeout(Duration::from_secs(1), delete).await;
        assert!(waited.is_err(), "the service says nothing");
    }
    client
        .delete_message("jobs", "id", "receipt")
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_try_can_have_a_limit_of_its_own() {
    let script = Script::of([Reply::Silence, azure_messages()]);
    let options = QueueOptions {
        attempt_timeout: Some(Duration::from_secs(2)),
        timeout: Duration::MAX,
        ..QueueOptions::default()
    };
    let client = script.client(options.clone());
    assert_eq!(client.peek("jobs", 1).await.unwrap().len(), 1);
    let limits = targets(&script);
    assert!(
        limits[0].contains("&timeout=2 ") && limits[1].contains("&timeout=4 "),
        "{limits:?}"
    );

    let script = Script::of([Reply::Silence]);
    let client = script.client(options);
    let error = client.put("jobs", "x", PutOptions::default()).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(error.text(), "the service did not answer within 2.0 s");
}

/// The first lines of requests.
fn targets(script: &Script) -> Vec<String> {
    let heads = script.heads().into_iter();
    heads
        .map(|it| it.split("\r\n").next().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn each_try_has_more_time_than_the_one_before_and_the_service_is_told() {
    let silence = || Reply::Silence;
    let script = Script::of([silence(), silence(), silence(), azure_messages()]);
    let client = script.client(QueueOptions::default());
    let began = tokio::time::Instant::now();
    assert_eq!(client.peek("jobs", 1).await.unwrap().len(), 1);
    // Three tries of 4 s, 8 s and 16 s, and the pauses between them.
    let took = began.elapsed().as_millis();
    assert!((29_400..31_000).contains(&took), "{took}");
    let told =
        |limit| format!("get /acct/jobs/messages?peekonly=true&numofmessages=1{limit} http/1.1");
    let limits = ["&timeout=4", "&timeout=8", "&timeout=16"];
    assert_eq!(targets(&script)[..3], limits.map(told));
    // The last one has the rest, which may be more than the service's own limit.
    let last = &targets(&script)[3];
    assert!([told(""), told("&timeout=29")].contains(last), "{last}");

    // A change that is the same once and twice; closed connections count too, and all ends within its time.
    let script = Script::of([Reply::Close, silence(), Reply::Close, silence()]);
    let client = script.client(QueueOptions::default());
    let began = tokio::time::Instant::now();
    let error = client.clear("jobs").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    let took = began.elapsed().as_millis();
    assert!((41_400..43_000).contains(&took), "{took}");
    let clears = limits.map(|limit| format!("delete /acct/jobs/messages?{} http/1.1", &limit[1..]));
    assert_eq!(targets(&script)[..3], clears);
    let last = &targets(&script)[3];
    assert_eq!(last, "delete /acct/jobs/messages http/1.1");

    // What is not tried again has the whole time.
    let script = Script::of([silence()]);
    let client = script.client(QueueOptions::default());
    let began = tokio::time::Instant::now();
    client.get("jobs", 1, None).await.unwrap_err();
    assert_eq!(began.elapsed().as_secs(), 60);
    let expected = "get /acct/jobs/messages?numofmessages=1 http/1.1";
    assert_eq!(targets(&script), [expected]);
}

#[tokio::test(start_paused = true)]
async fn a_service_can_say_when_to_come_back() {
    let busy = "HTTP/1.1 503 Busy\r\nRetry-After: 11\r\nx-ms-error-code: ServerBusy\r\nx-ms-request-id: r-1\r\n\
         Content-Length: 0\r\n\r\n";
    let script = Script::of([answer(busy), answer(EMPTY)]);
    let client = script.client(QueueOptions::default());
    let began = tokio::time::Instant::now();
    let delete = || client.delete_message("jobs", "id", "receipt");
    delete().await.unwrap();
    let waited = began.elapsed().as_secs();
    assert!((11..13).contains(&waited), "{waited}");

    let script = Script::of((0..4).map(|_| answer(busy)));
    let client = script.client(QueueOptions::default());
    let error = client.clear("jobs").await.unwrap_err();
    assert_eq!(error.request_id(), Some("r-1"));
    let shown = error.to_string();
    let end = "(ServerBusy, status 503)";
    assert!(
        shown.starts_with("try again later: ") && shown.ends_with(end),
        "{shown}"
    );
}

#[tokio::test]
async fn a_clear_that_ran_out_of_time_is_shown_or_repeated() {
    let script = Script::of([answer(AZURE_TIMEOUT), answer(EMPTY)]);
    let client = script.client(QueueOptions::default());
    let error = client.clear_once("jobs").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(error.code(), Some("OperationTimedOut"));
    assert_eq!(script.heads().len(), 1);
    assert!(script.heads()[0].contains("\r\nuser-agent: kew-client/"));
    client.clear_once("jobs").await.unwrap();
}

/// Counts how often it is asked.
struct Source(Mutex<u32>);

impl TokenSource for Source {
    fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a> {
        Box::pin(async move {
            assert_eq!(scope, "https://storage.azure.com/.default");
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
    let script = Script::of([answer(EMPTY), answer(EMPTY)]);
    let source = Arc::new(Source(Mutex::new(0)));
    let account = QueueAccount::with_tokens("http://localhost/acct", source.clone()).unwrap();
    let options = QueueOptions {
        dial: Some(Arc::new(Door(script.clone()))),
        ..QueueOptions::default()
    };
    let client = QueueClient::new(account, options).unwrap();
    for _ in 0..2 {
        client
            .delete_message("jobs", "id", "receipt")
            .await
            .unwrap();
    }
    assert_eq!(*source.0.lock().unwrap(), 1);
    assert!(script.heads()[1].contains("\r\nauthorization: bearer a.b.c\r\n"));
}
