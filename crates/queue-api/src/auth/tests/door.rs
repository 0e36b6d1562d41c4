//! A server with a fixed clock behind a socket, and the signatures of its clients.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_broker::Broker;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::accounts::{Account, AccountKey, Accounts};
use crate::api::{QueueApi, QueueApiOptions};
use crate::auth::Issuer;
use crate::origin::Origin;

pub(super) const ACCOUNT: &str = Accounts::WELL_KNOWN_NAME;

/// The account's second key, and a key that it does not have.
pub(super) const SECOND_KEY: &str = "c2Vjb25k";
pub(super) const WRONG_KEY: &str = "d3Jvbmc=";

/// The time of the server's clock, in two forms.
pub(super) const NOW: &str = "Sun, 21 Jun 2026 08:00:00 GMT";
pub(super) const NOW_SECONDS: u64 = 1_782_028_800;

pub(super) const NEWEST: &str = "2026-10-06";

/// The origin of a client without TLS, and with TLS.
pub(super) const PLAIN: Origin = origin(Ipv4Addr::new(10, 0, 0, 9), false);
pub(super) const SECURE: Origin = origin(Ipv4Addr::new(10, 0, 0, 9), true);

const fn origin(peer: Ipv4Addr, is_secure: bool) -> Origin {
    Origin {
        peer: SocketAddr::new(IpAddr::V4(peer), 50_000),
        is_secure,
        may_use_public_key: true,
    }
}

pub(super) fn key(base64: &str) -> AccountKey {
    AccountKey::from_base64(base64).unwrap()
}

pub(super) struct Door {
    pub(super) api: QueueApi,
    listener: TcpListener,
}

/// The parts of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn is(&self, status: u16, code: &str) -> bool {
        (self.status, &*self.code) == (status, code)
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.text.split("\r\n");
        lines.find_map(|line| line.strip_prefix(&format!("{name}: ")))
    }
}

impl Door {
    pub(super) async fn open(issuers: impl IntoIterator<Item = Issuer>) -> Self {
        Self::with_api(api(Broker::start_in_memory().unwrap(), issuers)).await
    }

    pub(super) async fn with_api(api: QueueApi) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Self { api, listener }
    }

    /// Sends one request from `origin`, over a connection of its own.
    pub(super) async fn ask(
        &self,
        origin: Origin,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let address = self.listener.local_addr().unwrap();
        let (ours, accepted) = tokio::join!(TcpStream::connect(address), self.listener.accept());
        let (api, (theirs, _)) = (self.api.clone(), accepted.unwrap());
        let serving = tokio::spawn(async move {
            api.serve_connection(theirs, origin, std::future::pending())
                .await;
        });
        let mut request = format!("{method} /{ACCOUNT}{target} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        let length = body.len();
        request.push_str(&format!(
            "Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ));
        let mut ours = ours.unwrap();
        ours.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        ours.read_to_string(&mut text).await.unwrap();
        drop(ours);
        serving.await.unwrap();
        let mut answer = Answer {
            status: text[9..12].parse().unwrap(),
            code: String::new(),
            text,
        };
        answer.code = answer.header("x-ms-error-code").unwrap_or_default().into();
        answer
    }
}

/// An account with two keys, and a fixed clock.
pub(super) fn api(broker: Broker, issuers: impl IntoIterator<Item = Issuer>) -> QueueApi {
    let (first, second) = (key(Accounts::WELL_KNOWN_KEY), key(SECOND_KEY));
    let account = Account::new(ACCOUNT, first, second).unwrap();
    let at = UNIX_EPOCH + Duration::from_secs(NOW_SECONDS);
    let options = QueueApiOptions {
        accounts: [account].into_iter().collect(),
        clock: Arc::new(move || at),
        issuers: issuers.into_iter().map(Arc::new).collect(),
        ..QueueApiOptions::default()
    };
    QueueApi::new(broker, options)
}

/// The fields of a shared access signature, and the order in which they are signed.
#[derive(Clone, Debug)]
pub(super) struct Sas {
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Account,
    Queue(&'static str),
    Delegation(&'static str),
}

impl Sas {
    pub(super) fn of(kind: Kind, fields: &[(&'static str, &str)]) -> Self {
        let fields = fields.iter().map(|(name, value)| (*name, (*value).into()));
        Self {
            fields: fields.collect(),
            kind,
        }
    }

    /// Replaces a field, or adds it.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.fields.retain(|(other, _)| *other != name);
        self.fields.push((name, value.into()));
        self
    }

    fn value(&self, name: &str) -> &str {
        let mut fields = self.fields.iter();
        fields
            .find(|(other, _)| *other == name)
            .map_or("", |(_, value)| value)
    }

    fn string_to_sign(&self) -> String {
        let version = self.value("sv");
        let mut lines: Vec<String> = Vec::new();
        let mut add = |names: &[&str]| {
            lines.extend(names.iter().map(|name| match *name {
                "ACCOUNT" => ACCOUNT.to_owned(),
                name => self.value(name).to_owned(),
            }));
        };
        match self.kind {
            Kind::Account => {
                add(&["ACCOUNT", "sp", "ss", "srt", "st", "se", "sip", "spr", "sv"]);
                if version >= "2020-12-06" {
                    add(&["ses"]);
                }
                add(&[""]);
            }
            Kind::Queue(queue) => {
                add(&["sp", "st", "se"]);
                let root = if version >= "2015-02-21" {
                    "/queue"
                } else {
                    ""
                };
                lines.push(format!("{root}/{ACCOUNT}/{queue}"));
                lines.push(self.value("si").into());
                if version >= "2015-04-05" {
                    lines.extend(["sip", "spr"].map(|name| self.value(name).into()));
                }
                lines.push(version.into());
            }
            Kind::Delegation(queue) => {
                add(&["sp", "st", "se"]);
                lines.push(format!("/queue/{ACCOUNT}/{queue}"));
                let rest = [
                    "skoid", "sktid", "skt", "ske", "sks", "skv", "skdutid", "sduoid", "sip",
                    "spr", "sv",
                ];
                lines.extend(rest.map(|name| self.value(name).into()));
            }
        }
        lines.join("\n")
    }

    /// The query, with the key's signature.
    pub(super) fn signed(&self, base64_key: &str) -> String {
        let signature = STANDARD.encode(key(base64_key).sign(self.string_to_sign().as_bytes()));
        let fields = self.fields.iter().map(|(name, value)| (*name, &**value));
        fields
            .chain([("sig", &*signature)])
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
            .collect::<Vec<_>>()
            .join("&")
    }
}
