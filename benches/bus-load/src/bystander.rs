//! Honest clients beside others that send the most expensive input.
//!
//! One bystander for each protocol does one thing after another and measures the time: first alone,
//! then beside each attack. Attackers have a thread of their own, so that they do not disturb the
//! bystanders' clock.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bus_load::Client;
use bytes::Bytes;
use clap::ValueEnum as _;
use kew_amqp::performative::DeliveryState;
use queue_load::{
    Client as QueueClient, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Endpoint, PutOptions,
};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::attack::{Attack, Attackers};
use crate::client::{connect, receiver};
use crate::many::entity;
use crate::options::{Bystander, Target};
use crate::report::Spread;
use crate::token::sign;

/// The queue of the bystander over AMQP. Attackers and the bystander over HTTP have others.
const QUEUE: &str = "bench";
/// The queue of Queue Storage.
const STORAGE_QUEUE: &str = "bystander";
/// The pause between two operations of a bystander.
const PAUSE: Duration = Duration::from_millis(2);
/// An operation that takes longer ends the measurement.
const PATIENCE: Duration = Duration::from_secs(60);

/// The printed result.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    mode: &'static str,
    runs: Vec<Run>,
}

/// The bystanders' times beside one attack, or none.
#[derive(Debug, Serialize)]
struct Run {
    attack: &'static str,
    sent_bytes: u64,
    amqp: Option<Spread>,
    http: Option<Spread>,
    queue: Option<Spread>,
}

pub(crate) async fn run(target: &Target, options: &Bystander) -> Result<Outcome> {
    let endpoint = Endpoint::new(&options.queue, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY);
    let endpoint = std::sync::Arc::new(endpoint.context("bad --queue")?);
    let mut all = Bystanders {
        amqp: Amqp::connect(target).await?,
        http: Http::connect(target).await?,
        queue: QueueClient::new(endpoint.clone()),
    };
    let created = all.queue.create_queue(STORAGE_QUEUE, &[]).await;
    created.context("cannot create the queue")?;
    let seconds = Duration::from_secs_f64(options.seconds);
    let mut runs = vec![all.measure("none", None, seconds).await?];
    let all_attacks = Attack::value_variants();
    let attacks = match options.attack.is_empty() {
        true => all_attacks,
        false => &options.attack,
    };
    for &attack in attacks {
        let attackers = Attackers::start(attack, target, endpoint.address(), options)?;
        runs.push(
            all.measure(attack.name(), Some(&attackers), seconds)
                .await?,
        );
        attackers.stop()?;
    }
    let mode = "bystander";
    Ok(Outcome { mode, runs })
}

/// One bystander for each protocol.
struct Bystanders {
    amqp: Amqp,
    http: Http,
    queue: QueueClient,
}

impl Bystanders {
    async fn measure(
        &mut self,
        attack: &'static str,
        attackers: Option<&Attackers>,
        length: Duration,
    ) -> Result<Run> {
        let end = Instant::now() + length;
        let Self { amqp, http, queue } = self;
        let put = async || {
            let options = PutOptions::default();
            let put = queue.put(STORAGE_QUEUE, "honest", options).await;
            put.map(drop).map_err(anyhow::Error::from)
        };
        let (amqp, http, queue) = tokio::try_join!(
            repeated(end, async || amqp.cycle().await),
            repeated(end, async || http.ask().await),
            repeated(end, put),
        )
        .with_context(|| format!("beside the attack '{attack}'"))?;
        Ok(Run {
            attack,
            sent_bytes: attackers.map_or(0, Attackers::sent_bytes),
            amqp,
            http,
            queue,
        })
    }
}

/// Does something again and again until then.
async fn repeated(
    end: Instant,
    mut once: impl AsyncFnMut() -> Result<()>,
) -> Result<Option<Spread>> {
    let mut took_us = Vec::new();
    while Instant::now() < end {
        tokio::time::sleep(PAUSE).await;
        let began = Instant::now();
        let done = tokio::time::timeout(PATIENCE, once()).await;
        done.context("it took more than a minute")??;
        took_us.push(i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX));
    }
    Ok(Spread::of(took_us))
}

/// Sends a message, receives and completes it.
struct Amqp {
    client: Client,
    sender: kew_amqp::LinkId,
    receiver: kew_amqp::LinkId,
}

impl Amqp {
    async fn connect(target: &Target) -> Result<Self> {
        let mut client = connect(target).await?;
        let sender = client.sender(QUEUE).await?;
        let receiver = receiver(&mut client, QUEUE, target.settles).await?;
        Ok(Self {
            client,
            sender,
            receiver,
        })
    }

    async fn cycle(&mut self) -> Result<()> {
        let message = crate::attack::message(b"honest");
        self.client.send(self.sender, message).await?;
        self.client.connection.grant(self.receiver, 1);
        let delivery = self.client.delivery(self.receiver).await?;
        let accepted = DeliveryState::ACCEPTED;
        self.client.settle(delivery.delivery, accepted).await?;
        Ok(())
    }
}

/// Receives from an empty queue, over HTTP.
struct Http {
    stream: TcpStream,
    request: Bytes,
}

impl Http {
    async fn connect(target: &Target) -> Result<Self> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let audience = format!("http://{}/", target.address.ip());
        let token = sign(&audience, &target.user, &target.password)?;
        let request = format!(
            "DELETE /{}/messages/head?timeout=0 HTTP/1.1\r\nHost: localhost\r\n\
             Authorization: {token}\r\n\r\n",
            entity(1)
        );
        Ok(Self {
            stream,
            request: request.into(),
        })
    }

    async fn ask(&mut self) -> Result<()> {
        self.stream.write_all(&self.request).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            if self.stream.read_buf(&mut answer).await? == 0 {
                bail!("the server hung up");
            }
        }
        if !answer.starts_with(b"HTTP/1.1 204 ") {
            bail!("{}", String::from_utf8_lossy(&answer));
        }
        Ok(())
    }
}
