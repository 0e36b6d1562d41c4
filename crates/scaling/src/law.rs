//! The law: what it remembers, and how it decides.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::decision::{Action, Decision, Reason};
use crate::flow::Flow;
use crate::need::{Load, Need};
use crate::numbers::{count_for, rate_of};
use crate::observation::{Instances, Moment, Observation, Reading};
use crate::settings::{Settings, SettingsError};
use crate::week::Peak;

/// Instances get no more tasks while they use this share of their processors, and no more of them start while they use
/// this share of processors that all of them share.
const CPU_BUSY: f64 = 0.9;
/// How much a new measurement of the rate of a task counts beside the earlier ones.
const RATE_WEIGHT: f64 = 0.3;

/// What was true at the last observation.
#[derive(Clone, Copy, Debug)]
struct Before {
    ready: u32,
    tasks: u32,
    backlog: u64,
}

/// Decides how many instances run.
///
/// It remembers rates and recent decisions, and nothing that must survive: a new law holds the number of instances
/// until it has seen a whole cool-down.
#[derive(Debug)]
pub struct Law {
    settings: Settings,
    flows: BTreeMap<String, Flow>,
    rate_per_task: Option<f64>,
    before: Option<Before>,
    /// Since when no messages have come. `None` before the first observation.
    quiet_since: Option<Duration>,
    /// Since when every observation allows to stop instances.
    watched_since: Option<Duration>,
    /// How many instances were enough, and when, during the cool-down.
    enough: VecDeque<(Duration, u32)>,
    /// How many instances ran when one of them had to stop, if the next one waits until it has.
    stops_from: Option<u32>,
    tasks: u32,
}

/// Everything that one decision weighs.
struct Weighed {
    /// More must start if fewer are there.
    at_least: u32,
    /// Others may stop if that has been so for long enough.
    enough: u32,
    /// Never fewer.
    floor: u32,
    /// Why at least so many.
    to_start: Vec<Reason>,
    /// Why not fewer.
    to_keep: Vec<Reason>,
    /// Further reasons, whatever the action is.
    others: Vec<Reason>,
    may_stop: bool,
    stops_one_by_one: bool,
    is_idle: bool,
}

