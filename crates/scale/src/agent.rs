//! The loop: it looks, decides, and acts.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use kew_scaling::{
    Action, Decision, Instances, Law, Moment, Observation, Reason, SettingsError, Source,
    TimeOfWeek,
};
use tokio::time::{Instant, sleep_until};

use crate::act::{ActError, Happened, Target};
use crate::agenda::Agenda;
use crate::config::Group;
use crate::memory::Memory;
use crate::observe::{ReadError, Seen, Sources, Workers};

/// What the agent has logged last for a group.
#[derive(Debug)]
pub enum Note {
    /// It decided something else than before, or for other reasons.
    Decided(Decision),
    /// A source cannot be read any more, or for another reason.
    Unreadable {
        /// The source.
        source: String,
        /// Why.
        error: String,
    },
    /// A source can be read again.
    Readable(String),
    /// The instances cannot be counted any more, or for another reason.
    Uncounted(ActError),
    /// The instances can be counted again.
    Counted,
    /// The metrics page of an instance cannot be read.
    SilentPage(String),
    /// All metrics pages of instances can be read again.
    NoSilentPage,
    /// Something happened to instances.
    Happened(Happened),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided(decision) => write!(f, "{decision}"),
            Self::Unreadable { source, error } => write!(f, "{source} cannot be read: {error}"),
            Self::Readable(source) => write!(f, "{source} can be read again"),
            Self::Uncounted(error) => write!(f, "the instances cannot be counted: {error}"),
            Self::Counted => write!(f, "the instances can be counted again"),
            Self::SilentPage(error) => write!(f, "an instance cannot be read: {error}"),
            Self::NoSilentPage => write!(f, "all instances can be read again"),
            Self::Happened(happened) => write!(f, "{happened}"),
        }
    }
}

/// The agent of one group.
///
/// It keeps nothing that matters: what runs is read from the system, and rates are measured again.
#[derive(Debug)]
pub struct Agent<S, T> {
    law: Law,
    every: Duration,
    sources: S,
    target: T,
    began: Instant,
    told: Told,
    memory: Memory,
}

/// What was told last, so that nothing is told twice.
#[derive(Debug, Default)]
struct Told {
    decision: Option<(Action, Vec<Discriminant<Reason>>)>,
    unreadable: Vec<(String, ReadError)>,
    uncounted: Option<String>,
    has_silent_page: bool,
    /// What failed when the number was changed last.
    failed: BTreeSet<String>,
}

/// What one look has found.
#[derive(Debug)]
pub struct Look {
    /// What each source reported.
    pub sources: Vec<Seen>,
    /// What the metrics pages of instances say, if they are read.
    pub workers: Option<Workers>,
    /// What the law has seen.
    pub observation: Observation,
    /// Why the instances could not be counted.
    pub uncounted: Option<ActError>,
    /// What follows.
    pub decision: Decision,
}

impl<S: Sources, T: Target> Agent<S, T> {
    /// An agent that has not looked yet.
    ///
    /// # Errors
    ///
    /// If the settings contradict each other.
    pub fn new(group: &Group, sources: S, target: T) -> Result<Self, SettingsError> {
        Ok(Self {
            law: Law::new(group.law.clone())?,
            every: group.every,
            sources,
            target,
            began: Instant::now(),
            told: Told::default(),
            memory: Memory::new(),
        })
    }

