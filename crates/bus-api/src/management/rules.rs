//! Operations on the rules of a subscription.

use kew_amqp::codec::{Map, Value, write_list, write_map};
use kew_amqp::error::{Error, condition};
use kew_engine::EntityName;
use kew_engine::bus::{BusCommand, EntityKind};
use kew_filter::Definition;

use super::context::{Answered, Context, unexpected};
use super::fields::{self, wrong};
use crate::definitions::{BadRule, amqp};
use crate::ground::address::topic_of;
use crate::ground::lookup::{RULES_SIZE_BYTES_MAX, kind_of, rules_of};
use crate::ground::refusal::{bus_condition, error_of, not_found};

const NAME: &str = "rule-name";
const DESCRIPTION: &str = "rule-description";

impl From<BadRule> for Error {
    fn from(why: BadRule) -> Self {
        Self::new(bus_condition::ARGUMENT_ERROR, why.to_string())
    }
}

/// Source: Service Bus, *AMQP request-response based operations*, *Rules operations*, *Add rule*.
pub(super) async fn add(context: &Context, body: &Map) -> Result<Answered, Error> {
    let topic = topic(context).await?;
    let name = name_in(body)?;
    let Some(Value::Map(description)) = fields::value(body, DESCRIPTION) else {
        return Err(wrong(DESCRIPTION, "a map"));
    };
    let add = BusCommand::AddRule {
        topic,
        subscription: context.entity.clone(),
        rule: Box::new(amqp::read(&name, &description)?),
    };
    context.submit(add).await?;
    Answered::map(|_| {})
}

pub(super) async fn remove(context: &Context, body: &Map) -> Result<Answered, Error> {
    let remove = BusCommand::RemoveRule {
        topic: topic(context).await?,
        subscription: context.entity.clone(),
        name: name_in(body)?,
    };
    context.submit(remove).await?;
    Answered::map(|_| {})
}

/// Java asks for all rules at once.
pub(super) async fn list(context: &Context, body: &Map) -> Result<Answered, Error> {
    topic(context).await?;
    let skip = fields::count(body, "skip")?;
    let top = match fields::count(body, "top")? {
        0 => return Err(wrong("top", "at least 1")),
        top => top,
    };
    let subscription = &context.entity;
    let rules = rules_of(
        &context.broker,
        subscription,
        skip,
        top,
        RULES_SIZE_BYTES_MAX,
    );
    let rules = rules.await.map_err(|rejection| error_of(&rejection))?;
    let rules = rules.ok_or_else(unexpected)?;
    if rules.is_empty() {
        return Ok(Answered::Nothing);
    }
    let definitions = rules.iter().map(|rule| {
        Definition::decode(&rule.definition).map_err(|error| {
            let text = format!("the rule '{}' cannot be shown: {error}", rule.name);
            Error::new(condition::INTERNAL_ERROR, text)
        })
    });
    let definitions: Vec<_> = definitions.collect::<Result<_, _>>()?;
    Answered::map(|map| {
        map.entry_with("rules", |out| {
            write_list(out, |list| {
                for (rule, definition) in rules.iter().zip(&definitions) {
                    list.with(|out| {
                        write_map(out, |map| {
                            map.entry_with(DESCRIPTION, |out| {
                                amqp::write(out, &rule.name, definition, rule.created_at);
                            });
                        });
                    });
                }
            });
        });
    })
}

fn name_in(body: &Map) -> Result<Box<str>, Error> {
    let name = fields::text(body, NAME)?;
    name.ok_or_else(|| wrong(NAME, "a string"))
}

/// The topic of the subscription. Refuses entities that have no rules.
async fn topic(context: &Context) -> Result<EntityName, Error> {
    let entity = &context.entity;
    let kind = kind_of(&context.broker, entity.clone()).await;
    let kind = kind.map_err(|rejection| error_of(&rejection))?;
    let is_what = match (kind, topic_of(entity)) {
        (None, _) => return Err(not_found(&entity.name)),
        (Some(EntityKind::Subscription), Some(topic)) => return Ok(topic),
        (Some(EntityKind::Subscription), None) => "a sub-queue of a subscription",
        (Some(EntityKind::Queue), _) => "a queue",
        (Some(EntityKind::Topic), _) => "a topic",
    };
    let text = format!(
        "'{}' is {is_what}: only subscriptions have rules. Ask TOPIC/Subscriptions/NAME/$management",
        entity.name
    );
    Err(Error::new(condition::NOT_ALLOWED, text))
}
