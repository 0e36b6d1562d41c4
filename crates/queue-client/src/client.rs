//! The operations of the service, with typed results.

use std::time::{Duration, SystemTime};

use ureq::http::{HeaderMap, Method};

use crate::account::Account;
use crate::error::Error;
use crate::http::{Answer, Request, Transport, header};
use crate::model::{Message, Queue, QueueProperties, Receipt, Sent, ServiceStats};
use crate::xml::{self, Element};

/// How many queues a page of a list has. The service allows up to 5000; smaller pages show results
/// sooner.
const PAGE_SIZE: u32 = 1000;

/// The most messages that a get or a peek returns.
const MESSAGES_MAX: u32 = 32;

/// How requests are sent.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long one try may take, from connecting to the end of the answer.
    pub timeout: Duration,
    /// How often a request is sent again after a failure that may pass.
    pub retries: u32,
    /// Certificate authorities (PEM) to trust beside those of the system.
    pub extra_roots_pem: Option<Vec<u8>>,
    /// How many connections are kept open for the next request.
    pub connections: usize,
}

/// What a put may ask for beyond the text.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions {
    /// Seconds until the message can be received; the service's default is 0.
    pub visibility_timeout: Option<u32>,
    /// Seconds until it expires, or -1 for never; the service's default is seven days.
    pub time_to_live: Option<i64>,
}

/// A client of one account. It can be shared by threads.
#[derive(Debug)]
pub struct Client {
    transport: Transport,
}

/// The pages of a list of queues; each is fetched when it is asked for.
#[derive(Debug)]
pub struct QueuePages<'a> {
    client: &'a Client,
    prefix: String,
    with_metadata: bool,
    /// Where the next page begins (empty: with the first queue); `None` after the last.
    marker: Option<String>,
}

impl Client {
    /// A client that connects when it is first used.
    ///
    /// Fails if the endpoint is HTTPS and no certificate authorities can be read.
    pub fn new(account: Account, options: &Options) -> Result<Self, Error> {
        Ok(Self {
            transport: Transport::new(account, options)?,
        })
    }

