//! Who a client says that it is.

use kew_amqp::Event;

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
