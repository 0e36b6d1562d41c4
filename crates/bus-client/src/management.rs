//! Requests to the node `$management` of a queue.

use bytes::{Bytes, BytesMut};
use kew_amqp::Outgoing;
use kew_amqp::codec::{Map, Uuid, Value, write_list};
use kew_amqp::message::{Message, write_application_properties, write_value};
use kew_amqp::performative::{DeliveryState, Tag};

use crate::{Client, Error};

impl Client {
    /// Shows the messages of a queue from a number on, in any state: as many as the server returns
    /// at once.
    pub async fn peek(
        &mut self,
        queue: &str,
        from: i64,
        count: i32,
    ) -> Result<Vec<Message>, Error> {
        let body = Map::build(|map| {
            map.entry("from-sequence-number", &from);
            map.entry("message-count", &count);
        });
        let answer = self.ask(queue, "com.microsoft:peek-message", &body).await?;
        let Some(Value::Map(body)) = answer.body_values().next().map(|raw| raw.value()) else {
            return Ok(Vec::new());
        };
        let Some(Value::List(messages)) = body.get("messages").map(|raw| raw.value()) else {
            return Ok(Vec::new());
        };
        messages
            .iter()
            .map(|entry| match entry.value() {
                Value::Map(entry) => message_in(&entry),
                other => Err(Error::Unexpected(format!("{other:?}"))),
            })
            .collect()
    }

    /// Completes a message by its lock token, which stays valid after the connection that received
    /// it.
    pub async fn complete_by_token(&mut self, queue: &str, token: Uuid) -> Result<(), Error> {
        let body = Map::build(|map| {
            map.entry("disposition-status", "completed");
            map.entry_with("lock-tokens", |out| {
                write_list(out, |list| list.field(&token));
            });
        });
        self.ask(queue, "com.microsoft:update-disposition", &body)
            .await?;
        Ok(())
    }

    /// Sends a request to a queue's node. An answer other than success is an error.
    pub async fn ask(
        &mut self,
        queue: &str,
        operation: &str,
        body: &Map,
    ) -> Result<Message, Error> {
        let node = format!("{queue}/$management");
        let requests = self.sender(&node).await?;
        let answers = self.receiver(&node).await?;
        self.connection.grant(answers, 1);
        let properties = Map::build(|map| map.entry("operation", operation));
        let mut request = BytesMut::new();
        write_application_properties(&mut request, &properties);
        write_value(&mut request, body);
        while !self.connection.can_send(requests) {
            self.answer().await?;
        }
        let outgoing = Outgoing {
            tag: Tag::from([0; 16]),
            message_format: 0,
            is_settled: true,
            state: None,
        };
        let parts = [request.freeze(), Bytes::new()];
        self.connection
            .send(requests, outgoing, parts)
            .map_err(|error| Error::Refused(error.to_string()))?;
        let answer = self.delivery(answers).await?;
        let accepted = Some(DeliveryState::ACCEPTED);
        self.connection.settle(answer.delivery, accepted);
        self.detach(requests).await?;
        self.detach(answers).await?;
        let answer = scan(answer.payload)?;
        let properties = answer.application_properties();
        let status = ["statusCode", "status-code"]
            .into_iter()
            .find_map(|name| properties.get(name)?.value().as_integer());
        match status {
            Some(200..=299) => Ok(answer),
            _ => Err(Error::Refused(format!("{properties:?}"))),
        }
    }
}

fn message_in(entry: &Map) -> Result<Message, Error> {
    match entry.get("message").map(|raw| raw.value()) {
        Some(Value::Binary(bytes)) => scan(bytes),
        other => Err(Error::Unexpected(format!("{other:?}"))),
    }
}

fn scan(bytes: Bytes) -> Result<Message, Error> {
    Message::scan(bytes).map_err(|error| Error::Unexpected(error.to_string()))
}
