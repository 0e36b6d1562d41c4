//! Authorization rules, for administrators of the server.

use super::BusApi;
use crate::authorization::rights::{AuthorizationRule, WhichKey};
use crate::authorization::rules::{Change, RuleError};

/// Rules of the namespace, or those of the queue that is named. A change must run to its end: a
/// caller that may be interrupted runs it in a task of its own.
impl BusApi {
    /// The rules, in the order in which they were added.
    pub async fn rules(&self, queue: Option<&str>) -> Result<Vec<AuthorizationRule>, RuleError> {
        match queue {
            Some(queue) => self.parts.shared.authority.rules.of_queue(queue).await,
            None => Ok(self.parts.shared.authority.rules.served().to_vec()),
        }
    }

    /// The rule of that name.
    pub async fn rule(
        &self,
        queue: Option<&str>,
        name: &str,
    ) -> Result<AuthorizationRule, RuleError> {
        let rules = self.rules(queue).await?;
        let found = rules.into_iter().find(|rule| rule.is_named(name));
        found.ok_or_else(|| RuleError::NotFound(name.to_owned()))
    }

    /// Adds a rule.
    ///
    /// Refuses with [`RuleError::AlreadyExists`] if there is one of that name, and with
    /// [`InvalidRule::TooMany`] if there are [`AuthorizationRule::COUNT_MAX`].
    ///
    /// [`InvalidRule::TooMany`]: crate::InvalidRule::TooMany
    pub async fn add_rule(
        &self,
        queue: Option<&str>,
        rule: AuthorizationRule,
    ) -> Result<(), RuleError> {
        self.change(queue, &mut |rules| {
            if rules.iter().any(|other| other.is_named(&rule.name)) {
                return Err(RuleError::AlreadyExists(rule.name.to_string()));
            }
            rules.push(rule.clone());
            Ok(())
        })
        .await
    }

    /// Removes a rule. Its keys have stopped working when this returns.
    pub async fn remove_rule(&self, queue: Option<&str>, name: &str) -> Result<(), RuleError> {
        self.change(queue, &mut |rules| {
            let before = rules.len();
            rules.retain(|rule| !rule.is_named(name));
            if rules.len() == before {
                return Err(RuleError::NotFound(name.to_owned()));
            }
            Ok(())
        })
        .await
    }

    /// Makes one of a rule's keys anew. The old one has stopped working when this returns.
    pub async fn regenerate_key(
        &self,
        queue: Option<&str>,
        name: &str,
        which: WhichKey,
    ) -> Result<AuthorizationRule, RuleError> {
        let now_ms = self.parts.shared.clock.now_ms();
        let mut changed = None;
        self.change(queue, &mut |rules| {
            let mut rules = rules.iter_mut();
            let found = rules.find(|rule| rule.is_named(name));
            let rule = found.ok_or_else(|| RuleError::NotFound(name.to_owned()))?;
            rule.regenerate(which, now_ms)?;
            changed = Some(rule.clone());
            Ok(())
        })
        .await?;
        changed.ok_or_else(|| RuleError::NotFound(name.to_owned()))
    }

    async fn change(&self, queue: Option<&str>, change: Change<'_>) -> Result<(), RuleError> {
        self.parts
            .shared
            .authority
            .rules
            .change(queue, change)
            .await
    }
}
