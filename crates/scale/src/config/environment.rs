//! The environment of a program that the agent starts.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::process::Command;

use super::check::{Checked, Checker};
use super::raw::At;
use super::values;

/// A variable that the agent sets itself. Each kind of target has its own, and gets no other one: an agent can be an
/// instance itself, or be started by a program that changes the number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Own {
    /// The token of an instance.
    Instance,
    /// The number of instances.
    Instances,
}

impl Own {
    const ALL: [Self; 2] = [Self::Instance, Self::Instances];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Instance => "KEW_INSTANCE",
            Self::Instances => "KEW_INSTANCES",
        }
    }

    /// The programs whose environment has the variable.
    fn of(self) -> &'static str {
        match self {
            Self::Instance => "instances of the target process",
            Self::Instances => "programs of the target command",
        }
    }
}

/// What a program gets of the agent's environment, and beside it.
#[derive(Clone, Eq, PartialEq)]
pub struct Environment {
    /// What the agent sets for it.
    own: Own,
    /// The variables that the file names. Without a value: that of the agent, if it has one.
    named: Option<Vec<(String, Option<String>)>>,
}

/// Names alone: a value may be a secret.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.named.iter().flatten().map(|(name, _)| name);
        f.debug_set().entries(named).finish()
    }
}

impl Environment {
    /// Sets the environment of a program: the variables that the file names or those of the agent, and the own one of
    /// the target, if it has a value.
    pub(crate) fn give(&self, command: &mut Command, own: Option<&str>) {
        match &self.named {
            Some(named) => {
                let set = named.iter().filter_map(|(name, value)| {
                    let value = value.as_ref().map(OsString::from);
                    Some((name, value.or_else(|| std::env::var_os(name))?))
                });
                command.env_clear().envs(set);
            }
            None => {
                for of_agent in Own::ALL {
                    command.env_remove(of_agent.name());
                }
            }
        }
        if let Some(value) = own {
            command.env(self.own.name(), value);
        }
    }
}

impl Checker<'_> {
    /// `NAME` is passed on, and `NAME=VALUE` is set. Errors show no value: it may be a secret.
    pub(super) fn environment(
        self,
        own: Own,
        raw: Option<&At<Vec<At<String>>>>,
    ) -> Checked<Environment> {
        let Some(at) = raw else {
            return Ok(Environment { own, named: None });
        };
        let mut names = BTreeSet::new();
        let named = at.get_ref().iter().map(|at| {
            let (name, value) = match at.get_ref().split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (at.get_ref().as_str(), None),
            };
            let what = if !values::is_variable_name(name) {
                "environment has an entry without a valid name: write NAME, which is passed on, or NAME=VALUE, with letters, digits \
                 and \"_\" in the name"
                    .to_owned()
            } else if name == own.name() {
                format!("environment has {name}, which the agent sets: leave it out")
            } else if let Some(other) = Own::ALL.into_iter().find(|it| name == it.name()) {
                format!("environment has {name}, which only {} get: leave it out", other.of())
            } else if !names.insert(name.to_owned()) {
                format!("environment has {name} twice")
            } else if value.as_ref().is_some_and(|it| it.contains('\0')) {
                format!("environment has a zero byte in {name}, which no variable can have")
            } else {
                return Ok((name.to_owned(), value));
            };
            Err(self.error(at, what))
        });
        let named = Some(named.collect::<Checked<Vec<_>>>()?);
        Ok(Environment { own, named })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_shown() {
        let named = Some(vec![("KEY".to_owned(), Some("secret".to_owned()))]);
        let own = Own::Instance;
        let shown = format!("{:?}", Environment { own, named });
        assert_eq!(shown, r#"{"KEY"}"#);
    }
}
