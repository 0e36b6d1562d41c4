//! A namespace of Service Bus.

use std::sync::Arc;
use std::time::Duration;

use super::endpoint::{self, bad, host_and_port};
use super::settings::{Service, Setting, Settings};
use super::{ConnectionStringError, wrong};
use crate::credential::{BusCredential, TokenSource};
use crate::secret::Secret;
use crate::sign::SasRule;

/// The longest name of an entity.
const ENTITY_SIZE_MAX: usize = 260;

/// How AMQP reaches the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BusTransport {
    /// Over TCP, with TLS on port 5671 or without on 5672.
    #[default]
    Tcp,
    /// In WebSockets, with TLS on port 443 or without on 80: where only HTTP may go out.
    WebSocket,
}

/// A namespace of Service Bus, and what opens it.
#[derive(Clone, Debug)]
pub struct BusNamespace {
    host: String,
    port: Option<u16>,
    is_tls: bool,
    is_emulator: bool,
    entity: Option<String>,
    transport: BusTransport,
    timeout: Option<Duration>,
    credential: BusCredential,
}

impl BusNamespace {
    /// Reads a connection string of Service Bus.
    ///
    /// It takes `Endpoint`, and `SharedAccessKeyName` with `SharedAccessKey` or `SharedAccessSignature`.
    /// `EntityPath` names the only entity that the credential opens. `UseDevelopmentEmulator=true` means no
    /// TLS. `TransportType` is `Amqp` or `AmqpWebSockets`, `OperationTimeout` is `hh:mm:ss`.
    pub fn parse(text: &str) -> Result<Self, ConnectionStringError> {
        let settings = Settings::parse(text)?;
        settings.must_be_for(Service::Bus)?;
        Self::of(&settings)
    }

    /// A namespace that takes bearer tokens. Its endpoint is `sb://HOST`, unless it is on this machine; tokens
    /// are never sent to other machines without TLS.
    pub fn with_tokens(
        endpoint: &str,
        source: Arc<dyn TokenSource>,
    ) -> Result<Self, ConnectionStringError> {
        let place = Place::read(endpoint.trim())?;
        let is_tls = place.is_tls.unwrap_or(true);
        if !is_tls && !endpoint::is_loopback(&place.host) {
            let why = "bearer tokens need TLS, because anyone who sees one can use it";
            return Err(bad("Endpoint", why));
        }
        Ok(Self {
            host: place.host,
            port: place.port,
            is_tls,
            is_emulator: false,
            entity: None,
            transport: BusTransport::Tcp,
            timeout: None,
            credential: BusCredential::Bearer(source),
        })
    }

    pub(super) fn of(settings: &Settings<'_>) -> Result<Self, ConnectionStringError> {
        let endpoint = settings
            .get(Setting::Endpoint)
            .ok_or_else(|| wrong("has no Endpoint"))?;
        let place = Place::read(endpoint)?;
        let is_emulator = settings.is_true(Setting::UseDevelopmentEmulator)?;
        if is_emulator && place.is_tls == Some(true) {
            return Err(wrong(
                "has UseDevelopmentEmulator=true, which means no TLS, and an Endpoint with TLS",
            ));
        }
        Ok(Self {
            credential: credential_of(settings)?,
            is_tls: place.is_tls.unwrap_or(!is_emulator),
            host: place.host,
            port: place.port,
            is_emulator,
            entity: settings
                .get(Setting::EntityPath)
                .map(entity_of)
                .transpose()?,
            transport: match settings.get(Setting::TransportType) {
                None => BusTransport::default(),
                Some(text) => transport_of(text)?,
            },
            timeout: match settings.get(Setting::OperationTimeout) {
                None => None,
                Some(text) => Some(duration_of(text)?),
            },
        })
    }

    /// The host, in lower case; an address of IPv6 in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port of AMQP: what the endpoint says, or that of the transport.
    pub fn amqp_port(&self) -> u16 {
        self.port.unwrap_or(match (self.transport, self.is_tls) {
            (BusTransport::Tcp, true) => 5671,
            (BusTransport::Tcp, false) => 5672,
            (BusTransport::WebSocket, true) => 443,
            (BusTransport::WebSocket, false) => 80,
        })
    }

    /// The port of management over HTTP: what the endpoint says, or 443, or the emulator's 5300.
    pub fn http_port(&self) -> u16 {
        self.port.unwrap_or(match (self.is_emulator, self.is_tls) {
            (true, _) => 5300,
            (false, true) => 443,
            (false, false) => 80,
        })
    }

    /// Whether connections are made with TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The only entity that the credential opens, if it says so.
    pub fn entity(&self) -> Option<&str> {
        self.entity.as_deref()
    }

    /// How AMQP reaches it.
    pub fn transport(&self) -> BusTransport {
        self.transport
    }

    /// How long an operation may take, if it says so.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// What opens it.
    pub fn credential(&self) -> &BusCredential {
        &self.credential
    }

