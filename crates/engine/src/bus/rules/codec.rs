//! Rules as bytes: a part of a snapshot, and a page.

use std::collections::BTreeSet;
use std::sync::Arc;

use kew_filter::{Definition, RuleId};

use super::{AddedRule, BusRule, RULE_ID_BITS, Topic};
use crate::bus::snapshot::kind;
use crate::queues::snapshot::put_head;
use crate::shared::Mark;
use crate::vocabulary::Incarnation;
use crate::vocabulary::codec::{
    DecodeError, Reader, optional, put_bytes, put_optional, put_str, put_varint,
};
use crate::vocabulary::elements::{incarnation, put_time, sequence_number, time};

/// Puts a rule that an event adds.
pub(in crate::bus) fn put_added(out: &mut Vec<u8>, rule: &AddedRule) {
    put_varint(out, rule.id);
    put_str(out, &rule.name);
    put_bytes(out, &rule.definition);
}

pub(in crate::bus) fn added(r: &mut Reader<'_>) -> Result<AddedRule, DecodeError> {
    Ok(AddedRule {
        id: rule_id(r)?,
        name: r.str()?.into(),
        definition: definition(r)?,
    })
}

/// The number of a rule that a change retires: 0 is the rule `$Default` of the subscription's creation.
pub(in crate::bus) fn retired(r: &mut Reader<'_>) -> Result<RuleId, DecodeError> {
    r.varint_bits(RULE_ID_BITS)
}

/// The number of a rule.
pub(in crate::bus) fn rule_id(r: &mut Reader<'_>) -> Result<RuleId, DecodeError> {
    match r.varint_bits(RULE_ID_BITS)? {
        0 => Err(r.error("rule number 0")),
        id => Ok(id),
    }
}

/// The bytes of a definition. A version or a code of it that is not known is refused like every other one in a log: who
/// ignored such a rule would drop messages. What this version knows and does not allow any more is read.
fn definition(r: &mut Reader<'_>) -> Result<Box<[u8]>, DecodeError> {
    let bytes = r.bytes()?;
    match Definition::decode(bytes) {
        Ok(_) | Err(kew_filter::DecodeError::Refused(_)) => Ok(bytes.into()),
        Err(_) => Err(r.error("definition of a rule that is not known")),
    }
}

/// Puts the part of a snapshot with these rules.
pub(crate) fn put_part(out: &mut Vec<u8>, topic: Incarnation, rules: &[Arc<BusRule>]) {
    put_head(out, kind::RULES, topic);
    put_rules(out, rules.iter().map(|rule| &**rule));
}

/// Puts rules, in the order of their numbers.
pub(crate) fn put_rules<'a>(out: &mut Vec<u8>, rules: impl Iterator<Item = &'a BusRule>) {
    for rule in rules {
        put_varint(out, rule.id);
        put_varint(out, rule.subscription.as_u64());
        put_str(out, &rule.name);
        put_bytes(out, &rule.definition);
        put_time(out, rule.created_at);
        put_varint(out, rule.since.as_u64());
        put_optional(out, rule.until, |out, until| {
            put_varint(out, until.as_u64());
        });
    }
}

/// Adds rules to a topic that is being restored. Returns the mark of their chunk, if it has no others.
pub(crate) fn restore_rules<'a>(
    topic: &'a mut Topic,
    r: &mut Reader<'_>,
) -> Result<Option<&'a Mark>, DecodeError> {
    let mut all = Vec::new();
    while !r.is_empty() {
        all.push(rule(r)?);
    }
    let (first, last) = match (all.first(), all.last()) {
        (Some(first), Some(last)) => (first.id, last.id),
        (None, _) | (_, None) => return Ok(None),
    };
    if !all.is_sorted_by(|one, other| one.id < other.id) {
        return Err(r.error("rules that are not in the order of their numbers"));
    }
    let is_whole = topic.rules.is_new_chunk(first, last);
    for rule in all {
        if rule.id >= topic.next_rule || !topic.add(Arc::new(rule)) {
            return Err(r.error("rule whose number is out of range, or that was there before"));
        }
    }
    let mark = topic.rules.mark_of(first);
    Ok(mark.filter(|_| is_whole))
}

/// The subscriptions of rules in a page, behind their topic. If it is damaged, of those that can be read.
pub(crate) fn subscriptions_of_rules(r: &mut Reader<'_>) -> BTreeSet<Incarnation> {
    let rules = std::iter::from_fn(|| rule(r).ok());
    rules.map(|rule| rule.subscription).collect()
}

/// Makes the numbers of the rules of a page ones that were given out: a topic that is lost has lost its next number.
pub(crate) fn use_rule_numbers(topic: &mut Topic, r: &mut Reader<'_>) {
    let rules = std::iter::from_fn(|| rule(r).ok());
    let last = rules.map(|rule| rule.id).max();
    topic.set_next_rule(last.unwrap_or_default().saturating_add(1));
}

fn rule(r: &mut Reader<'_>) -> Result<BusRule, DecodeError> {
    Ok(BusRule {
        id: rule_id(r)?,
        subscription: incarnation(r)?,
        name: r.str()?.into(),
        definition: definition(r)?,
        created_at: time(r)?,
        since: sequence_number(r)?,
        until: optional(r, sequence_number)?,
    })
}
