//! The environment of a program that the agent starts.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;

use super::check::{Checked, Checker};
use super::raw::At;
use super::values;

/// Variables that the agent sets itself.
const OWN: [&str; 2] = ["KEW_INSTANCE", "KEW_INSTANCES"];

/// What a program gets of the agent's environment, and beside it.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Environment {
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
    /// The variables that the program gets and no others, or `None` if it gets those of the agent.
    pub(crate) fn variables(&self) -> Option<Vec<(String, OsString)>> {
        let named = self.named.as_ref()?.iter();
        let set = named.filter_map(|(name, value)| {
            let value = value.as_ref().map(OsString::from);
            Some((name.clone(), value.or_else(|| std::env::var_os(name))?))
        });
        Some(set.collect())
    }
}

impl Checker<'_> {
    /// `NAME` is passed on, and `NAME=VALUE` is set. Errors show no value: it may be a secret.
    pub(super) fn environment(self, raw: Option<&At<Vec<At<String>>>>) -> Checked<Environment> {
        let Some(at) = raw else {
            return Ok(Environment::default());
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
            } else if OWN.contains(&name) {
                format!("environment has {name}, which the agent sets: leave it out")
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
        Ok(Environment { named })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_shown() {
        let named = Some(vec![("KEY".to_owned(), Some("secret".to_owned()))]);
        let shown = format!("{:?}", Environment { named });
        assert_eq!(shown, r#"{"KEY"}"#);
    }
}
