//! A metric with its values, and how a page shows it.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit as WrittenUnit};

use crate::{Format, Observed};

/// Names and values. A name is a constant; values come from bounded sets.
pub type Labels = Vec<(&'static str, String)>;

/// The unit of a metric's values. It is the end of the metric's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things, or a state.
    None,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, Debug)]
enum Value {
    Count(u64),
    Amount(f64),
    Observed(Observed),
}

/// One metric with its values at one time.
#[derive(Clone, Debug)]
pub struct Family {
    name: &'static str,
    unit: Unit,
    help: &'static str,
    kind: Kind,
    samples: Vec<(Labels, Value)>,
}

impl Family {
    /// A value that only rises. The page adds the unit and `total` to the name.
    pub fn counter(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, unit, help, Kind::Counter)
    }

    /// A value that rises and falls. The page adds the unit to the name.
    pub fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, unit, help, Kind::Gauge)
    }

    /// Values counted by size. The page adds the unit to the name.
    pub fn histogram(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, unit, help, Kind::Histogram)
    }

    /// Whether it is another one of the same metric.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.name, self.unit) == (other.name, other.unit)
    }

    fn new(name: &'static str, unit: Unit, help: &'static str, kind: Kind) -> Self {
        Self {
            name,
            unit,
            help,
            kind,
            samples: Vec::new(),
        }
    }

    /// Adds a whole number.
    #[must_use]
    pub fn count(mut self, labels: Labels, value: u64) -> Self {
        self.samples.push((labels, Value::Count(value)));
        self
    }

    /// Adds a number with decimals.
    #[must_use]
    pub fn amount(mut self, labels: Labels, value: f64) -> Self {
        self.samples.push((labels, Value::Amount(value)));
        self
    }

    /// Adds what a histogram has counted.
    #[must_use]
    pub fn observed(mut self, labels: Labels, observed: Observed) -> Self {
        self.samples.push((labels, Value::Observed(observed)));
        self
    }

    /// Adds one value of a state set: 1 for the state that holds, 0 for the others.
    #[must_use]
    pub fn state(mut self, states: &[&str], holds: &str) -> Self {
        for state in states {
            let value = u64::from(*state == holds);
            self = self.count(vec![("state", (*state).to_owned())], value);
        }
        self
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let unit = match self.unit {
            Unit::None => None,
            Unit::Seconds => Some(WrittenUnit::Seconds),
            Unit::Bytes => Some(WrittenUnit::Bytes),
        };
        let mut metric = encoder.encode_descriptor(self.name, self.help, unit.as_ref(), kind)?;
        for (labels, value) in &self.samples {
            if labels.is_empty() {
                self.encode_value(&mut metric, value)?;
            } else {
                let labels = escape(labels);
                self.encode_value(&mut metric.encode_family(&labels)?, value)?;
            }
        }
        Ok(())
    }

    fn encode_value(&self, encoder: &mut MetricEncoder<'_>, value: &Value) -> fmt::Result {
        type NoLabels = [(&'static str, &'static str); 0];
        match (self.kind, value) {
            (Kind::Counter, Value::Count(value)) => {
                encoder.encode_counter::<NoLabels, _, u64>(value, None)
            }
            (Kind::Counter, Value::Amount(value)) => {
                encoder.encode_counter::<NoLabels, _, u64>(value, None)
            }
            (Kind::Gauge, Value::Count(value)) => encoder.encode_gauge(value),
            (Kind::Gauge, Value::Amount(value)) => encoder.encode_gauge(value),
            (Kind::Histogram, Value::Observed(observed)) => encoder.encode_histogram::<NoLabels>(
                observed.sum,
                observed.count,
                &observed.buckets,
                None,
            ),
            // A value of another kind is dropped: the page stays readable.
            (Kind::Counter | Kind::Gauge, Value::Observed(_))
            | (Kind::Histogram, Value::Count(_) | Value::Amount(_)) => Ok(()),
        }
    }
}

/// The library writes values as they are.
fn escape(labels: &Labels) -> Labels {
    let escape_value = |value: &String| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        value.replace('\n', "\\n")
    };
    let labels = labels.iter();
    labels
        .map(|(name, value)| (*name, escape_value(value)))
        .collect()
}

/// Families as a registry takes them.
#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = self.0.iter();
        families.try_for_each(|family| family.encode(&mut encoder))
    }
}

/// Merges families with the same name, because several owners count the same thing. The help is
/// that of the first family. Families of another kind are dropped.
fn merged(families: Vec<Family>) -> Vec<Family> {
    let mut merged: Vec<Family> = Vec::with_capacity(families.len());
    for family in families {
        let is_it = |known: &&mut Family| (known.name, known.unit) == (family.name, family.unit);
        match merged.iter_mut().find(is_it) {
            Some(known) if known.kind == family.kind => {
                known.samples.extend(family.samples);
            }
            Some(_) => {}
            None => merged.push(family),
        }
    }
    merged
}

/// Writes the families as a page of OpenMetrics text. Families of one name become one.
pub fn page(families: Vec<Family>) -> String {
    let families = merged(families);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut page = String::new();
    text::encode(&mut page, &registry).expect("writing to a string cannot fail");
    page
}

/// Writes the families as a page in this format. Families of one name become one.
pub fn page_in(families: Vec<Family>, format: Format) -> String {
    format.of(page(families))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_one_name_are_one() {
        let of = |owner: &str| vec![("owner", owner.to_owned())];
        let page = page(vec![
            Family::gauge("a", Unit::None, "Help").count(of("x"), 1),
            Family::gauge("b", Unit::None, "Help b"),
            Family::gauge("a", Unit::None, "Other help").count(of("y"), 2),
            Family::counter("b", Unit::None, "Not b").count(of("y"), 2),
        ]);
        let expected = "# HELP a Help\n# TYPE a gauge\na{owner=\"x\"} 1\na{owner=\"y\"} 2\n\
            # HELP b Help b\n# TYPE b gauge\n# EOF\n";
        assert_eq!(page, expected);
    }

    #[test]
    fn a_page_has_every_family_with_its_unit() {
        let label = |value: &str| vec![("kind", value.to_owned())];
        let page = page(vec![
            Family::counter("a", Unit::Bytes, "Help a").count(label("x\"\n\\"), 3),
            Family::gauge("b", Unit::None, "Help b"),
            Family::gauge("c", Unit::Seconds, "Help c").amount(Vec::new(), 0.5),
        ]);
        let expected = "# HELP a_bytes Help a\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
            a_bytes_total{kind=\"x\\\"\\n\\\\\"} 3\n# HELP b Help b\n# TYPE b gauge\n\
            # HELP c_seconds Help c\n# TYPE c_seconds gauge\n# UNIT c_seconds seconds\n\
            c_seconds 0.5\n# EOF\n";
        assert_eq!(page, expected);
    }
}
