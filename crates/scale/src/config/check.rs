//! From what is written to what is meant.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kew_scaling::{Goal, Law, Peak, Settings, SettingsError, TimeOfWeek};

use super::error::{ConfigError, Document, Place};
use super::raw::{self, At};
use super::values::{self, SUBSCRIPTION_MAX};
use super::zone::Zone;
use super::{Announcements, Config, Group, PageUrl, Source, TargetConfig};

const DAY: Duration = Duration::from_hours(24);
/// Instances of a group at most.
const MAXIMUM_MAX: u32 = 1_000;
/// Groups of a file at most: each has a task of its own.
const GROUPS_MAX: usize = 100;
/// Sources of a group at most: each has connections of its own.
const SOURCES_MAX: usize = 1_000;
/// Tasks of an instance at most.
const TASKS_MAX: u32 = 10_000;

/// The path of a local socket has so many bytes at most on Linux, with a few to spare for its first name.
const SOCKET_PATH_MAX: usize = 100;

const EVERY_DEFAULT: Duration = Duration::from_secs(10);

pub(super) type Checked<T> = Result<T, ConfigError>;

pub(super) fn config(document: Document<'_>, raw: raw::File) -> Checked<Config> {
    if raw.group.is_empty() {
        return Err(document.error(&(0..0), "there is no group: write one as [[group]]"));
    }
    if let Some(first_above) = raw.group.get(GROUPS_MAX) {
        let what = format!(
            "there are {} groups, above the limit of {GROUPS_MAX}: write another file for another agent",
            raw.group.len()
        );
        return Err(document.error(&first_above.span(), what));
    }
    let mut groups: Vec<Group> = Vec::new();
    for raw in raw.group {
        let name = raw.get_ref().name.span();
        let target = raw.get_ref().target.span();
        let sources = raw.get_ref().source.iter();
        let sources: Vec<_> = sources.map(At::span).collect();
        let found = Checker { document }.group(raw)?;
        for other in &groups {
            check_apart(document, &found, other, (&name, &target, &sources))?;
        }
        groups.push(found);
    }
    Ok(Config { groups })
}

