//! The task that owns the connection: it waits, feeds the step machine, drains it, and writes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use kew_amqp::Millis;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::connector::Connector;
use super::core::{Command, Core, Token};
use super::nudges::Nudges;
use super::tokens::TokenMaker;
use crate::error::Error;
use crate::transport::Stream;

/// How much room there is for a read at least, in bytes.
const READ_SIZE_MIN: usize = 16 << 10;

/// How much room is made if there is less: batches of small messages come whole.
const READ_SIZE: usize = 64 << 10;

/// How many commands are taken before the service has its turn.
const COMMANDS_MAX: usize = 64;

/// How long the last words of a connection may take.
const GOODBYE_WITHIN: Duration = Duration::from_secs(5);

/// Where no time-out is set.
const LONG: Duration = Duration::from_hours(1);

type Fetched = (Arc<str>, Result<Token, Error>);

pub(super) struct Driver {
    core: Core,
    commands: mpsc::Receiver<Command>,
    nudges: Arc<Nudges>,
    connector: Connector,
    maker: Arc<TokenMaker>,
    began: Instant,
}

/// Why a wait has ended.
enum Woken {
    Worked,
    /// No handle is left.
    Unneeded,
}

impl Driver {
    pub(super) fn new(
        core: Core,
        commands: mpsc::Receiver<Command>,
        nudges: Arc<Nudges>,
        connector: Connector,
        maker: TokenMaker,
    ) -> Self {
        Self {
            core,
            commands,
            nudges,
            connector,
            maker: Arc::new(maker),
            began: Instant::now(),
        }
    }

    /// Serves handles until none is left.
    pub(super) async fn run(mut self) {
        while self.until_needed().await {
            let error = match self.connector.connect().await {
                Ok(stream) => {
                    let now = self.now();
                    self.core.connected(now);
                    self.serve(stream).await
                }
                Err(error) => error,
            };
            tracing::debug!(target: "kew::client", %error, "without a connection");
            let now = self.now();
            self.core.lost(&error, now);
        }
    }

