//! `kew bus rule add`, `set`, `list`, `show` and `remove`: the rules of a subscription, by ATOM.

use kew_client::{CorrelationFilter, Filter, FilterValue, RuleDescription, RuleSettings, Sql};
use kew_filter::{Equality, OwnedValue, SystemProperty};
use serde_json::{Map, Value as Json, json};

use super::entity::done;
use super::rule_values::{of_command_line, of_service};
use super::send::values_of;
use super::view::rfc3339_ms;
use super::{Doors, Session, show};
use crate::bus_rule_args::{
    AddRuleArgs, ListRulesArgs, OneRuleArgs, RemoveRuleArgs, RuleArgs, SetRuleArgs,
};
use crate::portable::{of_amqp, shown, typed};
use crate::queue_command::{Align, Failure, printable, shortened, table};
use crate::queue_values::SubscriptionName;

/// The member with the conditions of a correlation filter.
const CORRELATION: &str = "correlation";

/// How a list shows a correlation filter without conditions, which earlier versions took.
const NO_CONDITIONS: &str = "(a correlation filter without conditions: matches all messages)";

/// How many characters of a filter or an action a list shows.
const LISTED_CHARS_MAX: usize = 100;

/// Before the name of a system property.
pub(super) const SYSTEM: &str = "sys.";

pub(super) fn add(it: &mut Session, args: &AddRuleArgs) -> Result<(), Failure> {
    let SubscriptionName { topic, name } = &args.subscription;
    let settings = settings_of(&args.rule)?.unwrap_or_default();
    let add = it
        .doors
        .admin
        .create_rule(topic, name, &args.name, &settings);
    let added = it.doors.over_http(add).map(drop);
    let is_added = done(added, args.if_not_exists, 409)?;
    let what = if is_added { "added" } else { "already exists:" };
    tell(
        it,
        &args.subscription,
        &args.name,
        ("added", is_added),
        what,
    )
}

pub(super) fn set(it: &mut Session, args: &SetRuleArgs) -> Result<(), Failure> {
    let SubscriptionName { topic, name } = &args.subscription;
    let settings = settings_of(&args.rule)?.unwrap_or_default();
    let set = it
        .doors
        .admin
        .update_rule(topic, name, &args.name, &settings);
    it.doors.over_http(set)?;
    tell(it, &args.subscription, &args.name, ("set", true), "set")
}

pub(super) fn remove(it: &mut Session, args: &RemoveRuleArgs) -> Result<(), Failure> {
    let SubscriptionName { topic, name } = &args.subscription;
    let remove = it.doors.admin.delete_rule(topic, name, &args.name);
    let is_removed = done(it.doors.over_http(remove), args.if_exists, 404)?;
    let what = if is_removed {
        "removed"
    } else {
        "did not exist:"
    };
    tell(
        it,
        &args.subscription,
        &args.name,
        ("removed", is_removed),
        what,
    )
}

fn tell(
    it: &mut Session,
    subscription: &SubscriptionName,
    rule: &str,
    (verb, is_done): (&str, bool),
    what: &str,
) -> Result<(), Failure> {
    if it.output.json {
        let report = json!({"subscription": subscription.to_string(), "rule": rule, verb: is_done});
        return Ok(it.output.object(&report)?);
    }
    let line = format!("{what} {rule} of {subscription}");
    Ok(it.output.line(&printable(&line))?)
}

pub(super) fn list(it: &mut Session, args: &ListRulesArgs) -> Result<(), Failure> {
    let rules = all_rules(&it.doors, &args.subscription)?;
    if it.output.json {
        let rules: Vec<Json> = rules.iter().map(view_of).collect();
        return Ok(it.output.object(&rules)?);
    }
    let columns = [
        ("RULE", Align::Left),
        ("FILTER", Align::Left),
        ("ACTION", Align::Left),
    ];
    let row = |rule: &RuleDescription| {
        let action = rule.settings.action.as_ref();
        let action = action.map_or_else(String::new, |action| action.text.clone());
        let filter = line_of(&rule.settings.filter);
        let [filter, action] = [filter, action].map(|it| shortened(&it, LISTED_CHARS_MAX));
        vec![rule.name.clone(), filter, action]
    };
    let rows: Vec<_> = rules.iter().map(row).collect();
    for line in table(&columns, &rows) {
        it.output.line(&line)?;
    }
    Ok(())
}

pub(super) fn show_rule(it: &mut Session, args: &OneRuleArgs) -> Result<(), Failure> {
    let SubscriptionName { topic, name } = &args.subscription;
    let read = it.doors.admin.rule(topic, name, &args.name);
    let rule = it.doors.over_http(read)?;
    show::object(&mut it.output, &view_of(&rule))
}

