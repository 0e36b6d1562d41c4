//! Targets: what counts instances, and what changes their number.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::check::{Checked, Checker};
use super::environment::{Environment, Own};
use super::error::Place;
use super::raw::{self, At};
use super::values;

const STOP_WITHIN_DEFAULT: Duration = Duration::from_secs(30);
/// A target has this time for an answer.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const TIMEOUT_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(5));
/// What the autoscaler of Kubernetes ignores by default.
const KEDA_TOLERANCE_DEFAULT: f64 = 0.1;
/// What a command has in place of the port of the instance.
pub(crate) const PORT: &str = "{port}";
/// What a template has in place of the number.
const NUMBER: &str = "{instances}";

/// What a group acts on.
#[derive(Clone, Debug)]
pub enum TargetConfig {
    /// Processes on this machine.
    Process(Process),
    /// Two programs: one counts, the other changes.
    Command(Command),
    /// A resource of a service: GET counts, PUT changes.
    Http(Http),
    /// The scale sub-resource of a workload in Kubernetes.
    Kubernetes(Workload),
    /// KEDA, which asks for the number.
    Keda(Keda),
}

/// A program on this machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Process {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where the agent keeps which instances it has started.
    pub state_directory: PathBuf,
    /// From SIGTERM to SIGKILL.
    pub stop_within: Duration,
    /// Each instance gets one of these ports of the loopback interface for its metrics page.
    pub ports: Option<RangeInclusive<u16>>,
    /// What instances get of the agent's environment.
    pub environment: Environment,
}

/// Two programs.
#[derive(Clone, Debug)]
pub struct Command {
    /// Prints the number of instances.
    pub count: Vec<String>,
    /// Changes it to the number in `KEW_INSTANCES`.
    pub set: Vec<String>,
    /// What they get of the agent's environment.
    pub environment: Environment,
    /// Each of them ends within this time.
    pub timeout: Duration,
    /// Where both are in the file.
    pub places: (Place, Place),
}

/// A resource over HTTP.
#[derive(Clone, Debug)]
pub struct Http {
    /// The answer to GET has the number of instances.
    pub url: String,
    /// Where it is in an answer of JSON (RFC 6901), or `None` if the answer is the number.
    pub number: Option<String>,
    /// Where the number is sent by PUT.
    pub set_url: Template,
    /// What is sent.
    pub body: Template,
    /// The media type of the body.
    pub content_type: String,
    /// The environment variable with a bearer token.
    pub token_env: Option<(Place, String)>,
    /// A file with certificate authorities to trust beside those of the system.
    pub ca_cert: Option<(Place, PathBuf)>,
    /// Each request is answered within this time.
    pub timeout: Duration,
    /// Where `url` and `set_url` are in the file.
    pub places: (Place, Place),
}

/// A text with a number in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Template(String);

/// Something in Kubernetes that has a number of replicas.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Its namespace, or `None` for that of the context or of the agent's pod.
    pub namespace: Option<String>,
    /// Group and version of its kind.
    pub api: (String, String),
    /// The plural of its kind, in lower case.
    pub resource: String,
    /// The file that says how to reach the API, or `None` for the usual places.
    pub kubeconfig: Option<PathBuf>,
    /// A context of that file.
    pub context: Option<String>,
    /// Each request is answered within this time.
    pub timeout: Duration,
    /// Where it is in the file.
    pub place: Place,
}

/// KEDA.
#[derive(Clone, Debug)]
pub struct Keda {
    /// Where the agent serves the external scaler.
    pub listen: SocketAddr,
    /// What KEDA scales: the agent counts it.
    pub workload: Workload,
    /// Where `listen` is in the file.
    pub place: Place,
}

/// Whether a host, perhaps with a port, is this machine: `localhost`, or an address of the loopback interface.
#[must_use]
pub fn is_loopback(authority: &str) -> bool {
    let without_port = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    };
    let host = without_port.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
}

impl Template {
    /// The text for a number.
    #[must_use]
    pub fn with(&self, number: u32) -> String {
        self.0.replace(NUMBER, &number.to_string())
    }

    fn has_number(&self) -> bool {
        self.0.contains(NUMBER)
    }
}

