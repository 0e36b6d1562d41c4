//! Where the metrics pages of instances are: each address of each host is an instance.
//!
//! A host may have addresses of two families for the same instances. Those of the family that answers first are kept.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use kew_client::Dial;
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout_at};

use super::counted::{Counted, Processors, counted};
use super::page::Page;
use crate::config::{OwnPage, PageUrl};

/// Names have this time to be resolved, and then each page to answer. Starts do not need these pages, and wait for them.
const PATIENCE: Duration = Duration::from_secs(2);
/// The page of a program with a hundred listeners has about a tenth of it.
const PAGE_SIZE_MAX: usize = 1 << 20;

/// Finds the addresses of a host.
#[async_trait]
pub trait Resolve: Send + Sync {
    /// All addresses, in the order in which they are to be tried.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the system.
struct System;

#[async_trait]
impl Resolve for System {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(lookup_host((host, 0)).await?.map(|it| it.ip()).collect())
    }
}

/// The pages that the file names.
pub(super) struct Hosts {
    /// Those of the file, and then those of the target.
    hosts: Vec<Host>,
    of_file: usize,
    dial: Option<Arc<dyn Dial>>,
    resolve: Option<Arc<dyn Resolve>>,
}

struct Host {
    url: PageUrl,
    /// Whether the addresses that are asked are of IPv6, as soon as one has answered.
    family: Option<bool>,
    /// The page of an instance that the target has started.
    own: Option<OwnPage>,
}

/// One address.
pub(super) struct Instance {
    /// Address, port and path. Two hosts can have the same.
    pub(super) name: String,
    /// If the target has started it.
    pub(super) own: Option<OwnPage>,
    /// The index of its host.
    host: usize,
    is_v6: Option<bool>,
    page: Page,
}

/// What the page of an instance says, or why it cannot be read.
pub(super) type Answer = (Instance, Result<Said, String>);

/// What a page says, and when it came.
pub(super) type Said = (Counted, Option<Processors>, Instant);

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let urls = self.hosts.iter().map(|it| &it.url);
        f.debug_list().entries(urls).finish()
    }
}

impl Hosts {
    pub(super) fn new(
        urls: &[PageUrl],
        dial: Option<Arc<dyn Dial>>,
        resolve: Option<Arc<dyn Resolve>>,
    ) -> Self {
        // With other connections than TCP, hosts are no names of the system.
        let system = || -> Arc<dyn Resolve> { Arc::new(System) };
        Self {
            hosts: urls.iter().cloned().map(Host::of_file).collect(),
            of_file: urls.len(),
            resolve: resolve.or_else(|| dial.is_none().then(system)),
            dial,
        }
    }

    /// Has these pages of the target from now on.
    pub(super) fn own(&mut self, pages: &[OwnPage]) {
        self.hosts.truncate(self.of_file);
        self.hosts.extend(pages.iter().map(Host::of_target));
    }

    /// Each instance once, and why hosts lead to none.
    pub(super) async fn find(&self, end: Instant) -> (Vec<Instance>, Vec<String>) {
        let end = soon(end);
        let found = join_all(self.hosts.iter().map(|it| self.addresses(&it.url, end))).await;
        let (mut instances, mut errors) = (Vec::new(), Vec::new());
        let mut names = BTreeSet::new();
        for ((index, host), found) in self.hosts.iter().enumerate().zip(found) {
            match found {
                Ok(found) => instances.extend(self.of_host(index, host, found)),
                Err(error) => errors.push(error),
            }
        }
        instances.retain(|it: &Instance| names.insert(it.name.clone()));
        (instances, errors)
    }

    /// The addresses of a host. `None` is the host itself, if nothing resolves it.
    async fn addresses(&self, url: &PageUrl, end: Instant) -> Result<Vec<Option<IpAddr>>, String> {
        let Some(resolve) = &self.resolve else {
            return Ok(vec![None]);
        };
        let why = match timeout_at(end, resolve.resolve(&url.host)).await {
            Ok(Ok(found)) if !found.is_empty() => {
                return Ok(found.iter().map(|it| Some(it.to_canonical())).collect());
            }
            Ok(Ok(_)) => "it has no address".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => late(),
        };
        Err(format!("the host of the metrics page {url}: {why}"))
    }

    /// The instances of a host: those of the family that has answered, if there are any.
    fn of_host(&self, index: usize, host: &Host, found: Vec<Option<IpAddr>>) -> Vec<Instance> {
        let is_v6 = |it: &Option<IpAddr>| it.map(|it| it.is_ipv6());
        let kept = host
            .family
            .filter(|kept| found.iter().any(|it| is_v6(it) == Some(*kept)));
        let found = found.into_iter();
        let found = found.filter(|it| kept.is_none_or(|kept| is_v6(it) == Some(kept)));
        let instance = |address: Option<IpAddr>| {
            let mut url = host.url.clone();
            if let Some(address) = address {
                url.host = address.to_string();
            }
            Instance {
                name: match host.own {
                    // Its port may have been that of another one.
                    Some(OwnPage { instance, .. }) => format!("instance {instance}"),
                    None => format!("{} {}{}", url.host, url.port, url.path),
                },
                own: host.own,
                host: index,
                is_v6: is_v6(&address),
                page: Page {
                    url,
                    dial: self.dial.clone(),
                },
            }
        };
        found.map(instance).collect()
    }

    /// Leaves out the same instances at their addresses of the other family.
    pub(super) fn of_one_family(&mut self, answers: &mut Vec<Answer>) {
        for (index, host) in self.hosts.iter_mut().enumerate() {
            let mut of_host = answers.iter().filter(|it| it.0.host == index);
            let first = of_host.clone().next();
            let answered = of_host.find(|it| it.1.is_ok());
            if let Some((instance, _)) = answered {
                host.family = instance.is_v6;
            }
            if let Some(family) = answered.or(first).map(|it| it.0.is_v6) {
                answers.retain(|it| it.0.host != index || it.0.is_v6 == family);
            }
        }
    }
}

impl Host {
    fn of_file(url: PageUrl) -> Self {
        Self {
            url,
            family: None,
            own: None,
        }
    }

    fn of_target(page: &OwnPage) -> Self {
        Self {
            url: PageUrl::local(page.port),
            family: None,
            own: Some(*page),
        }
    }
}

impl Instance {
    /// What its page says.
    pub(super) async fn read(self, end: Instant) -> Answer {
        let read = timeout_at(soon(end), self.page.families(PAGE_SIZE_MAX)).await;
        let url = &self.page.url;
        let answer = match read {
            Ok(Ok(families)) => {
                let at = Instant::now();
                Ok((counted(&families), Processors::on(&families), at))
            }
            Ok(Err(error)) => Err(format!("{} (at {})", error.text, url.host)),
            Err(_) => Err(format!(
                "the metrics page {url}: {} (at {})",
                late(),
                url.host
            )),
        };
        (self, answer)
    }
}

fn soon(end: Instant) -> Instant {
    end.min(Instant::now() + PATIENCE)
}

fn late() -> String {
    let seconds = PATIENCE.as_secs();
    format!("there was no answer within {seconds} s")
}
