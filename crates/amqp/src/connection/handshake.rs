//! The handshake from the first bytes to the open, and the end (AMQP 1.0, 2.2, 2.4 and 5.3).

use std::time::Duration;

use bytes::{Buf, Bytes};

use super::{By, Connection, Event, Fault, Sasl};
use crate::codec::Symbols;
use crate::error::{Error, condition};
use crate::frame::{AMQP_HEADER, FRAME_SIZE_MAX_MIN, SASL_HEADER};
use crate::performative::{Close, Open};
use crate::sasl::{
    SaslChallenge, SaslCode, SaslFrame, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse,
};

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for the peer's first header.
    FirstHeader,
    /// Waits for a client's init or response.
    SaslInit,
    /// The caller has to answer.
    SaslVerdict,
    /// Waits for a server's frame.
    SaslServer,
    /// Waits for the peer's header after authentication.
    SecondHeader,
    /// Waits for the peer's open.
    AwaitOpen,
    Open,
    /// Waits for the peer's close.
    CloseSent,
    Closed,
}

impl Connection {
    /// A client's first words.
    pub(super) fn greet(&mut self) {
        match self.config.sasl {
            Sasl::Client { .. } => self.output.header(SASL_HEADER),
            _ => self.begin_amqp(),
        }
    }

    fn begin_amqp(&mut self) {
        self.output.header(AMQP_HEADER);
        if !self.is_server {
            self.write_open();
        }
    }

    /// Takes a protocol header. An invalid header is refused at its first wrong byte.
    pub(super) fn take_header(&mut self) -> Result<bool, Fault> {
        let sasl_wanted = self.phase == Phase::FirstHeader && self.config.sasl != Sasl::None;
        let is_optional = match self.config.sasl {
            Sasl::Server { is_optional, .. } => is_optional,
            _ => false,
        };
        let amqp_allowed = !sasl_wanted || is_optional;
        let is_possible = |header: &[u8; 8]| header.iter().zip(&self.input).all(|(a, b)| a == b);
        let is_sasl = sasl_wanted && is_possible(&SASL_HEADER);
        let is_amqp = amqp_allowed && is_possible(&AMQP_HEADER);
        if !is_sasl && !is_amqp {
            let text = "the protocol header is not supported";
            if self.is_server {
                self.output.header(if sasl_wanted {
                    SASL_HEADER
                } else {
                    AMQP_HEADER
                });
            }
            return Err(Error::new(condition::FRAMING_ERROR, text).into());
        }
        if self.input.len() < SASL_HEADER.len() {
            return Ok(false);
        }
        self.input.advance(SASL_HEADER.len());
        if is_sasl {
            self.begin_sasl();
        } else {
            self.phase = Phase::AwaitOpen;
            if self.is_server {
                self.begin_amqp();
            }
        }
        Ok(true)
    }

    fn begin_sasl(&mut self) {
        if let Sasl::Server { mechanisms, .. } = &self.config.sasl {
            let mechanisms = SaslMechanisms {
                sasl_server_mechanisms: Symbols::new(mechanisms),
            };
            self.output.header(SASL_HEADER);
            self.output.sasl(&SaslFrame::Mechanisms(mechanisms));
            self.phase = Phase::SaslInit;
        } else {
            self.phase = Phase::SaslServer;
        }
    }

    pub(super) fn on_sasl(&mut self, body: &Bytes) -> Result<(), Fault> {
        let frame = SaslFrame::decode(body).map_err(Error::from)?;
        match (self.phase, frame) {
            (Phase::SaslInit, SaslFrame::Init(init)) => self.on_sasl_init(init),
            (Phase::SaslInit, SaslFrame::Response(response)) => {
                self.phase = Phase::SaslVerdict;
                let response = response.response;
                self.events.push_back(Event::SaslResponse { response });
                Ok(())
            }
            (Phase::SaslServer, SaslFrame::Mechanisms(mechanisms)) => {
                self.choose_mechanism(&mechanisms)
            }
            (Phase::SaslServer, SaslFrame::Challenge(challenge)) => {
                self.phase = Phase::SaslVerdict;
                let challenge = challenge.challenge;
                self.events.push_back(Event::SaslChallenge { challenge });
                Ok(())
            }
            (Phase::SaslServer, SaslFrame::Outcome(outcome)) => self.on_sasl_outcome(&outcome),
            (phase, _) => {
                let text = format!("unexpected SASL frame in phase {phase:?}");
                Err(Error::new(condition::NOT_ALLOWED, text).into())
            }
        }
    }

    fn on_sasl_init(&mut self, init: SaslInit) -> Result<(), Fault> {
        self.phase = Phase::SaslVerdict;
        let offered = match &self.config.sasl {
            Sasl::Server { mechanisms, .. } => mechanisms.contains(&init.mechanism),
            _ => false,
        };
        if offered {
            self.events.push_back(Event::SaslInit {
                mechanism: init.mechanism,
                response: init.initial_response,
                hostname: init.hostname,
            });
        } else {
            self.sasl_outcome(SaslCode::Auth);
        }
        Ok(())
    }

    fn choose_mechanism(&mut self, offered: &SaslMechanisms) -> Result<(), Fault> {
        let Sasl::Client {
            mechanism,
            initial_response,
        } = &self.config.sasl
        else {
            return Ok(());
        };
        if !offered.sasl_server_mechanisms.contains(mechanism.as_str()) {
            let text = format!("the SASL mechanism {mechanism} is not offered");
            return Err(Error::new(condition::UNAUTHORIZED_ACCESS, text).into());
        }
        self.output.sasl(&SaslFrame::Init(SaslInit {
            mechanism: mechanism.clone(),
            initial_response: initial_response.clone(),
            hostname: self.config.hostname.clone(),
        }));
        Ok(())
    }