    /// What it remembers, for those who ask.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// Looks and acts until `stop` resolves. Instances run on then.
    pub async fn run(
        &mut self,
        week: impl Fn() -> TimeOfWeek + Send + Sync,
        mut log: impl FnMut(Note) + Send,
        stop: impl Future<Output = ()> + Send,
    ) {
        let mut agenda = Agenda::new(self.every);
        let mut stop = std::pin::pin!(stop);
        let memory = self.memory();
        let mut tell = |note: Note| {
            memory.noted(note.to_string());
            log(note);
        };
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return,
                happened = self.target.changed() => {
                    happened.into_iter().map(Note::Happened).for_each(&mut tell);
                    continue;
                }
                () = sleep_until(agenda.next()) => {}
                // Also while no look is due: it connects meanwhile. Further announcements add nothing.
                woken = self.sources.woken(), if !agenda.is_announced() => {
                    agenda.wake(woken);
                    continue;
                }
            }
            let is_announced = agenda.look();
            let look = tokio::select! {
                biased;
                () = &mut stop => return,
                look = self.look_after(is_announced, &week, &mut tell) => look,
            };
            self.memory.looked(look.lines(), look.is_whole());
            // What was begun is finished: it takes a bounded time.
            self.act(look, &mut tell).await;
        }
    }

    /// Reads everything once, and decides. Changes nothing.
    pub async fn look(&mut self, week: impl Fn() -> TimeOfWeek + Send) -> Look {
        self.look_after(false, week, &mut |_| {}).await
    }

    /// The same, perhaps because work was announced. Tells what happens to instances meanwhile.
    async fn look_after(
        &mut self,
        announced: bool,
        week: impl Fn() -> TimeOfWeek + Send,
        tell: &mut (impl FnMut(Note) + Send),
    ) -> Look {
        // Of the instances as they were at the last look, or are since they were started.
        self.sources.own_pages(&self.target.pages());
        let mut sources = {
            let mut reading = std::pin::pin!(self.sources.read());
            loop {
                // A source that does not answer delays neither a SIGKILL nor the news of an end.
                tokio::select! {
                    biased;
                    sources = &mut reading => break sources,
                    happened = self.target.changed() => {
                        happened.into_iter().map(Note::Happened).for_each(&mut *tell);
                    }
                }
            }
        };
        let workers = self.sources.workers();
        if let Some(workers) = &workers {
            self.target.answered(&workers.own);
        }
        let counted = self.target.instances().await;
        let ready = counted.as_ref().ok().map(|it| it.ready);
        if workers.as_ref().is_some_and(|it| !it.are_all_of(ready)) {
            sources
                .iter_mut()
                .for_each(Seen::forget_completions_of_instances);
        }
        let (instances, uncounted) = match counted {
            Ok(instances) => (Some(with_pages(instances, workers.as_ref())), None),
            Err(error) => (None, Some(error)),
        };
        let is_throttled = |it: &Seen| matches!(&it.reading, Err(error) if error.is_throttled);
        let observed = sources.iter().map(|it| Source {
            name: it.name.clone(),
            reading: it.reading.as_ref().ok().copied(),
        });
        let observation = Observation {
            sources: observed.collect(),
            instances,
            announced,
            is_throttled: sources.iter().any(is_throttled),
        };
        let now = Moment {
            elapsed: self.began.elapsed(),
            week: week(),
        };
        let decision = self.law.decide(now, &observation);
        Look {
            sources,
            workers,
            observation,
            uncounted,
            decision,
        }
    }

    async fn act(&mut self, look: Look, tell: &mut (impl FnMut(Note) + Send)) {
        self.told.sources(&look.sources, tell);
        self.told.pages(look.workers.and_then(|it| it.error), tell);
        let (action, instances) = (look.decision.action, look.decision.instances);
        self.told.uncounted(look.uncounted, tell);
        self.told.decision(look.decision, tell);
        match action {
            Action::Hold => {
                self.told.failed.clear();
                if let Some(count) = instances {
                    self.target.hold(count);
                }
            }
            Action::Start(count) | Action::Stop(count) => {
                let happened = self.target.set(count).await;
                self.told.changes(happened, tell);
            }
        }
    }
}

impl Look {
    /// Whether everything could be read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let is_silent = self.workers.as_ref().is_some_and(|it| it.silent > 0);
        let are_read = self.sources.iter().all(|it| it.reading.is_ok());
        self.uncounted.is_none() && are_read && !is_silent
    }

    /// Why nothing is known of what instances completed.
    fn unknown_completions(&self) -> Option<String> {
        let workers = self.workers.as_ref()?;
        let ready = self.observation.instances.map(|it| it.ready);
        let (answered, silent) = (workers.answered, workers.silent);
        let why = match (&workers.error, ready) {
            (Some(error), _) => format!("{silent} did not: {error}"),
            (None, Some(ready)) if answered < ready => format!("{ready} instances are ready"),
            (None, _) => return None,
        };
        let unknown = "nothing is known of what they completed";
        Some(format!(
            "metrics pages of instances: {unknown}, because {answered} answered, and {why}"
        ))
    }

    /// What was seen, and what follows, in words.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.sources.iter().map(ToString::to_string).collect();
        lines.push(match (&self.uncounted, self.observation.instances) {
            (Some(error), _) => format!("the instances cannot be counted: {error}"),
            (None, Some(found)) => instances(&found),
            (None, None) => "the instances cannot be counted".to_owned(),
        });
        lines.extend(self.unknown_completions());
        lines.push(self.decision.to_string());
        lines
    }
}