/// All rules of a subscription.
pub(super) fn all_rules(
    doors: &Doors,
    subscription: &SubscriptionName,
) -> Result<Vec<RuleDescription>, Failure> {
    let SubscriptionName { topic, name } = subscription;
    let mut rules = Vec::new();
    let mut skip = Some(0);
    while let Some(first) = skip {
        let page = doors.over_http(doors.admin.rules(topic, name, first))?;
        rules.extend(page.items);
        skip = page.next;
    }
    Ok(rules)
}

/// The conditions of a correlation filter with the service's names of the system properties.
pub(super) fn system_of(filter: &CorrelationFilter) -> [(SystemProperty, &Option<String>); 8] {
    [
        (SystemProperty::CorrelationId, &filter.correlation_id),
        (SystemProperty::MessageId, &filter.message_id),
        (SystemProperty::To, &filter.to),
        (SystemProperty::ReplyTo, &filter.reply_to),
        (SystemProperty::Label, &filter.subject),
        (SystemProperty::SessionId, &filter.session_id),
        (
            SystemProperty::ReplyToSessionId,
            &filter.reply_to_session_id,
        ),
        (SystemProperty::ContentType, &filter.content_type),
    ]
}

/// A rule as JSON. Its members are named like the flags that make it.
fn view_of(rule: &RuleDescription) -> Json {
    let mut view = Map::new();
    let mut put = |name: &str, value: Json| view.insert(name.to_owned(), value);
    put("name", rule.name.as_str().into());
    match &rule.settings.filter {
        Filter::True => put("true", true.into()),
        Filter::False => put("false", true.into()),
        Filter::Sql(sql) => {
            put("sql", sql.text.as_str().into());
            put("sql_parameters", pairs(&sql.parameters))
        }
        Filter::Correlation(filter) => {
            let conditions = conditions(filter);
            put(CORRELATION, Json::Object(conditions.into_iter().collect()))
        }
        Filter::Other { kind, .. } => put("filter", kind.as_str().into()),
        _ => put("filter", Json::Null),
    };
    if let Some(action) = &rule.settings.action {
        put("action", action.text.as_str().into());
        put("action_parameters", pairs(&action.parameters));
    }
    if let Some(at) = rule.state.created_at {
        put("created_at", rfc3339_ms(at).into());
    }
    // A correlation filter without conditions is shown: it selects all messages.
    view.retain(|name, value| name == CORRELATION || !value.as_object().is_some_and(Map::is_empty));
    Json::Object(view)
}

/// A filter as its flags would be.
pub(super) fn line_of(filter: &Filter) -> String {
    match filter {
        Filter::True => "true".to_owned(),
        Filter::False => "false".to_owned(),
        Filter::Sql(sql) => sql.text.clone(),
        Filter::Correlation(filter) => {
            let conditions = conditions(filter).into_iter();
            let conditions = conditions.map(|(name, value)| match value {
                Json::String(text) => format!("{name}={text}"),
                value => format!("{name}={value}"),
            });
            let conditions: Vec<_> = conditions.collect();
            match conditions.is_empty() {
                true => NO_CONDITIONS.to_owned(),
                false => conditions.join(" "),
            }
        }
        Filter::Other { kind, .. } => kind.clone(),
        _ => String::new(),
    }
}

fn conditions(filter: &CorrelationFilter) -> Vec<(String, Json)> {
    let system = system_of(filter)
        .into_iter()
        .filter_map(|(property, text)| {
            let text = text.as_deref()?;
            Some((format!("{SYSTEM}{}", property.name()), text.into()))
        });
    let user = filter.properties.iter();
    let user = user.map(|(name, value)| (name.clone(), flag_of(value)));
    system.chain(user).collect()
}

fn pairs(values: &[(String, FilterValue)]) -> Json {
    let values = values.iter();
    let values = values.map(|(name, value)| (name.clone(), flag_of(value)));
    Json::Object(values.collect())
}

/// A value with its type, as flags take it. That of lines is `rule_values::json_of`, which loses nothing.
fn flag_of(value: &FilterValue) -> Json {
    match of_service(value) {
        Some(value) => shown(value.as_value()),
        None => match value.kind_and_text() {
            Some((kind, text)) => json!({kind: text}),
            None => Json::Null,
        },
    }
}

/// The filter and the action of the command line. `None`: it has no filter.
pub(super) fn settings_of(args: &RuleArgs) -> Result<Option<RuleSettings>, Failure> {
    let parameters = of_flags("--parameter", parameters(args)?)?;
    let sql = |text: &String| Sql {
        text: text.clone(),
        parameters: named_in(text, &parameters).cloned().collect(),
        compatibility_level: None,
    };
    let filter = match (&args.sql, args.all, args.none) {
        (Some(text), _, _) => Filter::Sql(sql(text)),
        (None, true, _) => Filter::True,
        (None, _, true) => Filter::False,
        (None, false, false) if args.correlation.is_empty() => return Ok(None),
        (None, false, false) => {
            Filter::Correlation(Box::new(correlated(equalities(&args.correlation)?)?))
        }
    };
    Ok(Some(RuleSettings {
        filter,
        action: args.action.as_ref().map(sql),
        ..RuleSettings::default()
    }))
}

