//! One connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use kew_amqp::codec::Symbol;
use kew_amqp::performative::{
    Attach, DeliveryState, ReceiverSettleMode, Role, SenderSettleMode, Source, Tag, Target,
};
use kew_amqp::{
    Config, Connection, Delivery, DeliveryId, Event, Limits, LinkId, Millis, Outgoing, Sasl,
    SessionId,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Error;

/// How many bytes one read reads at least.
const READ_SIZE: usize = 16 * 1024;

/// The name and key of an authorization rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// One of its keys.
    pub key: String,
}

/// A connection with one session.
pub struct Client {
    /// The protocol's state.
    pub connection: Connection,
    stream: TcpStream,
    output: Bytes,
    session: Option<SessionId>,
    began: Instant,
    sent: u64,
    /// Deliveries that arrived while the client waited for something else.
    deliveries: VecDeque<Delivery>,
}

impl Client {
    /// Connects, authenticates, and begins a session.
    pub async fn connect(address: SocketAddr, rule: &Rule) -> Result<Self, Error> {
        let response = format!("\0{}\0{}", rule.name, rule.key);
        Self::connect_with(address, "PLAIN", Some(Bytes::from(response))).await
    }

    /// Connects without authentication and begins a session. The caller must put a token next.
    pub async fn connect_anonymously(address: SocketAddr) -> Result<Self, Error> {
        Self::connect_with(address, "ANONYMOUS", None).await
    }

