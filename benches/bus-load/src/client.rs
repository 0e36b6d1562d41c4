//! One connection over AMQP 1.0.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use kew_amqp::codec::Symbol;
use kew_amqp::performative::{
    Attach, ReceiverSettleMode, Role, SenderSettleMode, Source, Target as Terminus,
};
use kew_amqp::{Config, Connection, Event, Limits, LinkId, Millis, Sasl, SessionId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::options::{Auth, Settles, Target};
use crate::token;

/// How much is read at once at least, in bytes.
const READ_SIZE: usize = 16 * 1024;

/// A connection with one session. That it breaks, or is closed by the server, is an error.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    stream: TcpStream,
    /// What is still to be written.
    output: Bytes,
    session: Option<SessionId>,
    began: Instant,
}

impl Client {
    /// Connects, opens, begins a session and shows who we are.
    pub(crate) async fn connect(target: &Target) -> Result<Self> {
        let stream = TcpStream::connect(target.address)
            .await
            .with_context(|| format!("cannot connect to {}", target.address))?;
        stream.set_nodelay(true)?;
        let (mechanism, initial_response) = match target.auth {
            Auth::Cbs => ("ANONYMOUS", None),
            Auth::Plain => {
                let response = format!("\0{}\0{}", target.user, target.password);
                ("PLAIN", Some(Bytes::from(response)))
            }
        };
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
        };
        while !matches!(client.event().await?, Event::Opened(_)) {}
        client.session = client.connection.begin();
        while !matches!(client.event().await?, Event::Begun { .. }) {}
        if target.auth == Auth::Cbs {
            token::put(&mut client, target).await?;
        }
        Ok(client)
    }

    /// Attaches a link that sends.
    pub(crate) async fn sender(&mut self, address: &str) -> Result<LinkId> {
        let mut attach = Attach::new(format!("to {address}").into(), Role::Sender);
        attach.source = Some(Source::new("kew-bus-load".into()));
        attach.target = Some(Terminus::new(address.into()));
        attach.snd_settle_mode = SenderSettleMode::Unsettled;
        Ok(self.attach(attach).await?.0)
    }

    /// Attaches a link that receives under locks.
    pub(crate) async fn receiver(&mut self, address: &str, settles: Settles) -> Result<LinkId> {
        let mut attach = receiver_attach(address);
        if settles == Settles::First {
            attach.rcv_settle_mode = ReceiverSettleMode::First;
        }
        Ok(self.attach(attach).await?.0)
    }

    /// Attaches a link, and returns the answer.
    pub(crate) async fn attach(&mut self, attach: Attach) -> Result<(LinkId, Box<Attach>)> {
        let name = attach.name.clone();
        let link = self
            .session
            .and_then(|session| self.connection.attach(session, attach))
            .with_context(|| format!("no handle is free for the link '{name}'"))?;
        loop {
            match self.event().await? {
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
                } if id == link => bail!("the link '{name}' was refused: {error:?}"),
                _ => {}
            }
        }
    }

    /// Detaches a link, and waits until it is.
    pub(crate) async fn detach(&mut self, link: LinkId) -> Result<()> {
        self.connection.detach(link, true, None);
        while !matches!(self.event().await?, Event::Detached { link: id, .. } if id == link) {}
        Ok(())
    }

    /// Closes the connection, and waits until the server has answered.
    pub(crate) async fn close(&mut self) -> Result<()> {
        self.connection.close(None);
        loop {
            while self.connection.poll_event().is_some() {}
            if self.connection.is_closed() {
                return Ok(());
            }
            self.exchange().await?;
        }
    }

    /// The next event. To drop the future loses nothing.
    pub(crate) async fn event(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.ready_event()? {
                return Ok(event);
            }
            self.exchange().await?;
        }
    }

    /// The next event that came in already.
    pub(crate) fn ready_event(&mut self) -> Result<Option<Event>> {
        match self.connection.poll_event() {
            Some(Event::Closed { error, .. }) => bail!("the connection was closed: {error:?}"),
            Some(Event::Ended { error, .. }) => bail!("the session was ended: {error:?}"),
            event => Ok(event),
        }
    }

    /// Writes what there is to be written, and waits until something came in or went out. To drop
    /// the future loses nothing.
    pub(crate) async fn exchange(&mut self) -> Result<()> {
        let ms = self.began.elapsed().as_millis();
        let now = Millis(u64::try_from(ms).unwrap_or(u64::MAX));
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
                written.context("the connection broke")?;
            }
            read = reading.read_buf(input), if wants_input => {
                if read.context("the connection broke")? == 0 {
                    bail!("the server hung up");
                }
                self.connection.fed(now);
            }
        }
        Ok(())
    }
}

/// An attach for a link that receives under locks, and wants to know what became of its settlements.
pub(crate) fn receiver_attach(address: &str) -> Attach {
    let mut attach = Attach::new(format!("from {address}").into(), Role::Receiver);
    attach.source = Some(Source::new(address.into()));
    attach.target = Some(Terminus::new("kew-bus-load".into()));
    attach.snd_settle_mode = SenderSettleMode::Unsettled;
    attach.rcv_settle_mode = ReceiverSettleMode::Second;
    attach
}