    /// The endpoint, without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        self.transport.url()
    }

    /// The queues whose names begin with `prefix`, in order, page by page.
    #[must_use]
    pub fn list_queues(&self, prefix: &str, with_metadata: bool) -> QueuePages<'_> {
        QueuePages {
            client: self,
            prefix: prefix.to_owned(),
            with_metadata,
            marker: Some(String::new()),
        }
    }

    /// Creates a queue; `false` if it was there with the same metadata.
    pub fn create_queue(&self, queue: &str, metadata: &[(String, String)]) -> Result<bool, Error> {
        let mut request = Request::new(Method::PUT, &[queue]);
        request.headers = metadata
            .iter()
            .map(|(name, value)| (metadata_header(name), value.clone()))
            .collect();
        let answer = self.transport.call(&request, &[201, 204])?;
        Ok(answer.status == 201)
    }

    /// Deletes a queue with everything in it.
    pub fn delete_queue(&self, queue: &str) -> Result<(), Error> {
        let request = Request::new(Method::DELETE, &[queue]);
        self.transport.call(&request, &[204]).map(drop)
    }

    /// Reads metadata and approximate count.
    pub fn queue_properties(&self, queue: &str) -> Result<QueueProperties, Error> {
        let request = Request::new(Method::GET, &[queue]).query("comp", "metadata");
        let answer = self.transport.call(&request, &[200])?;
        let count = self.header(&answer, "x-ms-approximate-messages-count")?;
        Ok(QueueProperties {
            metadata: metadata(&answer.headers),
            approximate_message_count: count
                .parse()
                .map_err(|_| self.not_understood("a bad count"))?,
        })
    }

    /// Puts a message.
    pub fn put(&self, queue: &str, text: &str, options: PutOptions) -> Result<Sent, Error> {
        let mut request = Request::new(Method::POST, &[queue, "messages"]).with_text(text);
        if let Some(seconds) = options.visibility_timeout {
            request = request.query("visibilitytimeout", seconds);
        }
        if let Some(seconds) = options.time_to_live {
            request = request.query("messagettl", seconds);
        }
        let answer = self.transport.call(&request, &[201])?;
        self.read(&answer, "QueueMessagesList", |root| {
            let message = root
                .child("QueueMessage")
                .ok_or("a put without its message")?;
            Ok(Sent {
                id: message.child_text("MessageId")?.to_owned(),
                inserted: time(message, "InsertionTime")?,
                expires: time(message, "ExpirationTime")?,
                receipt: receipt(message)?,
            })
        })
    }

    /// Receives up to `count` (at most 32) messages and hides each for `visibility_timeout` seconds
    /// (the service's default is 30).
    pub fn get(
        &self,
        queue: &str,
        count: u32,
        visibility_timeout: Option<u32>,
    ) -> Result<Vec<Message>, Error> {
        let mut request = Request::new(Method::GET, &[queue, "messages"])
            .query("numofmessages", count.min(MESSAGES_MAX));
        if let Some(seconds) = visibility_timeout {
            request = request.query("visibilitytimeout", seconds);
        }
        self.messages(&request, true)
    }

    /// Looks at up to `count` (at most 32) visible messages.
    pub fn peek(&self, queue: &str, count: u32) -> Result<Vec<Message>, Error> {
        let request = Request::new(Method::GET, &[queue, "messages"])
            .query("peekonly", "true")
            .query("numofmessages", count.min(MESSAGES_MAX));
        self.messages(&request, false)
    }

    /// Hides a message for another `visibility_timeout` seconds and, if `text` is given, replaces its
    /// text. The old receipt stops working.
    pub fn update(
        &self,
        queue: &str,
        id: &str,
        receipt: &str,
        visibility_timeout: u32,
        text: Option<&str>,
    ) -> Result<Receipt, Error> {
        let mut request = Request::new(Method::PUT, &[queue, "messages", id])
            .query("popreceipt", receipt)
            .query("visibilitytimeout", visibility_timeout);
        if let Some(text) = text {
            request = request.with_text(text);
        }
        let answer = self.transport.call(&request, &[204])?;
        let next_visible = self.header(&answer, "x-ms-time-next-visible")?;
        Ok(Receipt {
            value: self.header(&answer, "x-ms-popreceipt")?.to_owned(),
            next_visible: httpdate::parse_http_date(next_visible)
                .map_err(|_| self.not_understood("a bad time"))?,
        })
    }

    /// Deletes a message that was received.
    pub fn delete_message(&self, queue: &str, id: &str, receipt: &str) -> Result<(), Error> {
        let request =
            Request::new(Method::DELETE, &[queue, "messages", id]).query("popreceipt", receipt);
        self.transport.call(&request, &[204]).map(drop)
    }

    /// Deletes every message of a queue.
    ///
    /// With many messages the service may answer `OperationTimedOut` after it has deleted some.
    /// Then the caller must repeat it.
    pub fn clear(&self, queue: &str) -> Result<(), Error> {
        let mut request = Request::new(Method::DELETE, &[queue, "messages"]);
        request.reports_timeouts = true;
        self.transport.call(&request, &[204]).map(drop)
    }

    /// Reads how far the account's second copy is, from that copy.
    pub fn service_stats(&self) -> Result<ServiceStats, Error> {
        let mut request = Request::new(Method::GET, &[])
            .query("restype", "service")
            .query("comp", "stats");
        request.to_secondary = true;
        let answer = self.transport.call(&request, &[200])?;
        self.read(&answer, "StorageServiceStats", |root| {
            let replication = root
                .child("GeoReplication")
                .ok_or("stats without GeoReplication")?;
            let last_sync = replication.child_text("LastSyncTime").unwrap_or_default();
            Ok(ServiceStats {
                status: replication.child_text("Status")?.to_owned(),
                last_sync: httpdate::parse_http_date(last_sync).ok(),
            })
        })
    }

    fn messages(&self, request: &Request, leased: bool) -> Result<Vec<Message>, Error> {
        let answer = self.transport.call(request, &[200])?;
        self.read(&answer, "QueueMessagesList", |root| {
            root.children
                .iter()
                .map(|element| message(element, leased))
                .collect()
        })
    }

    /// Reads the XML of an answer, whose root is to have that name.
    fn read<T>(
        &self,
        answer: &Answer,
        name: &str,
        reader: impl FnOnce(&Element) -> Result<T, String>,
    ) -> Result<T, Error> {
        Element::parse(&answer.body)
            .and_then(|root| {
                if root.name == name {
                    reader(&root)
                } else {
                    Err(format!("XML that is not {name}"))
                }
            })
            .map_err(|what| self.not_understood(what))
    }

    fn header<'a>(&self, answer: &'a Answer, name: &str) -> Result<&'a str, Error> {
        header(&answer.headers, name)
            .ok_or_else(|| self.not_understood(format!("an answer without {name}")))
    }

    fn not_understood(&self, what: impl Into<String>) -> Error {
        Error::NotUnderstood {
            url: self.url(),
            what: what.into(),
        }
    }
}