/// Instances with what they say of themselves.
fn with_pages(counted: Instances, pages: Option<&Workers>) -> Instances {
    let pages = pages.cloned().unwrap_or_default();
    Instances {
        tasks: counted.tasks.or(pages.tasks),
        handling: counted.handling.or(pages.handling),
        cpu: counted.cpu.or(pages.cpu),
        ..counted
    }
}

fn instances(found: &Instances) -> String {
    let mut text = format!(
        "instances: {} ready, {} starting",
        found.ready, found.starting
    );
    if let Some(tasks) = found.tasks {
        text.push_str(&format!(", {tasks} tasks each"));
    }
    if let Some(handling) = found.handling {
        text.push_str(&format!(", {} ms for a message", handling.as_millis()));
    }
    if let Some(share) = found.cpu {
        text.push_str(&format!(", processors used to {:.0} %", share * 100.0));
    }
    text
}

impl Told {
    fn sources(&mut self, sources: &[Seen], tell: &mut impl FnMut(Note)) {
        let mut unreadable = Vec::new();
        for seen in sources {
            let source = seen.name.clone();
            let before = self.unreadable.iter().find(|it| it.0 == source);
            match (&seen.reading, before) {
                (Ok(_), Some(_)) => tell(Note::Readable(source)),
                (Ok(_), None) => {}
                (Err(error), before) => {
                    if before.is_none_or(|it| !it.1.is_like(error)) {
                        let (source, error) = (source.clone(), error.text.clone());
                        tell(Note::Unreadable { source, error });
                    }
                    unreadable.push((source, error.clone()));
                }
            }
        }
        self.unreadable = unreadable;
    }

    /// Another error is no news: the first one can be of any of them.
    fn pages(&mut self, error: Option<String>, tell: &mut impl FnMut(Note)) {
        let had = std::mem::replace(&mut self.has_silent_page, error.is_some());
        match error {
            Some(error) if !had => tell(Note::SilentPage(error)),
            None if had => tell(Note::NoSilentPage),
            Some(_) | None => {}
        }
    }

    fn uncounted(&mut self, error: Option<ActError>, tell: &mut impl FnMut(Note)) {
        let now = error.as_ref().map(ToString::to_string);
        let before = std::mem::replace(&mut self.uncounted, now);
        match error {
            Some(error) if before != self.uncounted => tell(Note::Uncounted(error)),
            None if before.is_some() => tell(Note::Counted),
            Some(_) | None => {}
        }
    }

    /// What failed in the same way at the last change is no news.
    fn changes(&mut self, happened: Vec<Happened>, tell: &mut impl FnMut(Note)) {
        let before = std::mem::take(&mut self.failed);
        for happened in happened {
            if matches!(happened, Happened::Waiting) {
                // Nothing was tried, so what failed last may fail in the same way later.
                self.failed.clone_from(&before);
                continue;
            }
            if matches!(happened, Happened::Failed(_) | Happened::Full) {
                let text = happened.to_string();
                let is_known = before.contains(&text);
                self.failed.insert(text);
                if is_known {
                    continue;
                }
            }
            tell(Note::Happened(happened));
        }
    }

    /// Numbers in reasons change with each look. Which reasons there are does not.
    fn decision(&mut self, decision: Decision, tell: &mut impl FnMut(Note)) {
        let kinds = decision.reasons.iter().map(discriminant).collect();
        let now = Some((decision.action, kinds));
        if self.decision != now {
            self.decision = now;
            tell(Note::Decided(decision));
        }
    }
}
