//! What queues report, through the public interfaces of the services, or on the metrics page of a Kew server.

mod announced;
mod bus;
mod counted;
mod instances;
mod page;
mod storage;
mod workers;

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use kew_client::{BusClient, BusOptions, Dial, QueueAccount, QueueClient, QueueOptions, Retry};
use kew_scaling::Reading;
use kew_worker::{BusAnnouncements, TopicAnnouncements};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::config::{ConfigError, Connection, Group, OwnPage, Source, TargetConfig, Variable};
use announced::Announced;
use bus::BusQueue;
use instances::Hosts;
use page::{Families, Named, Page};
use storage::StorageQueue;
use workers::WorkerPages;

pub use instances::Resolve;

/// A source has this time to answer, or the time between two looks if that is longer.
const READ_TIMEOUT_MIN: Duration = Duration::from_secs(5);
const READ_TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// One that took longer than this to fail has only this time, so that it does not hold up the others at each look, or
/// this multiple of the time that its last answer took.
const SILENT_TIMEOUT: Duration = Duration::from_secs(1);
const SILENT_FACTOR: u32 = 3;
/// It has the whole time again so long after that.
const SILENT_RETRY: Duration = Duration::from_secs(60);

/// The kind of error if there was no answer in time. How much time that was is no news.
const LATE: &str = "late";

/// What can be observed.
pub trait Sources: Send {
    /// Reads all sources, each within a bounded time.
    fn read(&mut self) -> impl Future<Output = Vec<Seen>> + Send;

    /// What the instances said of themselves at the last reading, if they are asked.
    fn workers(&self) -> Option<Workers> {
        None
    }

    /// Says where the metrics pages of instances are that the target has started. They are asked at the next reading.
    fn own_pages(&mut self, _pages: &[OwnPage]) {}

    /// Waits until there is a reason to look before the next time. To drop the future must lose nothing. Default: for
    /// ever.
    fn woken(&mut self) -> impl Future<Output = Woken> + Send {
        std::future::pending()
    }
}

/// Why the agent looks before the next time. The greater reason counts.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Woken {
    /// Announcements are heard from now on. What was announced before may have been missed.
    Listening,
    /// Work was announced for one of the sources.
    Announced,
}

/// What the metrics pages of instances say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workers {
    /// Instances that have answered.
    pub answered: u32,
    /// The numbers of those of them that the target has started.
    pub own: BTreeSet<u64>,
    /// Instances that have not although they do not just start, and names that lead to none.
    pub silent: usize,
    /// Why the first of those has not.
    pub error: Option<String>,
    /// Tasks of an instance, on average.
    pub tasks: Option<u32>,
    /// How long a message has taken since the reading before, on average.
    pub handling: Option<Duration>,
    /// The share of their processors that they have used since the reading before, on average.
    pub cpu: Option<f64>,
}

/// What a source reported.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// What it reported, or why it could not be read.
    pub reading: Result<Reading, ReadError>,
}

impl Workers {
    /// Whether these are all instances, if so many are ready. An instance that is not listed has no page to fail.
    pub(crate) fn are_all_of(&self, ready: Option<u32>) -> bool {
        self.silent == 0 && ready.is_some_and(|ready| self.answered >= ready)
    }
}

impl Seen {
    /// Leaves out what instances say. A source that counts itself counts arrivals, too.
    pub(crate) fn forget_completions_of_instances(&mut self) {
        if let Ok(reading) = &mut self.reading
            && reading.arrived.is_none()
        {
            reading.completed = None;
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        let reading = match &self.reading {
            Ok(reading) => reading,
            Err(error) => return write!(f, "{name}: cannot be read: {}", error.text),
        };
        write!(f, "{name}: {} messages", reading.backlog)?;
        if let Some(age) = reading.oldest {
            write!(f, ", the oldest is {} s old", age.as_secs())?;
        }
        if let Some((arrived, completed)) = reading.arrived.zip(reading.completed) {
            write!(
                f,
                ", {arrived} arrived and {completed} completed since the server started"
            )?;
        }
        Ok(())
    }
}

/// Why a source could not be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadError {
    /// What the service or the client says, in one line. It can have the number of the request.
    pub text: String,
    /// What kind of error it is: the code or status of the service, or `late`.
    pub code: Option<String>,
    /// The service refuses requests because there are too many.
    pub is_throttled: bool,
}

