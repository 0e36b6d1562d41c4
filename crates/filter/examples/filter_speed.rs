//! What rules cost, in processor time: filters on a decoded message with 8 properties; 2,000 correlation rules of which
//! one matches, by the index and one by one; reading and compiling the stored definitions of 100,000 correlation rules
//! and 2,000 SQL rules, with the memory of the compiled rules; and many rules that are candidates for one message.
//!
//! `cargo run --release -p kew-filter --example filter_speed`

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::hint::black_box;
use std::time::Duration;

use kew_filter::{
    CorrelationFilter, Definition, Equality, Filter, FilterDefinition, Matches, Message, NewIds,
    OwnedValue, Parameters, RuleId, RuleSet, SqlDefinition, SqlFilter, SystemProperty, Value,
    same_name,
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
    // The smaller one first: it would find the memory of the larger one.
    compiled("2,000 SQL rules", 2_000, sql_rule);
    compiled("100,000 correlation rules", 100_000, correlation_rule);
    many_candidates(&message);
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

fn correlation_rule(id: RuleId) -> FilterDefinition {
    FilterDefinition::Correlation(vec![
        Equality::System {
            property: SystemProperty::Label,
            text: "order".into(),
        },
        Equality::User {
            name: "customer".into(),
            value: OwnedValue::Text(format!("customer-{id}").into()),
        },
    ])
}

fn sql_rule(id: RuleId) -> FilterDefinition {
    let text = format!(
        "color = 'red' AND (size > {id} OR region IN ('eu', 'us')) AND sys.Label LIKE 'a%{id}%'"
    );
    FilterDefinition::Sql(SqlDefinition {
        text: text.into(),
        parameters: Vec::new(),
        compatibility_level: Some(20),
    })
}

/// Bytes of memory that this process has on the machine.
fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = status.split(' ').nth(1).expect("the second number");
    pages.parse::<f64>().expect("a number of pages") * 4096.0
}

/// From stored bytes to rules that can be evaluated, as a start does it.
fn compiled(name: &str, count: RuleId, rule: impl Fn(RuleId) -> FilterDefinition) {
    let stored: Vec<Box<[u8]>> = (0..count)
        .map(|id| Definition::new(rule(id), None).expect("it is small"))
        .map(|definition| definition.bytes().into())
        .collect();
    let stored_bytes: usize = stored.iter().map(|bytes| bytes.len()).sum();
    let before = resident_bytes();
    let begin = used();
    let mut rules = RuleSet::default();
    for (id, bytes) in (0..).zip(&stored) {
        let definition = Definition::decode(bytes).expect("it was encoded");
        let (filter, _) = definition.compile().expect("it is valid");
        rules.insert(id, filter);
    }
    let ms = (used() - begin).as_secs_f64() * 1e3;
    let mib = (resident_bytes() - before) / 1_048_576.0;
    let each = mib * 1_048_576.0 / f64::from(u32::try_from(count).expect("it is small"));
    println!(
        "{ms:8.1} ms  to read and compile {name} of {stored_bytes} bytes: {mib:.1} MiB, {each:.0} bytes each"
    );
    drop(black_box(rules));
}

/// Rules that all need the same value, so that the index cannot choose among them.
fn many_candidates(message: &Decoded) {
    let mut rules = RuleSet::default();
    for id in 0..100_000 {
        let filter = CorrelationFilter::default()
            .user("color", OwnedValue::Text("red".into()))
            .user("region", OwnedValue::Text("eu".into()));
        rules.insert(id, Filter::Correlation(filter));
    }
    let mut matches = Matches::default();
    let ids = |_: RuleId, _: u32| [0; 16];
    let begin = cost(|| rules.begin(black_box(message), &mut matches));
    println!("{begin:8.0} ns  to collect 100,000 candidates");
    let mut parts = 0;
    let start = used();
    while !matches.is_done() {
        rules.go_on(message, &ids, 50_000, &mut matches);
        parts += 1;
    }
    let ms = (used() - start).as_secs_f64() * 1e3;
    assert_eq!(matches.matching().len(), 100_000);
    println!("{ms:8.1} ms  to evaluate them, in {parts} parts of 50,000 steps");
}
