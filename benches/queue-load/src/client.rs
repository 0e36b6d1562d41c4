//! The operations of the service, with typed results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::malformed;
use crate::{Connection, Endpoint, Error, answer};

/// A connection with one method for each operation. One request is in flight at a time.
pub struct Client {
    connection: Connection,
}

/// The options of a put.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions {
    /// How long the message is hidden first, in seconds.
    pub visibility_timeout: Option<u32>,
    /// Seconds until it expires, or -1 for never. The service's default is seven days.
    pub time_to_live: Option<i64>,
}

/// The answer to a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The message's id.
    pub id: String,
    /// A receipt that is valid for an update or a delete at once.
    pub receipt: String,
    /// When the message was put.
    pub inserted: SystemTime,
    /// When it expires.
    pub expires: SystemTime,
    /// When it can be received.
    pub next_visible: SystemTime,
}

/// A message that was received or peeked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message's id.
    pub id: String,
    /// When the message was put.
    pub inserted: SystemTime,
    /// When it expires.
    pub expires: SystemTime,
    /// How often it has been received, this time included.
    pub dequeue_count: u64,
    /// Its text, unescaped.
    pub text: String,
    /// The receipt and the end of the lease; `None` if the message was only peeked at.
    pub receipt: Option<Receipt>,
}

/// A pop receipt and how long it holds the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The receipt as the service gave it.
    pub value: String,
    /// When the message can be received again.
    pub next_visible: SystemTime,
}

/// The properties of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueProperties {
    /// Metadata with lower-case names.
    pub metadata: BTreeMap<String, String>,
    /// How many messages it holds, hidden ones included.
    pub approximate_message_count: u64,
}

/// One entry of a list of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The queue's name.
    pub name: String,
    /// Its metadata, empty unless asked for.
    pub metadata: Vec<(String, String)>,
}

/// One page of a list of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePage {
    /// The queues of this page.
    pub queues: Vec<Queue>,
    /// Where the next page begins; empty if this is the last one.
    pub next_marker: String,
}

impl Client {
    /// A client that connects at its first request.
    #[must_use]
    pub fn new(endpoint: Arc<Endpoint>) -> Self {
        Self {
            connection: Connection::new(endpoint),
        }
    }

    /// Creates a queue; `false` if it existed with the same metadata.
    pub async fn create_queue(
        &mut self,
        queue: &str,
        metadata: &[(&str, &str)],
    ) -> Result<bool, Error> {
        let path = format!("/{queue}");
        let headers = metadata_headers(metadata);
        let status = self
            .connection
            .call("PUT", &path, &[], &headers, &[])
            .await?;
        self.expect(status, &[201, 204])?;
        Ok(status == 201)
    }

    /// Deletes a queue with everything in it.
    pub async fn delete_queue(&mut self, queue: &str) -> Result<(), Error> {
        self.call("DELETE", &format!("/{queue}"), &[], &[], 204)
            .await
    }

    /// Reads metadata and approximate count.
    pub async fn queue_properties(&mut self, queue: &str) -> Result<QueueProperties, Error> {
        let query = [("comp", "metadata")];
        self.call("GET", &format!("/{queue}"), &query, &[], 200)
            .await?;
        let mut metadata = BTreeMap::new();
        for (name, value) in self.connection.headers() {
            let name = name.to_ascii_lowercase();
            if let Some(name) = name.strip_prefix("x-ms-meta-") {
                metadata.insert(name.to_owned(), value.to_owned());
            }
        }
        let count = self.header("x-ms-approximate-messages-count")?;
        Ok(QueueProperties {
            metadata,
            approximate_message_count: count.parse().map_err(|_| malformed("a bad count"))?,
        })
    }

    /// Replaces all of a queue's metadata.
    pub async fn set_metadata(
        &mut self,
        queue: &str,
        metadata: &[(&str, &str)],
    ) -> Result<(), Error> {
        let path = format!("/{queue}");
        let (query, headers) = ([("comp", "metadata")], metadata_headers(metadata));
        let status = self
            .connection
            .call("PUT", &path, &query, &headers, &[])
            .await?;
        self.expect(status, &[204])
    }