    fn on_sasl_outcome(&mut self, outcome: &SaslOutcome) -> Result<(), Fault> {
        if outcome.code != SaslCode::Ok {
            let text = format!("authentication ended with {:?}", outcome.code);
            return Err(Error::new(condition::UNAUTHORIZED_ACCESS, text).into());
        }
        self.phase = Phase::SecondHeader;
        self.begin_amqp();
        Ok(())
    }

    /// Ends the authentication of a client. Does nothing if no client waits.
    ///
    /// Any code but `Ok` ends the connection.
    pub fn sasl_outcome(&mut self, code: SaslCode) {
        if self.phase != Phase::SaslVerdict || !self.is_server {
            return;
        }
        self.output.sasl(&SaslFrame::Outcome(SaslOutcome {
            code,
            additional_data: None,
        }));
        if code == SaslCode::Ok {
            self.phase = Phase::SecondHeader;
        } else {
            let text = "authentication was refused";
            self.fail(Error::new(condition::UNAUTHORIZED_ACCESS, text));
        }
    }

    /// Sends a challenge to a client that authenticates. Does nothing if no client waits.
    pub fn sasl_challenge(&mut self, challenge: Bytes) {
        if self.phase == Phase::SaslVerdict && self.is_server {
            let challenge = SaslChallenge { challenge };
            self.output.sasl(&SaslFrame::Challenge(challenge));
            self.phase = Phase::SaslInit;
        }
    }

    /// Answers a server's challenge. Does nothing if there is none.
    pub fn sasl_response(&mut self, response: Bytes) {
        if self.phase == Phase::SaslVerdict && !self.is_server {
            let response = SaslResponse { response };
            self.output.sasl(&SaslFrame::Response(response));
            self.phase = Phase::SaslServer;
        }
    }

    fn write_open(&mut self) {
        let told = self.config.idle_timeout.map(|timeout| {
            let half = timeout.as_millis() / 2;
            u32::try_from(half).unwrap_or(u32::MAX)
        });
        let open = Open {
            container_id: self.config.container_id.clone(),
            hostname: self.config.hostname.clone(),
            max_frame_size: self.config.frame_size_max.max(FRAME_SIZE_MAX_MIN),
            channel_max: self.config.channel_max,
            idle_time_out: told,
            outgoing_locales: Symbols::default(),
            incoming_locales: Symbols::default(),
            offered_capabilities: self.config.offered_capabilities.clone(),
            desired_capabilities: Symbols::default(),
            properties: self.config.properties.clone(),
        };
        // Our open is small. The peer's limit is not known yet, but every peer accepts a small
        // frame.
        self.output.set_frame_size_max(u32::MAX);
        self.output.frame(0, &open);
        self.output.set_frame_size_max(FRAME_SIZE_MAX_MIN);
    }

    pub(super) fn on_open(&mut self, open: Box<Open>) -> Result<(), Fault> {
        if self.is_server {
            self.write_open();
        }
        self.phase = Phase::Open;
        if open.max_frame_size < FRAME_SIZE_MAX_MIN {
            let text = format!(
                "max-frame-size {} is below the minimum of 512",
                open.max_frame_size
            );
            return Err(Error::new(condition::INVALID_FIELD, text).into());
        }
        self.output.set_frame_size_max(open.max_frame_size);
        self.remote_channel_max = open.channel_max;
        if let Some(timeout) = open.idle_time_out.filter(|&timeout| timeout > 0) {
            let timeout = Duration::from_millis(u64::from(timeout));
            let min = self.limits.peer_idle_timeout_min;
            if timeout < min {
                let text = format!("idle-time-out {timeout:?} is below the minimum of {min:?}");
                return Err(Error::new(condition::NOT_ALLOWED, text).into());
            }
            self.timers.peer_gives_up_after(timeout);
        }
        self.events.push_back(Event::Opened(open));
        Ok(())
    }

    pub(super) fn on_close(&mut self, close: Close) {
        self.output.frame(0, &Close { error: None });
        self.phase = Phase::Closed;
        self.forget_all();
        let (by, error) = (By::Peer, close.error);
        self.events.push_back(Event::Closed { by, error });
    }

    /// Closes the connection with all its sessions and links. Waits for the peer's answer until the
    /// time limit.
    ///
    /// `Event::Closed` follows at once.
    pub fn close(&mut self, error: Option<Error>) {
        match self.phase {
            Phase::Closed | Phase::CloseSent => return,
            Phase::AwaitOpen | Phase::Open => {
                if self.phase == Phase::AwaitOpen && self.is_server {
                    self.write_open();
                }
                self.output
                    .frame_of_error(0, error.clone(), |error| Close { error });
                // There is no smaller frame to send instead.
                self.output.is_oversized = false;
                self.phase = Phase::CloseSent;
            }
            _ => self.phase = Phase::Closed,
        }
        self.forget_all();
        self.events.push_back(Event::Closed { by: By::Us, error });
    }

    /// Ends the connection because the peer broke a rule, or disconnected.
    pub(super) fn fail(&mut self, error: Error) {
        if self.phase == Phase::CloseSent {
            // The peer had its time to close.
            self.phase = Phase::Closed;
        } else {
            self.close(Some(error));
        }
    }

    fn forget_all(&mut self) {
        self.sessions = super::Slab::new();
        self.channels.clear();
        self.blocked.clear();
        self.link_count = 0;
        self.links_size = 0;
        self.reassembly_size = 0;
        self.sending_size = 0;
    }
}
