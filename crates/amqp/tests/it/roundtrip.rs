//! Encoded values decode to the same: every type, every performative, with any fields.

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{
    Composite, Encode, Map, Raw, Reader, Symbol, Symbols, Text, Timestamp, Uuid, Value,
    write_described, write_list, write_map,
};
use kew_amqp::error::Error;
use kew_amqp::message::{Header, MessageId, Properties};
use kew_amqp::performative::{
    Attach, Begin, Close, Coordinator, Declare, Declared, DeliveryState, Detach, Discharge,
    Disposition, End, Flow, Modified, Open, Outcome, Performative, Received, ReceiverSettleMode,
    Rejected, Role, SenderSettleMode, Source, Tag, Target, TargetNode, TransactionalState,
    Transfer,
};
use kew_amqp::sasl::{
    SaslChallenge, SaslCode, SaslFrame, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

fn text() -> impl Strategy<Value = Text> {
    prop_oneof![any::<String>(), "x{250,260}"].prop_map(Text::from)
}

fn symbol() -> impl Strategy<Value = Symbol> {
    "[ -~]{0,12}|[a-z]{250,260}".prop_map(|name: String| Symbol::new(&name).unwrap())
}

fn binary() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<u8>().prop_map(Value::Ubyte),
        any::<u16>().prop_map(Value::Ushort),
        prop_oneof![any::<u32>(), 0..300u32].prop_map(Value::Uint),
        prop_oneof![any::<u64>(), 0..300u64].prop_map(Value::Ulong),
        any::<i8>().prop_map(Value::Byte),
        any::<i16>().prop_map(Value::Short),
        prop_oneof![any::<i32>(), -200..200i32].prop_map(Value::Int),
        prop_oneof![any::<i64>(), -200..200i64].prop_map(Value::Long),
        any::<f32>().prop_map(Value::Float),
        any::<f64>().prop_map(Value::Double),
        any::<[u8; 4]>().prop_map(Value::Decimal32),
        any::<[u8; 8]>().prop_map(Value::Decimal64),
        any::<[u8; 16]>().prop_map(Value::Decimal128),
        any::<char>().prop_map(Value::Char),
        any::<i64>().prop_map(|t| Value::Timestamp(Timestamp(t))),
        any::<[u8; 16]>().prop_map(|id| Value::Uuid(Uuid(id))),
        binary().prop_map(Value::Binary),
        text().prop_map(Value::String),
        symbol().prop_map(Value::Symbol),
    ]
}

/// A value of any depth, in encoded form.
fn raw() -> impl Strategy<Value = Raw> {
    let leaf = scalar().prop_map(|value| Raw::of(&value));
    leaf.prop_recursive(4, 64, 8, |inner| {
        let list = vec(inner.clone(), 0..8).prop_map(|items| {
            build(|out| write_list(out, |list| items.iter().for_each(|item| list.field(item))))
        });
        let map = vec((inner.clone(), inner.clone()), 0..5).prop_map(|pairs| {
            build(|out| write_map(out, |map| pairs.iter().for_each(|(k, v)| map.entry(k, v))))
        });
        let described = (any::<u64>(), inner)
            .prop_map(|(code, value)| build(|out| write_described(out, code, |o| value.encode(o))));
        let array = vec(symbol(), 0..5).prop_map(|symbols| Symbols::new(&symbols));
        prop_oneof![
            list,
            map,
            described,
            array.prop_map(|array| build(|out| array.encode(out)))
        ]
    })
}

fn build(write: impl FnOnce(&mut BytesMut)) -> Raw {
    let mut out = BytesMut::new();
    write(&mut out);
    Raw::new(out.freeze()).unwrap()
}

fn map() -> impl Strategy<Value = Map> {
    vec((symbol(), raw()), 0..4)
        .prop_map(|pairs| Map::build(|map| pairs.iter().for_each(|(k, v)| map.entry(k, v))))
}

fn symbols() -> impl Strategy<Value = Symbols> {
    let several = vec(symbol(), 0..4).prop_map(|symbols| Symbols::new(&symbols));
    prop_oneof![Just(Symbols::default()), several]
}

fn tag() -> impl Strategy<Value = Tag> {
    vec(any::<u8>(), 0..=Tag::SIZE_MAX).prop_map(|tag| Tag::new(&tag).unwrap())
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Sender), Just(Role::Receiver)]
}

fn sender_mode() -> impl Strategy<Value = SenderSettleMode> {
    prop_oneof![
        Just(SenderSettleMode::Unsettled),
        Just(SenderSettleMode::Settled),
        Just(SenderSettleMode::Mixed)
    ]
}

fn receiver_mode() -> impl Strategy<Value = ReceiverSettleMode> {
    prop_oneof![
        Just(ReceiverSettleMode::First),
        Just(ReceiverSettleMode::Second)
    ]
}

