//! Definitions of rules: bytes that stay readable, and what they mean.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kew_filter::limits::{DEFINITION_BYTES_MAX, EQUALITIES_MAX, PARAMETERS_MAX};
use kew_filter::{
    CompileError, CorrelationFilter, Decimal, DecodeError, Definition, DefinitionError, Equality,
    Filter, FilterDefinition, OwnedValue, SqlDefinition, SystemProperty, Value,
};
use proptest::prelude::*;

use crate::sample::{Sample, ids};

const GOLDEN: &str = include_str!("../golden/definitions-v1.txt");

fn sql(text: &str) -> SqlDefinition {
    SqlDefinition {
        text: text.into(),
        ..SqlDefinition::default()
    }
}

fn user(name: &str, value: OwnedValue) -> Equality {
    let name = name.into();
    Equality::User { name, value }
}

fn system(property: SystemProperty, text: &str) -> Equality {
    let text = text.into();
    Equality::System { property, text }
}

fn plain(value: Value<'static>) -> OwnedValue {
    OwnedValue::Plain(value)
}

/// A value of each type, and of those with several forms.
fn values() -> Vec<OwnedValue> {
    let decimal = Decimal::new(true, 75, -1).unwrap();
    let mut all: Vec<_> = [
        Value::Null,
        Value::Boolean(false),
        Value::Boolean(true),
        Value::Byte(-1),
        Value::Short(-2),
        Value::Int(-3),
        Value::Long(i64::MIN),
        Value::Ubyte(1),
        Value::Ushort(2),
        Value::Uint(3),
        Value::Ulong(u64::MAX),
        Value::Float(1.5),
        Value::Double(-0.0),
        Value::Double(f64::NAN),
        Value::Decimal(decimal),
        Value::Char('é'),
        Value::Timestamp(1_767_225_600_000),
        Value::Duration(6_000_000_000),
        Value::Uuid([7; 16]),
    ]
    .map(plain)
    .into();
    all.push(OwnedValue::Binary([0, 255].into()));
    all.push(OwnedValue::Text("Straße".into()));
    all.push(OwnedValue::Symbol("s".into()));
    all
}

/// Definitions that use all there is, by the names of the golden file.
fn examples() -> Vec<(&'static str, Definition)> {
    let correlation = |all| FilterDefinition::Correlation(all);
    let named = values().into_iter().zip('a'..);
    let every_type = named.map(|(value, name)| user(&name.to_string(), value));
    let every_field = CorrelationFilter::SYSTEM
        .into_iter()
        .map(|it| system(it, it.name()));
    let full = SqlDefinition {
        text: "Color = @color AND size > @Size".into(),
        parameters: vec![
            ("@color".into(), OwnedValue::Text("red".into())),
            ("@Size".into(), plain(Value::Int(10))),
        ],
        compatibility_level: Some(20),
    };
    let set = SqlDefinition {
        text: "SET sys.TimeToLive = @ttl; REMOVE Color".into(),
        parameters: vec![("@ttl".into(), plain(Value::Duration(5)))],
        compatibility_level: Some(300),
    };
    let all = [
        ("true", FilterDefinition::True, None),
        ("false", FilterDefinition::False, None),
        ("empty correlation", correlation(Vec::new()), None),
        ("every type", correlation(every_type.collect()), None),
        ("every field", correlation(every_field.collect()), None),
        ("sql", FilterDefinition::Sql(sql("1 = 1")), None),
        ("sql with all", FilterDefinition::Sql(full), Some(set)),
        ("action", FilterDefinition::True, Some(sql("SET a = 1"))),
    ];
    let made = all.map(|(name, filter, action)| (name, Definition::new(filter, action).unwrap()));
    made.into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The lines of the golden file: what earlier builds have written.
#[test]
fn definitions_have_the_bytes_of_the_golden_file() {
    let lines: Vec<_> = GOLDEN
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(": "))
        .collect();
    let examples = examples();
    assert_eq!(lines.len(), examples.len());
    for ((name, golden), (own, definition)) in lines.into_iter().zip(examples) {
        assert_eq!((name, golden), (own, &*hex(definition.bytes())));
        let bytes: Vec<u8> = (0..golden.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&golden[at..at + 2], 16).unwrap())
            .collect();
        let decoded = Definition::decode(&bytes).unwrap();
        assert_eq!(decoded, definition, "{name}");
        let [one, other] =
            [&decoded, &definition].map(|it| format!("{:?} {:?}", it.filter(), it.action()));
        assert_eq!(one, other, "{name}: names and types are kept");
    }
}