    /// Lists a page of queues with their metadata, from `marker` on (empty: from the first).
    pub async fn list_queues(
        &mut self,
        prefix: &str,
        marker: &str,
        max_results: u32,
    ) -> Result<QueuePage, Error> {
        let max_results = max_results.to_string();
        let query = [
            ("comp", "list"),
            ("include", "metadata"),
            ("marker", marker),
            ("maxresults", &max_results),
            ("prefix", prefix),
        ];
        let query: Vec<_> = query
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect();
        self.call("GET", "/", &query, &[], 200).await?;
        let body = self.connection.body();
        let queues = answer::elements(body, "<Queue>")
            .into_iter()
            .map(|queue| {
                Ok(Queue {
                    name: answer::required(queue, "Name")?,
                    metadata: answer::children(queue, "Metadata"),
                })
            })
            .collect::<Result<_, Error>>()?;
        Ok(QueuePage {
            queues,
            next_marker: answer::required(body, "NextMarker")?,
        })
    }

    /// Puts a message.
    pub async fn put(
        &mut self,
        queue: &str,
        text: &str,
        options: PutOptions,
    ) -> Result<Sent, Error> {
        let time_to_live = options.time_to_live.map(|seconds| seconds.to_string());
        let visibility = options
            .visibility_timeout
            .map(|seconds| seconds.to_string());
        let query: Vec<_> = [
            time_to_live.as_deref().map(|value| ("messagettl", value)),
            visibility
                .as_deref()
                .map(|value| ("visibilitytimeout", value)),
        ]
        .into_iter()
        .flatten()
        .collect();
        let path = format!("/{queue}/messages");
        self.call("POST", &path, &query, &message_body(text), 201)
            .await?;
        let body = self.connection.body();
        Ok(Sent {
            id: answer::required(body, "MessageId")?,
            receipt: answer::required(body, "PopReceipt")?,
            inserted: answer::time(body, "InsertionTime")?,
            expires: answer::time(body, "ExpirationTime")?,
            next_visible: answer::time(body, "TimeNextVisible")?,
        })
    }

    /// Receives up to `count` messages and hides each for `visibility_timeout` seconds.
    pub async fn get(
        &mut self,
        queue: &str,
        count: u32,
        visibility_timeout: u32,
    ) -> Result<Vec<Message>, Error> {
        let (count, visibility) = (count.to_string(), visibility_timeout.to_string());
        let query = [
            ("numofmessages", count.as_str()),
            ("visibilitytimeout", visibility.as_str()),
        ];
        self.call("GET", &format!("/{queue}/messages"), &query, &[], 200)
            .await?;
        self.messages(true)
    }

    /// Looks at up to `count` visible messages.
    pub async fn peek(&mut self, queue: &str, count: u32) -> Result<Vec<Message>, Error> {
        let count = count.to_string();
        let query = [("numofmessages", count.as_str()), ("peekonly", "true")];
        self.call("GET", &format!("/{queue}/messages"), &query, &[], 200)
            .await?;
        self.messages(false)
    }

    /// Hides a message for a new time and, if `text` is given, replaces its text.
    pub async fn update(
        &mut self,
        queue: &str,
        id: &str,
        receipt: &str,
        visibility_timeout: u32,
        text: Option<&str>,
    ) -> Result<Receipt, Error> {
        let visibility = visibility_timeout.to_string();
        let query = [
            ("popreceipt", receipt),
            ("visibilitytimeout", visibility.as_str()),
        ];
        let body = text.map(message_body).unwrap_or_default();
        let path = format!("/{queue}/messages/{id}");
        self.call("PUT", &path, &query, &body, 204).await?;
        Ok(Receipt {
            value: self.header("x-ms-popreceipt")?.to_owned(),
            next_visible: answer::parse_time(self.header("x-ms-time-next-visible")?)?,
        })
    }

