//! Reads the XML answers of the service by searching for their elements.

use std::time::SystemTime;

use memchr::memmem;

use crate::Error;
use crate::error::malformed;

/// The slices that begin with `open`, each up to the next one or the end.
pub(crate) fn elements<'a>(xml: &'a [u8], open: &str) -> Vec<&'a [u8]> {
    let starts: Vec<usize> = memmem::find_iter(xml, open.as_bytes()).collect();
    let ends = starts.iter().skip(1).copied().chain([xml.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&from, to)| &xml[from..to])
        .collect()
}

/// The text of the first element `name`, or `None` if it is absent; empty if it closes itself.
pub(crate) fn text(xml: &[u8], name: &str) -> Option<String> {
    let inner = inner(xml, name)?;
    Some(unescape(&String::from_utf8_lossy(inner)))
}

/// The text of a required element.
pub(crate) fn required(xml: &[u8], name: &str) -> Result<String, Error> {
    text(xml, name).ok_or_else(|| malformed(format!("an answer without {name}")))
}

/// The time in a required element.
pub(crate) fn time(xml: &[u8], name: &str) -> Result<SystemTime, Error> {
    parse_time(&required(xml, name)?)
}

/// Reads a date of the form `Fri, 20 Nov 2026 23:00:00 GMT`.
pub(crate) fn parse_time(text: &str) -> Result<SystemTime, Error> {
    httpdate::parse_http_date(text).map_err(|_| malformed(format!("a bad date: {text}")))
}

/// Names and texts of the elements directly inside the first element `name`.
pub(crate) fn children(xml: &[u8], name: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let inner = inner(xml, name).unwrap_or_default();
    let mut rest = std::str::from_utf8(inner).unwrap_or_default();
    while let Some((child, after)) = rest.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        if let Some(child) = child.strip_suffix('/') {
            found.push((child.trim_end().to_owned(), String::new()));
            rest = after;
        } else if let Some((text, after)) = after.split_once(&format!("</{child}>")) {
            found.push((child.to_owned(), unescape(text)));
            rest = after;
        } else {
            break;
        }
    }
    found
}

/// Replaces `& < >` by their entities.
pub(crate) fn escape(text: &str, output: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some(at) = memchr::memchr3(b'&', b'<', b'>', rest) {
        output.extend_from_slice(&rest[..at]);
        output.extend_from_slice(match rest[at] {
            b'&' => b"&amp;",
            b'<' => b"&lt;",
            _ => b"&gt;",
        });
        rest = &rest[at + 1..];
    }
    output.extend_from_slice(rest);
}

/// The bytes between the tags of the first element `name`.
fn inner<'a>(xml: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut after_names = memmem::find_iter(xml, name.as_bytes()).filter_map(|at| {
        let opens = at > 0 && xml[at - 1] == b'<';
        opens.then_some(&xml[at + name.len()..])
    });
    after_names.find_map(|rest| {
        if rest.starts_with(b"/>") || rest.starts_with(b" />") {
            return Some(&rest[..0]);
        }
        let rest = rest.strip_prefix(b">")?;
        let end = memmem::find_iter(rest, b"</").find(|&end| {
            let tag = &rest[end + 2..];
            tag.strip_prefix(name.as_bytes())
                .is_some_and(|tag| tag.starts_with(b">"))
        })?;
        Some(&rest[..end])
    })
}

fn unescape(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        output.push_str(&rest[..at]);
        rest = &rest[at..];
        let entity = rest.find(';').map(|end| &rest[1..end]);
        let Some((entity, character)) = entity.and_then(|e| Some((e, decode_entity(e)?))) else {
            output.push('&');
            rest = &rest[1..];
            continue;
        };
        output.push(character);
        rest = &rest[entity.len() + 2..];
    }
    output.push_str(rest);
    output
}

fn decode_entity(entity: &str) -> Option<char> {
    match entity {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = entity.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_and_unescaped() {
        let xml = b"<M><MessageId>1</MessageId><PopReceipt>a&amp;b=</PopReceipt><T/><E /></M>";
        assert_eq!(text(xml, "MessageId").as_deref(), Some("1"));
        assert_eq!(text(xml, "PopReceipt").as_deref(), Some("a&b="));
        assert_eq!(text(xml, "T").as_deref(), Some(""));
        assert_eq!(text(xml, "E").as_deref(), Some(""));
        assert_eq!(text(xml, "DequeueCount"), None);
    }

    #[test]
    fn escaping_is_undone() {
        for sample in ["", "plain", "a & b <c> \"d\" 'e'", "&amp;", "&#xD;", "🐦 ü"] {
            let mut escaped = Vec::new();
            escape(sample, &mut escaped);
            assert_eq!(
                unescape(std::str::from_utf8(&escaped).expect("UTF-8")),
                sample
            );
        }
        assert_eq!(unescape("&#13;&#x1F426;&bogus;&"), "\r🐦&bogus;&");
    }

    #[test]
    fn children_keep_their_order() {
        let xml = b"<Queue><Name>q</Name><Metadata><b>1</b><A>&lt;</A><c /></Metadata></Queue>";
        let pairs = [("b", "1"), ("A", "<"), ("c", "")];
        assert_eq!(
            children(xml, "Metadata"),
            pairs.map(|(name, text)| (name.to_owned(), text.to_owned()))
        );
        assert!(children(b"<Metadata />", "Metadata").is_empty());
    }

    #[test]
    fn elements_are_cut_apart() {
        let xml = b"<L><Q><N>1</N></Q><Q><N>2</N></Q></L>";
        let names: Vec<_> = elements(xml, "<Q>").iter().map(|q| text(q, "N")).collect();
        assert_eq!(names, [Some("1".to_owned()), Some("2".to_owned())]);
    }
}