#[test]
fn a_part_of_a_definition_is_none() {
    for (name, definition) in examples() {
        let bytes = definition.bytes();
        for end in 0..bytes.len() {
            let cut = Definition::decode(&bytes[..end]);
            assert_eq!(
                cut.err(),
                Some(DecodeError::Truncated),
                "{name}, {end} bytes"
            );
        }
        let longer = [bytes, &[0]].concat();
        assert_eq!(
            Definition::decode(&longer).err(),
            Some(DecodeError::Surplus(1))
        );
    }
}

#[test]
fn bytes_in_another_form_are_refused() {
    let code = |what, code| DecodeError::Code { what, code };
    let count = |count, max| DecodeError::Count { count, max };
    for (bytes, error) in [
        (&[2, 0, 0][..], DecodeError::Version(2)),
        (&[1, 4, 0], code("filter", 4)),
        (&[1, 0, 2], code("action", 2)),
        (&[1, 2, 1, 2], code("condition", 2)),
        (&[1, 2, 1, 1, 22, 0, 0], code("system property", 22)),
        (&[1, 2, 1, 0, 1, b'a', 21, 0], code("type", 21)),
        (&[1, 3, 0, 2], code("level", 2)),
        // Zero in two bytes, and 2^32.
        (&[1, 2, 0x80, 0, 0], DecodeError::Number),
        (
            &[1, 2, 0x80, 0x80, 0x80, 0x80, 0x10, 0],
            DecodeError::Number,
        ),
        (
            &[1, 2, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0],
            DecodeError::Number,
        ),
        (&[1, 2, 0x81, 1, 0], count(129, EQUALITIES_MAX)),
        (&[1, 3, 0, 0, 0x81, 1, 0], count(129, PARAMETERS_MAX)),
        (&[1, 3, 1, 0xFF, 0, 0, 0], DecodeError::NotUtf8),
        (
            &[1, 2, 1, 0, 1, b'a', 14, 0, 0, 0xD8, 0, 0],
            DecodeError::Value("char"),
        ),
        (&[1, 2, 1, 0, 1, b'a', 13, 2], DecodeError::Value("sign")),
        (
            &[1, 2, 1, 1, 18, 0, 0],
            DecodeError::Refused(DefinitionError::NotCorrelated { name: "Size" }),
        ),
    ] {
        assert_eq!(Definition::decode(bytes).err(), Some(error), "{bytes:?}");
    }
    let huge = [&[1, 2, 1, 0, 1, b'a', 13, 0][..], &[0xFF; 16], &[0, 0, 0]].concat();
    assert_eq!(
        Definition::decode(&huge).err(),
        Some(DecodeError::Value("decimal"))
    );
    let long = vec![1; DEFINITION_BYTES_MAX + 1];
    let error = DecodeError::TooLarge(long.len());
    assert_eq!(Definition::decode(&long).err(), Some(error));
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let refused = |filter, action| Definition::new(filter, action).unwrap_err();
    let many = vec![user("a", plain(Value::Null)); EQUALITIES_MAX + 1];
    let correlation = FilterDefinition::Correlation;
    assert_eq!(
        refused(correlation(many), None).to_string(),
        "the correlation filter has 129 properties, the maximum is 128"
    );
    let other = vec![user("list", plain(Value::Other))];
    assert_eq!(
        refused(correlation(other), None).to_string(),
        "the value of \"list\" is a list, a map or another type that a rule cannot compare"
    );
    let size = vec![system(SystemProperty::Size, "1")];
    assert_eq!(
        refused(correlation(size), None).to_string(),
        "a correlation filter cannot name sys.Size"
    );
    let with = |value: OwnedValue, count: usize| SqlDefinition {
        parameters: vec![("@p".into(), value); count],
        ..sql("1 = 1")
    };
    let null = plain(Value::Null);
    let too_many = with(null, PARAMETERS_MAX + 1);
    let error = DefinitionError::TooManyParameters { count: 129 };
    assert_eq!(refused(FilterDefinition::True, Some(too_many)), error);
    let other = FilterDefinition::Sql(with(plain(Value::Other), 1));
    let name = "@p".to_owned();
    assert_eq!(
        refused(other, None),
        DefinitionError::NotComparable { name }
    );
    let two = SqlDefinition {
        parameters: ["@size", "Size"]
            .map(|it| (it.into(), plain(Value::Long(1))))
            .into(),
        ..sql("1 = 1")
    };
    let error = refused(FilterDefinition::Sql(two.clone()), None);
    assert_eq!(
        error.to_string(),
        "the parameter \"Size\" is given twice: its name is the same in upper and lower case"
    );
    assert_eq!(refused(FilterDefinition::True, Some(two)), error);
    // Names are folded letter by letter, as texts name them: this one has another sigma at its end in lower case.
    let greek = SqlDefinition {
        parameters: ["ΟΔΟΣ", "οδοσ"]
            .map(|it| (it.into(), plain(Value::Long(1))))
            .into(),
        ..sql("1 = 1")
    };
    let name = "οδοσ".to_owned();
    let error = DefinitionError::RepeatedParameter { name };
    assert_eq!(refused(FilterDefinition::Sql(greek), None), error);
    let long = OwnedValue::Binary(vec![0; DEFINITION_BYTES_MAX].into());
    let error = refused(FilterDefinition::Sql(with(long, 1)), None);
    assert!(
        matches!(error, DefinitionError::TooLarge { size_bytes } if size_bytes > DEFINITION_BYTES_MAX),
        "{error}"
    );
}