    fn now(&self) -> Millis {
        let ms = self.began.elapsed().as_millis();
        Millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    fn at(&self, time: Option<Millis>) -> Instant {
        match time {
            Some(Millis(ms)) => self.began + Duration::from_millis(ms).min(LONG * 24 * 365),
            None => Instant::now() + LONG,
        }
    }

    /// Waits, without a connection, until one is to be made. Says whether there are handles.
    async fn until_needed(&mut self) -> bool {
        loop {
            self.take_nudges();
            let wanted = self.core.wants_connection();
            let now = self.now();
            if wanted.is_some_and(|at| at <= now) {
                return true;
            }
            let at = self.at(wanted);
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => return false,
                },
                () = self.nudges.arrived() => {}
                () = sleep_until(at) => {}
            }
        }
    }

    /// What its caller said before counts before: that a link is to be replaced, for example.
    fn command(&mut self, command: Command) {
        self.take_nudges();
        let now = self.now();
        self.core.command(command, now);
    }

    fn take_nudges(&mut self) {
        let now = self.now();
        for (link, nudge) in self.nudges.take() {
            self.core.nudge(link, nudge, now);
        }
    }

    /// Keeps a connection going until it is over, and says why it is.
    async fn serve(&mut self, stream: Box<dyn Stream>) -> Error {
        let (mut reading, mut writing) = tokio::io::split(stream);
        let mut output = Output::default();
        let mut tokens: JoinSet<Fetched> = JoinSet::new();
        let mut is_needed = true;
        loop {
            self.take_nudges();
            let now = self.now();
            let has_more = self.core.turn(now);
            self.fetch_tokens(&mut tokens);
            // What is not written stays with the machine, which bounds it.
            if output.parts.is_empty() {
                output.add(self.core.take_output(now));
            }
            if let Some(end) = self.core.end() {
                output.add(self.core.take_output(now));
                let last_words = output.write_all(&mut writing);
                // It is over, with them or without.
                let _ = timeout(GOODBYE_WITHIN, last_words).await;
                return end;
            }
            let at = self.at(self.core.next_timeout());
            let woken = {
                let Self {
                    core,
                    commands,
                    nudges,
                    ..
                } = self;
                let input = core.input();
                tokio::select! {
                    written = output.write(&mut writing), if output.has_any() => match written {
                        Ok(()) => Happened::Nothing,
                        Err(error) => return broken(&error),
                    },
                    read = read(&mut reading, input) => match read {
                        Ok(0) => return Error::later("the service closed the socket"),
                        Ok(_) => Happened::Read,
                        Err(error) => return broken(&error),
                    },
                    command = commands.recv(), if is_needed => Happened::Asked(command),
                    Some(fetched) = tokens.join_next() => Happened::Fetched(fetched.ok()),
                    () = nudges.arrived() => Happened::Nothing,
                    () = sleep_until(at) => Happened::Due,
                    () = std::future::ready(()), if has_more => Happened::Nothing,
                }
            };
            if let Woken::Unneeded = self.handle(woken) {
                is_needed = false;
                self.core.close();
            }
            if has_more {
                tokio::task::yield_now().await;
            }
        }
    }

    fn handle(&mut self, happened: Happened) -> Woken {
        let now = self.now();
        match happened {
            Happened::Nothing => {}
            Happened::Read => self.core.fed(now),
            Happened::Due => self.core.on_time(now),
            Happened::Fetched(Some((audience, token))) => self.core.token(&audience, token, now),
            // It panicked; the time-out of the token says the rest.
            Happened::Fetched(None) => {}
            Happened::Asked(None) => return Woken::Unneeded,
            Happened::Asked(Some(command)) => {
                self.command(command);
                for _ in 1..COMMANDS_MAX {
                    match self.commands.try_recv() {
                        Ok(command) => self.command(command),
                        Err(_) => break,
                    }
                }
            }
        }
        Woken::Worked
    }

    fn fetch_tokens(&mut self, tokens: &mut JoinSet<Fetched>) {
        for audience in self.core.tokens_wanted() {
            let maker = self.maker.clone();
            let resource = self.core.url_of(&audience);
            tokens.spawn(async move {
                let token = maker.token(&resource).await;
                (audience, token)
            });
        }
    }
}

enum Happened {
    Nothing,
    Read,
    Due,
    Asked(Option<Command>),
    Fetched(Option<Fetched>),
}

fn broken(error: &std::io::Error) -> Error {
    Error::later(format!("the connection broke: {error}"))
}

/// Reads, if anything is to be read. To drop the future loses nothing.
async fn read(
    reading: &mut tokio::io::ReadHalf<Box<dyn Stream>>,
    input: Option<&mut bytes::BytesMut>,
) -> std::io::Result<usize> {
    match input {
        Some(input) => {
            if input.capacity() - input.len() < READ_SIZE_MIN {
                input.reserve(READ_SIZE);
            }
            reading.read_buf(input).await
        }
        None => std::future::pending().await,
    }
}

/// What is to be written.
#[derive(Default)]
struct Output {
    parts: VecDeque<Bytes>,
    needs_flush: bool,
}

impl Output {
    fn add(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.parts.push_back(bytes);
        }
    }

    fn has_any(&self) -> bool {
        self.needs_flush || !self.parts.is_empty()
    }

    /// Writes a part, or flushes what was written. To drop the future loses nothing.
    async fn write(&mut self, writing: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        if let Some(part) = self.parts.front_mut() {
            let written = writing.write(part).await?;
            part.advance(written);
            if part.is_empty() {
                self.parts.pop_front();
            }
            self.needs_flush = true;
            return match written {
                0 => Err(std::io::ErrorKind::WriteZero.into()),
                _ => Ok(()),
            };
        }
        writing.flush().await?;
        self.needs_flush = false;
        Ok(())
    }

    async fn write_all(&mut self, writing: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        while self.has_any() {
            self.write(writing).await?;
        }
        writing.shutdown().await
    }
}
