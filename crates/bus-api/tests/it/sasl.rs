//! SASL: the identity of a client.

use bytes::BytesMut;
use kew_amqp::Event;
use kew_amqp::frame::{SASL_HEADER, take_frame};
use kew_amqp::sasl::SaslFrame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::Server;

#[tokio::test]
async fn mechanisms() {
    let server = Server::start().await;
    let right = "\0RootManageSharedAccessKey\0SAS_KEY_VALUE";
    for (mechanism, response, is_taken) in [
        ("ANONYMOUS", None, true),
        ("MSSBCBS", None, true),
        ("PLAIN", Some(right), true),
        ("PLAIN", Some("\0RootManageSharedAccessKey\0other"), false),
        ("PLAIN", Some("\0other\0SAS_KEY_VALUE"), false),
        ("PLAIN", Some(""), false),
        ("PLAIN", None, false),
        ("EXTERNAL", Some(""), true),
    ] {
        let mut client = server.connect(mechanism, response);
        let opened = client.until(|event| match event {
            Event::Opened(_) => Some(true),
            Event::Closed { .. } => Some(false),
            _ => None,
        });
        assert_eq!(opened.await, is_taken, "{mechanism} {response:?}");
    }
}

/// Some clients choose the first mechanism that they know: Qpid protonj2 would be anonymous even
/// with a key.
#[tokio::test]
async fn mechanisms_are_offered_in_the_order_of_the_service() {
    let server = Server::start().await;
    let mut stream = server.stream();
    stream.write_all(&SASL_HEADER).await.unwrap();
    let mut header = [0; SASL_HEADER.len()];
    stream.read_exact(&mut header).await.unwrap();
    assert_eq!(header, SASL_HEADER);
    let mut input = BytesMut::new();
    let frame = loop {
        if let Some(frame) = take_frame(&mut input, u32::MAX).unwrap() {
            break frame;
        }
        assert!(stream.read_buf(&mut input).await.unwrap() > 0);
    };
    let Ok(SaslFrame::Mechanisms(offered)) = SaslFrame::decode(&frame.body) else {
        panic!("{frame:?}");
    };
    let offered: Vec<String> = offered
        .sasl_server_mechanisms
        .iter()
        .map(|symbol| symbol.to_string())
        .collect();
    assert_eq!(offered, ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"]);
}
