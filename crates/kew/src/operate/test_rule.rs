//! `kew bus rule test`: rules on messages. They come from the command line, or from a subscription. It changes nothing.

use std::cell::Cell;
use std::fmt::Display;

use kew_bus_message::View;
use kew_client::{Filter as ServiceFilter, FilterValue, RuleDescription, Sql};
use kew_filter::{
    Action, Change, CompileError, Definition, Equality, Filter, FilterDefinition, Message, NewIds,
    SqlDefinition, Target,
};
use serde_json::{Map, Value as Json, json};

use super::browse::{Look, browse};
use super::export::record;
use super::filter::Filter as Which;
use super::rule_values::of_service;
use super::rules::{SYSTEM, all_rules, equalities, named_in, parameters, system_of};
use super::{Session, session};
use crate::bus_rule_args::{RuleArgs, TestRuleArgs};
use crate::importing::Lines;
use crate::portable::{Sample, shown};
use crate::queue_command::{Failure, Output, is_active, note, printable};
use crate::queue_values::SubscriptionName;

/// A rule to be tested.
struct Tested {
    /// Its name, if it is one of a subscription.
    name: Option<String>,
    filter: Filter,
    action: Option<Action>,
}

/// Rules, and what they did so far.
struct Test {
    rules: Vec<Tested>,
    messages: u64,
    matched: u64,
    not_matched: u64,
    failed: u64,
}

pub(super) fn test(args: &TestRuleArgs) -> Result<(), Failure> {
    let mut session_of = None;
    let rules = match &args.subscription {
        Some(subscription) => {
            let it = session_of.insert(session(&args.common)?);
            rules_of(it, subscription)?
        }
        None => vec![of_command_line(args)?],
    };
    let mut test = Test {
        rules,
        messages: 0,
        matched: 0,
        not_matched: 0,
        failed: 0,
    };
    let mut output = Output::new(args.common.json);
    let tested = match (&args.queue, session_of) {
        (Some(queue), Some(mut it)) => test.queue(&mut it, queue, args, &mut output),
        (Some(queue), None) => test.queue(&mut session(&args.common)?, queue, args, &mut output),
        (None, _) => test.lines(args, &mut output),
    };
    // What was tested before an error stays visible.
    let told = tested.and_then(|()| test.total(&mut output));
    told.and(Ok(output.flush()?))
}

fn of_command_line(args: &TestRuleArgs) -> Result<Tested, Failure> {
    let rule = &args.rule;
    let parameters = parameters(rule)?;
    let sql = |text: &String| {
        let named = named_in(text, &parameters).cloned();
        SqlDefinition {
            text: text.as_str().into(),
            parameters: named.map(|(name, value)| (name.into(), value)).collect(),
            compatibility_level: None,
        }
    };
    let filter = match &rule.sql {
        Some(text) => FilterDefinition::Sql(sql(text)),
        None if rule.all => FilterDefinition::True,
        None if rule.none => FilterDefinition::False,
        None => FilterDefinition::Correlation(equalities(&rule.correlation)?),
    };
    // What a topic cannot store is refused here, too.
    let definition = Definition::new(filter, rule.action.as_ref().map(sql));
    let definition = definition.map_err(|error| Failure::Usage(error.to_string()))?;
    let compiled = definition.compile();
    let (filter, action) = compiled.map_err(|error| refused(args, rule, &error))?;
    Ok(Tested {
        name: None,
        filter,
        action,
    })
}

/// The rules of a subscription. One that Kew cannot evaluate is an error: its namespace may know more than Kew.
fn rules_of(it: &Session, subscription: &SubscriptionName) -> Result<Vec<Tested>, Failure> {
    let rules = all_rules(&it.doors, subscription)?.into_iter();
    let rules = rules.map(|rule| {
        let compiled = definition_of(&rule).and_then(|definition| {
            let compiled = definition.compile();
            compiled.map_err(|error| error.to_string())
        });
        let (filter, action) = compiled.map_err(|what| Failure::Refused {
            message: format!(
                "the rule {} of {subscription} cannot be tested: {what}",
                rule.name
            ),
            code: None,
        })?;
        Ok(Tested {
            name: Some(rule.name),
            filter,
            action,
        })
    });
    rules.collect()
}