impl TargetConfig {
    /// What two groups may not share.
    pub(super) fn shared_with(&self, other: &Self) -> Option<String> {
        match (self, other) {
            (Self::Process(one), Self::Process(two)) => (one.state_directory
                == two.state_directory)
                .then(|| format!("state_directory is {:?}", one.state_directory)),
            (Self::Command(one), Self::Command(two)) => {
                (one.set == two.set).then(|| format!("set is {:?}", one.set))
            }
            (Self::Http(one), Self::Http(two)) => ((&one.set_url, &one.body)
                == (&two.set_url, &two.body))
                .then(|| "set_url and body are the same".to_owned()),
            (Self::Keda(one), Self::Keda(two)) if one.listen == two.listen => {
                Some(format!("listen is {}", one.listen))
            }
            (one, two) => match (one.workload(), two.workload()) {
                (Some(one), Some(two)) if one.is_same(two) => {
                    Some(format!("the workload is {:?}", one.name))
                }
                _ => None,
            },
        }
    }

    fn workload(&self) -> Option<&Workload> {
        match self {
            Self::Kubernetes(workload) => Some(workload),
            Self::Keda(keda) => Some(&keda.workload),
            Self::Process(_) | Self::Command(_) | Self::Http(_) => None,
        }
    }
}

impl Workload {
    fn is_same(&self, other: &Self) -> bool {
        let parts = |it: &Self| {
            let cluster = (it.kubeconfig.clone(), it.context.clone());
            let kind = (it.api.0.clone(), it.resource.clone());
            (cluster, kind, it.namespace.clone(), it.name.clone())
        };
        parts(self) == parts(other)
    }
}

