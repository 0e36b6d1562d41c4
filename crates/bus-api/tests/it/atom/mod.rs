//! Management by ATOM documents, by raw requests.

mod document;
mod errors;
mod forwarding;
mod links;
mod lists;
mod restart;
mod rules;
mod topics;

use kew_bus_api::WELL_KNOWN_KEY;

use crate::client::{Server, token};
use crate::rest::{Answer, exchange};

const HOST: &str = "ns.example:5300";
const CONNECT: &str = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";

impl Answer {
    /// The text of the first element of that name.
    fn text(&self, name: &str) -> &str {
        let begin = format!("<{name}>");
        let after = self.body.split_once(&begin);
        let after = after
            .unwrap_or_else(|| panic!("no {name} in {}", self.body))
            .1;
        after.split_once('<').unwrap().0
    }

    #[track_caller]
    fn check(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// Checks that it is a refusal with this sub-code and this text.
    #[track_caller]
    fn check_refused(self, status: u16, sub_code: u32, says: &str) {
        let answer = self.check(status);
        let begin = format!("<Error><Code>{status}</Code><Detail>SubCode={sub_code}. ");
        assert!(answer.body.starts_with(&begin), "{answer:?}");
        assert!(answer.body.contains(says), "{answer:?}");
        assert!(answer.body.contains(" TrackingId:"), "{answer:?}");
        assert!(
            answer
                .head
                .contains("content-type: application/xml; charset=utf-8")
        );
    }
}

/// A request.
struct Ask<'a> {
    method: &'a str,
    target: &'a str,
    headers: Vec<(&'a str, String)>,
    body: String,
}

fn ask<'a>(method: &'a str, target: &'a str) -> Ask<'a> {
    Ask {
        method,
        target,
        headers: Vec::new(),
        body: String::new(),
    }
}

impl<'a> Ask<'a> {
    fn header(mut self, name: &'a str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// With an entry that describes a queue with these elements.
    fn queue(self, elements: &str) -> Self {
        self.description("QueueDescription", elements)
    }

    fn description(mut self, kind: &str, elements: &str) -> Self {
        self.body = format!(
            "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\">\
             <{kind} xmlns=\"{CONNECT}\" xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">\
             {elements}</{kind}></content></entry>"
        );
        self
    }

    /// With tokens for the destination queues.
    fn forwards(self) -> Self {
        let all = token("http://ns.example", WELL_KNOWN_KEY, 100);
        self.header("ServiceBusSupplementaryAuthorization", &all)
            .header("ServiceBusDlqSupplementaryAuthorization", &all)
    }

    /// Asks with a token for everything.
    async fn of(self, server: &Server) -> Answer {
        let token = token("http://ns.example", WELL_KNOWN_KEY, 100);
        self.header("Authorization", &token).plain(server).await
    }

    /// Sends the request unchanged.
    async fn plain(self, server: &Server) -> Answer {
        let mut request = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.headers.iter().any(|(name, _)| *name == "Host") {
            request += &format!("Host: {HOST}\r\n");
        }
        for (name, value) in &self.headers {
            request += &format!("{name}: {value}\r\n");
        }
        let size_bytes = self.body.len();
        request += &format!("Connection: close\r\nContent-Length: {size_bytes}\r\n\r\n");
        request += &self.body;
        exchange(server, &request).await
    }
}

async fn create(server: &Server, path: &str, elements: &str) -> Answer {
    ask("PUT", path).queue(elements).of(server).await
}

async fn update(server: &Server, path: &str, elements: &str) -> Answer {
    let update = ask("PUT", path).header("If-Match", "*");
    update.queue(elements).of(server).await
}