    /// Gives the rights of the rule away for a time, without its key: for an entity, or for the namespace.
    ///
    /// It ends at a time in seconds since 1970, and when the key is replaced. `None`: the credential is not a rule
    /// with its key.
    pub fn delegate(&self, entity: Option<&str>, expires_at_s: u64) -> Option<Delegation> {
        let BusCredential::Rule(rule) = &self.credential else {
            return None;
        };
        let host = &self.host;
        let entity = entity.map(|it| it.trim_matches('/'));
        let resource = format!("sb://{host}/{}", entity.unwrap_or_default());
        let token = rule.token(&resource, expires_at_s);
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        // What says the same of TLS as this one does.
        let (scheme, emulator) = match (self.is_emulator, self.is_tls) {
            (true, _) => ("sb", "UseDevelopmentEmulator=true;"),
            (false, true) => ("sb", ""),
            (false, false) => ("amqp", ""),
        };
        let path = entity
            .map(|it| format!("EntityPath={it};"))
            .unwrap_or_default();
        let transport = match self.transport {
            BusTransport::Tcp => "",
            BusTransport::WebSocket => "TransportType=AmqpWebSockets;",
        };
        let timeout = self.timeout.map(|timeout| {
            let seconds = timeout.as_secs();
            let (minutes, seconds) = (seconds / 60, seconds % 60);
            let (hours, minutes) = (minutes / 60, minutes % 60);
            format!("OperationTimeout={hours:02}:{minutes:02}:{seconds:02};")
        });
        let timeout = timeout.unwrap_or_default();
        let text = format!(
            "Endpoint={scheme}://{host}{port}/;SharedAccessSignature={};{path}{transport}{timeout}{emulator}",
            token.expose()
        );
        Some(Delegation {
            token,
            connection_string: Secret::new(text),
            resource,
        })
    }

    /// The same, over another transport.
    #[must_use]
    pub fn over(mut self, transport: BusTransport) -> Self {
        self.transport = transport;
        self
    }
}

/// Rights that were given away for a time.
#[derive(Clone, Debug)]
pub struct Delegation {
    /// A shared access signature: `SharedAccessSignature sr=…&sig=…&se=…&skn=…`.
    pub token: Secret,
    /// A connection string with the token in place of the key.
    pub connection_string: Secret,
    /// What the token is for, such as `sb://host/queue`.
    pub resource: String,
}

/// What an `Endpoint` says.
struct Place {
    host: String,
    port: Option<u16>,
    /// `None` if its scheme does not decide.
    is_tls: Option<bool>,
}

impl Place {
    fn read(endpoint: &str) -> Result<Self, ConnectionStringError> {
        let (scheme, rest) = endpoint.split_once("://").unwrap_or(("sb", endpoint));
        let is_tls = match &*scheme.to_ascii_lowercase() {
            "sb" => None,
            "amqps" | "https" => Some(true),
            "amqp" | "http" => Some(false),
            _ => return Err(bad("Endpoint", "it must begin with sb://")),
        };
        let authority = rest.trim_end_matches('/');
        if authority.contains(['/', '?', '#']) {
            return Err(bad("Endpoint", "it can be sb://HOST[:PORT]/, and no more"));
        }
        let (host, port) = host_and_port("Endpoint", authority)?;
        Ok(Self { host, port, is_tls })
    }
}

fn credential_of(settings: &Settings<'_>) -> Result<BusCredential, ConnectionStringError> {
    let rule = settings.get(Setting::SharedAccessKeyName);
    let key = settings.get(Setting::SharedAccessKey);
    match (rule, key, settings.get(Setting::SharedAccessSignature)) {
        (None, None, Some(token)) => {
            let is_printable = token.chars().all(|c| c == ' ' || c.is_ascii_graphic());
            if !token.starts_with("SharedAccessSignature ") || !is_printable {
                return Err(wrong(
                    "has a SharedAccessSignature that does not begin with \"SharedAccessSignature sr=\"",
                ));
            }
            Ok(BusCredential::Signature(Secret::new(token)))
        }
        (_, _, Some(_)) => Err(wrong(
            "has both a key and a SharedAccessSignature: give one of them",
        )),
        (Some(rule), Some(key), None) => Ok(BusCredential::Rule(SasRule::new(rule, key))),
        (Some(_), None, None) => Err(wrong("has a SharedAccessKeyName and no SharedAccessKey")),
        (None, Some(_), None) => Err(wrong("has a SharedAccessKey and no SharedAccessKeyName")),
        (None, None, None) => Err(wrong(
            "has neither SharedAccessKeyName and SharedAccessKey, nor SharedAccessSignature",
        )),
    }
}

fn entity_of(path: &str) -> Result<String, ConnectionStringError> {
    let path = path.trim_matches('/');
    let is_known = |c: char| c.is_alphanumeric() || "-._/~@$".contains(c);
    if path.is_empty() || path.len() > ENTITY_SIZE_MAX || !path.chars().all(is_known) {
        return Err(wrong("has an EntityPath that is no name of an entity"));
    }
    Ok(path.to_owned())
}

fn transport_of(text: &str) -> Result<BusTransport, ConnectionStringError> {
    match &*text.to_ascii_lowercase() {
        "amqp" | "amqptcp" => Ok(BusTransport::Tcp),
        "amqpwebsockets" => Ok(BusTransport::WebSocket),
        _ => Err(wrong(
            "has a TransportType that is neither Amqp nor AmqpWebSockets",
        )),
    }
}

/// `hh:mm:ss`, as .NET writes a time span.
fn duration_of(text: &str) -> Result<Duration, ConnectionStringError> {
    let parts: Option<Vec<u64>> = text
        .split(':')
        .map(|part| {
            let is_number = part.len() == 2 && part.bytes().all(|it| it.is_ascii_digit());
            is_number.then(|| part.parse().ok()).flatten()
        })
        .collect();
    match parts.as_deref() {
        Some(&[hours, minutes @ ..=59, seconds @ ..=59]) if hours + minutes + seconds > 0 => {
            Ok(Duration::from_secs(hours * 3_600 + minutes * 60 + seconds))
        }
        _ => Err(wrong("has an OperationTimeout that is not hh:mm:ss")),
    }
}