/// Earlier versions took it. The later value counts, as it always did.
#[test]
fn a_stored_definition_that_gives_a_parameter_twice_is_read() {
    let two = SqlDefinition {
        parameters: [("@p", 1), ("@q", 2)]
            .map(|(name, value)| (name.into(), plain(Value::Long(value))))
            .into(),
        ..sql("size = @p")
    };
    let mut bytes = Definition::new(FilterDefinition::Sql(two), None)
        .unwrap()
        .bytes()
        .to_vec();
    let other = bytes.iter().position(|byte| *byte == b'q').unwrap();
    bytes[other] = b'P';
    let (filter, _) = Definition::decode(&bytes).unwrap().compile().unwrap();
    let matches = |text| filter.matches(&Sample::read(text), &ids).unwrap();
    assert!(matches("size=int 2") && !matches("size=int 1"));
}

#[test]
fn a_definition_compiles_to_what_was_written() {
    let message = Sample::read("color='red', size=int 11, sys.Label='l'");
    let ids: &dyn Fn(u32) -> [u8; 16] = &ids;
    let matches = |filter: FilterDefinition| {
        let definition = Definition::new(filter, None).unwrap();
        let decoded = Definition::decode(definition.bytes()).unwrap();
        let (filter, action) = decoded.compile().unwrap();
        assert!(action.is_none());
        filter.matches(&message, &ids)
    };
    assert_eq!(matches(FilterDefinition::True), Ok(true));
    assert_eq!(matches(FilterDefinition::False), Ok(false));
    let with = |size: i32| {
        FilterDefinition::Sql(SqlDefinition {
            parameters: vec![("size".into(), plain(Value::Int(size)))],
            ..sql("color = 'red' AND size > @Size")
        })
    };
    assert_eq!(matches(with(10)), Ok(true));
    assert_eq!(matches(with(11)), Ok(false));
    let labelled = |label: &str| {
        FilterDefinition::Correlation(vec![
            user("Color", OwnedValue::Text("red".into())),
            system(SystemProperty::Label, label),
        ])
    };
    assert_eq!(matches(labelled("l")), Ok(true));
    assert_eq!(matches(labelled("L")), Ok(false));

    let set = Definition::new(FilterDefinition::True, Some(sql("SET a = 1"))).unwrap();
    let (filter, action) = set.compile().unwrap();
    assert_eq!(filter, Filter::True);
    assert_eq!(action.unwrap().text(), "SET a = 1");
}

