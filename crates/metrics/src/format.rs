//! The two text formats of a page, and which of them a client gets.
//!
//! They name counters differently: OpenMetrics names the family without `_total`, the older format
//! with it.

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0, which Prometheus asks for.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4, which tools such as `promtool check metrics` read.
    Prometheus,
}

impl Format {
    /// The format for a client that sends this `Accept`: OpenMetrics only if the client asks for it
    /// and does not prefer the other one.
    pub fn accepted(accept: &str) -> Self {
        let mut open = 0;
        let mut plain = 0;
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q="));
            let weight = weight.map_or(1_000, thousandths);
            if kind.eq_ignore_ascii_case("application/openmetrics-text") {
                open = open.max(weight);
            } else if kind.eq_ignore_ascii_case("text/plain") {
                plain = plain.max(weight);
            }
        }
        if open > 0 && open >= plain {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// A page of OpenMetrics text in this format.
    pub(crate) fn of(self, page: String) -> String {
        match self {
            Self::OpenMetrics => page,
            Self::Prometheus => plain(&page),
        }
    }
}

/// A weight from 0 to 1 with up to three decimals. Anything else weighs nothing.
fn thousandths(text: &str) -> u32 {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    match (whole, format!("{decimals:0<3}").parse::<u32>()) {
        ("1", _) => 1_000,
        ("0", Ok(decimals)) => decimals.min(1_000),
        _ => 0,
    }
}

fn plain(page: &str) -> String {
    let mut plain = String::with_capacity(page.len());
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        let kind = match line.strip_prefix("# HELP ") {
            // The type follows the help.
            Some(_) => lines.peek().copied().unwrap_or_default(),
            None => line,
        };
        let is_counter = kind.starts_with("# TYPE ") && kind.ends_with(" counter");
        match comment(line) {
            Some((begin, rest)) if is_counter => {
                plain.push_str(begin);
                plain.push_str("_total ");
                plain.push_str(rest);
            }
            _ => plain.push_str(line),
        }
        plain.push('\n');
    }
    plain
}

/// A comment up to the name of its family, and the rest of it.
fn comment(line: &str) -> Option<(&str, &str)> {
    let (at, _) = line.match_indices(' ').nth(2)?;
    let (begin, rest) = line.split_at(at);
    begin.starts_with("# ").then(|| (begin, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, Histogram, Unit, page_in, read};

    #[test]
    fn without_asking_for_openmetrics_a_client_gets_the_older_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, expected) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/html, */*", Format::Prometheus),
            ("text/plain;version=0.0.4", Format::Prometheus),
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text ; q=0.25", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            (
                "application/openmetrics-text;q=0.3,text/plain;q=0.4",
                Format::Prometheus,
            ),
            ("application/openmetrics-text;q=x", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), expected, "{accept}");
        }
    }

    fn families() -> Vec<Family> {
        let histogram = Histogram::of_latencies();
        histogram.observe(70);
        let label = |value: &str| vec![("kind", value.to_owned())];
        vec![
            Family::counter("a", Unit::Bytes, "Help of a").count(label("# TYPE x counter"), 3),
            Family::counter("b", Unit::None, "Help of a counter"),
            Family::gauge("c", Unit::Seconds, "Help").amount(Vec::new(), 0.5),
            Family::histogram("d", Unit::Seconds, "Help")
                .observed(Vec::new(), histogram.observed()),
        ]
    }

    #[test]
    fn a_counter_has_its_whole_name_in_the_older_format() {
        let page = page_in(families(), Format::Prometheus);
        let begin = "# HELP a_bytes_total Help of a\n# TYPE a_bytes_total counter\n\
            a_bytes_total{kind=\"# TYPE x counter\"} 3\n\
            # HELP b_total Help of a counter\n# TYPE b_total counter\n\
            # HELP c_seconds Help\n# TYPE c_seconds gauge\nc_seconds 0.5\n\
            # HELP d_seconds Help\n# TYPE d_seconds histogram\n";
        assert!(page.starts_with(begin), "{page}");
        assert!(
            !page.contains("# EOF") && !page.contains("# UNIT"),
            "{page}"
        );
    }

    #[test]
    fn both_formats_have_the_same_values() {
        let [open, mut plain] = [Format::OpenMetrics, Format::Prometheus]
            .map(|format| read(&page_in(families(), format)).unwrap());
        for (name, family) in &mut plain {
            assert_eq!(family.unit, None);
            family.unit.clone_from(&open[name].unit);
        }
        assert_eq!(plain, open);
    }
}