    async fn connect_with(
        address: SocketAddr,
        mechanism: &'static str,
        initial_response: Option<Bytes>,
    ) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let config = Config {
            container_id: "kew-bus-load".into(),
            sasl: Sasl::Client {
                mechanism: Symbol::from_static(mechanism),
                initial_response,
            },
            ..Config::default()
        };
        let mut client = Self {
            connection: Connection::client(config, Limits::default(), Millis(0)),
            stream,
            output: Bytes::new(),
            session: None,
            began: Instant::now(),
            sent: 0,
            deliveries: VecDeque::new(),
        };
        while !matches!(client.event().await?, Event::Opened(_)) {}
        client.session = client.connection.begin();
        while !matches!(client.event().await?, Event::Begun { .. }) {}
        Ok(client)
    }

    /// Attaches a link that sends.
    pub async fn sender(&mut self, address: &str) -> Result<LinkId, Error> {
        let mut attach = Attach::new(format!("to {address}").into(), Role::Sender);
        attach.source = Some(Source::new("kew-bus-load".into()));
        attach.target = Some(Target::new(address.into()));
        attach.snd_settle_mode = SenderSettleMode::Unsettled;
        Ok(self.attach(attach).await?.0)
    }

    /// Attaches a link that receives under locks.
    pub async fn receiver(&mut self, address: &str) -> Result<LinkId, Error> {
        Ok(self.attach(receiver_attach(address)).await?.0)
    }

    /// Attaches a link, and returns the answer.
    pub async fn attach(&mut self, attach: Attach) -> Result<(LinkId, Box<Attach>), Error> {
        let link = self
            .session
            .and_then(|session| self.connection.attach(session, attach))
            .ok_or_else(|| Error::Refused("no handle is free".into()))?;
        loop {
            match self.answer().await? {
                Event::Attached { link: id, attach } if id == link => {
                    let is_refusal = match attach.role {
                        Role::Sender => attach.source.is_none(),
                        Role::Receiver => attach.target.is_none(),
                    };
                    if !is_refusal {
                        return Ok((link, attach));
                    }
                }
                Event::Detached {
                    link: id, error, ..
                } if id == link => return Err(Error::Refused(format!("{error:?}"))),
                _ => {}
            }
        }
    }

    /// Detaches a link, and waits until it is.
    pub async fn detach(&mut self, link: LinkId) -> Result<(), Error> {
        self.connection.detach(link, true, None);
        self.deliveries.retain(|delivery| delivery.link != link);
        while !matches!(self.answer().await?, Event::Detached { link: id, .. } if id == link) {}
        Ok(())
    }

    /// Sends a message and waits until the server accepts it.
    pub async fn send(&mut self, link: LinkId, message: Bytes) -> Result<(), Error> {
        while !self.connection.can_send(link) {
            self.answer().await?;
        }
        self.sent += 1;
        let tag = Tag::new(&self.sent.to_be_bytes());
        let outgoing = Outgoing {
            tag: tag.map_err(|error| Error::Unexpected(error.to_string()))?,
            message_format: 0,
            is_settled: false,
            state: None,
        };
        let sent = self
            .connection
            .send(link, outgoing, [message, Bytes::new()])
            .map_err(|error| Error::Refused(error.to_string()))?;
        loop {
            if let Event::Disposition {
                delivery, state, ..
            } = self.answer().await?
                && delivery == sent
            {
                return match state {
                    Some(DeliveryState::ACCEPTED) => Ok(()),
                    state => Err(Error::refused(state.as_ref())),
                };
            }
        }
    }

    /// Waits for the next message of a link that was granted credit. Cancel safe.
    pub async fn delivery(&mut self, link: LinkId) -> Result<Delivery, Error> {
        loop {
            let place = self.deliveries.iter().position(|it| it.link == link);
            if let Some(delivery) = place.and_then(|place| self.deliveries.remove(place)) {
                return Ok(delivery);
            }
            match self.event().await? {
                Event::Delivery(delivery) => self.deliveries.push_back(delivery),
                Event::Oversized(it) if it.link == link => {
                    return Err(Error::Refused(it.error.to_string()));
                }
                Event::Detached {
                    link: id, error, ..
                } if id == link => return Err(Error::Refused(format!("{error:?}"))),
                _ => {}
            }
        }
    }

    /// Sends an outcome for a message and waits until the server confirms the same outcome.
    pub async fn settle(
        &mut self,
        delivery: DeliveryId,
        state: DeliveryState,
    ) -> Result<(), Error> {
        self.connection.update(delivery, state.clone());
        loop {
            if let Event::Disposition {
                delivery: id,
                is_settled: true,
                state: answer,
                ..
            } = self.answer().await?
                && id == delivery
            {
                return if answer.as_ref() == Some(&state) {
                    Ok(())
                } else {
                    Err(Error::refused(answer.as_ref()))
                };
            }
        }
    }

    /// The next event other than a message. Messages are kept for [`Client::delivery`].
    pub async fn answer(&mut self) -> Result<Event, Error> {
        loop {
            match self.event().await? {
                Event::Delivery(delivery) => self.deliveries.push_back(delivery),
                event => return Ok(event),
            }
        }
    }

    /// The next event of any kind. Cancel safe.
    pub async fn event(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.ready_event()? {
                return Ok(event);
            }
            self.exchange().await?;
        }
    }

    /// The next event that has already arrived, if there is one.
    pub fn ready_event(&mut self) -> Result<Option<Event>, Error> {
        match self.connection.poll_event() {
            Some(Event::Closed { error, .. }) => {
                Err(Error::Gone(format!("the server closed it: {error:?}")))
            }
            Some(Event::Ended { error, .. }) => Err(Error::Gone(format!(
                "the server ended the session: {error:?}"
            ))),
            event => Ok(event),
        }
    }

    /// Closes the connection, and waits until the server has answered.
    pub async fn close(&mut self) -> Result<(), Error> {
        self.connection.close(None);
        loop {
            while self.connection.poll_event().is_some() {}
            if self.connection.is_closed() {
                return Ok(());
            }
            self.exchange().await?;
        }
    }

    /// The socket, after all pending output is written. For tests that send bytes the protocol's
    /// state does not know of.
    pub async fn socket(&mut self) -> Result<&mut TcpStream, Error> {
        loop {
            if self.output.is_empty() {
                self.output = self.connection.take_output(self.now());
            }
            if self.output.is_empty() {
                return Ok(&mut self.stream);
            }
            self.stream.write_all_buf(&mut self.output).await?;
        }
    }

    fn now(&self) -> Millis {
        let ms = self.began.elapsed().as_millis();
        Millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// Writes all pending output, and waits until something was read or written. Cancel safe.
    pub async fn exchange(&mut self) -> Result<(), Error> {
        let now = self.now();
        if self.output.is_empty() {
            self.output = self.connection.take_output(now);
        }
        let (mut reading, mut writing) = self.stream.split();
        let wants_input = self.connection.wants_input();
        let input = self.connection.input();
        input.reserve(READ_SIZE);
        tokio::select! {
            biased;
            written = writing.write_buf(&mut self.output), if !self.output.is_empty() => {
                written?;
            }
            read = reading.read_buf(input), if wants_input => {
                if read? == 0 {
                    return Err(Error::Gone("the server closed the socket".into()));
                }
                self.connection.fed(now);
            }
        }
        Ok(())
    }
}

/// An attach for a link that receives under locks and gets an answer to each settlement.
pub fn receiver_attach(address: &str) -> Attach {
    let mut attach = Attach::new(format!("from {address}").into(), Role::Receiver);
    attach.source = Some(Source::new(address.into()));
    attach.target = Some(Target::new("kew-bus-load".into()));
    attach.snd_settle_mode = SenderSettleMode::Unsettled;
    attach.rcv_settle_mode = ReceiverSettleMode::Second;
    attach
}
