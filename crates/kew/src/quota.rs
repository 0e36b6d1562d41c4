//! Quotas of accounts, in the forms of the command line and the administration.

use serde::{Deserialize, Serialize};

/// A quota, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Limit {
    At(u64),
    Word(NoLimit),
}

/// The word for no quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NoLimit {
    None,
}

impl From<Limit> for Option<u64> {
    fn from(limit: Limit) -> Self {
        match limit {
            Limit::At(limit) => Some(limit),
            Limit::Word(NoLimit::None) => None,
        }
    }
}

/// A number of bytes, with or without KiB, MiB, GiB or TiB.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit: u64 = match text.get(digits.len()..).unwrap_or_default().trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err("not a number of bytes with B, KiB, MiB, GiB or TiB".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "not a number of bytes")?;
    let size = number.checked_mul(unit);
    size.ok_or_else(|| "more bytes than can be counted".into())
}

/// A quota of bytes, or `none`.
pub(crate) fn parse_size_limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit::Word(NoLimit::None)),
        _ => parse_size(text).map(Limit::At),
    }
}

/// A quota of queues, or `none`.
pub(crate) fn parse_limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit::Word(NoLimit::None)),
        _ => {
            let number = text.parse();
            number
                .map(Limit::At)
                .map_err(|_| "not a number and not none".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, size) in [
            ("0", Ok(0)),
            ("10", Ok(10)),
            ("10B", Ok(10)),
            ("2KiB", Ok(2048)),
            ("1 GiB", Ok(1 << 30)),
            ("16777216TiB", Err(())),
            ("1GB", Err(())),
            ("-1", Err(())),
            ("", Err(())),
            ("MiB", Err(())),
        ] {
            assert_eq!(parse_size(text).map_err(|_| ()), size, "{text}");
        }
        assert_eq!(parse_size_limit("none"), Ok(Limit::Word(NoLimit::None)));
        assert_eq!(parse_limit("7"), Ok(Limit::At(7)));
        assert!(parse_limit("x").is_err());
    }
}