fn definition_of(rule: &RuleDescription) -> Result<Definition, String> {
    let value = |(name, value): &(String, FilterValue)| match of_service(value) {
        Some(value) => Ok((name.as_str().into(), value)),
        None => {
            let kind = value.kind_and_text().map_or("null", |(kind, _)| kind);
            Err(format!("{name} has the unknown type {kind}"))
        }
    };
    let sql = |sql: &Sql| {
        let parameters = sql.parameters.iter().map(value);
        Ok::<_, String>(SqlDefinition {
            text: sql.text.as_str().into(),
            parameters: parameters.collect::<Result<_, _>>()?,
            compatibility_level: sql.compatibility_level,
        })
    };
    let filter = match &rule.settings.filter {
        ServiceFilter::True => FilterDefinition::True,
        ServiceFilter::False => FilterDefinition::False,
        ServiceFilter::Sql(text) => FilterDefinition::Sql(sql(text)?),
        ServiceFilter::Correlation(filter) => {
            let system = system_of(filter)
                .into_iter()
                .filter_map(|(property, text)| {
                    let text = text.as_deref()?.into();
                    Some(Ok(Equality::System { property, text }))
                });
            let user = filter.properties.iter().map(|pair| {
                let (name, value) = value(pair)?;
                Ok(Equality::User { name, value })
            });
            let all = system.chain(user).collect::<Result<_, String>>()?;
            FilterDefinition::Correlation(all)
        }
        ServiceFilter::Other { kind, .. } => return Err(format!("its filter is a {kind}")),
        _ => return Err("its filter is of an unknown kind".to_owned()),
    };
    let action = rule.settings.action.as_ref().map(sql).transpose()?;
    let definition = Definition::stored(filter, action);
    definition.map_err(|error| error.to_string())
}

impl Test {
    fn queue(
        &mut self,
        it: &mut Session,
        queue: &str,
        args: &TestRuleArgs,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let which = Which::new(&args.filter)?;
        browse(&it.doors, queue, &which, |message| {
            let number = message.sequence_number().unwrap_or_default();
            let sample = record(queue, &message)
                .and_then(|record| Sample::new(record).map_err(|what| unreadable(number, &what)));
            match sample {
                Ok(sample) => self.message(("sequence_number", number), &sample.view(), output)?,
                Err(failure) => {
                    self.messages += 1;
                    self.failed += self.rules.len() as u64;
                    note(&failure.message());
                }
            }
            Ok(
                match args.count.is_some_and(|wanted| self.messages >= wanted) {
                    true => Look::Enough,
                    false => Look::On,
                },
            )
        })
    }

    fn lines(&mut self, args: &TestRuleArgs, output: &mut Output) -> Result<(), Failure> {
        if !args.filter.to_query().is_empty() {
            let message =
                "the options that choose messages need a queue: messages of a file are all tested";
            return Err(Failure::Usage(message.into()));
        }
        let mut lines = Lines::open(args.file.as_deref(), 1)?;
        while args.count.is_none_or(|wanted| self.messages < wanted) {
            let Some(sample) = lines.next(Sample::new)? else {
                break;
            };
            let line = i64::try_from(lines.number).unwrap_or(i64::MAX);
            self.message(("line", line), &sample.view(), output)?;
        }
        Ok(())
    }

    /// Tests a message on each rule, and says what came of it.
    fn message(
        &mut self,
        place: (&'static str, i64),
        sample: &View<'_>,
        output: &mut Output,
    ) -> Result<(), Failure> {
        self.messages += 1;
        for rule in &self.rules {
            let ids = RandomIds::default();
            let report = rule.report(place, sample, &ids);
            if ids.has_failed.get() {
                let message = "there are no random numbers for newid()".to_owned();
                return Err(Failure::Refused {
                    message,
                    code: None,
                });
            }
            let count = match report.outcome {
                Outcome::Matched => &mut self.matched,
                Outcome::NotMatched => &mut self.not_matched,
                Outcome::Failed => &mut self.failed,
            };
            *count += 1;
            report.print(output)?;
        }
        Ok(())
    }

    fn total(&self, output: &mut Output) -> Result<(), Failure> {
        let Self {
            rules,
            messages,
            matched,
            not_matched,
            failed,
        } = self;
        let of_subscription = rules.iter().all(|rule| rule.name.is_some());
        if output.json {
            let mut total = json!({
                "messages": messages, "matched": matched, "not_matched": not_matched, "failed": failed,
            });
            if of_subscription {
                total["rules"] = rules.len().into();
            }
            return Ok(output.object(&total)?);
        }
        let mut line = counted(*messages, "message");
        if of_subscription {
            line += &format!(" on {}", counted(rules.len() as u64, "rule"));
        }
        line += &format!(": {matched} matched, {not_matched} not matched, {failed} failed");
        Ok(output.line(&line)?)
    }
}

fn counted(count: u64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

impl Tested {
    fn report(&self, place: (&'static str, i64), sample: &View<'_>, ids: &RandomIds) -> Report<'_> {
        let mut report = Report {
            place,
            rule: self.name.as_deref(),
            outcome: Outcome::Failed,
            error: None,
            changes: None,
        };
        match self.filter.matches(sample, ids) {
            Ok(true) => report.outcome = Outcome::Matched,
            Ok(false) => report.outcome = Outcome::NotMatched,
            Err(error) => report.error = Some(format!("the filter failed: {error}")),
        }
        if let (Outcome::Matched, Some(action)) = (report.outcome, &self.action) {
            match action.changes(sample, ids) {
                Ok(changes) => report.changes = Some(changed(&changes, sample)),
                Err(error) => {
                    report.outcome = Outcome::Failed;
                    report.error = Some(format!("it matched, and the action failed: {error}"));
                }
            }
        }
        report
    }
}

#[derive(Clone, Copy)]
enum Outcome {
    Matched,
    NotMatched,
    Failed,
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Self::Matched => "matched",
            Self::NotMatched => "not matched",
            Self::Failed => "failed",
        }
    }
}