impl ReadError {
    /// Whether it says the same as another one, of another request.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.code == other.code && (self.code.is_some() || self.text == other.text)
    }

    fn late(within: Duration) -> Self {
        let seconds = within.as_secs_f64();
        Self {
            code: Some(LATE.to_owned()),
            ..Self::of_answer(format!("there was no answer within {seconds:.0} s"))
        }
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
    sources: Vec<Observed>,
    /// The metrics pages, each once.
    pages: Vec<Page>,
    /// The metrics pages of the instances, if they have any.
    workers: Option<WorkerPages>,
    /// What is announced, if somebody listens.
    announced: Option<Announced>,
    timeout: Duration,
}

/// A page, as soon as it was read for one of its queues.
type ReadPage = OnceCell<Result<Families, ReadError>>;

#[derive(Debug)]
struct Observed {
    name: String,
    queue: Queue,
    /// When it last had the whole time and took long to fail.
    silent_since: Option<Instant>,
    /// How long it took to answer last.
    answered_in: Option<Duration>,
    /// The index of the metrics page that shows the queue, and its name there.
    page: Option<(usize, Named)>,
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
    /// What finds the addresses of instances. Default: the system. Without it, and with `dial`, each host is one instance.
    pub resolve: Option<Arc<dyn Resolve>>,
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        let mut pages: Vec<Page> = Vec::new();
        let (mut sources, mut queues) = (Vec::new(), Vec::new());
        for source in &group.sources {
            let connection = source.connection(variable)?;
            queues.push(named(&connection, &source.queue).key());
            let page = source.metrics.as_ref().map(|url| {
                let index = pages.iter().position(|it| it.url == *url);
                let index = index.unwrap_or_else(|| {
                    let (url, dial) = (url.clone(), connecting.dial.clone());
                    pages.push(Page { url, dial });
                    pages.len() - 1
                });
                (index, named(&connection, &source.queue))
            });
            sources.push(Observed {
                name: source.name.clone(),
                queue: Queue::open(source, connection, connecting, timeout)?,
                silent_since: None,
                answered_in: None,
                page,
            });
        }
        let Connecting { dial, resolve } = connecting.clone();
        let hosts = Hosts::new(&group.metrics, dial, resolve);
        let has_own = matches!(&group.target, TargetConfig::Process(it) if it.ports.is_some());
        let has_pages = has_own || !group.metrics.is_empty();
        Ok(Self {
            sources,
            pages,
            workers: has_pages.then(|| WorkerPages::new(hosts, queues)),
            announced: None,
            timeout,
        })
    }

    /// Listens to the announcements of the group, if its file says so. Only one agent of a group may: an announcement
    /// has one receiver. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// If the connection string is missing, wrong or not one of Service Bus.
    pub fn hear(
        &mut self,
        group: &Group,
        variable: Variable<'_>,
        connecting: &Connecting,
    ) -> Result<(), ConfigError> {
        let Some(announcements) = &group.announcements else {
            return Ok(());
        };
        let source = &announcements.own;
        let connection = source.connection(variable)?;
        let Queue::Bus(queue) = Queue::open(source, connection, connecting, self.timeout)? else {
            return Err(source.not_of_bus());
        };
        let BusQueue {
            client,
            admin,
            name,
        } = queue;
        let queues = group.sources.iter().map(|it| it.queue.clone());
        let queues: Vec<String> = queues.collect();
        let admin = Some(admin);
        self.announced = Some(match &announcements.topic {
            Some(topic) => Announced::new(
                TopicAnnouncements::for_queues(client, admin, topic, &name, &queues),
                queues,
            ),
            None => Announced::new(BusAnnouncements::new(client, admin, &name), queues),
        });
        Ok(())
    }
}

impl Sources for ClientSources {
    async fn read(&mut self) -> Vec<Seen> {
        let Self {
            sources,
            pages,
            workers,
            ..
        } = self;
        let limit = self.timeout;
        let end = Instant::now() + limit;
        // A page is read once for all of its queues. Sources without a page do not wait for it.
        let pages: Vec<_> = pages.iter().map(|it| (it, OnceCell::new())).collect();
        let all = sources.iter_mut().map(|it| it.read_within(limit, &pages));
        let asked = async {
            if let Some(workers) = workers.as_mut() {
                workers.read(end).await;
            }
        };
        let (mut all, ()) = tokio::join!(join_all(all), asked);
        if let Some(workers) = workers {
            workers.complete(all.iter_mut());
        }
        all
    }

