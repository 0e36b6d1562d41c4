//! Overlays: changes to a message, which the log stores beside it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::Encode as _;
use kew_amqp::message::{Message as Encoded, write_application_properties, write_head};
use kew_bus_message::{AmqpFormat, Known, Merged, View};
use kew_engine::bus::Format as _;
use kew_filter::{Change, Message, OwnedValue, SystemProperty, Target, Value};
use kew_fuzz::gauge;
use kew_fuzz::mutate::{Input, change, changes};

use crate::amqp::MESSAGE;
use crate::{INPUT_SIZE_MAX, INPUTS, MEMORY_BASE_BYTES};

/// A settlement's overlay.
const SETTLED: &[u8] = b"\xc1\x17\x04\xa1\x05color\xa1\x04blue\xa1\x05count\x54\x07";

/// The overlay of an action with this time to live.
fn acted(ms: i64) -> Bytes {
    let text = |text: &str| OwnedValue::Text(text.into());
    let system = |property, to| Change {
        target: Target::System(property),
        to,
    };
    let user = |name: &str, to| Change {
        target: Target::User(name.into()),
        to,
    };
    let life = OwnedValue::Plain(Value::Duration(ms * 10_000));
    let changes = [
        system(SystemProperty::To, Some(text("Entity"))),
        system(SystemProperty::ContentType, Some(text("text/plain"))),
        system(SystemProperty::TimeToLive, Some(life)),
        system(SystemProperty::SessionId, None),
        user("k", Some(text("v"))),
        user("RuleName", Some(text("r"))),
        user("l", None),
    ];
    let made = AmqpFormat.made_by(&changes);
    made.expect("small changes").overlay
}

/// All that a rule sees of a message, except its size and a life that the header cannot say.
fn shown(message: &dyn Message) -> Vec<String> {
    let mut shown = Vec::new();
    message.visit_user(&mut |name, value| shown.push(format!("{name}={value:?}")));
    for property in SystemProperty::ALL {
        let value = match (property, message.system(*property)) {
            (SystemProperty::Size, _) => continue,
            (SystemProperty::TimeToLive, Value::Duration(ticks)) => {
                Value::Duration(ticks.min(i64::from(u32::MAX) * 10_000))
            }
            (_, value) => value,
        };
        shown.push(format!("{}={value:?}", property.name()));
    }
    shown
}

/// A message with its overlays is the same to rules and to receivers. Whether all overlays were read.
fn check(message: &Bytes, overlays: &[Bytes]) -> bool {
    let Ok(encoded) = Encoded::scan(message.clone()) else {
        return false;
    };
    let size_bytes = message.len() + overlays.iter().map(Bytes::len).sum::<usize>();
    let memory = MEMORY_BASE_BYTES + 64 * size_bytes;
    let merged = gauge::within(memory, || Merged::of(&encoded, overlays));
    let view = gauge::within(memory, || {
        View::read_changed(encoded.bytes(), overlays, Known::default())
    });
    let (Ok(merged), Ok(view)) = (&merged, &view) else {
        assert_eq!(merged.is_err(), view.is_err(), "{overlays:?}");
        return false;
    };
    let mut out = BytesMut::new();
    let annotations = &merged.message_annotations;
    write_head(
        &mut out,
        &merged.header,
        &encoded.delivery_annotations(),
        annotations,
    );
    merged.properties.encode(&mut out);
    write_application_properties(&mut out, &merged.application_properties);
    out.extend_from_slice(&encoded.body());
    let sent = out.freeze();
    let sent = View::read(&sent, Known::default()).expect("what is sent is a message");
    assert_eq!(shown(&sent), shown(view), "{overlays:?}");
    true
}

#[test]
fn overlays() {
    static READ: AtomicU64 = AtomicU64::new(0);
    let acted = [acted(600_000), acted(1 << 40)];
    let examples = [SETTLED, &acted[0], &acted[1]];
    bolero::check!()
        .with_iterations(INPUTS)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let input = &mut Input::new(bytes);
            let mut message = MESSAGE.to_vec();
            if input.byte().is_multiple_of(4) {
                change(&mut message, input);
            }
            let count = 1 + input.byte() % 3;
            let overlays: Vec<Bytes> = (0..count)
                .map(|_| match input.byte() {
                    kind @ 0..32 => examples[usize::from(kind) % examples.len()].to_vec(),
                    32..48 => input.piece().to_vec(),
                    kind => {
                        let mut overlay = examples[usize::from(kind) % examples.len()].to_vec();
                        match kind {
                            ..160 => change(&mut overlay, input),
                            _ => changes(&mut overlay, input),
                        }
                        overlay
                    }
                })
                .map(Bytes::from)
                .collect();
            READ.fetch_add(u64::from(check(&message.into(), &overlays)), Relaxed);
        });
    assert!(READ.load(Relaxed) > 0, "no overlay was read");
}