impl QueuePages<'_> {
    fn page(&self, marker: &str) -> Result<(Vec<Queue>, String), Error> {
        let mut request = Request::new(Method::GET, &[])
            .query("comp", "list")
            .query("maxresults", PAGE_SIZE);
        if !marker.is_empty() {
            request = request.query("marker", marker);
        }
        if !self.prefix.is_empty() {
            request = request.query("prefix", &self.prefix);
        }
        if self.with_metadata {
            request = request.query("include", "metadata");
        }
        let answer = self.client.transport.call(&request, &[200])?;
        self.client.read(&answer, "EnumerationResults", |root| {
            let queues = root.child("Queues").ok_or("a list without Queues")?;
            let queues = queues
                .children
                .iter()
                .map(queue)
                .collect::<Result<_, _>>()?;
            let next = root.child_text("NextMarker").unwrap_or_default();
            Ok((queues, next.to_owned()))
        })
    }
}

impl Iterator for QueuePages<'_> {
    type Item = Result<Vec<Queue>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let marker = self.marker.take()?;
        match self.page(&marker) {
            Ok((queues, next)) => {
                // A server that repeats its marker would be asked forever.
                if next == marker && !next.is_empty() {
                    let error = self.client.not_understood("a list that does not end");
                    return Some(Err(error));
                }
                self.marker = Some(next).filter(|next| !next.is_empty());
                Some(Ok(queues))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl Request {
    fn with_text(mut self, text: &str) -> Self {
        self.body = xml::message_body(text);
        self.headers
            .push(("content-type".into(), "application/xml".into()));
        self
    }
}

fn metadata_header(name: &str) -> String {
    format!("x-ms-meta-{}", name.to_ascii_lowercase())
}

fn metadata(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut metadata: Vec<_> = headers
        .iter()
        .filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix("x-ms-meta-")?;
            let value = String::from_utf8_lossy(value.as_bytes());
            Some((name.to_owned(), value.into_owned()))
        })
        .collect();
    metadata.sort();
    metadata
}

fn queue(element: &Element) -> Result<Queue, String> {
    let metadata = element.child("Metadata").map(|metadata| {
        let pairs = metadata.children.iter();
        pairs
            .map(|pair| (pair.name.clone(), pair.text.clone()))
            .collect()
    });
    Ok(Queue {
        name: element.child_text("Name")?.to_owned(),
        metadata: metadata.unwrap_or_default(),
    })
}

fn message(element: &Element, leased: bool) -> Result<Message, String> {
    let count = element.child_text("DequeueCount")?;
    Ok(Message {
        id: element.child_text("MessageId")?.to_owned(),
        inserted: time(element, "InsertionTime")?,
        expires: time(element, "ExpirationTime")?,
        dequeue_count: count.parse().map_err(|_| "a bad DequeueCount")?,
        text: element.child_text("MessageText")?.to_owned(),
        receipt: leased.then(|| receipt(element)).transpose()?,
    })
}

fn receipt(element: &Element) -> Result<Receipt, String> {
    Ok(Receipt {
        value: element.child_text("PopReceipt")?.to_owned(),
        next_visible: time(element, "TimeNextVisible")?,
    })
}

fn time(element: &Element, name: &str) -> Result<SystemTime, String> {
    httpdate::parse_http_date(element.child_text(name)?).map_err(|_| format!("a bad {name}"))
}
