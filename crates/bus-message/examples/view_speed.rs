//! What it costs to see an encoded message as rules do, in processor time: reading its sections, and a filter on it.
//!
//! `cargo run --release -p kew-bus-message --example view_speed`

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::hint::black_box;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map, Value};
use kew_amqp::message::{
    Header, MessageId, Properties, write_application_properties, write_data, write_head,
};
use kew_bus_message::{Known, View};
use kew_filter::{NewIds, Parameters, SqlFilter};
use rustix::time::{ClockId, clock_gettime};

/// How long each measurement runs.
const RUN: Duration = Duration::from_millis(500);

const FILTER: &str = "color = 'red' AND size > 10 AND sys.Label LIKE 'a%'";

/// The processor time of this thread, which other work on the machine does not change.
fn used() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(used.tv_sec).expect("it is positive");
    Duration::from_secs(seconds) + Duration::from_nanos(used.tv_nsec.unsigned_abs())
}

/// Nanoseconds of one call.
fn cost(mut work: impl FnMut()) -> f64 {
    let begin = used();
    let mut count = 0u32;
    while used() - begin < RUN {
        for _ in 0..100 {
            work();
        }
        count += 100;
    }
    (used() - begin).as_secs_f64() * 1e9 / f64::from(count)
}

/// A message with 8 application properties behind so many others, and a body of 1 KiB.
fn message(others: u32) -> Bytes {
    let mut out = BytesMut::new();
    let none = Map::default();
    write_head(&mut out, &Header::default(), &none, &none);
    let properties = Properties {
        message_id: Some(MessageId::String("0123456789abcdef".into())),
        subject: Some("abc".into()),
        ..Properties::default()
    };
    properties.encode(&mut out);
    let map = Map::build(|map| {
        for other in 0..others {
            map.entry(&*format!("other{other}"), &Value::Null);
        }
        map.entry("region", "eu");
        map.entry("tries", &1);
        map.entry("size", &20);
        map.entry("urgent", &false);
        map.entry("color", "red");
        map.entry("price", &Value::Double(1.5));
        map.entry("note", "a message about buses and trains");
        map.entry("customer", &Value::Long(1_234));
    });
    write_application_properties(&mut out, &map);
    write_data(&mut out, &[7; 1024]);
    out.freeze()
}

fn main() {
    let ids = |_: u32| [0; 16];
    let ids: &dyn NewIds = &ids;
    let filter = SqlFilter::parse(FILTER, &Parameters::default()).expect("it is valid");
    for others in [0, 92, 4_000] {
        let message = message(others);
        let properties = others + 8;
        let read = |message| View::read(message, Known::default()).expect("it is a message");
        let each = cost(|| drop(black_box(read(black_box(&message)))));
        println!("{each:8.0} ns  to read a message with {properties} properties");
        let view = read(&message);
        let each = cost(|| {
            let matched = filter.matches(black_box(&view), ids);
            assert_eq!(black_box(matched), Ok(true));
        });
        println!("{each:8.0} ns  {FILTER}, on it");
    }
}
