//! Actions on messages: an overlay on the encoded message against the changes to the decoded one.

use std::collections::BTreeMap;

use bytes::Bytes;
use kew_amqp::codec::Timestamp;
use kew_amqp::message::Message;
use kew_bus_message::{AmqpFormat, Known, MESSAGE_ID_LENGTH_MAX, View, overlay_of};
use kew_engine::bus::{Format as _, Made, Unfit};
use kew_filter::{
    Action, Change, Message as _, OwnedValue, Parameters, SystemProperty as It, Target, Value,
};
use proptest::prelude::*;

use crate::plain::{Plain, SETTABLE, sent, settled};

fn texts() -> impl Strategy<Value = OwnedValue> {
    "[a-cé]{0,9}".prop_map(|it| OwnedValue::Text(it.into()))
}

fn values() -> impl Strategy<Value = OwnedValue> {
    let plain = |value: Value<'static>| OwnedValue::Plain(value);
    prop_oneof![
        Just(plain(Value::Null)),
        Just(plain(Value::Other)),
        any::<bool>().prop_map(move |it| plain(Value::Boolean(it))),
        any::<i32>().prop_map(move |it| plain(Value::Int(it))),
        any::<i64>().prop_map(move |it| plain(Value::Long(it))),
        (-9i32..9).prop_map(move |it| plain(Value::Double(f64::from(it) / 2.0))),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(|it| OwnedValue::Binary(it.into())),
        texts(),
    ]
}

/// A value that this property can have in a message.
fn value_of(property: It) -> BoxedStrategy<OwnedValue> {
    match property {
        It::TimeToLive => (1u64..1 << 40)
            .prop_map(|ms| OwnedValue::Plain(Value::Duration(i64::try_from(ms).unwrap() * 10_000)))
            .boxed(),
        It::ScheduledEnqueueTimeUtc => (-9i64..1 << 40)
            .prop_map(|ms| OwnedValue::Plain(Value::Timestamp(ms)))
            .boxed(),
        It::ContentType | It::MessageId => "[a-c]{1,9}"
            .prop_map(|it| OwnedValue::Text(it.into()))
            .boxed(),
        _ => texts().boxed(),
    }
}

fn messages() -> impl Strategy<Value = Plain> {
    let user = prop::collection::vec(("[a-cA-C]", values()), 0..20);
    let system: Vec<_> = SETTABLE
        .into_iter()
        .map(|it| prop::option::of(value_of(it).prop_map(move |value| (it, value))))
        .collect();
    let created_ms = prop::option::of(0i64..1 << 41);
    (user, system, created_ms).prop_map(|(user, system, created_ms)| {
        let plain = Plain {
            user,
            system: system.into_iter().flatten().collect(),
            created_ms,
        };
        plain.as_sent()
    })
}

fn statement() -> impl Strategy<Value = String> {
    let settable = SETTABLE.map(|it| format!("sys.{}", it.name()));
    let property = prop_oneof![
        "[a-cA-C]",
        prop::sample::select(settable.to_vec()),
        Just("[new one]".to_owned()),
    ];
    let expression = prop_oneof![
        property.clone(),
        prop::sample::select(vec![
            "'x'",
            "NULL",
            "5",
            "2.5",
            "TRUE",
            "newid()",
            "'é'",
            "''",
            "@symbol",
            "@decimal",
            "@at",
            "@life",
            "@short",
            "@long",
            "@before",
            "@char",
            "@uuid",
            "@binary",
            "'00:10:00'",
            "'60.00:00:00'",
            "a + 1",
            "sys.Label + 'x'",
            "a + b",
            "@text",
            "@wide",
        ])
        .prop_map(str::to_owned),
    ];
    prop_oneof![
        3 => (property.clone(), expression).prop_map(|(to, from)| format!("SET {to} = {from};")),
        1 => property.prop_map(|it| format!("REMOVE {it};")),
    ]
}

