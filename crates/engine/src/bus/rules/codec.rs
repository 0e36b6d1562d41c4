//! Rules as bytes: a part of a snapshot, and a page.

use std::sync::Arc;

use super::{AddedRule, BusRule, Topic};
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
        id: r.varint()?,
        name: r.str()?.into(),
        definition: r.bytes()?.into(),
    })
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

fn rule(r: &mut Reader<'_>) -> Result<BusRule, DecodeError> {
    Ok(BusRule {
        id: r.varint()?,
        subscription: incarnation(r)?,
        name: r.str()?.into(),
        definition: r.bytes()?.into(),
        created_at: time(r)?,
        since: sequence_number(r)?,
        until: optional(r, sequence_number)?,
    })
}
