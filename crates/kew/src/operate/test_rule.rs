//! `kew bus rule test`: a rule of a subscription on messages, without a topic. It changes nothing.

use std::cell::Cell;
use std::fmt::Display;

use kew_bus_message::View;
use kew_filter::{
    Action, Change, CompileError, CorrelationFilter, Definition, Equality, Filter,
    FilterDefinition, Message, NewIds, OwnedValue, SqlDefinition, SystemProperty, Target,
};
use serde_json::{Map, Value as Json, json};

use super::browse::{Look, browse};
use super::export::record;
use super::filter::Filter as Which;
use super::send::values_of;
use super::{Session, session};
use crate::bus_tool_args::TestRuleArgs;
use crate::importing::Lines;
use crate::portable::{Sample, of_amqp, shown, typed};
use crate::queue_command::{Failure, Output, is_active, note, printable};

/// Before the name of a system property.
const SYSTEM: &str = "sys.";

/// A rule, and what it did so far.
struct Test {
    filter: Filter,
    action: Option<Action>,
    matched: u64,
    not_matched: u64,
    failed: u64,
}

pub(super) fn test(args: &TestRuleArgs) -> Result<(), Failure> {
    let mut test = Test::new(args)?;
    let mut output = Output::new(args.common.json);
    let tested = match &args.queue {
        Some(queue) => {
            let mut it = session(&args.common)?;
            test.queue(&mut it, queue, args, &mut output)
        }
        None => test.lines(args, &mut output),
    };
    // What was tested before an error stays visible.
    let told = tested.and_then(|()| test.total(&mut output));
    told.and(Ok(output.flush()?))
}

impl Test {
    fn new(args: &TestRuleArgs) -> Result<Self, Failure> {
        let parameters = values("--parameter", &args.parameter)?.into_iter();
        let parameters = parameters.map(|(name, value)| (name.into(), value));
        let parameters: Vec<(Box<str>, OwnedValue)> = parameters.collect();
        let sql = |text: &String| SqlDefinition {
            text: text.as_str().into(),
            parameters: parameters.clone(),
            compatibility_level: None,
        };
        let filter = match &args.sql {
            Some(text) => FilterDefinition::Sql(sql(text)),
            None => FilterDefinition::Correlation(correlation(args)?),
        };
        // What a topic cannot store is refused here, too.
        let definition = Definition::new(filter, args.action.as_ref().map(sql));
        let definition = definition.map_err(|error| Failure::Usage(error.to_string()))?;
        let compiled = definition.compile();
        let (filter, action) = compiled.map_err(|error| refused(args, &error))?;
        Ok(Self {
            filter,
            action,
            matched: 0,
            not_matched: 0,
            failed: 0,
        })
    }

