//! The figures that docs/scale.md states, computed. A test compares both.

use std::fmt::Write as _;
use std::time::Duration;

use kew_scaling::simulate::{Keda, Load, Scaler, Score, Workers, run};
use kew_scaling::{Goal, Law, Settings, SettingsError};

const MAXIMUM: u32 = 20;

/// Loads with other messages, to see what chance does.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;

/// What is compared.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) goal_seconds: u32,
    pub(crate) start_seconds: u32,
    pub(crate) tasks: u32,
}

/// What decides.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    Kew,
    KewWithoutCoolDown,
    /// With a target that is so many percent of what an instance handles within the goal.
    Keda(u32),
    KedaWithoutWindow(u32),
}

/// The columns of the table in docs/scale.md.
const COLUMNS: [Rule; 5] = [
    Rule::Kew,
    Rule::Keda(50),
    Rule::Keda(100),
    Rule::KewWithoutCoolDown,
    Rule::KedaWithoutWindow(50),
];

impl Rule {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Kew => "Kew".to_owned(),
            Self::KewWithoutCoolDown => "Kew, `cool_down = \"0s\"`".to_owned(),
            Self::Keda(percent) => format!("KEDA {percent} %"),
            Self::KedaWithoutWindow(percent) => format!("KEDA {percent} %, no window"),
        }
    }
}

impl Setup {
    /// The one of docs/scale.md.
    pub(crate) const STATED: Self = Self {
        seed: 1,
        goal_seconds: 60,
        start_seconds: 30,
        tasks: 8,
    };

    fn law(&self, cool_down: Duration) -> Result<Law, SettingsError> {
        Law::new(Settings {
            cool_down,
            goal: Goal::Age(self.goal()),
            maximum: MAXIMUM,
            tasks_max: self.tasks,
            rate_per_task: Some(1.0),
            start_delay: Duration::from_secs(self.start_seconds.into()),
            ..Settings::default()
        })
    }

    fn goal(&self) -> Duration {
        Duration::from_secs(self.goal_seconds.into())
    }

    fn keda(&self, percent: u32) -> Keda {
        Keda::new(self.goal_seconds * self.tasks * percent / 100, MAXIMUM)
    }

    /// What a rule makes of a load.
    pub(crate) fn score(&self, rule: Rule, load: &Load) -> Result<Score, SettingsError> {
        Ok(match rule {
            Rule::Kew => self.judge(self.law(Settings::default().cool_down)?, load),
            Rule::KewWithoutCoolDown => self.judge(self.law(Duration::ZERO)?, load),
            Rule::Keda(percent) => self.judge(self.keda(percent), load),
            Rule::KedaWithoutWindow(percent) => {
                self.judge(self.keda(percent).without_stabilization(), load)
            }
        })
    }

    fn judge(&self, mut rule: impl Scaler, load: &Load) -> Score {
        let workers = Workers {
            rate_per_task: 1.0,
            tasks_max: self.tasks,
            start_seconds: self.start_seconds,
            ready: 0,
        };
        run(&mut rule, load, workers, |_| true).score(self.goal())
    }

    /// The table: seconds in which the oldest message was older than the goal / instance-hours / starts.
    pub(crate) fn table(&self) -> Result<String, SettingsError> {
        let names = COLUMNS.map(Rule::name);
        let mut text = format!("| load | {} |\n|", names.join(" | "));
        text.push_str(&" --- |".repeat(names.len() + 1));
        for load in Load::all(self.seed) {
            // A text takes whatever is written.
            let _ = write!(text, "\n| {} |", title(&load));
            for rule in COLUMNS {
                let Score {
                    late_seconds,
                    instance_hours,
                    starts,
                    ..
                } = self.score(rule, &load)?;
                let _ = write!(text, " {late_seconds} / {instance_hours:.1} / {starts} |");
            }
        }
        text.push('\n');
        Ok(text)
    }

    /// A line for each load: what the law takes, beside the rule with the target that fits the goal.
    pub(crate) fn shares(&self) -> Result<Vec<String>, SettingsError> {
        let pairs = [
            (Rule::Kew, Rule::Keda(50)),
            (Rule::KewWithoutCoolDown, Rule::KedaWithoutWindow(50)),
        ];
        let mut lines = Vec::new();
        for load in Load::all(self.seed) {
            for (ours, other) in pairs {
                let (kew, keda) = (self.score(ours, &load)?, self.score(other, &load)?);
                let (load, ours, other) = (title(&load), ours.name(), other.name());
                let more = 100.0 * (kew.instance_hours / keda.instance_hours - 1.0);
                let more = match more < 0.0 {
                    true => format!("{:.0} % fewer instance-hours", -more),
                    false => format!("{more:.0} % more instance-hours"),
                };
                let late = format!("{} of {} late seconds", kew.late_seconds, keda.late_seconds);
                lines.push(format!("{load}: {ours} beside {other}: {more}, {late}"));
            }
        }
        Ok(lines)
    }

    /// Instance-hours on a Monday morning for each of some seeds.
    pub(crate) fn chance(&self, rule: Rule) -> Result<Vec<f64>, SettingsError> {
        SEEDS
            .map(|seed| {
                let [monday, ..] = Load::all(seed);
                Ok(self.score(rule, &monday)?.instance_hours)
            })
            .collect()
    }
}

/// A load as docs/scale.md names it.
fn title(load: &Load) -> String {
    let text = load.name.replace('-', " ");
    // A day of the week begins with a capital letter.
    match text.split_once(' ') {
        Some((day, rest)) => format!("{}{} {rest}", day[..1].to_uppercase(), &day[1..]),
        None => text,
    }
}