    /// Deletes a message.
    pub async fn delete(&mut self, queue: &str, id: &str, receipt: &str) -> Result<(), Error> {
        let path = format!("/{queue}/messages/{id}");
        self.call("DELETE", &path, &[("popreceipt", receipt)], &[], 204)
            .await
    }

    /// Deletes every message of a queue.
    pub async fn clear(&mut self, queue: &str) -> Result<(), Error> {
        self.call("DELETE", &format!("/{queue}/messages"), &[], &[], 204)
            .await
    }

    async fn call(
        &mut self,
        verb: &str,
        path: &str,
        query: &[(&str, &str)],
        body: &[u8],
        success: u16,
    ) -> Result<(), Error> {
        let status = self.connection.call(verb, path, query, &[], body).await?;
        self.expect(status, &[success])
    }

    fn expect(&self, status: u16, success: &[u16]) -> Result<(), Error> {
        if success.contains(&status) {
            return Ok(());
        }
        let body = String::from_utf8_lossy(self.connection.body());
        Err(Error::Refused {
            status,
            code: self
                .header("x-ms-error-code")
                .unwrap_or_default()
                .to_owned(),
            body: body.chars().take(300).collect(),
        })
    }

    fn header(&self, name: &str) -> Result<&str, Error> {
        let value = self.connection.header(name);
        value.ok_or_else(|| malformed(format!("an answer without {name}")))
    }

    fn messages(&self, leased: bool) -> Result<Vec<Message>, Error> {
        answer::elements(self.connection.body(), "<QueueMessage>")
            .into_iter()
            .map(|xml| message(xml, leased))
            .collect()
    }
}

fn message(xml: &[u8], leased: bool) -> Result<Message, Error> {
    let count = answer::required(xml, "DequeueCount")?;
    let receipt = if leased {
        Some(Receipt {
            value: answer::required(xml, "PopReceipt")?,
            next_visible: answer::time(xml, "TimeNextVisible")?,
        })
    } else {
        None
    };
    Ok(Message {
        id: answer::required(xml, "MessageId")?,
        inserted: answer::time(xml, "InsertionTime")?,
        expires: answer::time(xml, "ExpirationTime")?,
        dequeue_count: count
            .parse()
            .map_err(|_| malformed("a bad dequeue count"))?,
        text: answer::required(xml, "MessageText")?,
        receipt,
    })
}

fn message_body(text: &str) -> Vec<u8> {
    let mut body = b"<QueueMessage><MessageText>".to_vec();
    answer::escape(text, &mut body);
    body.extend_from_slice(b"</MessageText></QueueMessage>");
    body
}

fn metadata_headers(metadata: &[(&str, &str)]) -> Vec<(String, String)> {
    metadata
        .iter()
        .map(|(name, value)| (format!("x-ms-meta-{name}"), (*value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_received_message_has_all_its_parts() {
        let xml = b"<QueueMessage><MessageId>1</MessageId>\
            <InsertionTime>Fri, 20 Nov 2026 23:00:00 GMT</InsertionTime>\
            <ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>\
            <PopReceipt>cg==</PopReceipt>\
            <TimeNextVisible>Fri, 20 Nov 2026 23:00:30 GMT</TimeNextVisible>\
            <DequeueCount>2</DequeueCount><MessageText>a &lt; b</MessageText></QueueMessage>";
        let message = message(xml, true).expect("complete");
        let receipt = message.receipt.expect("leased");
        assert_eq!((message.id.as_str(), message.dequeue_count), ("1", 2));
        assert_eq!(
            (message.text.as_str(), receipt.value.as_str()),
            ("a < b", "cg==")
        );
        let lease = receipt.next_visible.duration_since(message.inserted);
        assert_eq!(lease.expect("later").as_secs(), 30);
    }

    #[test]
    fn a_body_is_escaped() {
        assert_eq!(
            message_body("a<b"),
            b"<QueueMessage><MessageText>a&lt;b</MessageText></QueueMessage>"
        );
    }
}
