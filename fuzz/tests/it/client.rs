//! Input of the client: connection strings, and the answers of any server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_client::{
    ConnectionString, Dial, DialFuture, QueueAccount, QueueClient, QueueOptions, Retry, Stream,
};
use kew_fuzz::gauge;
use kew_fuzz::mutate::{Input, changes};

use crate::client_xml::Element;
use crate::{INPUT_SIZE_MAX, INPUTS, MEMORY_BASE_BYTES};

/// Memory for each byte of a document: an element of three letters is a node of a tree.
const MEMORY_FACTOR: usize = 128;

const KEY: &str = "c2VjcmV0LWNhbmFyeQ==";

const CONNECTION_STRINGS: [&str; 7] = [
    "DefaultEndpointsProtocol=https;AccountName=a1;AccountKey=c2VjcmV0LWNhbmFyeQ==;EndpointSuffix=core.windows.net",
    "AccountName=a1;AccountKey=c2VjcmV0LWNhbmFyeQ==;QueueEndpoint=http://[::1]:10001/a1;QueueSecondaryEndpoint=http://h/a1-secondary",
    "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://127.0.0.1",
    "QueueEndpoint=https://a1.queue.core.windows.net/;SharedAccessSignature=?sv=2024-11-04&sig=c2VjcmV0LWNhbmFyeQ%3D%3D",
    "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=r;SharedAccessKey=c2VjcmV0LWNhbmFyeQ==;EntityPath=a/b;\
     TransportType=AmqpWebSockets;OperationTimeout=00:01:30",
    "Endpoint=sb://[::1]:5672;SharedAccessSignature=SharedAccessSignature sr=x&sig=c2VjcmV0LWNhbmFyeQ%3D%3D&se=1&skn=r;\
     UseDevelopmentEmulator=true",
    "https://a1.queue.core.windows.net/?sv=2024-11-04&sig=c2VjcmV0LWNhbmFyeQ%3D%3D",
];

const ANSWERS: [&str; 3] = [
    "<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList><QueueMessage><MessageId>5f</MessageId>\
     <InsertionTime>Fri, 09 Oct 2009 21:04:30 GMT</InsertionTime><PopReceipt>YzQ4==</PopReceipt>\
     <DequeueCount>1</DequeueCount><MessageText>a&amp;b&#x33;<![CDATA[<c>]]></MessageText></QueueMessage>\
     </QueueMessagesList>",
    "\u{FEFF}<EnumerationResults ServiceEndpoint=\"https://h/\"><Prefix>p</Prefix><Queues><Queue><Name>q</Name>\
     <Metadata><a>b</a></Metadata></Queue></Queues><NextMarker /></EnumerationResults>",
    "<Error><Code>QueueNotFound</Code><Message>no&#10;such</Message></Error>",
];

/// Reads a connection string; errors must not contain its secret.
fn check_connection_string(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let read = gauge::within(MEMORY_BASE_BYTES + 8 * text.len(), || {
        ConnectionString::parse(&text)
    });
    let shown = match read {
        Ok(read) => format!("{read:?}"),
        Err(error) => error.to_string(),
    };
    assert!(!shown.contains(&KEY[..16]), "{shown}");
}

#[test]
fn connection_string() {
    bolero::check!()
        .with_iterations(INPUTS / 4)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            check_connection_string(bytes);
            let mut input = Input::new(bytes);
            let pick = usize::from(input.byte()) % CONNECTION_STRINGS.len();
            // Whole pairs, in any order and number, so that the key itself stays whole.
            let pairs: Vec<&str> = CONNECTION_STRINGS[pick].split(';').collect();
            let mut text = Vec::new();
            for _ in 0..=input.byte() % 6 {
                let mut pair = pairs[usize::from(input.byte()) % pairs.len()]
                    .as_bytes()
                    .to_vec();
                if !pair.windows(6).any(|part| part == b"c2Vjcm") {
                    changes(&mut pair, &mut input);
                }
                text.extend_from_slice(&pair);
                text.push(b';');
            }
            check_connection_string(&text);
        });
}

fn check_answer(bytes: &[u8]) {
    let memory_max = MEMORY_BASE_BYTES + MEMORY_FACTOR * bytes.len();
    let _ = gauge::within(memory_max, || Element::parse(bytes));
}

#[test]
fn answer() {
    bolero::check!()
        .with_iterations(INPUTS / 4)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            check_answer(bytes);
            let mut input = Input::new(bytes);
            let pick = usize::from(input.byte()) % ANSWERS.len();
            let mut text = ANSWERS[pick].as_bytes().to_vec();
            changes(&mut text, &mut input);
            check_answer(&text);
        });
}

/// Whole answers over HTTP, as services write them.
const HTTP_ANSWERS: [&str; 5] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 68\r\n\r\n<QueueMessagesList><QueueMessage></QueueMessage></QueueMessagesList>\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n14;a=b\r\n<QueueMessagesList/>\r\n0\r\nA: b\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200\r\nConnection: keep-alive\r\n\r\n<QueueMessagesList/>",
    "HTTP/1.1 404 Not Found\r\nx-ms-error-code: QueueNotFound\r\nContent-Length: 40\r\n\r\n<Error><Code>QueueNotFound</Code></Error>",
    "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
];

/// The room for reads and for a connection within memory. An answer that says that it is long gets a bounded room.
const HTTP_MEMORY_BYTES: usize = 512 << 10;

/// A service that sends these bytes over its one connection, whatever it is asked.
struct Sends(Mutex<Option<Vec<u8>>>);

impl Dial for Sends {
    fn dial<'a>(&'a self, _: &'a str, _: u16) -> DialFuture<'a> {
        let bytes = self.0.lock().expect("no holder panics").take();
        Box::pin(async move {
            let bytes = bytes.ok_or(std::io::ErrorKind::ConnectionRefused)?;
            let (ours, mut theirs) = tokio::io::duplex(4096);
            tokio::spawn(async move {
                let mut asked = [0; 1];
                // Before the request nothing may come.
                if tokio::io::AsyncReadExt::read(&mut theirs, &mut asked)
                    .await
                    .is_ok()
                {
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut theirs, &bytes).await;
                }
            });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

/// Two requests, of which the second one may go over the same connection.
fn check_http_answer(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime needs memory alone");
    let options = QueueOptions {
        retry: Retry {
            retries: 0,
            ..Retry::default()
        },
        timeout: Duration::from_secs(60),
        dial: Some(Arc::new(Sends(Mutex::new(Some(bytes.to_vec()))))),
        ..QueueOptions::default()
    };
    let client = QueueClient::new(QueueAccount::development(), options);
    let client = client.expect("the options are valid");
    let memory_max = HTTP_MEMORY_BYTES + MEMORY_FACTOR * bytes.len();
    gauge::within(memory_max, || {
        runtime.block_on(async {
            for _ in 0..2 {
                let _ = client.peek("jobs", 32).await;
            }
        });
    });
}

#[test]
fn http_answer() {
    bolero::check!()
        .with_iterations(INPUTS / 16)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            check_http_answer(bytes);
            let mut input = Input::new(bytes);
            let pick = usize::from(input.byte()) % HTTP_ANSWERS.len();
            let mut text = HTTP_ANSWERS[pick].as_bytes().to_vec();
            changes(&mut text, &mut input);
            check_http_answer(&text);
        });
}