impl Law {
    /// A law that has seen nothing yet.
    ///
    /// # Errors
    ///
    /// If the settings contradict each other.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self {
            tasks: settings.tasks_max,
            rate_per_task: settings.rate_per_task,
            settings,
            flows: BTreeMap::new(),
            before: None,
            quiet_since: None,
            watched_since: None,
            enough: VecDeque::new(),
            stops_from: None,
        })
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Messages that one task handles each second, as far as it is known.
    #[must_use]
    pub fn rate_per_task(&self) -> Option<f64> {
        self.rate_per_task
    }

    /// Decides. Call it regularly, and at once when work is announced. `now` must not go back.
    pub fn decide(&mut self, now: Moment, seen: &Observation) -> Decision {
        let unreadable = self.learn(now.elapsed, seen);
        let Some(instances) = seen.instances else {
            self.watched_since = None;
            return Decision {
                action: Action::Hold,
                instances: None,
                tasks: self.tasks,
                reasons: vec![Reason::InstancesUnreadable],
            };
        };
        let load = self.load(seen, instances);
        let weighed = self.weigh(now, seen, &load, unreadable);
        self.act(now.elapsed, instances, weighed)
    }

    /// Adds an observation to what is known, and returns the names of sources that could not be read.
    fn learn(&mut self, at: Duration, seen: &Observation) -> Vec<String> {
        let mut unreadable = Vec::new();
        let named = |name: &str| seen.sources.iter().any(|it| it.name == name);
        self.flows.retain(|name, _| named(name));
        for source in &seen.sources {
            match source.reading {
                Some(reading) => {
                    let flow = self.flows.entry(source.name.clone()).or_default();
                    flow.add(at, reading);
                }
                None => {
                    if let Some(flow) = self.flows.get_mut(&source.name) {
                        flow.missed();
                    }
                    unreadable.push(source.name.clone());
                }
            }
        }
        let is_busy = self.flows.values().any(Flow::is_busy);
        if is_busy || seen.announced || !unreadable.is_empty() || self.quiet_since.is_none() {
            self.quiet_since = Some(at);
        }
        if unreadable.is_empty() {
            self.learn_rate(seen);
        } else {
            self.before = None;
        }
        unreadable
    }

    /// Measures the rate of a task, while all tasks have work.
    fn learn_rate(&mut self, seen: &Observation) {
        let backlog = backlog_of(seen);
        let now = seen.instances.map(|it| Before {
            ready: it.ready,
            tasks: it.tasks.unwrap_or(self.tasks),
            backlog,
        });
        let before = std::mem::replace(&mut self.before, now);
        let measured = now
            .zip(before)
            .and_then(|(now, before)| self.measured(now, before));
        if let Some(measured) = measured {
            let known = self.rate_per_task.unwrap_or(measured);
            self.rate_per_task = Some(known + RATE_WEIGHT * (measured - known));
        } else if self.rate_per_task.is_none() {
            let handling = seen.instances.and_then(|it| it.handling);
            let seconds = handling.map(|it| it.as_secs_f64());
            self.rate_per_task = seconds.filter(|it| *it > 0.0).map(|it| 1.0 / it);
        }
    }

    fn measured(&self, now: Before, before: Before) -> Option<f64> {
        let tasks = u64::from(now.ready) * u64::from(now.tasks);
        let is_same = (now.ready, now.tasks) == (before.ready, before.tasks);
        let has_work = now.backlog.min(before.backlog) >= 2 * tasks;
        if !is_same || !has_work || tasks == 0 {
            return None;
        }
        let mut completed = 0.0;
        let mut seconds: f64 = 0.0;
        for flow in self.flows.values() {
            let (count, time) = flow.completed()?;
            completed += rate_of(count);
            seconds = seconds.max(time.as_secs_f64());
        }
        let rate = completed / seconds / rate_of(tasks);
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    fn load(&self, seen: &Observation, instances: Instances) -> Load {
        // What an unreadable source did before would be a guess.
        let readable = seen.sources.iter().filter(|it| it.reading.is_some());
        let flows = || readable.clone().map(|it| self.flows.get(&it.name));
        let arrivals = flows().map(|it| it.and_then(Flow::arrivals));
        let lasting = flows().map(|it| it.and_then(Flow::lasting_arrivals));
        let falls = flows().map(|it| it.and_then(Flow::fall));
        let is_busy = |share: &f64| *share >= CPU_BUSY;
        let cpu_is_busy = instances.cpu.as_ref().is_some_and(is_busy);
        let tasks_max = self.settings.tasks_max;
        let tasks = match instances.tasks {
            Some(tasks) if cpu_is_busy => tasks.clamp(1, tasks_max),
            Some(_) | None => tasks_max,
        };
        Load {
            backlog: backlog_of(seen),
            oldest: readings(seen).filter_map(|it| it.oldest).max(),
            arrivals: arrivals.sum(),
            lasting_arrivals: lasting.sum(),
            // One that grows is set off against others that fall.
            fall: falls.sum::<Option<f64>>().unwrap_or(0.0).max(0.0),
            rate_per_task: self.rate_per_task,
            tasks,
            ready: instances.ready,
            starting: instances.starting,
        }
    }

    fn weigh(
        &mut self,
        now: Moment,
        seen: &Observation,
        load: &Load,
        unreadable: Vec<String>,
    ) -> Weighed {
        let settings = &self.settings;
        let since = self.quiet_since.unwrap_or(now.elapsed);
        let quiet = now.elapsed.saturating_sub(since);
        let is_busy = self.flows.values().any(Flow::is_busy);
        let is_quiet = !is_busy && !seen.announced && unreadable.is_empty();
        let is_idle = is_quiet && quiet >= settings.idle_after;
        let may_stop = unreadable.is_empty();
        self.tasks = match may_stop {
            true => load.tasks(),
            false => load.tasks().max(self.tasks),
        };
        let (at_least, enough) = match is_idle {
            true => (Need::default(), Need::default()),
            false => (load.at_least(settings), load.enough(settings)),
        };
        let raised = count_for(at_least.instances).max(u32::from(seen.announced));
        let lowered = count_for(enough.instances).max(u32::from(!is_idle));
        let mut weighed = Weighed {
            at_least: raised.saturating_add(settings.spare),
            enough: lowered.saturating_add(settings.spare),
            floor: settings.minimum,
            to_start: at_least.reasons,
            to_keep: enough.reasons,
            others: self.circumstances(seen, load, is_quiet.then_some(quiet), unreadable),
            may_stop,
            stops_one_by_one: load.arrivals.is_none() && !is_idle,
            is_idle,
        };
        weighed.bound(now, settings);
        let running = load.ready.saturating_add(load.starting);
        if seen.is_throttled {
            weighed.limit(running, Reason::Throttled);
        }
        let shared = seen.instances.filter(|it| it.share_processors);
        let cpu = shared.and_then(|it| it.cpu);
        if let Some(share) = cpu.filter(|it| *it >= CPU_BUSY) {
            weighed.limit(running.max(1), Reason::MachineFull(share));
        }
        weighed
    }

    /// What matters beside the load itself. `quiet` is how long no messages have come, if that is so.
    fn circumstances(
        &self,
        seen: &Observation,
        load: &Load,
        quiet: Option<Duration>,
        unreadable: Vec<String>,
    ) -> Vec<Reason> {
        let settings = &self.settings;
        let mut reasons: Vec<Reason> = load.late(settings).into_iter().collect();
        if !unreadable.is_empty() {
            reasons.push(Reason::SourcesUnreadable(unreadable));
        }
        if seen.announced {
            reasons.push(Reason::Announced);
        }
        let after = settings.idle_after;
        reasons.extend(quiet.map(|since| match since >= after {
            true => Reason::Idle(since),
            false => Reason::NotIdleYet { since, after },
        }));
        if settings.spare > 0 {
            reasons.push(Reason::Spare(settings.spare));
        }
        let own = seen.instances.filter(|it| !it.share_processors);
        let cpu = own.and_then(|it| it.cpu);
        reasons.extend(cpu.filter(|it| *it >= CPU_BUSY).map(Reason::CpuBusy));
        reasons
    }

    fn act(&mut self, at: Duration, instances: Instances, mut weighed: Weighed) -> Decision {
        let running = instances.count();
        if self.stops_from.is_some_and(|from| running < from) {
            // One has stopped. The time in which fewer must be enough begins again.
            self.stops_from = None;
            self.watched_since = None;
        }
        let enough = self.enough_for_long(at, &weighed);
        let action = self.action(running, enough, &mut weighed);
        self.stops_from = match action {
            Action::Start(_) => {
                self.watched_since = None;
                None
            }
            // Until one has stopped, which may take its time or fail, the same is decided again.
            Action::Stop(_) => weighed.stops_one_by_one.then_some(running),
            Action::Hold => None,
        };
        let (count, mut reasons) = match action {
            Action::Start(count) => {
                // How long it was quiet is no reason to start.
                let is_quiet =
                    |it: &Reason| matches!(it, Reason::Idle(_) | Reason::NotIdleYet { .. });
                if weighed.others.iter().any(|it| !is_quiet(it)) {
                    weighed.others.retain(|it| !is_quiet(it));
                }
                (count, weighed.to_start)
            }
            Action::Stop(count) => (count, weighed.to_keep),
            Action::Hold => (running, weighed.to_keep),
        };
        reasons.extend(weighed.others);
        Decision {
            action,
            instances: Some(count),
            tasks: self.tasks,
            reasons,
        }
    }

    fn action(&self, running: u32, enough: Option<u32>, weighed: &mut Weighed) -> Action {
        let maximum = self.settings.maximum;
        let cool_down = self.settings.cool_down;
        if running > maximum {
            // The maximum holds whatever can be read, so what is said of unreadable sources is not true here.
            let is_true = |it: &Reason| !matches!(it, Reason::SourcesUnreadable(_));
            weighed.others.retain(is_true);
            weighed.others.push(Reason::Maximum(maximum));
            return Action::Stop(maximum);
        }
        let step = self.settings.least_step(running);
        if weighed.at_least > running {
            let noticed = running.saturating_add(step).min(maximum);
            return Action::Start(weighed.at_least.max(noticed));
        }
        match enough {
            Some(enough) if enough < running && weighed.stops_one_by_one => {
                weighed.others.push(Reason::ArrivalsUnknown(step));
                Action::Stop(enough.max(running.saturating_sub(step)))
            }
            Some(enough) if enough < running => Action::Stop(enough),
            Some(_) | None => {
                if weighed.may_stop && weighed.enough < running {
                    let enough = weighed.enough;
                    weighed
                        .others
                        .push(Reason::CoolingDown { enough, cool_down });
                }
                Action::Hold
            }
        }
    }

    /// How many instances have been enough during the whole cool-down, or `None` if that is not known.
    fn enough_for_long(&mut self, at: Duration, weighed: &Weighed) -> Option<u32> {
        if !weighed.may_stop {
            self.watched_since = None;
            return None;
        }
        if weighed.is_idle {
            return Some(weighed.enough);
        }
        let since = *self.watched_since.get_or_insert_with(|| {
            self.enough.clear();
            at
        });
        // One look says nothing of how many messages come.
        let is_first = at == since;
        let cool_down = self.settings.cool_down;
        self.enough.push_back((at, weighed.enough));
        let is_old = |it: &(Duration, u32)| at.saturating_sub(it.0) > cool_down;
        while self.enough.front().is_some_and(is_old) {
            self.enough.pop_front();
        }
        let largest = self.enough.iter().map(|it| it.1).max();
        largest.filter(|_| !is_first && at.saturating_sub(since) >= cool_down)
    }
}

