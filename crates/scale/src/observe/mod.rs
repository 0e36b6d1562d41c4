//! What queues report, through the public interfaces of the services.

mod bus;
mod storage;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use kew_client::{BusClient, BusOptions, Dial, QueueClient, QueueOptions, Retry};
use kew_scaling::Reading;
use tokio::time::timeout;

use crate::config::{ConfigError, Connection, Group, Source, Variable};
use bus::BusQueue;
use storage::StorageQueue;

/// A source has this time to answer, or the time between two looks if that is longer.
const READ_TIMEOUT_MIN: Duration = Duration::from_secs(5);
const READ_TIMEOUT_MAX: Duration = Duration::from_secs(30);

/// What can be observed.
pub trait Sources: Send {
    /// Reads all sources, each within a bounded time.
    fn read(&mut self) -> impl Future<Output = Vec<Seen>> + Send;
}

/// What a source reported.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// What it reported, or why it could not be read.
    pub reading: Result<Reading, ReadError>,
}

/// Why a source could not be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadError {
    /// What the service or the client says, in one line. It can have the number of the request.
    pub text: String,
    /// What kind of error it is, if the service says so: its code or status.
    pub code: Option<String>,
    /// The service refuses requests because there are too many.
    pub is_throttled: bool,
}

impl ReadError {
    /// Whether it says the same as another one, of another request.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.code == other.code && (self.code.is_some() || self.text == other.text)
    }

    fn of_answer(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: None,
            is_throttled: false,
        }
    }
}

impl From<kew_client::Error> for ReadError {
    fn from(error: kew_client::Error) -> Self {
        let text = error.to_string();
        let status = error.status().map(|it| it.to_string());
        Self {
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            code: error.code().map(str::to_owned).or(status),
            is_throttled: error.is_busy(),
        }
    }
}

/// The queues of a group, at their services.
#[derive(Debug)]
pub struct ClientSources {
    sources: Vec<(String, Queue)>,
    timeout: Duration,
}

#[derive(Debug)]
enum Queue {
    Storage(StorageQueue),
    Bus(BusQueue),
}

/// How connections are made.
#[derive(Clone, Default)]
pub struct Connecting {
    /// What makes connections in place of TCP. Default: nothing.
    pub dial: Option<Arc<dyn Dial>>,
}

impl std::fmt::Debug for Connecting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connecting").finish_non_exhaustive()
    }
}

impl ClientSources {
    /// The sources of a group, with connection strings of the environment. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// If a connection string is missing or wrong, or TLS cannot be set up.
    pub fn open(
        group: &Group,
        variable: Variable<'_>,
        connecting: &Connecting,
    ) -> Result<Self, ConfigError> {
        let timeout = group.every.clamp(READ_TIMEOUT_MIN, READ_TIMEOUT_MAX);
        let sources = group.sources.iter().map(|source| {
            let queue = Queue::open(source, variable, connecting, timeout)?;
            Ok((source.name.clone(), queue))
        });
        Ok(Self {
            sources: sources.collect::<Result<_, _>>()?,
            timeout,
        })
    }
}

impl Sources for ClientSources {
    async fn read(&mut self) -> Vec<Seen> {
        let limit = self.timeout;
        let all = self.sources.iter().map(|(name, queue)| async move {
            let reading = match timeout(limit, queue.read()).await {
                Ok(reading) => reading,
                Err(_) => Err(ReadError::of_answer(format!(
                    "there was no answer within {} s",
                    limit.as_secs()
                ))),
            };
            let name = name.clone();
            Seen { name, reading }
        });
        join_all(all).await
    }
}

impl Queue {
    fn open(
        source: &Source,
        variable: Variable<'_>,
        connecting: &Connecting,
        timeout: Duration,
    ) -> Result<Self, ConfigError> {
        let name = source.queue.clone();
        let extra_roots_pem = source.extra_roots_pem()?;
        let dial = connecting.dial.clone();
        // The next look is another try.
        let retry = Retry {
            retries: 1,
            ..Retry::default()
        };
        match source.connection(variable)? {
            Connection::Storage(account) => {
                let options = QueueOptions {
                    timeout,
                    connect_timeout: timeout,
                    retry,
                    connections_max: 1,
                    extra_roots_pem,
                    dial,
                    ..QueueOptions::default()
                };
                let client = QueueClient::new(account, options);
                let client = client.map_err(|error| source.refused(&error))?;
                Ok(Self::Storage(StorageQueue { client, name }))
            }
            Connection::Bus(namespace) => {
                let options = BusOptions {
                    timeout: Some(timeout),
                    connect_timeout: timeout,
                    retry,
                    extra_roots_pem,
                    dial,
                    ..BusOptions::default()
                };
                let admin = bus::admin_of(namespace.clone(), &options);
                let admin = admin.map_err(|error| source.refused(&error))?;
                let client = BusClient::new(namespace, options);
                let client = client.map_err(|error| source.refused(&error))?;
                Ok(Self::Bus(BusQueue {
                    client,
                    admin,
                    name,
                }))
            }
        }
    }

    async fn read(&self) -> Result<Reading, ReadError> {
        match self {
            Self::Storage(queue) => queue.read().await,
            Self::Bus(queue) => queue.read().await,
        }
    }
}

/// How long ago something was. Clocks differ, so it can lie in the future: then it is now.
fn age_of(at: SystemTime) -> Duration {
    SystemTime::now().duration_since(at).unwrap_or_default()
}
