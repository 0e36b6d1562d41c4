//! Reads a page, strictly: for tests, and for tools that compare two.

use std::collections::{BTreeMap, BTreeSet};

use crate::Format;

/// A family as read from a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Read {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// Its help text.
    pub help: String,
    /// The unit, if it has one.
    pub unit: Option<String>,
    /// Name, labels and value of each sample, in their order.
    pub samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

/// The families of a page by name. A page that ends with `# EOF` is OpenMetrics text, any other is
/// Prometheus text. There the name of a counter's family ends with `_total`, which is left out
/// here.
///
/// Refuses a page with anything twice, a sample outside of its family, an invalid escape, a name
/// without its unit, or a histogram whose buckets do not add up.
pub fn read(page: &str) -> Result<BTreeMap<String, Read>, String> {
    let (body, format) = match page.strip_suffix("# EOF\n") {
        Some(body) => (body, Format::OpenMetrics),
        None if page.ends_with('\n') => (page, Format::Prometheus),
        None => return Err("no end".into()),
    };
    let families = families(body, format)?;
    let is_counter = |family: &Read| family.kind == "counter";
    let mut named = BTreeMap::new();
    for (name, family) in families {
        let name = match format {
            Format::Prometheus if is_counter(&family) => {
                let stem = name.strip_suffix("_total");
                stem.ok_or_else(|| format!("{name}: no total"))?.to_owned()
            }
            _ => name,
        };
        if named.insert(name.clone(), family).is_some() {
            return Err(format!("{name}: twice"));
        }
    }
    Ok(named)
}

fn families(body: &str, format: Format) -> Result<BTreeMap<String, Read>, String> {
    let mut families: BTreeMap<String, Read> = BTreeMap::new();
    let mut current = String::new();
    let mut series = BTreeSet::new();
    for line in body.split_terminator('\n') {
        let wrong = |what: &str| format!("{what}: {line:?}");
        if let Some(comment) = line.strip_prefix("# ") {
            let (keyword, rest) = comment.split_once(' ').ok_or_else(|| wrong("comment"))?;
            let (name, text) = rest.split_once(' ').ok_or_else(|| wrong("comment"))?;
            if name != current {
                check_name(name).map_err(wrong)?;
                if keyword != "HELP" || families.contains_key(name) {
                    return Err(wrong("a family that does not begin here"));
                }
                current = name.to_owned();
            }
            let family = families.entry(current.clone()).or_default();
            match keyword {
                _ if !family.samples.is_empty() => return Err(wrong("after samples")),
                "HELP" if family.help.is_empty() => family.help = text.to_owned(),
                "TYPE" if family.kind.is_empty() => family.kind = text.to_owned(),
                "UNIT"
                    if format == Format::OpenMetrics
                        && family.unit.is_none()
                        && name.ends_with(&format!("_{text}")) =>
                {
                    family.unit = Some(text.to_owned());
                }
                _ => return Err(wrong("comment")),
            }
            continue;
        }
        let (name, labels, value) = sample(line).map_err(wrong)?;
        let family = families
            .get_mut(&current)
            .ok_or_else(|| wrong("no family"))?;
        let suffix = name.strip_prefix(&current).ok_or_else(|| wrong("family"))?;
        let is_of_kind = match family.kind.as_str() {
            "counter" => match format {
                Format::OpenMetrics => suffix == "_total" && value >= 0.0,
                Format::Prometheus => suffix.is_empty() && value >= 0.0,
            },
            "gauge" => suffix.is_empty(),
            "histogram" => matches!(suffix, "_sum" | "_count" | "_bucket"),
            _ => false,
        };
        if !is_of_kind || !series.insert((name.clone(), labels.clone())) {
            return Err(wrong("no such sample"));
        }
        family.samples.push((name, labels, value));
    }
    for (name, family) in &families {
        if family.kind == "histogram" {
            check_histogram(family).map_err(|what| format!("{name}: {what}"))?;
        }
    }
    Ok(families)
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let is_first = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_next = |c: char| is_first(c) || c.is_ascii_digit();
    if name.starts_with(is_first) && name.chars().all(is_next) {
        Ok(())
    } else {
        Err("name")
    }
}

type Sample = (String, BTreeMap<String, String>, f64);

