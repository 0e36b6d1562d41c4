//! What an evaluation costs: nanoseconds of processor time for filters on a decoded message with 8 properties, and for 2,000
//! correlation rules of which one matches, by the index and one by one.
//!
//! `cargo run --release -p kew-filter --example filter_speed`

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::hint::black_box;
use std::time::Duration;

use kew_filter::{
    CorrelationFilter, Filter, Matches, Message, NewIds, OwnedValue, Parameters, RuleId, RuleSet,
    SqlFilter, SystemProperty, Value, same_name,
};
use rustix::time::{ClockId, clock_gettime};

/// How long each measurement runs.
const RUN: Duration = Duration::from_millis(500);

const RULES: RuleId = 2_000;

const FILTERS: [&str; 5] = [
    "color = 'red'",
    "sys.Label LIKE 'a%'",
    "note LIKE '%b_s%'",
    "color = 'red' AND size > 10 AND sys.Label LIKE 'a%'",
    "size * 2 + 1 > 40 OR NOT EXISTS(owner) AND region IN ('eu', 'us', 'asia')",
];

struct Decoded {
    label: &'static str,
    user: [(&'static str, Value<'static>); 8],
}

impl Message for Decoded {
    fn user(&self, name: &str) -> Option<Value<'_>> {
        let exact = self.user.iter().find(|(it, _)| *it == name);
        let found = exact.or_else(|| self.user.iter().find(|(it, _)| same_name(it, name)));
        found.map(|(_, value)| *value)
    }

    fn system(&self, property: SystemProperty) -> Value<'_> {
        match property {
            SystemProperty::Label => Value::Text(self.label),
            _ => Value::Null,
        }
    }

    fn visit_user(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (name, value) in self.user {
            visit(name, value);
        }
    }
}

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

fn main() {
    let message = Decoded {
        label: "abc",
        user: [
            ("region", Value::Text("eu")),
            ("tries", Value::Int(1)),
            ("size", Value::Int(20)),
            ("urgent", Value::Boolean(false)),
            ("color", Value::Text("red")),
            ("price", Value::Double(1.5)),
            ("note", Value::Text("a message about buses and trains")),
            ("customer", Value::Long(1_234)),
        ],
    };
    let ids = |_: u32| [0; 16];
    let ids: &dyn NewIds = &ids;
    for text in FILTERS {
        let filter = SqlFilter::parse(text, &Parameters::default());
        let filter = filter.expect("the filters above are valid");
        let each = cost(|| {
            let matched = filter.matches(black_box(&message), ids);
            assert_eq!(black_box(matched), Ok(true));
        });
        println!("{each:8.0} ns  {:5.1} M/s  {text}", 1e3 / each);
    }
    many_rules(&message, ids);
}

fn many_rules(message: &Decoded, ids: &dyn NewIds) {
    let mut rules = RuleSet::default();
    let mut filters = Vec::new();
    for customer in 0..RULES {
        let value = Value::Long(i64::try_from(customer).expect("it is small"));
        let filter = CorrelationFilter::default()
            .system(SystemProperty::Label, "abc")
            .user("customer", value.to_owned());
        let filter = Filter::Correlation(filter);
        rules.insert(customer, filter.clone());
        filters.push(filter);
    }
    let mut one = RuleSet::default();
    let value: OwnedValue = Value::Long(1_234).to_owned();
    let filter = CorrelationFilter::default().user("customer", value);
    one.insert(0, Filter::Correlation(filter));
    let mut matches = Matches::default();
    for (name, rules) in [("1 correlation rule", &one), ("2,000 of them", &rules)] {
        let each = cost(|| {
            rules.find(black_box(message), ids, &mut matches);
            assert_eq!(matches.matching().len(), 1);
        });
        println!("{each:8.0} ns  by the index, {name}");
    }
    let each = cost(|| {
        let matching = filters
            .iter()
            .filter(|it| it.matches(message, ids) == Ok(true));
        assert_eq!(black_box(matching.count()), 1);
    });
    println!("{each:8.0} ns  one by one, 2,000 of them");
}