/// The parameters of the command line. The filter or the action has to name each.
pub(super) fn parameters(args: &RuleArgs) -> Result<Vec<(String, OwnedValue)>, Failure> {
    if !args.parameter.is_empty() && args.sql.is_none() && args.action.is_none() {
        let why = "--parameter has no effect without --sql or --action";
        return Err(Failure::Usage(why.into()));
    }
    let parameters = values("--parameter", &args.parameter)?;
    let texts = [args.sql.as_deref(), args.action.as_deref()];
    let mut unused = parameters.iter().map(|(name, _)| name);
    if let Some(name) = unused.find(|name| !texts.iter().flatten().any(|it| names(it, name))) {
        let name = name.trim_start_matches('@');
        let why = format!("--parameter {name}: neither --sql nor --action names @{name}");
        return Err(Failure::Usage(why));
    }
    Ok(parameters)
}

/// The parameters that a text names.
pub(super) fn named_in<'p, V>(
    text: &str,
    parameters: &'p [(String, V)],
) -> impl Iterator<Item = &'p (String, V)> {
    parameters.iter().filter(move |(name, _)| names(text, name))
}

/// Whether a text has the name of a parameter. It may be within a literal: then the parameter is given in vain.
fn names(text: &str, parameter: &str) -> bool {
    let folded = text.to_lowercase();
    let name = parameter.trim_start_matches('@').to_lowercase();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut behind = folded.split('@').skip(1);
    behind.any(|it| {
        it.strip_prefix(&*name)
            .is_some_and(|rest| !rest.starts_with(is_part))
    })
}

fn of_flags(
    flag: &str,
    values: Vec<(String, OwnedValue)>,
) -> Result<Vec<(String, FilterValue)>, Failure> {
    let values = values.into_iter().map(|(name, value)| {
        let value = of_command_line(&value);
        let value = value.map_err(|what| Failure::Usage(format!("{flag} {name}: {what}")))?;
        Ok((name, value))
    });
    values.collect()
}

fn correlated(equalities: Vec<Equality>) -> Result<CorrelationFilter, Failure> {
    let mut filter = CorrelationFilter::default();
    let mut user = Vec::new();
    for equality in equalities {
        let (property, text) = match equality {
            Equality::User { name, value } => {
                user.push((name.into(), value));
                continue;
            }
            Equality::System { property, text } => (property, text),
        };
        let name = property.name();
        let system = [
            (SystemProperty::CorrelationId, &mut filter.correlation_id),
            (SystemProperty::MessageId, &mut filter.message_id),
            (SystemProperty::To, &mut filter.to),
            (SystemProperty::ReplyTo, &mut filter.reply_to),
            (SystemProperty::Label, &mut filter.subject),
            (SystemProperty::SessionId, &mut filter.session_id),
            (
                SystemProperty::ReplyToSessionId,
                &mut filter.reply_to_session_id,
            ),
            (SystemProperty::ContentType, &mut filter.content_type),
        ];
        for (it, place) in system {
            if it == property && place.replace(text.clone().into()).is_some() {
                let message = format!("--correlation {SYSTEM}{name} is given twice");
                return Err(Failure::Usage(message));
            }
        }
    }
    filter.properties = of_flags("--correlation", user)?;
    Ok(filter)
}

/// Values of the command line.
pub(super) fn values(
    flag: &str,
    pairs: &[(String, String)],
) -> Result<Vec<(String, OwnedValue)>, Failure> {
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

/// The conditions of a correlation filter on the command line.
pub(super) fn equalities(conditions: &[(String, String)]) -> Result<Vec<Equality>, Failure> {
    let mut all = Vec::new();
    for ((name, value), (_, text)) in values("--correlation", conditions)?
        .into_iter()
        .zip(conditions)
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
        let known =
            property.filter(|property| kew_filter::CorrelationFilter::SYSTEM.contains(property));
        let Some(property) = known else {
            let known =
                kew_filter::CorrelationFilter::SYSTEM.map(|it| format!("{SYSTEM}{}", it.name()));
            return Err(Failure::Usage(format!(
                "--correlation {name}: expected an application property or one of {}",
                known.join(", ")
            )));
        };
        // System properties are texts, also those that look like numbers.
        let quoted: Option<String> = serde_json::from_str(text).ok();
        let text = quoted.as_deref().unwrap_or(text);
        if text.is_empty() {
            // The service takes such a condition for none.
            return Err(Failure::Usage(format!(
                "--correlation {name}: it has no value"
            )));
        }
        let text = text.into();
        all.push(Equality::System { property, text });
    }
    Ok(all)
}
