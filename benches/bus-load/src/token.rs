//! Tokens of Service Bus: put to the node `$cbs`, before any other operation.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bus_load::Client;
use bytes::{Bytes, BytesMut};
use kew_amqp::Outgoing;
use kew_amqp::codec::{Map, Text};
use kew_amqp::message::{Message, write_application_properties, write_value};
use kew_amqp::performative::{DeliveryState, Tag};

use crate::client::receiver;
use crate::options::{Settles, Target};

const NODE: &str = "$cbs";
const VALID_SECONDS: u64 = 3600;

/// Puts a token for the whole namespace, and waits until it is accepted.
pub(crate) async fn put(client: &mut Client, target: &Target) -> Result<()> {
    let audience = format!("sb://{}/", target.address.ip());
    let token = sign(&audience, &target.user, &target.password)?;
    let properties = Map::build(|map| {
        map.entry("operation", "put-token");
        map.entry("type", "servicebus.windows.net:sastoken");
        map.entry("name", audience.as_str());
    });
    let mut request = BytesMut::new();
    write_application_properties(&mut request, &properties);
    write_value(&mut request, &Text::from(token.as_str()));

    let requests = client.sender(NODE).await?;
    let answers = receiver(client, NODE, Settles::First).await?;
    client.connection.grant(answers, 1);
    while !client.connection.can_send(requests) {
        client.event().await?;
    }
    let outgoing = Outgoing {
        tag: Tag::from([0; 16]),
        message_format: 0,
        is_settled: true,
        state: None,
    };
    let parts = [request.freeze(), Bytes::new()];
    client.connection.send(requests, outgoing, parts)?;
    let answer = client.delivery(answers).await?;
    let accepted = Some(DeliveryState::ACCEPTED);
    client.connection.settle(answer.delivery, accepted);
    let properties = Message::scan(answer.payload)?.application_properties();
    let status = properties.get("status-code").context("no status")?.value();
    if !matches!(status.as_integer(), Some(200..=299)) {
        bail!("the token was refused: {properties:?}");
    }
    client.detach(requests).await?;
    client.detach(answers).await?;
    Ok(())
}

/// A shared access signature.
pub(crate) fn sign(audience: &str, rule: &str, key: &str) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let expiry = now.as_secs() + VALID_SECONDS;
    let resource = audience.replace(':', "%3A").replace('/', "%2F");
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let signature = STANDARD.encode(hmac::sign(&key, format!("{resource}\n{expiry}").as_bytes()));
    let signature = signature
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D");
    Ok(format!(
        "SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule}"
    ))
}