impl Checker<'_> {
    /// `maximum` is that of the group's instances.
    pub(super) fn target(self, at: &At<raw::Target>, maximum: u32) -> Checked<TargetConfig> {
        let raw = at.get_ref();
        let mut found = Vec::new();
        if let Some(it) = &raw.process {
            found.push(TargetConfig::Process(self.process(it.get_ref(), maximum)?));
        }
        if let Some(it) = &raw.command {
            found.push(TargetConfig::Command(self.command(it.get_ref())?));
        }
        if let Some(it) = &raw.http {
            found.push(TargetConfig::Http(self.http(it.get_ref())?));
        }
        if let Some(it) = &raw.kubernetes {
            found.push(TargetConfig::Kubernetes(self.workload(it)?));
        }
        if let Some(it) = &raw.keda {
            found.push(TargetConfig::Keda(self.keda(it.get_ref())?));
        }
        match (found.pop(), found.pop()) {
            (Some(target), None) => Ok(target),
            (None, _) => {
                let what = "the target is empty: write one of [group.target.process], [group.target.command], \
                            [group.target.http], [group.target.kubernetes] and [group.target.keda]";
                Err(self.error(at, what))
            }
            (Some(_), Some(_)) => {
                let what =
                    "the group has two targets: write one, and a group of its own for the other";
                Err(self.error(at, what))
            }
        }
    }

    /// The share of the number up to which what acts ignores a change.
    pub(super) fn tolerance(self, at: &At<raw::Target>) -> f64 {
        let keda = at.get_ref().keda.as_ref();
        let set = |it: &At<raw::Keda>| it.get_ref().tolerance.as_ref().map(|it| *it.get_ref());
        keda.map_or(0.0, |it| set(it).unwrap_or(KEDA_TOLERANCE_DEFAULT))
    }

    fn process(self, raw: &raw::Process, maximum: u32) -> Checked<Process> {
        let directory = &raw.state_directory;
        let command = self.program("command", &raw.command)?;
        if directory.get_ref().contains('\0') {
            let what = "state_directory has a zero byte, which no path can have";
            return Err(self.error(directory, what));
        }
        if !Path::new(directory.get_ref()).is_absolute() {
            let what = format!(
                "state_directory is {:?}: write an absolute path",
                directory.get_ref()
            );
            return Err(self.error(directory, what));
        }
        let bounds = (Duration::ZERO, Duration::from_hours(1));
        let stop_within = raw.stop_within.as_ref();
        Ok(Process {
            command,
            state_directory: directory.get_ref().into(),
            stop_within: self.duration("stop_within", stop_within, STOP_WITHIN_DEFAULT, bounds)?,
            ports: self.ports(raw, maximum)?,
            environment: self.environment(Own::Instance, raw.environment.as_ref())?,
        })
    }

    /// The ports of the instances: enough for all of them.
    fn ports(self, raw: &raw::Process, maximum: u32) -> Checked<Option<RangeInclusive<u16>>> {
        let is_used = |it: &At<String>| it.get_ref().contains(PORT);
        let used = raw.command.get_ref().iter().find(|it| is_used(it));
        let Some(at) = &raw.ports else {
            return match used {
                None => Ok(None),
                Some(used) => {
                    let what = format!("command has {PORT}: write ports = \"23400-23499\", too");
                    Err(self.error(used, what))
                }
            };
        };
        let ports = values::ports(at.get_ref()).map_err(|what| self.error(at, what))?;
        if ports.len() < usize::try_from(maximum).unwrap_or(usize::MAX) {
            let what = format!(
                "ports are {}, fewer than the maximum of {maximum} instances",
                ports.len()
            );
            return Err(self.error(at, what));
        }
        if used.is_none() {
            let what =
                format!("command has no {PORT}: write it where the port of the metrics page goes");
            return Err(self.error(&raw.command, what));
        }
        Ok(Some(ports))
    }

    /// A program and its arguments.
    fn program(self, key: &str, raw: &At<Vec<At<String>>>) -> Checked<Vec<String>> {
        let parts = raw.get_ref().iter().map(|it| it.get_ref().clone());
        let parts: Vec<String> = parts.collect();
        if parts.first().is_none_or(String::is_empty) {
            let what = format!("{key} is empty: write the program and its arguments");
            return Err(self.error(raw, what));
        }
        for part in raw.get_ref() {
            if part.get_ref().contains('\0') {
                let what = format!("{key} has a zero byte, which no argument can have");
                return Err(self.error(part, what));
            }
        }
        Ok(parts)
    }

    fn timeout(self, raw: Option<&At<String>>) -> Checked<Duration> {
        self.duration("timeout", raw, TIMEOUT_DEFAULT, TIMEOUT_BOUNDS)
    }

    fn command(self, raw: &raw::Command) -> Checked<Command> {
        Ok(Command {
            count: self.program("count", &raw.count)?,
            set: self.program("set", &raw.set)?,
            environment: self.environment(Own::Instances, raw.environment.as_ref())?,
            timeout: self.timeout(raw.timeout.as_ref())?,
            places: (self.place(&raw.count), self.place(&raw.set)),
        })
    }

    fn http(self, raw: &raw::Http) -> Checked<Http> {
        let url = self.url("url", &raw.url)?;
        let set_at = raw.set_url.as_ref().unwrap_or(&raw.url);
        let set_url = Template(self.url("set_url", set_at)?);
        let body = raw.body.as_ref().map(|it| it.get_ref().clone());
        let body = Template(body.unwrap_or_else(|| NUMBER.to_owned()));
        if !set_url.has_number() && !body.has_number() {
            let at = raw.body.as_ref().unwrap_or(set_at);
            let what =
                format!("neither body nor set_url has {NUMBER}: write it where the number goes");
            return Err(self.error(at, what));
        }
        if let Some(at) = raw.number.as_ref()
            && !at.get_ref().starts_with('/')
        {
            let what = format!(
                "number is {:?}: write a JSON pointer, such as \"/spec/replicas\"",
                at.get_ref()
            );
            return Err(self.error(at, what));
        }
        if let Some(at) = &raw.content_type
            && !at.get_ref().bytes().all(|it| matches!(it, b' '..=b'~'))
        {
            return Err(self.error(at, "content_type has characters that a header cannot have"));
        }
        if let Some(at) = &raw.token_env
            && !values::is_variable_name(at.get_ref())
        {
            // Not shown: it may be the token.
            let what = "token_env is the name of an environment variable, such as \"SCALE_TOKEN\", and not the token: \
                        write letters, digits and \"_\"";
            return Err(self.error(at, what));
        }
        if raw.token_env.is_some() {
            self.no_token_in_clear("url", &raw.url)?;
            self.no_token_in_clear("set_url", set_at)?;
        }
        let content_type = raw.content_type.as_ref().map(|it| it.get_ref().clone());
        let placed = |at: &At<String>| (self.place(at), at.get_ref().clone());
        Ok(Http {
            url,
            number: raw.number.as_ref().map(|it| it.get_ref().clone()),
            set_url,
            body,
            content_type: content_type.unwrap_or_else(|| "application/json".to_owned()),
            token_env: raw.token_env.as_ref().map(placed),
            ca_cert: raw
                .ca_cert
                .as_ref()
                .map(placed)
                .map(|(at, it)| (at, it.into())),
            timeout: self.timeout(raw.timeout.as_ref())?,
            places: (self.place(&raw.url), self.place(set_at)),
        })
    }

    /// Without TLS, everybody on the way can read a token.
    fn no_token_in_clear(self, key: &str, at: &At<String>) -> Checked<()> {
        let rest = at.get_ref().strip_prefix("http://");
        let authority = rest.map(|it| it.split(['/', '?']).next().unwrap_or_default());
        match authority {
            Some(authority) if !is_loopback(authority) => {
                let what = format!(
                    "{key} begins with http:// and leads to another machine, and token_env sends a token: write https://, \
                     or leave token_env out"
                );
                Err(self.error(at, what))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// An address of HTTP without a user and without a fragment.
    fn url(self, key: &str, at: &At<String>) -> Checked<String> {
        let text = at.get_ref();
        let rest = text.strip_prefix("http://");
        let rest = rest.or_else(|| text.strip_prefix("https://"));
        let host = rest.map(|it| it.split(['/', '?']).next().unwrap_or_default());
        let is_printable = text.bytes().all(|it| matches!(it, b'!'..=b'~'));
        match host {
            Some(host) if host.contains('@') => {
                // Not shown: it has a password.
                let what = format!("{key} has a user: leave it out, and set token_env");
                Err(self.error(at, what))
            }
            Some(host) if !host.is_empty() && is_printable && !text.contains('#') => {
                Ok(text.clone())
            }
            _ => {
                let what = format!(
                    "{key} is {text:?}: write an address such as \"http://127.0.0.1:8080/instances\""
                );
                Err(self.error(at, what))
            }
        }
    }

    fn workload(self, at: &At<raw::Workload>) -> Checked<Workload> {
        let raw = at.get_ref();
        for (key, value) in [
            ("name", Some(&raw.name)),
            ("namespace", raw.namespace.as_ref()),
            ("resource", raw.resource.as_ref()),
        ] {
            if let Some(value) = value {
                values::kubernetes_name(value.get_ref())
                    .map_err(|what| self.error(value, format!("{key}: {what}")))?;
            }
        }
        let text = |at: &Option<At<String>>| at.as_ref().map(|it| it.get_ref().clone());
        let api = text(&raw.api).unwrap_or_else(|| "apps/v1".to_owned());
        let parts = api.split_once('/').filter(|(group, version)| {
            [group, version]
                .iter()
                .all(|it| values::kubernetes_name(it).is_ok())
        });
        let Some((group, version)) = parts else {
            let what = format!("api is {api:?}: write group and version, such as \"apps/v1\"");
            return Err(self.error(raw.api.as_ref().unwrap_or(&raw.name), what));
        };
        Ok(Workload {
            name: raw.name.get_ref().clone(),
            namespace: text(&raw.namespace),
            api: (group.to_owned(), version.to_owned()),
            resource: text(&raw.resource).unwrap_or_else(|| "deployments".to_owned()),
            kubeconfig: text(&raw.kubeconfig).map(PathBuf::from),
            context: text(&raw.context),
            timeout: self.timeout(raw.timeout.as_ref())?,
            place: self.place(&raw.name),
        })
    }

    fn keda(self, raw: &raw::Keda) -> Checked<Keda> {
        let listen = raw.listen.get_ref().parse().map_err(|_| {
            let what = format!(
                "listen is {:?}: write an IP address and a port, such as \"0.0.0.0:9090\"",
                raw.listen.get_ref()
            );
            self.error(&raw.listen, what)
        })?;
        Ok(Keda {
            listen,
            workload: self.workload(&raw.workload)?,
            place: self.place(&raw.listen),
        })
    }
}