impl Weighed {
    /// Keeps both numbers within what settings allow at this time.
    fn bound(&mut self, now: Moment, settings: &Settings) {
        let is_on = |it: &&Peak| it.is_on(now.week, settings.start_delay);
        let peaks = settings.peaks.iter().filter(is_on);
        let peak = peaks.max_by_key(|it| it.instances);
        if let Some(peak) = peak
            && peak.instances >= self.floor
        {
            self.floor = peak.instances;
            self.others.push(Reason::Peak(*peak));
        }
        if self.at_least > settings.maximum {
            self.others.push(Reason::Maximum(settings.maximum));
        }
        if self.enough < self.floor && self.floor == settings.minimum {
            self.others.push(Reason::Minimum(settings.minimum));
        }
        self.at_least = self.at_least.clamp(self.floor, settings.maximum);
        self.enough = self.enough.clamp(self.floor, settings.maximum);
    }

    /// Starts none beyond those that run, except for the minimum and peaks.
    fn limit(&mut self, running: u32, reason: Reason) {
        let allowed = running.max(self.floor);
        if self.at_least > allowed {
            self.at_least = allowed;
            self.others.push(reason);
        }
    }
}

/// Of all sources together. A sum that no number holds is as large as a number can be.
fn backlog_of(seen: &Observation) -> u64 {
    let backlogs = readings(seen).map(|it| it.backlog);
    backlogs.fold(0, u64::saturating_add)
}

fn readings(seen: &Observation) -> impl Iterator<Item = Reading> {
    seen.sources.iter().filter_map(|it| it.reading)
}
