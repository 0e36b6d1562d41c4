//! The rules of a subscription, created from lines or compared with them.
//!
//! A subscription of an import gets exactly the rules of the lines. It begins with a rule that selects nothing
//! (`mark::first_rule`). What is too much is removed at the end, when all lines are known.

use std::collections::BTreeMap;

use kew_client::RuleSettings;

use super::mark::{Owner, UNFINISHED};
use super::rule::{content_of, repeated_parameter, settings_of_rule};
use crate::operate::Doors;
use crate::operate::entity::done;
use crate::operate::rules::all_rules;
use crate::portable::DefinedRule;
use crate::queue_command::{Failure, note};
use crate::queue_values::SubscriptionName;
use crate::transfer::Report;

/// How many names a note has.
const NAMES_MAX: usize = 10;

/// The statuses of HTTP that say that a rule of that name is there, and that there is none.
const IS_THERE: u16 = 409;
const IS_NOT_THERE: u16 = 404;

/// A subscription whose rules come from lines.
pub(super) struct Ruled<'a> {
    doors: &'a Doors,
    pub(super) name: SubscriptionName,
    owner: Owner,
    /// Rules that were there and no line has had so far, by their names in lower case.
    existing: BTreeMap<String, (String, RuleSettings)>,
    /// Rules that are not as the lines say, and stay.
    different: Vec<String>,
}

impl<'a> Ruled<'a> {
    /// One that this import has created.
    pub(super) fn created(doors: &'a Doors, name: SubscriptionName) -> Self {
        Self {
            doors,
            name,
            owner: Owner::Import,
            existing: BTreeMap::new(),
            different: Vec::new(),
        }
    }

    /// One that was there.
    pub(super) fn found(
        doors: &'a Doors,
        name: SubscriptionName,
        owner: Owner,
    ) -> Result<Self, Failure> {
        let rules = all_rules(doors, &name)?.into_iter();
        let rules = rules.map(|it| (it.name.to_ascii_lowercase(), (it.name, it.settings)));
        let mut existing: BTreeMap<_, _> = rules.collect();
        if owner == Owner::Import {
            existing.remove(UNFINISHED);
        }
        Ok(Self {
            owner,
            existing,
            ..Self::created(doors, name)
        })
    }

    /// Whether the import gives it its last settings.
    pub(super) fn is_own(&self) -> bool {
        self.owner == Owner::Import
    }

    /// Creates the rule of a line, or compares it.
    pub(super) fn add(&mut self, it: &DefinedRule, report: &mut Report) -> Result<(), Failure> {
        let settings = settings_of_rule(it).map_err(Failure::Usage)?;
        if let Some(parameter) = repeated_parameter(it) {
            note(&format!(
                "the rule {} of the subscription {} gives the parameter {parameter} twice: the later one in the file counts",
                it.rule, self.name
            ));
        }
        let found = self.existing.remove(&it.rule.to_ascii_lowercase());
        match (found, self.owner) {
            (Some((_, found)), owner) => {
                report.rules_already_there += 1;
                let (found, wanted) = (content_of(&found), content_of(&settings));
                match owner {
                    _ if found.is_ok() && found == wanted => Ok(()),
                    Owner::Import => self.replace(&it.rule, &settings),
                    Owner::Other => {
                        self.different.push(it.rule.clone());
                        Ok(())
                    }
                }
            }
            (None, Owner::Import) => self.create(&it.rule, &settings, report),
            (None, Owner::Other) => {
                self.different.push(it.rule.clone());
                Ok(())
            }
        }
    }

    fn create(
        &self,
        rule: &str,
        settings: &RuleSettings,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let SubscriptionName { topic, name } = &self.name;
        let create = self.doors.admin.create_rule(topic, name, rule, settings);
        let created = self.doors.over_http(create).map(drop);
        if done(created, true, IS_THERE)? {
            report.rules_created += 1;
            return Ok(());
        }
        // A request whose answer was lost has created it.
        report.rules_already_there += 1;
        self.replace(rule, settings)
    }

    fn replace(&self, rule: &str, settings: &RuleSettings) -> Result<(), Failure> {
        let SubscriptionName { topic, name } = &self.name;
        let update = self.doors.admin.update_rule(topic, name, rule, settings);
        self.doors.over_http(update).map(drop)
    }

    /// No more rules come. What stays otherwise is named.
    pub(super) fn end(&self) {
        let mut different = self.different.clone();
        if self.owner == Owner::Other {
            different.extend(self.existing.values().map(|(name, _)| name.clone()));
        }
        if !different.is_empty() {
            note(&format!(
                "the subscription {} exists, and keeps its own rules, which differ: {}",
                self.name,
                some(&different)
            ));
        }
    }

    /// Removes the rules that no line has.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let SubscriptionName { topic, name } = &self.name;
        let others = self.existing.values().map(|(name, _)| name.as_str());
        for rule in others.chain([UNFINISHED]) {
            let removed = self.doors.admin.delete_rule(topic, name, rule);
            done(self.doors.over_http(removed), true, IS_NOT_THERE)?;
        }
        Ok(())
    }
}

/// The first of many names.
pub(super) fn some(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    match names.len().saturating_sub(NAMES_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_some_names() {
        let names = |count: usize| (0..count).map(|it| it.to_string()).collect::<Vec<_>>();
        assert_eq!(some(&names(2)), "0, 1");
        assert!(some(&names(12)).ends_with("8, 9 and 2 more"));
    }
}
