//! `kew log repair`: lists what a damaged log has lost, and writes a new log with the rest.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use kew_broker::{Losses, LostMessage, LostRules, PartitionOptions, Repair};
use kew_engine::Service;
use kew_log::{DataDir, Gap, Rebuilt};
use kew_queue_api::Accounts;
use serde_json::{Value, json};

use crate::cli::{RepairArgs, print_line};
use crate::{holders, safe_json, settings};

pub(super) fn run(args: &RepairArgs) -> Result<()> {
    let path = settings::data_dir_or_default(args.of.data_dir.clone())?;
    let directory = DataDir::open_existing(&path)
        .map_err(holders::of_data_dir)
        .with_context(|| format!("cannot repair the data directory {}", path.display()))?;
    let storage = if args.accept_loss {
        directory.storage()
    } else {
        directory.read_only_storage()
    };
    let storage =
        storage.with_context(|| format!("cannot repair the data directory {}", path.display()))?;
    let repair = Repair::look(Arc::new(storage), Accounts::WELL_KNOWN_NAME)
        .with_context(|| format!("cannot repair the log in {}", path.display()))?;
    let is_needed = repair.is_needed();
    if args.json {
        print_line(&safe_json::to_string(&listing(&repair))?);
    } else {
        print_listing(&repair);
    }
    if !is_needed {
        return Ok(());
    }
    if !args.accept_loss {
        bail!(
            "nothing was changed; to accept these losses and repair the log, run this again with --accept-loss"
        );
    }
    let mut entropy = [0; 24];
    getrandom::fill(&mut entropy).context("cannot get random bytes from the operating system")?;
    let (salt, secret) = entropy.split_at(8);
    let salt = u64::from_le_bytes(salt.try_into().expect("split at 8"));
    let secret = secret.try_into().expect("24 less 8 is 16");
    let rebuilt = repair
        .carry_out(PartitionOptions::default(), salt, secret)
        .with_context(|| format!("the log in {} was not repaired", path.display()))?;
    if args.json {
        print_line(&safe_json::to_string(&repaired(&rebuilt))?);
    } else {
        print_repaired(&rebuilt);
    }
    Ok(())
}

fn print_listing(repair: &Repair) {
    let losses = repair.losses();
    if !repair.is_needed() {
        for damage in &losses.damage {
            print_line(&format!(
                "damaged, but not needed: {} at byte {}: {}",
                damage.file, damage.offset, damage.what
            ));
        }
        print_line("nothing to repair: the server can start, and every message can be read");
        return;
    }
    if let Some(refusal) = repair.refusal() {
        print_line(&format!("the server cannot start: {refusal}"));
    }
    if repair.refusal().is_none() && repair.start_sets_aside() {
        print_line(
            "the server can start, and then sets aside the messages of damaged pages: what this keeps of them is more, or as much",
        );
    }
    for damage in &losses.damage {
        print_line(&format!(
            "damaged: {} at byte {}: {}",
            damage.file, damage.offset, damage.what
        ));
    }
    losses.gaps.iter().for_each(print_gap);
    losses.messages.iter().for_each(print_lost);
    for (name, count) in &losses.more_messages {
        print_line(&format!(
            "lost: up to {count} more messages of {name}, too many to list"
        ));
    }
    for lost in &losses.session_states {
        print_line(&format!(
            "lost: the state of session {:?} of {}: {}",
            lost.session, lost.queue, lost.why
        ));
    }
    losses.rules.iter().for_each(print_lost_rules);
    print_consequences(losses);
    let (queues, messages) = repair.kept();
    print_line(&format!(
        "{} messages are known to be lost; {queues} queues and {messages} messages are kept",
        losses.messages.len()
    ));
}

fn print_gap(gap: &Gap) {
    let place = match gap.span {
        Some((from, to)) => format!("what happened between log positions {from} and {to}"),
        None => "a part of the state".into(),
    };
    print_line(&format!(
        "unreadable: {place}, in {} from byte {}: {}; messages sent, deletes and updates in it are unknown",
        gap.file, gap.offset, gap.what
    ));
}

fn print_lost(message: &LostMessage) {
    let size = message
        .size_bytes
        .map_or("unknown size".into(), |size| format!("{size} bytes"));
    print_line(&format!(
        "lost: {} {}, inserted {}, {size}: {}",
        message.queue,
        shown_as(message),
        inserted(message),
        message.why
    ));
}

fn print_lost_rules(lost: &LostRules) {
    let topic = &lost.topic;
    if lost.dropped > 0 {
        print_line(&format!(
            "lost: {} rules of the topic {topic}, because their subscriptions are lost",
            lost.dropped
        ));
    }
    for subscription in &lost.opened {
        print_line(&format!(
            "lost: rules of {subscription}; it gets every message of {topic} now, from its rule $Default"
        ));
    }
    if lost.may_be_old {
        print_line(&format!(
            "check the rules of {topic}: those added in the unreadable part are missing, and those removed in it are back"
        ));
    }
}