#[test]
fn a_text_that_is_no_rule_is_stored_and_does_not_compile() {
    let compiled = |filter, action| Definition::new(filter, action).unwrap().compile();
    let error = compiled(FilterDefinition::Sql(sql("a =")), None).unwrap_err();
    assert!(
        matches!(&error, CompileError::Filter(it) if it.column == 4),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("the filter is not valid: column 4: found")
    );
    let error = compiled(FilterDefinition::True, Some(sql("a = 1"))).unwrap_err();
    assert!(
        matches!(&error, CompileError::Action(it) if it.column == 1),
        "{error}"
    );
}

fn any_value() -> impl Strategy<Value = OwnedValue> {
    prop_oneof![
        prop::sample::select(values()),
        any::<i64>().prop_map(|it| plain(Value::Long(it))),
        any::<u64>().prop_map(|it| plain(Value::Double(f64::from_bits(it)))),
        any::<char>().prop_map(|it| plain(Value::Char(it))),
        ".{0,200}".prop_map(|it| OwnedValue::Text(it.into())),
    ]
}

fn any_sql() -> impl Strategy<Value = SqlDefinition> {
    let parameters = prop::collection::vec((".{0,9}", any_value()), 0..5);
    (".{0,200}", parameters, any::<Option<u32>>()).prop_map(|(text, parameters, level)| {
        let mut names = BTreeSet::new();
        let parameters = parameters.into_iter().filter(|(name, _)| {
            let name = name.strip_prefix('@').unwrap_or(name);
            names.insert(name.to_lowercase())
        });
        SqlDefinition {
            text: text.into(),
            parameters: parameters
                .map(|(name, value)| (name.into(), value))
                .collect(),
            compatibility_level: level,
        }
    })
}

fn definitions() -> impl Strategy<Value = Definition> {
    let equality = prop_oneof![
        (".{0,9}", any_value()).prop_map(|(name, value)| user(&name, value)),
        (
            prop::sample::select(&CorrelationFilter::SYSTEM[..]),
            ".{0,9}"
        )
            .prop_map(|(property, text)| system(property, &text)),
    ];
    let filter = prop_oneof![
        Just(FilterDefinition::True),
        Just(FilterDefinition::False),
        prop::collection::vec(equality, 0..9).prop_map(FilterDefinition::Correlation),
        any_sql().prop_map(FilterDefinition::Sql),
    ];
    (filter, prop::option::of(any_sql()))
        .prop_map(|(filter, action)| Definition::new(filter, action).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_definition_comes_back_from_its_bytes(definition in definitions()) {
        let decoded = Definition::decode(definition.bytes()).unwrap();
        prop_assert_eq!(decoded.bytes(), definition.bytes());
        let [one, other] = [&decoded, &definition].map(|it| format!("{:?}{:?}", it.filter(), it.action()));
        prop_assert_eq!(one, other);
    }

    /// No definition has two forms, and no bytes panic.
    #[test]
    fn changed_bytes_are_refused_or_are_a_definition(
        definition in definitions(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = definition.bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(decoded) = Definition::decode(&bytes) {
            prop_assert_eq!(decoded.bytes(), &bytes[..]);
            let _ = decoded.compile();
        }
    }
}
