//! The rules of `promtool check metrics`, for tests.

use std::collections::BTreeMap;

use crate::Read;

/// Words for units that are not the base unit, or that are not written out.
const OTHER_UNITS: [&str; 22] = [
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "minutes",
    "hours",
    "days",
    "ms",
    "us",
    "ns",
    "sec",
    "s",
    "kilobytes",
    "megabytes",
    "gigabytes",
    "kibibytes",
    "mebibytes",
    "bits",
    "kb",
    "mb",
    "gb",
    "b",
    "percent",
];

/// Words for kinds of metrics.
const KINDS: [&str; 4] = ["counter", "gauge", "histogram", "summary"];

/// What is wrong with families that were [`read`](crate::read), one complaint a line.
pub fn lint(families: &BTreeMap<String, Read>) -> Vec<String> {
    let complaints = families.iter().flat_map(|(name, family)| {
        let complaints = complaints_of(name, family).into_iter();
        complaints.map(move |what| format!("{name}: {what}"))
    });
    complaints.collect()
}

fn complaints_of(name: &str, family: &Read) -> Vec<&'static str> {
    let words: Vec<&str> = name.split('_').collect();
    let has_one_of = |known: &[&str]| words.iter().any(|word| known.contains(word));
    let last = words.last().copied().unwrap_or_default();
    let labels = family
        .samples
        .iter()
        .flat_map(|(_, labels, _)| labels.keys());
    let is_labelled = |name: &str| labels.clone().any(|label| label == name);
    let is_histogram = family.kind == "histogram";
    [
        (family.help.is_empty(), "no help"),
        // The parser has already removed the `_total` that every counter's name ends with.
        (last == "total", "total is for counters, and once"),
        (
            matches!(last, "count" | "sum" | "bucket"),
            "count, sum and bucket are for histograms",
        ),
        (!is_histogram && is_labelled("le"), "le is for histograms"),
        (is_labelled("quantile"), "quantile is for summaries"),
        (
            has_one_of(&OTHER_UNITS),
            "not in base units, or abbreviated",
        ),
        (has_one_of(&KINDS), "the name has the kind"),
    ]
    .into_iter()
    .filter_map(|(is_wrong, what)| is_wrong.then_some(what))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, Unit, page, read};

    #[test]
    fn the_rules_of_promtool() {
        let label = |name| vec![(name, "1".to_owned())];
        let help = "Help";
        let families = vec![
            Family::counter("good", Unit::Seconds, help),
            Family::gauge("a_total", Unit::None, help),
            Family::gauge("x_count", Unit::None, help),
            Family::gauge("c", Unit::None, help).count(label("le"), 1),
            Family::counter("d_ms", Unit::None, help),
            Family::gauge("e_gauge", Unit::None, help),
            Family::gauge("f", Unit::None, help).count(label("quantile"), 1),
        ];
        let complaints = lint(&read(&page(families)).unwrap());
        let names: Vec<&str> = complaints
            .iter()
            .map(|it| it.split(':').next().unwrap())
            .collect();
        assert_eq!(names, ["a_total", "c", "d_ms", "e_gauge", "f", "x_count"]);
    }
}