fn print_consequences(losses: &Losses) {
    for name in &losses.renamed {
        print_line(&format!(
            "renamed: the name of a queue is lost; the queue is now {name}"
        ));
    }
    for name in &losses.without_settings {
        print_line(&format!(
            "lost: the settings of the topic {name}; it has those of a new topic"
        ));
    }
    for name in &losses.dropped {
        print_line(&format!(
            "lost: an older queue {name} with its messages; a newer queue has its name"
        ));
    }
    for (name, count) in &losses.may_return {
        print_line(&format!(
            "may come back: some of {count} messages of {name}, if they were deleted in the unreadable part"
        ));
    }
    if losses.secret_is_lost {
        print_line("lost: the secret that message ids are made with; every message gets a new id");
    }
    if !losses.gaps.is_empty() {
        print_line("pop receipts from before the repair become invalid");
    }
}

fn print_repaired(rebuilt: &Rebuilt) {
    print_line(&format!(
        "repaired: the new log starts at log position {}",
        rebuilt.position
    ));
    for file in &rebuilt.set_aside {
        print_line(&format!("set aside: {file}"));
    }
    print_line("Kew no longer reads these files; remove them when you do not need them");
}

fn listing(repair: &Repair) -> Value {
    let losses = repair.losses();
    let (queues, messages) = repair.kept();
    json!({
        "needed": repair.is_needed(),
        "refusal": repair.refusal().map(ToString::to_string),
        "damage": losses.damage.iter().map(|damage| json!({
            "file": damage.file,
            "offset": damage.offset,
            "what": damage.what,
        })).collect::<Vec<_>>(),
        "unreadable": losses.gaps.iter().map(|gap| json!({
            "file": gap.file,
            "offset": gap.offset,
            "from_position": gap.span.map(|(from, _)| from.as_u64()),
            "to_position": gap.span.map(|(_, to)| to.as_u64()),
            "what": gap.what,
        })).collect::<Vec<_>>(),
        "lost": losses.messages.iter().map(|message| json!({
            "account": &*message.queue.account,
            "queue": &*message.queue.name,
            "id": id(message),
            "sequence_number": message.sequence_number.as_u64(),
            "inserted": inserted(message),
            "size_bytes": message.size_bytes,
            "why": message.why,
        })).collect::<Vec<_>>(),
        "session_states_lost": losses.session_states.iter().map(|lost| json!({
            "namespace": &*lost.queue.account,
            "queue": &*lost.queue.name,
            "session": lost.session,
            "why": lost.why,
        })).collect::<Vec<_>>(),
        "rules_lost": losses.rules.iter().map(|lost| json!({
            "namespace": &*lost.topic.account,
            "topic": &*lost.topic.name,
            "may_be_old": lost.may_be_old,
            "dropped": lost.dropped,
            "subscriptions_with_all_messages": lost.opened.iter().map(|it| &*it.name).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "queues_renamed": losses.renamed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "topics_without_settings": losses.without_settings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "queues_lost": losses.dropped.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "may_come_back": losses.may_return.iter().map(|(name, count)| json!({
            "account": &*name.account,
            "queue": &*name.name,
            "messages_max": count,
        })).collect::<Vec<_>>(),
        "secret_lost": losses.secret_is_lost,
        "kept": { "queues": queues, "messages": messages },
    })
}

fn repaired(rebuilt: &Rebuilt) -> Value {
    json!({
        "repaired": {
            "position": rebuilt.position.as_u64(),
            "rewritten": rebuilt.rewritten,
            "set_aside": rebuilt.set_aside,
        }
    })
}

/// The message's name in its service.
fn shown_as(message: &LostMessage) -> String {
    match message.queue.service {
        Service::QueueStorage => id(message).unwrap_or_else(|| "(unknown id)".into()),
        Service::ServiceBus => format!("number {}", message.sequence_number.as_u64()),
    }
}

/// The message's id as Queue Storage shows it.
fn id(message: &LostMessage) -> Option<String> {
    if message.queue.service != Service::QueueStorage {
        return None;
    }
    let id = u128::from_be_bytes(*message.id?.as_bytes());
    let hex = format!("{id:032x}");
    let groups = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    Some(groups.join("-"))
}

/// When it was sent: a time, or the times before and after it.
fn inserted(message: &LostMessage) -> String {
    let text = |time: kew_broker::Timestamp| {
        i64::try_from(time.as_ms())
            .ok()
            .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
            .map_or("at an unknown time".into(), |time| time.to_string())
    };
    if message.inserted_from == message.inserted_until {
        text(message.inserted_from)
    } else {
        format!(
            "{}/{}",
            text(message.inserted_from),
            text(message.inserted_until)
        )
    }
}