    fn workers(&self) -> Option<Workers> {
        self.workers.as_ref().map(|it| it.last.clone())
    }

    fn own_pages(&mut self, pages: &[OwnPage]) {
        if let Some(workers) = &mut self.workers {
            workers.hosts.own(pages);
        }
    }

    async fn woken(&mut self) -> Woken {
        match &mut self.announced {
            Some(announced) => announced.woken().await,
            None => std::future::pending().await,
        }
    }
}

impl Observed {
    /// Reads it within a time, or within less if it is known to be silent.
    async fn read_within(&mut self, limit: Duration, pages: &[(&Page, ReadPage)]) -> Seen {
        let began = Instant::now();
        let is_silent = |since: &Instant| began.duration_since(*since) < SILENT_RETRY;
        let silent = self.silent_since.filter(is_silent);
        let within = match silent {
            Some(_) => limit.min(time_of_silent(self.answered_in)),
            None => limit,
        };
        let reading = timeout_at(began + within, self.read(pages)).await;
        let reading = reading.unwrap_or_else(|_| Err(ReadError::late(within)));
        let took = began.elapsed();
        let is_slow = reading.is_err() && took >= SILENT_TIMEOUT;
        self.silent_since = is_slow.then(|| silent.unwrap_or(began));
        if reading.is_ok() {
            self.answered_in = Some(took);
        }
        Seen {
            name: self.name.clone(),
            reading,
        }
    }

    /// Reads the metrics page, or asks the service if there is none or it does not name the queue. A page that cannot be
    /// read is an error: without its counters, another number of instances would seem right.
    async fn read(&self, pages: &[(&Page, ReadPage)]) -> Result<Reading, ReadError> {
        let page = self.page.as_ref();
        let page = page.and_then(|(index, named)| Some((pages.get(*index)?, named)));
        if let Some((page, named)) = page {
            let (page, read) = page;
            let read = read.get_or_init(|| page.read()).await;
            let families = read.as_ref().map_err(Clone::clone)?;
            if let Some(reading) = named.on(families)? {
                return Ok(reading);
            }
        }
        self.queue.read().await
    }
}

/// How long a source that took long to fail has to answer.
fn time_of_silent(answered_in: Option<Duration>) -> Duration {
    let usual = answered_in.unwrap_or_default() * SILENT_FACTOR;
    usual.max(SILENT_TIMEOUT)
}

/// How Kew names a queue on its metrics page.
fn named(connection: &Connection, queue: &str) -> Named {
    match connection {
        Connection::Storage(account) => Named::Storage {
            account: account_name(account),
            queue: queue.to_owned(),
        },
        Connection::Bus(_) => Named::Bus(queue.to_owned()),
    }
}

/// The account is in the path of the endpoint, or the first label of its host.
fn account_name(account: &QueueAccount) -> String {
    let url = account.endpoint().url();
    let rest = url.split_once("://").map_or(&*url, |(_, rest)| rest);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let name = if path.is_empty() {
        host.split('.').next().unwrap_or_default()
    } else {
        path
    };
    name.to_owned()
}

impl Queue {
    fn open(
        source: &Source,
        connection: Connection,
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
        match connection {
            Connection::Storage(account) => {
                source.check_storage_name()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_source_has_more_time_than_its_last_answer_took() {
        let seconds = Duration::from_secs;
        assert_eq!(time_of_silent(None), seconds(1));
        assert_eq!(time_of_silent(Some(Duration::from_millis(20))), seconds(1));
        assert_eq!(time_of_silent(Some(seconds(2))), seconds(6));
    }

    #[test]
    fn how_long_a_source_was_silent_is_no_news() {
        let late = |seconds| ReadError::late(Duration::from_secs(seconds));
        assert_eq!(late(10).text, "there was no answer within 10 s");
        assert!(late(10).is_like(&late(1)));
        assert!(!late(10).is_like(&ReadError::of_answer("there was no answer within 10 s")));
    }
}