/// What a rule did with a message.
struct Report<'a> {
    place: (&'static str, i64),
    rule: Option<&'a str>,
    outcome: Outcome,
    error: Option<String>,
    /// Properties with their values before and after.
    changes: Option<Vec<Map<String, Json>>>,
}

impl Report<'_> {
    fn print(&self, output: &mut Output) -> Result<(), Failure> {
        let (name, number) = self.place;
        if output.json {
            let mut report = Map::new();
            report.insert(name.into(), number.into());
            if let Some(rule) = self.rule {
                report.insert("rule".into(), rule.into());
            }
            let outcome = self.outcome.text().replace(' ', "_");
            report.insert("outcome".into(), outcome.into());
            if let Some(error) = &self.error {
                report.insert("error".into(), error.as_str().into());
            }
            if let Some(changes) = &self.changes {
                report.insert("changes".into(), json!(changes));
            }
            return Ok(output.object(&report)?);
        }
        let mut place = match name {
            "line" => format!("line {number}"),
            _ => number.to_string(),
        };
        if let Some(rule) = self.rule {
            place += &format!(", rule {rule}");
        }
        let outcome = self.error.as_deref().unwrap_or(self.outcome.text());
        output.line(&printable(&format!("{place}: {outcome}")))?;
        for change in self.changes.iter().flatten() {
            output.line(&printable(&format!("  {}", line_of(change))))?;
        }
        match &self.changes {
            Some(changes) if changes.is_empty() => Ok(output.line("  the action changes nothing")?),
            Some(_) | None => Ok(()),
        }
    }
}

/// Each change with the value that the message has. A member that is absent means that there is no property.
fn changed(changes: &[Change], sample: &View<'_>) -> Vec<Map<String, Json>> {
    let changes = changes.iter().map(|change| {
        let (name, before) = match &change.target {
            Target::User(name) => (name.to_string(), sample.user(name)),
            Target::System(property) => {
                let value = sample.system(*property);
                let is_set = value != kew_filter::Value::Null;
                (
                    format!("{SYSTEM}{}", property.name()),
                    is_set.then_some(value),
                )
            }
        };
        let mut members = Map::new();
        members.insert("property".into(), name.into());
        if let Some(before) = before {
            members.insert("from".into(), shown(before));
        }
        if let Some(after) = &change.to {
            members.insert("to".into(), shown(after.as_value()));
        }
        members
    });
    changes.collect()
}

fn line_of(change: &Map<String, Json>) -> String {
    let name = change.get("property").and_then(Json::as_str);
    let name = name.unwrap_or_default();
    match (change.get("from"), change.get("to")) {
        (Some(from), Some(to)) => format!("{name}: {from} becomes {to}"),
        (None, Some(to)) => format!("{name}: set to {to}"),
        (Some(from), None) => format!("{name}: removed, was {from}"),
        (None, None) => format!("{name}: removed, was not set"),
    }
}

fn unreadable(number: i64, what: &dyn Display) -> Failure {
    Failure::Refused {
        message: format!("message {number} cannot be read: {what}"),
        code: None,
    }
}

/// The error for a text that is not a filter or action; for people, the text is above it with a mark at the place.
fn refused(args: &TestRuleArgs, rule: &RuleArgs, error: &CompileError) -> Failure {
    let (text, place) = match error {
        CompileError::Filter(error) => (&rule.sql, error.column),
        CompileError::Action(error) => (&rule.action, error.column),
    };
    if !args.common.json {
        let chars = text.as_deref().unwrap_or_default().chars();
        let line: String = chars
            .map(|it| if is_active(it) { ' ' } else { it })
            .collect();
        note(&line);
        note(&format!("{}^", " ".repeat(place.saturating_sub(1))));
    }
    Failure::Usage(error.to_string())
}

/// Uuids of version 4.
#[derive(Default)]
struct RandomIds {
    has_failed: Cell<bool>,
}

impl NewIds for RandomIds {
    fn id(&self, _: u32) -> [u8; 16] {
        let mut bytes = [0; 16];
        if getrandom::fill(&mut bytes).is_err() {
            self.has_failed.set(true);
        }
        let [.., version, _, variant, _, _, _, _, _, _, _] = &mut bytes;
        *version = (*version & 0x0F) | 0x40;
        *variant = (*variant & 0x3F) | 0x80;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use kew_client::{EntityState, RuleSettings};

    use super::*;

    /// An earlier version has stored it. The later value counts.
    #[test]
    fn a_stored_rule_that_gives_a_parameter_twice_can_be_tested() {
        let sql = Sql {
            parameters: [("@p", 1), ("P", 2)]
                .map(|(name, value)| (name.to_owned(), FilterValue::Long(value)))
                .into(),
            ..Sql::new("@p = 2")
        };
        let rule = RuleDescription {
            name: "r".into(),
            settings: RuleSettings {
                filter: ServiceFilter::Sql(sql.clone()),
                action: Some(sql),
                ..RuleSettings::default()
            },
            state: EntityState::default(),
        };
        assert!(definition_of(&rule).is_ok());
    }
}
