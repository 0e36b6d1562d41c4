//! Where copies go: the subscriptions, what each selects, and what of a message must be in each of them.

use std::collections::BTreeMap;

use kew_client::{
    BusAdmin, BusClient, CorrelationFilter, Filter, FilterValue, QueueSettings, RuleSettings, Sql,
    SubscriptionSettings, TopicSettings,
};

use super::number_in;
use crate::bus_load::peek_all;

pub(super) const TOPIC: &str = "copied";
/// Forwards to the topic.
pub(super) const ENTRANCE: &str = "to-copied";
/// Gets what one subscription forwards.
const SINK: &str = "from-copied";
/// Gets what another one forwards, and copies it again.
const SECOND: &str = "copied-again";
/// The subscription that clients receive from.
pub(super) const USED: &str = "used";
/// Deferred copies of it and their locks last longer than a test.
const DELIVERIES_MAX: u32 = 1000;

/// Subscriptions of the topic that only gather copies.
const GATHERING: u64 = 48;

/// What rules see of a message is its number modulo this.
pub(super) const KINDS: u64 = 5;
/// The kind on which a rule fails.
const FAILS: u64 = 4;

/// Which messages a place gets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Selects {
    All,
    /// By an SQL filter.
    Kind(u64),
    /// By a correlation filter.
    Correlated(u64),
    /// All but those of kind 1 or 2: its rule changes between the two.
    Changing,
    /// All, and those of this kind once more, with a mark of the rule's action.
    Marked(u64),
    /// All. Without a session they become dead letters.
    Sessions,
    /// All. One kind becomes dead letters, because the filter fails.
    Failing,
}

/// How many copies of one message are in a place, and in its dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Copies {
    pub(super) live: u64,
    /// Of these, the ones that an action has marked.
    pub(super) marked: u64,
    pub(super) dead: u64,
}

impl Copies {
    const ONE: Self = Self {
        live: 1,
        marked: 0,
        dead: 0,
    };
    const DEAD: Self = Self {
        live: 0,
        marked: 0,
        dead: 1,
    };
}

impl Selects {
    /// What must be there of a message that was accepted. `None` if a change of a rule decides: one copy, or nothing.
    fn copies(self, number: u64) -> Option<Copies> {
        let kind = number % KINDS;
        let one_if = |it| if it { Copies::ONE } else { Copies::default() };
        Some(match self {
            Self::All => Copies::ONE,
            Self::Kind(wanted) | Self::Correlated(wanted) => one_if(kind == wanted),
            Self::Changing if kind == 1 || kind == 2 => return None,
            Self::Changing => Copies::ONE,
            Self::Marked(wanted) if kind == wanted => Copies {
                live: 2,
                marked: 1,
                dead: 0,
            },
            Self::Marked(_) => Copies::ONE,
            Self::Sessions if session(number).is_none() => Copies::DEAD,
            Self::Failing if kind == FAILS => Copies::DEAD,
            Self::Sessions | Self::Failing => Copies::ONE,
        })
    }

    /// Whether these may be there of a message that has arrived, or has not.
    pub(super) fn allows(self, number: u64, has_arrived: bool, found: Copies) -> bool {
        match self.copies(number) {
            _ if !has_arrived => found == Copies::default(),
            Some(all) => found == all,
            None => found.live <= 1 && found.dead == 0,
        }
    }

    pub(super) fn rule(self, is_other: bool) -> RuleSettings {
        let filter = match self {
            Self::All | Self::Marked(_) | Self::Sessions => Filter::True,
            Self::Kind(kind) => sql(format!("kind = {kind}")),
            Self::Correlated(kind) => Filter::Correlation(Box::new(CorrelationFilter {
                properties: vec![("kind".to_owned(), FilterValue::Long(kind.cast_signed()))],
                ..CorrelationFilter::default()
            })),
            Self::Changing if is_other => sql("kind <> 2".to_owned()),
            Self::Changing => sql("kind <> 1".to_owned()),
            Self::Failing => sql(format!("10 / (kind - {FAILS}) <> 0")),
        };
        RuleSettings {
            filter,
            ..RuleSettings::default()
        }
    }
}

fn sql(text: String) -> Filter {
    Filter::Sql(Sql::new(text))
}

