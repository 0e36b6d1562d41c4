//! `docs/limits.md` agrees with the code.

use std::collections::BTreeMap;

use kew_broker::AdmissionLimits;
use kew_listen::DoorLimits;
use kew_queue_api::Limits;

const PAGE: &str = include_str!("../../../../docs/limits.md");

/// A number with its unit, as bytes, milliseconds or a count.
fn number(text: &str) -> u64 {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().unwrap_or_else(|_| panic!("{text:?}"));
    match text[digits.len()..].trim() {
        "" => number,
        "KiB" => number << 10,
        "MiB" => number << 20,
        "s" => number * 1000,
        unit => panic!("{unit:?} in {text:?}"),
    }
}

/// The fields of a struct, from its `Debug` text.
fn fields(shown: &str) -> BTreeMap<String, u64> {
    let (_, fields) = shown.split_once('{').expect("a struct");
    let fields = fields.trim_end_matches('}').trim().trim_end_matches(',');
    let fields = fields.split(',').map(|field| {
        let (name, value) = field.split_once(':').expect("a field");
        (name.trim().to_owned(), number(value.trim()))
    });
    fields.collect()
}

/// The rows of the tables in a part of the page.
fn rows(part: &str) -> BTreeMap<String, u64> {
    let rows = part.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.trim_end_matches('`');
        Some((name.to_owned(), number(cells.next()?)))
    });
    let mut all = BTreeMap::new();
    for (name, value) in rows {
        let before = all.insert(name.clone(), value);
        assert_eq!(before, None, "{name} is there twice");
    }
    all
}

#[test]
fn every_limit_is_documented_with_its_default() {
    // Both front ends have limits of the same names.
    let (before, rest) = PAGE.split_once("## Service Bus").expect("its section");
    let (bus, after) = rest.split_once("\n## ").expect("the next section");
    let mut expected = fields(&format!("{:?}", Limits::default()));
    expected.extend(fields(&format!("{:?}", DoorLimits::default())));
    expected.extend(fields(&format!("{:?}", AdmissionLimits::default())));
    let mut documented = rows(before);
    documented.extend(rows(after));
    assert_eq!(documented, expected);
    let expected = fields(&format!("{:?}", kew_bus_api::Limits::default()));
    assert_eq!(rows(bus), expected);
}