/// A struct with a strategy for each field. There are more fields than tuples allow.
macro_rules! fields {
    ($type:ident { $($field:ident: $strategy:expr),* $(,)? }) => {{
        $(let $field = $strategy.boxed();)*
        Just(()).prop_perturb(move |(), mut rng| {
            let mut seed = [0; 32];
            rng.fill_bytes(&mut seed);
            let own = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
            let mut runner = TestRunner::new_with_rng(Default::default(), own);
            $type { $($field: $field.new_tree(&mut runner).unwrap().current(),)* }
        })
    }};
}

fn error() -> impl Strategy<Value = Error> {
    fields!(Error {
        condition: symbol(),
        description: of(text()),
        info: of(map())
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let modified = fields!(Modified {
        delivery_failed: of(any::<bool>()),
        undeliverable_here: of(any::<bool>()),
        message_annotations: of(map()),
    });
    prop_oneof![
        Just(Outcome::Accepted),
        of(error()).prop_map(|error| Outcome::Rejected(Rejected { error })),
        Just(Outcome::Released),
        modified.prop_map(Outcome::Modified),
        binary().prop_map(|txn_id| Outcome::Declared(Declared { txn_id })),
    ]
}

fn state() -> impl Strategy<Value = DeliveryState> {
    let received = fields!(Received {
        section_number: any::<u32>(),
        section_offset: any::<u64>()
    });
    let transactional = fields!(TransactionalState {
        txn_id: binary(),
        outcome: of(outcome())
    });
    prop_oneof![
        outcome().prop_map(DeliveryState::Outcome),
        received.prop_map(DeliveryState::Received),
        transactional.prop_map(DeliveryState::Transactional),
    ]
}

fn source() -> impl Strategy<Value = Source> {
    fields!(Source {
        address: of(text()),
        durable: 0..3u32,
        expiry_policy: of(symbol()),
        timeout: any::<u32>(),
        dynamic: any::<bool>(),
        dynamic_node_properties: of(map()),
        distribution_mode: of(symbol()),
        filter: of(map()),
        default_outcome: of(outcome().prop_map(|outcome| Raw::of(&outcome))),
        outcomes: symbols(),
        capabilities: symbols(),
    })
}

fn target() -> impl Strategy<Value = Target> {
    let node = fields!(TargetNode {
        address: of(text()),
        durable: 0..3u32,
        expiry_policy: of(symbol()),
        timeout: any::<u32>(),
        dynamic: any::<bool>(),
        dynamic_node_properties: of(map()),
        capabilities: symbols(),
    });
    let coordinator = fields!(Coordinator {
        capabilities: symbols()
    });
    prop_oneof![
        node.prop_map(Target::Node),
        coordinator.prop_map(Target::Coordinator)
    ]
}

fn performative() -> impl Strategy<Value = Performative> {
    let open = fields!(Open {
        container_id: text(),
        hostname: of(text()),
        max_frame_size: any::<u32>(),
        channel_max: any::<u16>(),
        idle_time_out: of(any::<u32>()),
        outgoing_locales: symbols(),
        incoming_locales: symbols(),
        offered_capabilities: symbols(),
        desired_capabilities: symbols(),
        properties: of(map()),
    });
    let begin = fields!(Begin {
        remote_channel: of(any::<u16>()),
        next_outgoing_id: any::<u32>(),
        incoming_window: any::<u32>(),
        outgoing_window: any::<u32>(),
        handle_max: any::<u32>(),
        offered_capabilities: symbols(),
        desired_capabilities: symbols(),
        properties: of(map()),
    });
    let attach = fields!(Attach {
        name: text(),
        handle: any::<u32>(),
        role: role(),
        snd_settle_mode: sender_mode(),
        rcv_settle_mode: receiver_mode(),
        source: of(source()),
        target: of(target()),
        unsettled: of(map()),
        incomplete_unsettled: any::<bool>(),
        initial_delivery_count: of(any::<u32>()),
        max_message_size: of(any::<u64>()),
        offered_capabilities: symbols(),
        desired_capabilities: symbols(),
        properties: of(map()),
    });
    let flow = fields!(Flow {
        next_incoming_id: of(any::<u32>()),
        incoming_window: any::<u32>(),
        next_outgoing_id: any::<u32>(),
        outgoing_window: any::<u32>(),
        handle: of(any::<u32>()),
        delivery_count: of(any::<u32>()),
        link_credit: of(any::<u32>()),
        available: of(any::<u32>()),
        drain: any::<bool>(),
        echo: any::<bool>(),
        properties: of(map()),
    });
    let transfer = fields!(Transfer {
        handle: any::<u32>(),
        delivery_id: of(any::<u32>()),
        delivery_tag: of(tag()),
        message_format: of(any::<u32>()),
        settled: of(any::<bool>()),
        more: any::<bool>(),
        rcv_settle_mode: of(receiver_mode()),
        state: of(state()),
        resume: any::<bool>(),
        aborted: any::<bool>(),
        batchable: any::<bool>(),
    });
    let disposition = fields!(Disposition {
        role: role(),
        first: any::<u32>(),
        last: of(any::<u32>()),
        settled: any::<bool>(),
        state: of(state()),
        batchable: any::<bool>(),
    });
    let detach = fields!(Detach {
        handle: any::<u32>(),
        closed: any::<bool>(),
        error: of(error())
    });
    prop_oneof![
        open.prop_map(|open| Performative::Open(Box::new(open))),
        begin.prop_map(Performative::Begin),
        attach.prop_map(|attach| Performative::Attach(Box::new(attach))),
        flow.prop_map(Performative::Flow),
        transfer.prop_map(Performative::Transfer),
        disposition.prop_map(Performative::Disposition),
        detach.prop_map(Performative::Detach),
        of(error()).prop_map(|error| Performative::End(End { error })),
        of(error()).prop_map(|error| Performative::Close(Close { error })),
    ]
}

fn sasl() -> impl Strategy<Value = SaslFrame> {
    let init = fields!(SaslInit {
        mechanism: symbol(),
        initial_response: of(binary()),
        hostname: of(text()),
    });
    let code = prop_oneof![
        Just(SaslCode::Ok),
        Just(SaslCode::Auth),
        Just(SaslCode::System),
        Just(SaslCode::SystemPermanent),
        Just(SaslCode::SystemTemporary)
    ];
    let outcome = fields!(SaslOutcome {
        code: code,
        additional_data: of(binary())
    });
    let mechanisms = vec(symbol(), 1..5).prop_map(|symbols| Symbols::new(&symbols));
    prop_oneof![
        mechanisms.prop_map(|sasl_server_mechanisms| {
            SaslFrame::Mechanisms(SaslMechanisms {
                sasl_server_mechanisms,
            })
        }),
        init.prop_map(SaslFrame::Init),
        binary().prop_map(|challenge| SaslFrame::Challenge(SaslChallenge { challenge })),
        binary().prop_map(|response| SaslFrame::Response(SaslResponse { response })),
        outcome.prop_map(SaslFrame::Outcome),
    ]
}

fn any_id() -> impl Strategy<Value = MessageId> {
    prop_oneof![
        any::<u64>().prop_map(MessageId::Ulong),
        any::<[u8; 16]>().prop_map(|id| MessageId::Uuid(Uuid(id))),
        binary().prop_map(MessageId::Binary),
        text().prop_map(MessageId::String),
    ]
}

fn properties() -> impl Strategy<Value = Properties> {
    fields!(Properties {
        message_id: of(any_id()),
        user_id: of(binary()),
        to: of(text()),
        subject: of(text()),
        reply_to: of(text()),
        correlation_id: of(any_id()),
        content_type: of(symbol()),
        content_encoding: of(symbol()),
        absolute_expiry_time: of(any::<i64>().prop_map(Timestamp)),
        creation_time: of(any::<i64>().prop_map(Timestamp)),
        group_id: of(text()),
        group_sequence: of(any::<u32>()),
        reply_to_group_id: of(text()),
    })
}

fn header() -> impl Strategy<Value = Header> {
    fields!(Header {
        durable: any::<bool>(),
        priority: of(any::<u8>()),
        ttl: of(any::<u32>()),
        first_acquirer: any::<bool>(),
        delivery_count: any::<u32>(),
    })
}

fn check<T: Composite + PartialEq + Debug>(value: &T) {
    let mut out = BytesMut::new();
    value.write(&mut out);
    let bytes = out.freeze();
    let mut reader = Reader::new(&bytes);
    assert_eq!(T::read(&mut reader).as_ref(), Ok(value));
    assert!(reader.is_empty());
    assert!(Raw::new(bytes.clone()).is_ok());
    for end in 0..bytes.len() {
        let short = bytes.slice(..end);
        assert!(T::read(&mut Reader::new(&short)).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values(raw in raw()) {
        let value = raw.value();
        let mut out = BytesMut::new();
        value.encode(&mut out);
        prop_assert_eq!(&out.freeze(), raw.as_bytes(), "the encoding is the only one");
    }

    #[test]
    fn performatives(performative in performative(), payload in binary()) {
        let mut out = BytesMut::new();
        performative.encode(&mut out);
        out.extend_from_slice(&payload);
        prop_assert_eq!(Performative::decode(&out.freeze()), Ok((performative, payload)));
    }

    #[test]
    fn sasl_frames(frame in sasl()) {
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        prop_assert_eq!(SaslFrame::decode(&out.freeze()), Ok(frame));
    }

    #[test]
    fn sections_and_transactions(
        header in header(),
        properties in properties(),
        discharge in fields!(Discharge { txn_id: binary(), fail: of(any::<bool>()) }),
        declare in fields!(Declare { global_id: of(raw().prop_filter("null is none", |raw| raw.value() != Value::Null)) }),
    ) {
        check(&header);
        check(&properties);
        check(&discharge);
        check(&declare);
    }
}