/// Groups share no name, no instances and no queues.
fn check_apart(
    document: Document<'_>,
    group: &Group,
    other: &Group,
    (name, target, sources): (&Range<usize>, &Range<usize>, &[Range<usize>]),
) -> Checked<()> {
    if group.name == other.name {
        let what = format!("there are two groups of the name {:?}", group.name);
        return Err(document.error(name, what));
    }
    if let Some(same) = group.target.shared_with(&other.target) {
        let what = format!(
            "{same}, as of the group {:?}: each group needs its own",
            other.name
        );
        return Err(document.error(target, what));
    }
    if group.socket.is_some() && group.socket == other.socket {
        let what = format!(
            "socket is that of the group {:?}: each group needs its own",
            other.name
        );
        return Err(document.error(name, what));
    }
    for (source, at) in group.sources.iter().zip(sources) {
        let is_same = |it: &&Source| {
            (&it.queue, &it.connection_env) == (&source.queue, &source.connection_env)
        };
        if other.sources.iter().any(|it| is_same(&it)) {
            let what = format!(
                "queue is {:?}, a source of the group {:?} too: each queue belongs to one group",
                source.queue, other.name
            );
            return Err(document.error(at, what));
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
pub(super) struct Checker<'a> {
    document: Document<'a>,
}

impl Checker<'_> {
    pub(super) fn error<T>(self, at: &At<T>, what: impl std::fmt::Display) -> ConfigError {
        self.document.error(&at.span(), what)
    }

    pub(super) fn place<T>(self, at: &At<T>) -> Place {
        Place::new(self.document, &at.span())
    }

    pub(super) fn duration(
        self,
        key: &str,
        value: Option<&At<String>>,
        default: Duration,
        (least, most): (Duration, Duration),
    ) -> Checked<Duration> {
        let Some(at) = value else {
            return Ok(default);
        };
        let found = values::duration(at.get_ref(), least, most);
        found.map_err(|what| self.error(at, format!("{key}: {what}")))
    }

    fn number(self, key: &str, value: Option<&At<u32>>, default: u32, most: u32) -> Checked<u32> {
        match value.map(|at| (at, *at.get_ref())) {
            None => Ok(default),
            Some((at, found)) if found > most => {
                let what = format!("{key} is {found}, above the limit of {most}");
                Err(self.error(at, what))
            }
            Some((_, found)) => Ok(found),
        }
    }

    fn group(self, raw: At<raw::Group>) -> Checked<Group> {
        let (at, raw) = (raw.span(), raw.into_inner());
        let name = raw.name.get_ref().clone();
        values::group_name(&name).map_err(|what| self.error(&raw.name, what))?;
        let (law, zone) = self.law(&at, &raw)?;
        let seconds = Duration::from_secs;
        let every = self.duration(
            "every",
            raw.every.as_ref(),
            EVERY_DEFAULT,
            (seconds(1), seconds(3600)),
        )?;
        if raw.source.is_empty() {
            let what = format!("the group {name:?} has no source: write one as [[group.source]]");
            return Err(self.document.error(&at, what));
        }
        if let Some(first_above) = raw.source.get(SOURCES_MAX) {
            let what = format!(
                "the group {name:?} has {} sources, above the limit of {SOURCES_MAX}",
                raw.source.len()
            );
            return Err(self.error(first_above, what));
        }
        let sources = self.sources(&raw.source)?;
        let metrics = raw.metrics.iter().map(|at| self.page(at));
        let announcements = raw.announcements.as_ref();
        let announcements = announcements.map(|it| self.announcements(it, &raw.name));
        let announcements = announcements.transpose()?;
        let target = self.target(&raw.target, law.maximum)?;
        Ok(Group {
            name,
            law,
            every,
            zone,
            sources,
            metrics: metrics.collect::<Checked<_>>()?,
            announcements,
            socket: self.socket(raw.socket.as_ref(), &target)?,
            target,
            target_place: self.place(&raw.target),
        })
    }

    /// Where the agent answers operators: in the state directory, unless the file says another place.
    fn socket(self, raw: Option<&At<String>>, target: &TargetConfig) -> Checked<Option<PathBuf>> {
        let fits = |it: &Path| it.as_os_str().len() <= SOCKET_PATH_MAX;
        let Some(at) = raw else {
            let TargetConfig::Process(process) = target else {
                return Ok(None);
            };
            let path = process.state_directory.join("agent.sock");
            return Ok(Some(path).filter(|it| fits(it)));
        };
        let path = PathBuf::from(at.get_ref());
        if !path.is_absolute() || path.file_name().is_none() {
            let what = format!(
                "socket is {path:?}: write an absolute path, such as \"/run/kew-scale.sock\""
            );
            return Err(self.error(at, what));
        }
        if !fits(&path) || at.get_ref().contains('\0') {
            let what = format!(
                "socket has {} characters: the system allows {SOCKET_PATH_MAX}",
                at.get_ref().len()
            );
            return Err(self.error(at, what));
        }
        Ok(Some(path))
    }

    fn law(self, at: &Range<usize>, raw: &raw::Group) -> Checked<(Settings, Zone)> {
        let default = Settings::default();
        let zero = Duration::ZERO;
        let hour = Duration::from_hours(1);
        let peaks = raw.peaks.iter().map(|it| self.peaks(it));
        let peaks = peaks.collect::<Checked<Vec<_>>>()?.concat();
        let settings = Settings {
            goal: self.goal(raw.goal.as_ref())?.unwrap_or(default.goal),
            minimum: self.number(
                "minimum",
                raw.minimum.as_ref(),
                default.minimum,
                MAXIMUM_MAX,
            )?,
            maximum: self.number(
                "maximum",
                raw.maximum.as_ref(),
                default.maximum,
                MAXIMUM_MAX,
            )?,
            spare: self.number("spare", raw.spare.as_ref(), default.spare, MAXIMUM_MAX)?,
            tasks_max: self.number(
                "tasks_max",
                raw.tasks_max.as_ref(),
                default.tasks_max,
                TASKS_MAX,
            )?,
            rate_per_task: raw.rate_per_task.as_ref().map(|it| *it.get_ref()),
            start_delay: self.duration(
                "start_delay",
                raw.start_delay.as_ref(),
                default.start_delay,
                (zero, hour),
            )?,
            cool_down: self.duration(
                "cool_down",
                raw.cool_down.as_ref(),
                default.cool_down,
                (zero, DAY),
            )?,
            idle_after: self.duration(
                "idle_after",
                raw.idle_after.as_ref(),
                default.idle_after,
                (zero, 30 * DAY),
            )?,
            tolerance: self.tolerance(&raw.target),
            peaks,
        };
        let checked = Law::new(settings.clone());
        checked.map_err(|error| self.refused_by_law(at, raw, &error))?;
        Ok((settings, self.zone(raw)?))
    }

    /// An error of the law at the setting that it is about, or at the group if that has its default.
    fn refused_by_law(
        self,
        at: &Range<usize>,
        raw: &raw::Group,
        error: &SettingsError,
    ) -> ConfigError {
        let span = |it: &Option<At<u32>>| it.as_ref().map(At::span);
        let place = match error {
            SettingsError::Goal => raw.goal.as_ref().map(At::span),
            SettingsError::Maximum => span(&raw.maximum),
            SettingsError::Minimum { .. } => span(&raw.minimum).or(span(&raw.maximum)),
            SettingsError::Spare { .. } => span(&raw.spare).or(span(&raw.maximum)),
            SettingsError::Tasks => span(&raw.tasks_max),
            SettingsError::Rate(_) => raw.rate_per_task.as_ref().map(At::span),
            SettingsError::Tolerance(_) => {
                let keda = raw.target.get_ref().keda.as_ref();
                keda.and_then(|it| it.get_ref().tolerance.as_ref().map(At::span))
            }
            SettingsError::Peak { peak, .. } | SettingsError::EmptyPeak(peak) => {
                let is_it =
                    |it: &&At<raw::Peak>| self.peaks(it).is_ok_and(|peaks| peaks.contains(peak));
                raw.peaks.iter().find(is_it).map(At::span)
            }
        };
        self.document.error(&place.unwrap_or(at.clone()), error)
    }

    fn goal(self, raw: Option<&At<raw::Goal>>) -> Checked<Option<Goal>> {
        let Some(at) = raw else {
            return Ok(None);
        };
        match at.get_ref() {
            raw::Goal {
                age: Some(age),
                backlog_per_task: None,
            } => {
                let bounds = (Duration::from_secs(1), 7 * DAY);
                let age = self.duration("age", Some(age), Duration::ZERO, bounds)?;
                Ok(Some(Goal::Age(age)))
            }
            raw::Goal {
                age: None,
                backlog_per_task: Some(count),
            } => Ok(Some(Goal::BacklogPerTask(*count.get_ref()))),
            raw::Goal { .. } => {
                let what = "the goal is one of { age = \"60s\" } and { backlog_per_task = 50 }";
                Err(self.error(at, what))
            }
        }
    }

    fn peaks(self, raw: &At<raw::Peak>) -> Checked<Vec<Peak>> {
        let peak = raw.get_ref();
        if peak.days.is_empty() {
            return Err(self.error(
                raw,
                "days is empty: write the days of the peak, such as [\"mon\"]",
            ));
        }
        let time = |key: &str, at: &At<String>| {
            let time = values::time(at.get_ref());
            time.map_err(|what| self.error(at, format!("{key}: {what}")))
        };
        let from = time("from", &peak.from)?;
        let until = time("until", &peak.until)?;
        let instances = *peak.instances.get_ref();
        if instances == 0 {
            let what =
                "instances is 0, which has no effect: set it to 1 or more, or leave the peak out";
            return Err(self.error(&peak.instances, what));
        }
        let days = peak.days.iter().map(|at| {
            let day = values::day(at.get_ref());
            let day = day.map_err(|what| self.error(at, format!("days: {what}")))?;
            Ok(Peak {
                from: TimeOfWeek::new(day, from.0, from.1),
                until: values::following(day, from, until),
                instances,
            })
        });
        days.collect()
    }

    fn zone(self, raw: &raw::Group) -> Checked<Zone> {
        match (&raw.time_zone, raw.peaks.first()) {
            (Some(at), _) => Zone::named(at.get_ref())
                .map_err(|what| self.error(at, format!("time_zone: {what}"))),
            (None, Some(peak)) => Zone::of_system().map_err(|what| self.error(peak, what)),
            (None, None) => Ok(Zone::utc()),
        }
    }

    fn sources(self, raw: &[At<raw::Source>]) -> Checked<Vec<Source>> {
        let mut sources: Vec<Source> = Vec::new();
        for at in raw {
            let source = self.source(at)?;
            let same = sources.iter().filter(|it| it.queue == source.queue);
            let mut same = same.map(|it| &it.connection_env);
            if same.any(|it| *it == source.connection_env) {
                let what = format!("queue is {:?}, which is there twice", source.queue);
                return Err(self.error(at, what));
            }
            sources.push(source);
        }
        let names: Vec<String> = sources.iter().map(|it| it.queue.clone()).collect();
        for source in &mut sources {
            if names.iter().filter(|it| **it == source.queue).count() > 1 {
                source.name = format!("{} ({})", source.queue, source.connection_env);
            }
        }
        Ok(sources)
    }

    fn source(self, at: &At<raw::Source>) -> Checked<Source> {
        let raw = at.get_ref();
        if let Some(key) = raw.topic.as_ref().or(raw.subscription.as_ref()) {
            let what = "a subscription is a queue with its whole name: write queue = \"TOPIC/subscriptions/NAME\"";
            return Err(self.error(key, what));
        }
        let metrics = raw.metrics.as_ref().map(|at| self.page(at)).transpose()?;
        let Some(queue) = &raw.queue else {
            return Err(self.error(at, "the source has no queue: write its name as queue"));
        };
        for (key, value) in [("queue", queue), ("connection_env", &raw.connection_env)] {
            self.not_empty(key, value)?;
        }
        self.queue_name("queue", queue, queue.get_ref())?;
        let at = self.connection(&raw.connection_env, raw.ca_cert.as_ref())?;
        let queue = queue.get_ref().clone();
        Ok(Source {
            name: queue.clone(),
            queue,
            metrics,
            ..at
        })
    }

    fn page(self, at: &At<String>) -> Checked<PageUrl> {
        let url = PageUrl::parse(at.get_ref());
        url.map_err(|what| self.error(at, format!("metrics: {what}")))
    }

    fn not_empty(self, key: &str, value: &At<String>) -> Checked<()> {
        match value.get_ref().trim().is_empty() {
            true => Err(self.error(value, format!("{key} is empty: write a name"))),
            false => Ok(()),
        }
    }

    /// A name that the file has, or the beginning of one.
    fn queue_name(self, key: &str, at: &At<String>, name: &str) -> Checked<()> {
        let checked = values::queue_name(name);
        checked.map_err(|what| self.error(at, format!("{key}: {what}")))
    }

    /// A source without a name.
    fn connection(self, variable: &At<String>, ca_cert: Option<&At<String>>) -> Checked<Source> {
        if !values::is_variable_name(variable.get_ref()) {
            // Not shown: it may be a connection string, which has a key.
            let what = "connection_env is the name of an environment variable, such as \"KEW_STORAGE\", and not the \
                        connection string: write letters, digits and \"_\"";
            return Err(self.error(variable, what));
        }
        let ca_cert = ca_cert.map(|it| (self.place(it), PathBuf::from(it.get_ref())));
        Ok(Source {
            name: String::new(),
            queue: String::new(),
            connection_env: variable.get_ref().clone(),
            metrics: None,
            ca_cert,
            place: self.place(variable),
        })
    }

    /// The agent's own queue or subscription of announcements. Its name is the same after a restart: what was announced
    /// meanwhile waits.
    fn announcements(
        self,
        at: &At<raw::Announcements>,
        group: &At<String>,
    ) -> Checked<Announcements> {
        let raw = at.get_ref();
        self.not_empty("connection_env", &raw.connection_env)?;
        let own = format!("scale-{}", group.get_ref());
        let (queue, topic) = match (&raw.prefix, &raw.topic) {
            (Some(prefix), None) => {
                self.not_empty("prefix", prefix)?;
                self.queue_name("prefix", prefix, &format!("{}scale", prefix.get_ref()))?;
                (format!("{}{own}", prefix.get_ref()), None)
            }
            (None, Some(topic)) => {
                self.not_empty("topic", topic)?;
                self.queue_name("topic", topic, topic.get_ref())?;
                if own.len() > SUBSCRIPTION_MAX {
                    let most = SUBSCRIPTION_MAX - "scale-".len();
                    let what = format!(
                        "the name {:?} is too long for a subscription of announcements: write at most {most} characters",
                        group.get_ref()
                    );
                    return Err(self.error(group, what));
                }
                (own, Some(topic.get_ref().clone()))
            }
            (Some(_), Some(_)) | (None, None) => {
                let what =
                    "announcements come over a topic or over queues: write one of topic and prefix";
                return Err(self.error(at, what));
            }
        };
        let connection = self.connection(&raw.connection_env, raw.ca_cert.as_ref())?;
        let own = Source {
            name: queue.clone(),
            queue,
            ..connection
        };
        Ok(Announcements { own, topic })
    }
}
