//! Input of the client: connection strings, and the answers of any server.

use kew_client::ConnectionString;
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