fn sample(line: &str) -> Result<Sample, &'static str> {
    let (head, value) = line.rsplit_once(' ').ok_or("no value")?;
    let value = value.parse().map_err(|_| "value")?;
    let (name, mut rest) = match head.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').ok_or("no end of labels")?),
        None => (head, ""),
    };
    check_name(name)?;
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").ok_or("label")?;
        check_name(label)?;
        let (value, after) = quoted(after)?;
        if labels.insert(label.to_owned(), value).is_some() {
            return Err("a label twice");
        }
        rest = match after.strip_prefix(',') {
            Some("") => return Err("a comma at the end"),
            Some(more) => more,
            None if after.is_empty() => after,
            None => return Err("no comma"),
        };
    }
    Ok((name.to_owned(), labels, value))
}

/// The value up to its quote, and the rest.
fn quoted(text: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next().ok_or("no quote")? {
            '"' => return Ok((value, chars.as_str())),
            '\\' => value.push(match chars.next() {
                Some('n') => '\n',
                Some(c @ ('"' | '\\')) => c,
                _ => return Err("escape"),
            }),
            c => value.push(c),
        }
    }
}

/// Buckets rise, the last one is infinite, and its count equals the count of the histogram.
fn check_histogram(family: &Read) -> Result<(), String> {
    let mut last: BTreeMap<BTreeMap<String, String>, (f64, f64)> = BTreeMap::new();
    for (name, labels, value) in &family.samples {
        let mut labels = labels.clone();
        let Some(bound) = labels.remove("le") else {
            continue;
        };
        if !name.ends_with("_bucket") {
            return Err("a bound outside of a bucket".into());
        }
        let bound: f64 = bound.parse().map_err(|_| "bound")?;
        let before = last.insert(labels, (bound, *value));
        if before.is_some_and(|before| before.0 >= bound || before.1 > *value) {
            return Err(format!("bucket {bound} does not rise"));
        }
    }
    for (name, labels, value) in &family.samples {
        let (bound, count) = last.get(labels).copied().unwrap_or((0.0, 0.0));
        let is_whole = count.to_bits() == value.to_bits();
        if name.ends_with("_count") && (bound.is_finite() || !is_whole) {
            return Err("the count is not that of the last bucket".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, Histogram, Unit, page};

    #[test]
    fn written_values_are_read_back() {
        let histogram = Histogram::of_latencies();
        histogram.observe(70);
        let value = "\"\n\\,} ";
        let families = vec![
            Family::counter("a", Unit::Bytes, "Help").count(vec![("x", value.into())], 3),
            Family::histogram("b", Unit::Seconds, "Help")
                .observed(Vec::new(), histogram.observed())
                .observed(vec![("y", "z".into())], histogram.observed()),
        ];
        let read = read(&page(families)).unwrap();
        let a = &read["a_bytes"];
        assert_eq!(
            (a.kind.as_str(), a.unit.as_deref()),
            ("counter", Some("bytes"))
        );
        assert_eq!(a.samples[0].1["x"], value);
        assert_eq!(read["b_seconds"].samples.len(), 2 * (2 + 19));
    }

    #[test]
    fn malformed_pages_are_refused() {
        let head = "# HELP a Help\n# TYPE a gauge\n";
        let end = "# EOF\n";
        assert!(read(&format!("{head}a 1\n{end}")).is_ok());
        for samples in [
            "a 1\na 2\n",
            "b 1\n",
            "a\n",
            "a x\n",
            "a{x=\"1\"\n",
            "a{x=\"1\",} 1\n",
            "a{x=\"\\t\"} 1\n",
            "a{x=\"1\",x=\"2\"} 1\n",
            "a 1\n# HELP a Help\n",
            "a 1\n\n",
        ] {
            assert!(read(&format!("{head}{samples}{end}")).is_err(), "{samples}");
        }
        assert!(read(&format!("{head}a 1")).is_err());
        let buckets = "# HELP a H\n# TYPE a histogram\na_sum 1\na_count 2\na_bucket{le=\"1\"} 2\n";
        assert!(read(&format!("{buckets}a_bucket{{le=\"+Inf\"}} 2\n{end}")).is_ok());
        assert!(read(&format!("{buckets}a_bucket{{le=\"+Inf\"}} 3\n{end}")).is_err());
        assert!(read(&format!("{buckets}{end}")).is_err());
        let counter = "# HELP a_total H\n# TYPE a_total counter\na_total 1\n";
        assert!(read(counter).is_ok());
        for page in [
            format!("{counter}{end}"),
            counter.replace("_total", ""),
            counter.replace("TYPE a_total", "TYPE a"),
            format!("{head}# UNIT a s\na 1\n"),
            format!("{counter}{head}a 1\n"),
        ] {
            assert!(read(&page).is_err(), "{page}");
        }
    }
}
