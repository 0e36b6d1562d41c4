//! The configuration file: groups of instances, what they serve, and the target that starts them.
//!
//! It is TOML. Unknown keys are errors, and so is everything that is planned and not built: nothing is accepted and
//! ignored. Each error names the file, the line and the column, the value, and what was expected.

mod check;
mod connection;
mod environment;
mod error;
mod page_url;
mod raw;
mod target;
mod values;
mod zone;

use std::path::{Path, PathBuf};
use std::time::Duration;

use kew_scaling::{Goal, Settings};

use error::Document;
use values::Shown;

pub use connection::{Connection, Variable};
pub use environment::Environment;
pub(crate) use environment::Own;
pub use error::{ConfigError, Place};
pub use page_url::{OwnPage, PageUrl};
pub(crate) use target::PORT;
pub use target::{Command, Http, Keda, Process, TargetConfig, Template, Workload, is_loopback};
pub use zone::Zone;

/// A file that was read and checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The groups, at least one, in the order of the file.
    pub groups: Vec<Group>,
}

/// Instances of one program, and the queues that they serve.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// What the control law needs to know.
    pub law: Settings,
    /// How often the agent looks.
    pub every: Duration,
    /// Where the peaks are meant.
    pub zone: Zone,
    /// What it observes, at least one.
    pub sources: Vec<Source>,
    /// The metrics pages of the instances: each address of each host is one.
    pub metrics: Vec<PageUrl>,
    /// Where it hears announcements of work, if it is to listen to them.
    pub announcements: Option<Announcements>,
    /// Where the running agent answers operators, if it does.
    pub socket: Option<PathBuf>,
    /// What it acts on.
    pub target: TargetConfig,
    /// The target's place in the file.
    pub target_place: Place,
}

/// Where announcements of work come.
#[derive(Clone, Debug)]
pub struct Announcements {
    /// The agent's own queue, or its own subscription.
    pub own: Source,
    /// The topic of the subscription.
    pub topic: Option<String>,
}

/// A queue to observe.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in the log and in reasons, unique in its group.
    pub name: String,
    /// Its name at the service: of a queue, or of a subscription as `TOPIC/subscriptions/NAME`.
    pub queue: String,
    /// The environment variable with the connection string.
    pub connection_env: String,
    /// The metrics page of the Kew server that has the queue, if it is to be read there.
    pub metrics: Option<PageUrl>,
    /// A file with certificate authorities to trust beside those of the system.
    ca_cert: Option<(Place, PathBuf)>,
    place: Place,
}

impl Group {
    /// What an operator should know about valid settings.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let Goal::Age(goal) = self.law.goal else {
            return None;
        };
        let (unseen, advice) = match &self.announcements {
            None => ("messages", "set every to a part of the goal"),
            Some(_) => (
                "messages that nobody announces",
                "set every to a part of the goal, or announce all work",
            ),
        };
        (self.every >= goal).then(|| {
            format!(
                "every is {}, not shorter than the goal of {}: {unseen} can be older than the goal before the agent sees \
                 them: {advice}",
                Shown(self.every),
                Shown(goal),
            )
        })
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or anything in it is wrong or not built.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| ConfigError::unreadable(path, &error))?;
        Self::parse(path, &text)
    }

    /// Checks the text of a file. `path` is for errors.
    ///
    /// # Errors
    ///
    /// If anything in it is wrong or not built.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let document = Document { path, text };
        let raw: raw::File = toml::from_str(text).map_err(|error| document.refused(&error))?;
        check::config(document, raw)
    }
}