/// The session of a message, if it has one.
pub(super) fn session(number: u64) -> Option<String> {
    number.is_multiple_of(3).then(|| (number % 7).to_string())
}

pub(super) fn of_topic(topic: &str, name: &str) -> String {
    format!("{topic}/subscriptions/{name}")
}

fn gathering(number: u64) -> Selects {
    match number % 8 {
        0 | 7 => Selects::All,
        1 => Selects::Kind(number % KINDS),
        2 => Selects::Correlated(number % KINDS),
        3 => Selects::Changing,
        4 => Selects::Marked(number % KINDS),
        5 => Selects::Sessions,
        _ => Selects::Failing,
    }
}

/// The subscriptions whose rule changes.
pub(super) fn changing() -> Vec<String> {
    let all = (0..GATHERING).filter(|it| matches!(gathering(*it), Selects::Changing));
    all.map(|it| format!("s{it}")).collect()
}

/// Every place that keeps copies, but for the one that clients receive from.
pub(super) fn places() -> Vec<(String, Selects)> {
    let gathering = (0..GATHERING).map(|it| (of_topic(TOPIC, &format!("s{it}")), gathering(it)));
    let others = [
        (SINK.to_owned(), Selects::All),
        (of_topic(SECOND, "all"), Selects::All),
        (of_topic(SECOND, "some"), Selects::Kind(3)),
    ];
    gathering.chain(others).collect()
}

/// Every entity in which a message is on its way.
pub(super) fn ways() -> [String; 5] {
    [
        ENTRANCE.to_owned(),
        TOPIC.to_owned(),
        of_topic(TOPIC, "to-queue"),
        of_topic(TOPIC, "to-topic"),
        SECOND.to_owned(),
    ]
}

pub(super) async fn create(admin: &BusAdmin) {
    let queue = |to: Option<&str>| QueueSettings {
        forward_to: to.map(str::to_owned),
        ..QueueSettings::default()
    };
    for topic in [TOPIC, SECOND] {
        let created = admin.create_topic(topic, &TopicSettings::default()).await;
        created.expect("created");
    }
    for (name, to) in [(ENTRANCE, Some(TOPIC)), (SINK, None)] {
        admin.create_queue(name, &queue(to)).await.expect("created");
    }
    for number in 0..GATHERING {
        subscribe(admin, TOPIC, &format!("s{number}"), gathering(number), None).await;
    }
    subscribe(admin, TOPIC, USED, Selects::All, None).await;
    subscribe(admin, TOPIC, "to-queue", Selects::All, Some(SINK)).await;
    subscribe(admin, TOPIC, "to-topic", Selects::All, Some(SECOND)).await;
    subscribe(admin, SECOND, "all", Selects::All, None).await;
    subscribe(admin, SECOND, "some", Selects::Kind(3), None).await;
}

async fn subscribe(
    admin: &BusAdmin,
    topic: &str,
    name: &str,
    selects: Selects,
    forward_to: Option<&str>,
) {
    let settings = SubscriptionSettings {
        requires_session: Some(matches!(selects, Selects::Sessions)),
        max_delivery_count: Some(DELIVERIES_MAX),
        forward_to: forward_to.map(str::to_owned),
        ..SubscriptionSettings::default()
    };
    let created = admin.create_subscription(topic, name, &settings).await;
    created.expect("created");
    let rule = selects.rule(false);
    let set = admin.update_rule(topic, name, "$Default", &rule).await;
    set.expect("replaced");
    if let Selects::Marked(kind) = selects {
        let rule = RuleSettings {
            action: Some(Sql::new("SET mark = 'yes'")),
            ..Selects::Kind(kind).rule(false)
        };
        let created = admin.create_rule(topic, name, "marks", &rule).await;
        created.expect("created");
    }
}

/// All copies in a place and in its dead letters, by the number of the message.
pub(super) async fn look(client: &BusClient, place: &str) -> BTreeMap<u64, Copies> {
    let mut found = BTreeMap::<u64, Copies>::new();
    for message in peek_all(client, place).await {
        let copies = found.entry(number_in(&message)).or_default();
        copies.live += 1;
        copies.marked += u64::from(message.property("mark").is_some());
    }
    for message in peek_all(client, &format!("{place}/$deadletterqueue")).await {
        found.entry(number_in(&message)).or_default().dead += 1;
    }
    found
}
