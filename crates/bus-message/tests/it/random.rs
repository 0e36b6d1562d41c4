//! The view against the decoder of AMQP: the same properties, and no message that the decoder refuses.

use bytes::Bytes;
use kew_amqp::codec::{Raw, Symbol, Timestamp, Uuid, Value as Amqp};
use kew_amqp::message::Message as Encoded;
use kew_bus_message::value_of;
use kew_filter::{Message as _, Value};
use proptest::prelude::*;

use crate::view::{view, with};

fn values() -> impl Strategy<Value = Amqp> {
    prop_oneof![
        Just(Amqp::Null),
        any::<bool>().prop_map(Amqp::Boolean),
        any::<u8>().prop_map(Amqp::Ubyte),
        any::<u16>().prop_map(Amqp::Ushort),
        any::<u32>().prop_map(Amqp::Uint),
        any::<u64>().prop_map(Amqp::Ulong),
        any::<i8>().prop_map(Amqp::Byte),
        any::<i16>().prop_map(Amqp::Short),
        any::<i32>().prop_map(Amqp::Int),
        any::<i64>().prop_map(Amqp::Long),
        any::<f32>().prop_map(Amqp::Float),
        any::<f64>().prop_map(Amqp::Double),
        any::<char>().prop_map(Amqp::Char),
        any::<i64>().prop_map(|ms| Amqp::Timestamp(Timestamp(ms))),
        any::<[u8; 16]>().prop_map(|id| Amqp::Uuid(Uuid(id))),
        any::<[u8; 4]>().prop_map(Amqp::Decimal32),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|it| Amqp::Binary(it.into())),
        "[a-cé]{0,200}".prop_map(|it| Amqp::String(it.into())),
        "[a-c]{0,9}".prop_map(|it| Amqp::Symbol(Symbol::new(&it).unwrap())),
    ]
}

fn properties() -> impl Strategy<Value = Vec<(String, Amqp)>> {
    prop::collection::vec(("[a-cA-C]{0,2}", values()), 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_view_finds_what_looking_at_all_finds(properties in properties(), name in "[a-cA-C]{0,2}") {
        let borrowed: Vec<_> = properties.iter().map(|(name, it)| (&**name, it.clone())).collect();
        let message = with(&borrowed);
        let view = view(&message).unwrap();
        let exact = properties.iter().find(|(it, _)| *it == name);
        let found = exact.or_else(|| properties.iter().find(|(it, _)| it.eq_ignore_ascii_case(&name)));
        let expected = found.map(|(_, value)| Raw::of(value));
        let expected = expected.as_ref().map(|raw| value_of(raw.as_bytes()).unwrap().to_owned());
        let shown = |value: Option<kew_filter::OwnedValue>| format!("{value:?}");
        prop_assert_eq!(shown(view.user(&name).map(Value::to_owned)), shown(expected));
        prop_assert_eq!(view.user_count(), properties.len());
    }

    /// What the decoder accepts the view accepts, with the same number of properties. Nothing panics.
    #[test]
    fn changed_messages_are_read_as_the_decoder_reads_them(
        properties in properties(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let borrowed: Vec<_> = properties.iter().map(|(name, it)| (&**name, it.clone())).collect();
        let mut bytes = with(&borrowed).to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let bytes = Bytes::from(bytes);
        let viewed = view(&bytes);
        if let Ok(message) = Encoded::scan(bytes.clone()) {
            let named = message.application_properties();
            prop_assert_eq!(viewed.unwrap().user_count(), named.named().count());
        }
    }
}
