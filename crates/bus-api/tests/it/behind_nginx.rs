//! The same requests in doubt, through nginx: what it passes on is never split in another way.
//!
//! nginx writes down each request that it passes on. The front end must not carry out one that is not among them:
//! that one was smuggled. And a client that asks next through the same connections gets an answer to its own
//! request.

use std::net::Ipv4Addr;

use kew_bus_api::Origin;
use tokio::net::TcpListener;

use crate::client::Server;
use crate::forms::{FIRST_LINES, FORMS};
use crate::nginx::{Nginx, say};
use crate::smuggling::head;

/// Serves a port of this machine, as long as the test runs.
async fn listen(server: &Server) -> std::net::SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let api = server.api();
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            let origin = Origin {
                peer,
                is_secure: false,
                public_key: Ok(()),
            };
            let (api, place) = (api.clone(), api.admit(peer).unwrap());
            tokio::spawn(async move {
                api.serve(stream, origin, place, std::future::pending())
                    .await;
            });
        }
    });
    address
}

/// A request that sends a message.
fn send(queue: &str) -> String {
    let head = head("POST", &format!("{queue}/messages"));
    let head = head.strip_suffix("\r\n").unwrap();
    format!("{head}Content-Length: 1\r\n\r\nx")
}

#[tokio::test]
async fn no_form_is_smuggled_through_nginx() {
    let server = Server::start().await;
    let Some(nginx) = Nginx::start(listen(&server).await).await else {
        return;
    };
    let first_lines =
        FIRST_LINES.map(|(name, part, other)| (name, send("jobs").replacen(part, other, 1)));
    let mut count: usize = 0;
    for door in ["strict", "lenient"] {
        let forms = FORMS.map(|form| (form.name, form.of(|_| head("POST", "jobs/messages"))));
        for (name, form) in forms.into_iter().chain(first_lines.clone()) {
            count += 1;
            let text = format!("{form}{}", send("spare"));
            nginx.exchange(door, text.as_bytes()).await;
            // The connection to the front end is kept: this one comes over the same.
            let honest = head("GET", &format!("honest-{count}"));
            let honest = honest.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
            let answer = nginx.exchange(door, honest.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 404"), "{name}: {answer}");
            let own = format!("The messaging entity 'honest-{count}' could not be found");
            assert!(answer.contains(&own), "{name}: {answer}");
        }
    }
    let honest = "GET|/honest-";
    let passed = nginx.passed_once(count).await;
    let asked = passed.iter().filter(|request| request.starts_with(honest));
    assert_eq!(asked.count(), count, "each honest request was passed on");
    for queue in ["jobs", "spare"] {
        let sent = format!("POST|/{queue}/messages");
        let passed = passed.iter().filter(|request| **request == sent).count();
        let carried_out = server.view(queue).await.counts.active;
        assert!(
            carried_out <= passed as u64,
            "{queue}: {carried_out} messages were sent, and {passed} requests were passed on"
        );
    }
    let others = passed.len() - count;
    say(&format!(
        "forms_through_nginx_to_bus={count} passed_on={others}"
    ));
}