    fn count(&self) -> u64 {
        self.matched + self.not_matched + self.failed
    }

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
                    self.failed += 1;
                    note(&failure.message());
                }
            }
            Ok(
                match args.count.is_some_and(|wanted| self.count() >= wanted) {
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
        while args.count.is_none_or(|wanted| self.count() < wanted) {
            let Some(sample) = lines.next(Sample::new)? else {
                break;
            };
            let line = i64::try_from(lines.number).unwrap_or(i64::MAX);
            self.message(("line", line), &sample.view(), output)?;
        }
        Ok(())
    }

    /// Tests a message, and says what came of it.
    fn message(
        &mut self,
        place: (&'static str, i64),
        sample: &View<'_>,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let ids = RandomIds::default();
        let mut report = Report::new(place);
        match self.filter.matches(sample, &ids) {
            Ok(true) => {
                self.matched += 1;
                report.outcome = "matched";
            }
            Ok(false) => {
                self.not_matched += 1;
                report.outcome = "not matched";
            }
            Err(error) => {
                self.failed += 1;
                report.error = Some(format!("the filter failed: {error}"));
            }
        }
        if let ("matched", Some(action)) = (report.outcome, &self.action) {
            match action.changes(sample, &ids) {
                Ok(changes) => report.changes = Some(changed(&changes, sample)),
                Err(error) => {
                    self.matched -= 1;
                    self.failed += 1;
                    report.outcome = FAILED;
                    report.error = Some(format!("it matched, and the action failed: {error}"));
                }
            }
        }
        if ids.has_failed.get() {
            let message = "there are no random numbers for newid()".to_owned();
            return Err(Failure::Refused {
                message,
                code: None,
            });
        }
        report.print(output)
    }

    fn total(&self, output: &mut Output) -> Result<(), Failure> {
        let Self {
            matched,
            not_matched,
            failed,
            ..
        } = self;
        let count = self.count();
        if output.json {
            let total = json!({
                "messages": count, "matched": matched, "not_matched": not_matched, "failed": failed,
            });
            return Ok(output.object(&total)?);
        }
        let messages = if count == 1 { "message" } else { "messages" };
        let line = format!(
            "{count} {messages}: {matched} matched, {not_matched} not matched, {failed} failed"
        );
        Ok(output.line(&line)?)
    }
}

const FAILED: &str = "failed";

/// What came of a message.
struct Report {
    place: (&'static str, i64),
    outcome: &'static str,
    error: Option<String>,
    /// Properties with their values before and after.
    changes: Option<Vec<Map<String, Json>>>,
}

impl Report {
    fn new(place: (&'static str, i64)) -> Self {
        Self {
            place,
            outcome: FAILED,
            error: None,
            changes: None,
        }
    }

    fn print(&self, output: &mut Output) -> Result<(), Failure> {
        let (name, number) = self.place;
        if output.json {
            let mut report = Map::new();
            report.insert(name.into(), number.into());
            report.insert("outcome".into(), self.outcome.replace(' ', "_").into());
            if let Some(error) = &self.error {
                report.insert("error".into(), error.as_str().into());
            }
            if let Some(changes) = &self.changes {
                report.insert("changes".into(), json!(changes));
            }
            return Ok(output.object(&report)?);
        }
        let place = match name {
            "line" => format!("line {number}"),
            _ => number.to_string(),
        };
        let outcome = self.error.as_deref().unwrap_or(self.outcome);
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

/// Values of the command line.
fn values(flag: &str, pairs: &[(String, String)]) -> Result<Vec<(String, OwnedValue)>, Failure> {
    let plain = values_of(flag, pairs)?;
    let all = plain
        .into_iter()
        .zip(pairs)
        .map(|((name, value), (_, text))| {
            let value = match typed(text) {
                Some(value) => {
                    value.map_err(|what| Failure::Usage(format!("{flag} {name}: {what}")))?
                }
                None => of_amqp(&value),
            };
            Ok((name, value))
        });
    all.collect()
}

fn correlation(args: &TestRuleArgs) -> Result<Vec<Equality>, Failure> {
    let mut all = Vec::new();
    for ((name, value), (_, text)) in values("--correlation", &args.correlation)?
        .into_iter()
        .zip(&args.correlation)
    {
        let is_system = name
            .get(..SYSTEM.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(SYSTEM));
        if !is_system {
            let name = name.into();
            all.push(Equality::User { name, value });
            continue;
        }
        let property = name.get(SYSTEM.len()..).and_then(SystemProperty::named);
        let known = property.filter(|property| CorrelationFilter::SYSTEM.contains(property));
        let Some(property) = known else {
            let known = CorrelationFilter::SYSTEM.map(|it| format!("{SYSTEM}{}", it.name()));
            return Err(Failure::Usage(format!(
                "--correlation {name}: expected an application property or one of {}",
                known.join(", ")
            )));
        };
        // System properties are texts, also those that look like numbers.
        let quoted: Option<String> = serde_json::from_str(text).ok();
        let text = quoted.as_deref().unwrap_or(text).into();
        all.push(Equality::System { property, text });
    }
    Ok(all)
}

/// The error for a text that is not a filter or action; for people, the text is above it with a mark at the place.
fn refused(args: &TestRuleArgs, error: &CompileError) -> Failure {
    let (text, place) = match error {
        CompileError::Filter(error) => (&args.sql, error.column),
        CompileError::Action(error) => (&args.action, error.column),
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