/// What an action or a settlement changes.
#[derive(Clone, Debug)]
enum Step {
    Action(String),
    Settlement(BTreeMap<String, OwnedValue>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let action = prop::collection::vec(statement(), 1..6);
    let is_set = |value: &OwnedValue| value.as_value() != Value::Null;
    let value = values().prop_filter("a settlement sets no null", is_set);
    let settlement = prop::collection::btree_map("[a-cA-C]", value, 1..4);
    let step = prop_oneof![
        3 => action.prop_map(|it| Step::Action(it.concat())),
        1 => settlement.prop_map(Step::Settlement),
    ];
    prop::collection::vec(step, 1..4)
}

fn parameters() -> Parameters {
    let mut parameters = Parameters::default();
    let decimal = kew_filter::Decimal::new(true, 75, -1).unwrap();
    for (name, value) in [
        ("decimal", Value::Decimal(decimal)),
        ("at", Value::Timestamp(1_767_225_600_000)),
        ("before", Value::Timestamp(-5)),
        ("life", Value::Duration(6_000_000_001)),
        ("short", Value::Duration(1)),
        ("long", Value::Duration(90 * 864_000_000_000)),
        ("char", Value::Char('é')),
        ("uuid", Value::Uuid([7; 16])),
    ] {
        parameters.set(name, OwnedValue::Plain(value));
    }
    parameters.set("symbol", OwnedValue::Symbol("s".into()));
    parameters.set("binary", OwnedValue::Binary([0, 255].into()));
    parameters.set("text", OwnedValue::Text("x".repeat(200).into()));
    parameters.set("wide", OwnedValue::Text("ü".repeat(300).into()));
    parameters
}

/// Whether a message can have these changes.
fn fits(changes: &[Change]) -> bool {
    changes.iter().all(|change| {
        let to = change.to.as_ref().map(OwnedValue::as_value);
        let text = to.and_then(Value::as_text);
        match change.target {
            Target::User(_) => to != Some(Value::Other),
            Target::System(It::MessageId) => {
                text.is_some_and(|it| (1..=MESSAGE_ID_LENGTH_MAX).contains(&it.chars().count()))
            }
            Target::System(It::SessionId) => text.is_none_or(|it| it.len() <= 512),
            Target::System(It::ContentType) => text.is_none_or(str::is_ascii),
            Target::System(_) => true,
        }
    })
}

/// What the engine is told is what the changes say.
fn check_told(made: &Made, changes: &[Change], after: &Plain) {
    let is_changed = |property| {
        changes
            .iter()
            .any(|it| it.target == Target::System(property))
    };
    let text = |property| after.system(property).as_text().map(Into::into);
    let id = is_changed(It::MessageId).then(|| text(It::MessageId).unwrap());
    assert_eq!(made.message_id, id);
    let session = is_changed(It::SessionId).then(|| text(It::SessionId));
    assert_eq!(made.session, session);
    let life = is_changed(It::TimeToLive).then(|| match after.system(It::TimeToLive) {
        Value::Duration(ticks) => Some(u64::try_from(ticks / 10_000).unwrap()),
        _ => None,
    });
    assert_eq!(made.time_to_live_ms, life);
    let scheduled = It::ScheduledEnqueueTimeUtc;
    let at = is_changed(scheduled).then(|| match after.system(scheduled) {
        Value::Timestamp(ms) => u64::try_from(ms).ok(),
        _ => None,
    });
    let told = made
        .scheduled_at
        .map(|at| at.map(kew_engine::Timestamp::as_ms));
    assert_eq!(told, at);
}

fn check(message: &Plain, steps: &[Step]) {
    let encoded = message.encoded();
    let parameters = parameters();
    let ids = |nth: u32| [nth.to_le_bytes()[0]; 16];
    let mut plain = message.clone();
    let mut overlays: Vec<Bytes> = Vec::new();
    for step in steps {
        let view = View::read_changed(&encoded, &overlays, Known::default()).unwrap();
        let overlay = match step {
            Step::Settlement(changes) => {
                plain.settle(changes);
                overlay_of(&settled(changes)).unwrap()
            }
            Step::Action(text) => {
                let action = Action::parse(text, &parameters).unwrap();
                let changes = action.changes(&view, &ids);
                let of_plain = action.changes(&plain, &ids);
                assert_eq!(format!("{changes:?}"), format!("{of_plain:?}"), "{text}");
                let Ok(changes) = changes else { continue };
                let made = AmqpFormat.made_by(&changes);
                assert_eq!(made.is_ok(), fits(&changes), "{text}: {made:?}");
                let Ok(made) = made else { continue };
                plain.change(&changes);
                check_told(&made, &changes, &plain);
                made.overlay
            }
        };
        drop(view);
        overlays.push(overlay);
        let view = AmqpFormat
            .view(&encoded, &overlays, Known::default())
            .unwrap();
        assert_eq!(Plain::shown(&*view), Plain::shown(&plain));
        let sent = sent(&encoded, &overlays);
        let (decoded, expected) = (Plain::decoded(&sent), plain.as_sent());
        assert_eq!(Plain::shown(&decoded), Plain::shown(&expected));
        assert_eq!(decoded.created_ms, message.created_ms);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_overlay_on_the_bytes_is_the_action_on_the_message(message in messages(), steps in steps()) {
        check(&message, &steps);
    }
}

fn change(target: Target, to: OwnedValue) -> Change {
    let to = Some(to);
    Change { target, to }
}

fn text(text: &str) -> OwnedValue {
    OwnedValue::Text(text.into())
}

fn error_of(target: Target, to: Option<OwnedValue>) -> String {
    let made = AmqpFormat.made_by(&[Change { target, to }]);
    made.unwrap_err().to_string()
}

#[test]
fn an_action_cannot_make_what_no_message_can_have() {
    let long = |count| Some(text(&"é".repeat(count)));
    let life = |ticks| Some(OwnedValue::Plain(Value::Duration(ticks)));
    let id = "the action cannot set sys.MessageId: expected a text of 1 to 128 characters";
    let name = |name: &str| Target::User(name.into());
    for (target, to, error) in [
        (Target::System(It::MessageId), None, id),
        (Target::System(It::MessageId), long(0), id),
        (Target::System(It::MessageId), long(129), id),
        (
            Target::System(It::SessionId),
            long(257),
            "the action cannot set sys.SessionId: expected a text of at most 512 bytes",
        ),
        (
            Target::System(It::ContentType),
            long(1),
            "the action cannot set sys.ContentType: expected a text of ASCII characters",
        ),
        (
            Target::System(It::TimeToLive),
            life(0),
            "the action cannot set sys.TimeToLive: expected a duration above zero",
        ),
        (
            Target::System(It::TimeToLive),
            life(-1),
            "the action cannot set sys.TimeToLive: expected a duration above zero",
        ),
        (
            Target::System(It::TimeToLive),
            long(1),
            "the action cannot set sys.TimeToLive: expected a duration above zero",
        ),
        (
            Target::System(It::ScheduledEnqueueTimeUtc),
            long(1),
            "the action cannot set sys.ScheduledEnqueueTimeUtc: expected a timestamp",
        ),
        (
            Target::System(It::Label),
            Some(OwnedValue::Plain(Value::Int(1))),
            "the action cannot set sys.Label: expected a text",
        ),
        (
            Target::System(It::SequenceNumber),
            Some(OwnedValue::Plain(Value::Long(1))),
            "the action cannot set sys.SequenceNumber: expected nothing, because only the service sets it",
        ),
        (
            name("a"),
            Some(OwnedValue::Plain(Value::Other)),
            "the action cannot set a: expected a value of one of AMQP's simple types",
        ),
        (
            name("a"),
            Some(OwnedValue::Symbol("é".into())),
            "the action cannot set a: expected a value of one of AMQP's simple types",
        ),
    ] {
        assert_eq!(error_of(target, to), error);
    }
    let longest = change(Target::System(It::MessageId), long(128).unwrap());
    let session = change(Target::System(It::SessionId), long(256).unwrap());
    AmqpFormat.made_by(&[longest, session]).unwrap();
}

#[test]
fn the_changes_of_an_action_are_bounded() {
    // The overlay has 26 bytes besides the text.
    let of = |size: usize| {
        let change = change(Target::User("a".into()), text(&"x".repeat(size)));
        AmqpFormat.made_by(&[change])
    };
    let most = of(32 * 1024 - 29).unwrap();
    assert_eq!(most.overlay.len(), 32 * 1024);
    let error = of(32 * 1024 - 28).unwrap_err();
    assert_eq!(
        error,
        Unfit::TooLarge {
            size_bytes: 32 * 1024 + 1
        }
    );
    assert_eq!(
        error.to_string(),
        "the changes of the action take 32769 bytes, the maximum is 32768"
    );
}

/// SDKs cannot read a time before the year 1 or behind the year 9999.
#[test]
fn no_time_that_an_action_makes_is_out_of_the_range_of_sdks() {
    let (first, last) = (-62_135_596_800_000, 253_402_300_799_999);
    for (ms, expected) in [(i64::MAX, last), (i64::MIN, first), (5, 5)] {
        let at = || OwnedValue::Plain(Value::Timestamp(ms));
        let changes = [
            change(Target::User("at".into()), at()),
            change(Target::System(It::ScheduledEnqueueTimeUtc), at()),
        ];
        let made = AmqpFormat.made_by(&changes).unwrap();
        let (encoded, overlays) = (Plain::default().encoded(), [made.overlay]);
        let view = View::read_changed(&encoded, &overlays, Known::default()).unwrap();
        assert_eq!(view.user("at"), Some(Value::Timestamp(expected)));
        let scheduled = view.system(It::ScheduledEnqueueTimeUtc);
        assert_eq!(scheduled, Value::Timestamp(expected));
    }
    // A life that begins when the message was made ends in time, too.
    let longest = OwnedValue::Plain(Value::Duration(i64::MAX));
    let made = AmqpFormat.made_by(&[change(Target::System(It::TimeToLive), longest)]);
    let created = Plain {
        created_ms: Some(1_767_225_600_000),
        ..Plain::default()
    };
    let sent = sent(&created.encoded(), &[made.unwrap().overlay]);
    let properties = Message::scan(sent).unwrap().properties().unwrap();
    assert_eq!(properties.absolute_expiry_time, Some(Timestamp(last)));
}
