//! Numbers of instances, as programs and services write them.

/// How much of a text an error shows, in characters.
const SHOWN_MAX: usize = 200;

/// A whole number, and white space around it.
pub(super) fn number(text: &str) -> Result<u32, String> {
    let digits = text.trim();
    match digits.bytes().all(|it| it.is_ascii_digit()) {
        true => digits.parse().ok(),
        false => None,
    }
    .ok_or_else(|| {
        format!(
            "{}, and a whole number of instances was expected",
            shown(text)
        )
    })
}

/// The number at a place of a JSON document, or the document itself.
pub(super) fn number_in(text: &str, pointer: Option<&str>) -> Result<u32, String> {
    let Some(pointer) = pointer else {
        return number(text);
    };
    let document: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| format!("{}, which is not JSON: {error}", shown(text)))?;
    let value = document
        .pointer(pointer)
        .ok_or_else(|| format!("{}, which has nothing at {pointer}", shown(text)))?;
    let count = value.as_u64().and_then(|it| u32::try_from(it).ok());
    count.ok_or_else(|| {
        let value = shown(&value.to_string());
        format!("{value} at {pointer}, and a whole number of instances was expected")
    })
}

/// The beginning of a text, in quotes, in one line.
pub(super) fn shown(text: &str) -> String {
    let mut begin: String = text.trim().chars().take(SHOWN_MAX).collect();
    if begin.len() < text.trim().len() {
        begin.push_str("...");
    }
    format!("{begin:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_count() {
        assert_eq!(number("7"), Ok(7));
        assert_eq!(number(" 0\r\n"), Ok(0));
        assert_eq!(number("4294967295"), Ok(u32::MAX));
        for text in [
            "",
            "\n",
            "-1",
            "+1",
            "1.0",
            "1 2",
            "4294967296",
            "seven",
            "1e3",
        ] {
            let error = number(text).unwrap_err();
            assert!(
                error.ends_with("a whole number of instances was expected"),
                "{error}"
            );
        }
        let long = number(&"x\n".repeat(10_000)).unwrap_err();
        assert!(long.len() < 700 && long.lines().count() == 1, "{long}");
    }

    #[test]
    fn numbers_in_documents() {
        let text = r#"{"spec": {"replicas": 3, "half": 1.5, "text": "4"}, "list": [8]}"#;
        assert_eq!(number_in(text, Some("/spec/replicas")), Ok(3));
        assert_eq!(number_in(text, Some("/list/0")), Ok(8));
        assert_eq!(number_in("5", None), Ok(5));
        for (text, pointer, expected) in [
            (text, "/spec/absent", "which has nothing at /spec/absent"),
            (
                text,
                "/spec/half",
                "\"1.5\" at /spec/half, and a whole number",
            ),
            (text, "/spec/text", "at /spec/text, and a whole number"),
            (text, "/spec", "at /spec, and a whole number"),
            ("<html>", "/spec", "\"<html>\", which is not JSON"),
            (r#"{"a": -1}"#, "/a", "at /a, and a whole number"),
            (r#"{"a": 4294967296}"#, "/a", "at /a, and a whole number"),
        ] {
            let error = number_in(text, Some(pointer)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
