//! The metrics page of a Kew server: one request shows all queues, with what came and what was completed.
//!
//! A page that lacks a line that belongs to a queue is an error, and never a smaller number. Kew names only the queues
//! with the most messages (`--metrics-queues`); another one is read through its service.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONNECTION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use kew_client::{Dial, Stream};
use kew_metrics::Read;
use kew_scaling::Reading;
use tokio::net::TcpStream;

use super::ReadError;
use crate::config::PageUrl;

/// A page with 10,000 named queues has about half of it.
const PAGE_SIZE_MAX: usize = 32 << 20;

/// Where a page is, and how to reach it.
pub(super) struct Page {
    pub(super) url: PageUrl,
    pub(super) dial: Option<Arc<dyn Dial>>,
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Page").field(&self.url).finish()
    }
}

/// The families of a page by name.
pub(super) type Families = BTreeMap<String, Read>;

/// How a page names a queue.
#[derive(Clone, Debug)]
pub(super) enum Named {
    /// A queue of Queue Storage.
    Storage { account: String, queue: String },
    /// A queue or subscription of Service Bus. Names are equal in any case.
    Bus(String),
}

impl Page {
    /// Reads the page. The caller bounds the time.
    pub(super) async fn read(&self) -> Result<Families, ReadError> {
        let families = self.families().await?;
        let answered = families.get("kew_partition_answered");
        let answered = answered.and_then(|it| it.samples.first());
        match answered {
            Some((_, _, value)) if whole(*value) == Some(1) => Ok(families),
            Some(_) => Err(self.refused(&Failed::of("Kew has not counted its queues in time"))),
            None => Err(self.refused(&Failed::of("it is no metrics page of Kew"))),
        }
    }

    /// Reads what any page has. The caller bounds the time.
    pub(super) async fn families(&self) -> Result<Families, ReadError> {
        let text = self.fetch().await.map_err(|what| self.refused(&what))?;
        let families = kew_metrics::read(&text);
        families.map_err(|what| self.refused(&Failed::of(format!("it is no metrics page: {what}"))))
    }

    fn refused(&self, failed: &Failed) -> ReadError {
        let text = format!("the metrics page {}: {}", self.url, failed.what);
        ReadError {
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            code: failed.status.map(|it| it.to_string()),
            is_throttled: false,
        }
    }

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match &self.dial {
            Some(dial) => dial.dial(&self.url.host, self.url.port).await,
            None => {
                let stream = TcpStream::connect((&*self.url.host, self.url.port)).await?;
                Ok(Box::new(stream))
            }
        }
    }

    async fn fetch(&self) -> Result<String, Failed> {
        let stream = self.connect().await.map_err(Failed::of)?;
        let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connected.map_err(Failed::of)?;
        let request = Request::get(&self.url.path)
            .header(HOST, &self.url.authority)
            .header(ACCEPT, "application/openmetrics-text")
            .header(CONNECTION, "close");
        let request = request.body(Empty::<Bytes>::new()).map_err(Failed::of)?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(Failed::of)?;
            let status = answer.status();
            if status != StatusCode::OK {
                return Err(Failed {
                    what: format!("the answer is {status}"),
                    status: Some(status.as_u16()),
                });
            }
            let body = Limited::new(answer.into_body(), PAGE_SIZE_MAX).collect();
            let body = body.await.map_err(Failed::of)?.to_bytes();
            String::from_utf8(body.into()).map_err(Failed::of)
        };
        // The connection is driven as long as somebody waits for the page, and no longer.
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            biased;
            read = &mut exchange => read,
            ended = connection => match ended {
                Ok(()) => exchange.await,
                Err(error) => Err(Failed::of(error)),
            },
        }
    }
}

/// Why there is no page.
struct Failed {
    what: String,
    status: Option<u16>,
}

impl Failed {
    fn of(what: impl ToString) -> Self {
        Self {
            what: what.to_string(),
            status: None,
        }
    }
}

impl Named {
    /// What the page says of the queue. `None` if it does not name the queue.
    pub(super) fn on(&self, page: &Families) -> Result<Option<Reading>, ReadError> {
        let prefix = self.prefix();
        let all = || page.iter().filter(|(name, _)| name.starts_with(prefix));
        let mut samples = all().flat_map(|(_, family)| &family.samples);
        if !samples.any(|(_, labels, _)| self.is_of(labels)) {
            return Ok(None);
        }
        let mut backlog = 0u64;
        for state in self.states() {
            let count = self.value(page, "messages", Some(state)).and_then(whole);
            let count = count.ok_or_else(|| self.incomplete(&format!("its {state} messages")))?;
            backlog = backlog.saturating_add(count);
        }
        let oldest = self.value(page, "oldest_message_age", None);
        let oldest = oldest.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if backlog > 0 && oldest.is_none() {
            return Err(self.incomplete("the age of its oldest message"));
        }
        let counter = |family| self.value(page, family, None).and_then(whole);
        Ok(Some(Reading {
            backlog,
            oldest: oldest.filter(|_| backlog > 0),
            arrived: counter("messages_arrived"),
            completed: counter("messages_completed"),
        }))
    }

    const fn prefix(&self) -> &'static str {
        match self {
            Self::Storage { .. } => "kew_queue_",
            Self::Bus(_) => "kew_bus_queue_",
        }
    }

    /// The states of messages that wait or are being handled: those that the count of the service has.
    const fn states(&self) -> &'static [&'static str] {
        match self {
            Self::Storage { .. } => &["visible", "invisible"],
            Self::Bus(_) => &["active", "locked", "deferred"],
        }
    }

    fn is_of(&self, labels: &BTreeMap<String, String>) -> bool {
        let label = |name: &str| labels.get(name).map_or("", String::as_str);
        match self {
            Self::Storage { account, queue } => {
                label("account") == account && label("queue") == queue
            }
            Self::Bus(name) => label("queue").eq_ignore_ascii_case(name),
        }
    }

    fn value(&self, page: &Families, family: &str, state: Option<&str>) -> Option<f64> {
        // Names of families end with their unit.
        let is_age = family == "oldest_message_age";
        let unit = if is_age { "_seconds" } else { "" };
        let family = page.get(&format!("{}{family}{unit}", self.prefix()))?;
        let mut samples = family.samples.iter();
        let found = samples.find(|(_, labels, _)| {
            self.is_of(labels) && labels.get("state").map(String::as_str) == state
        });
        found.map(|(_, _, value)| *value)
    }

    fn incomplete(&self, what: &str) -> ReadError {
        ReadError::of_answer(format!(
            "the metrics page names the queue, and lacks {what}"
        ))
    }
}

/// A count. No more than that: a page could have any number.
pub(super) fn whole(value: f64) -> Option<u64> {
    let count = Duration::try_from_secs_f64(value).ok()?;
    (count.subsec_nanos() == 0).then_some(count.as_secs())
}
