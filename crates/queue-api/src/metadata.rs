//! A queue's metadata as headers, in requests and answers.

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use kew_engine::storage::Metadata;

use crate::error::Error;
use crate::spelling::Spellings;
use crate::version::Version;

/// The beginning of the name of a header with metadata.
pub(crate) const PREFIX: &str = "x-ms-meta-";

/// All names and values together, in bytes.
const SIZE_BYTES_MAX: usize = 8 * 1024;

/// Reads the metadata of a request. The names get their spelling from `spellings`, if they have one
/// there.
///
/// From 2009-09-19 on a name must be a C# identifier: a letter or `_`, then letters, digits and
/// `_`. Values are visible ASCII, spaces and tabs. Refuses with `EmptyMetadataKey`; with
/// `InvalidMetadata`, also a repeated name; and with `MetadataTooLarge` above 8 KiB.
///
/// Source: *Setting and retrieving properties and metadata for queue resources*.
pub(crate) fn from_headers(
    headers: &HeaderMap,
    spellings: &Spellings,
    version: Version,
) -> Result<Metadata, Error> {
    let mut size_bytes = 0;
    let mut pairs = Vec::new();
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(PREFIX) else {
            continue;
        };
        let mut values = headers.get_all(name).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(Error::InvalidMetadata);
        };
        if key.is_empty() {
            return Err(Error::EmptyMetadataKey);
        }
        if version >= Version::V2009_09_19 && !is_identifier(key) {
            return Err(Error::InvalidMetadata);
        }
        let value = value.to_str().map_err(|_| Error::InvalidMetadata)?;
        size_bytes += key.len() + value.len();
        if size_bytes > SIZE_BYTES_MAX {
            return Err(Error::MetadataTooLarge);
        }
        let spelling = spellings.of(key);
        pairs.push((spelling.unwrap_or(key), value));
    }
    Ok(pairs.into_iter().collect())
}

/// Writes metadata into the headers of an answer. Returns the spelling of the names: the header
/// types have no upper case.
pub(crate) fn to_headers(metadata: &Metadata, headers: &mut HeaderMap) -> Spellings {
    let mut spellings = Spellings::default();
    for (name, value) in metadata.iter() {
        let header = HeaderName::from_bytes(format!("{PREFIX}{name}").as_bytes());
        // Both came from a header.
        if let (Ok(header), Ok(value)) = (header, HeaderValue::from_str(value)) {
            headers.append(header, value);
            if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                spellings.push(name);
            }
        }
    }
    spellings
}

/// Whether a name can also be an XML element of a listing. Header names are ASCII.
pub(crate) fn is_identifier(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn code(pairs: &[(&str, &str)], version: Version) -> &'static str {
        match from_headers(&headers(pairs), &Spellings::default(), version) {
            Ok(_) => "ok",
            Err(error) => error.wire().code,
        }
    }

    #[test]
    fn there_and_back() {
        let given = headers(&[
            ("x-ms-meta-owner", "Billing, north"),
            ("x-ms-meta-_a1", ""),
            ("x-ms-date", "x"),
        ]);
        let mut heard = Spellings::default();
        heard.push("Owner");
        let metadata = from_headers(&given, &heard, Version::NEWEST).unwrap();
        let names: Vec<_> = metadata.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["Owner", "_a1"]);
        let mut shown = HeaderMap::new();
        let spellings = to_headers(&metadata, &mut shown);
        assert_eq!(spellings, heard);
        assert_eq!(shown.len(), 2);
        assert_eq!(shown["x-ms-meta-owner"], "Billing, north");
    }

    #[test]
    fn names_are_identifiers() {
        for (name, expected) in [
            ("x-ms-meta-a", "ok"),
            ("x-ms-meta-a_1", "ok"),
            ("x-ms-meta-", "EmptyMetadataKey"),
            ("x-ms-meta-1a", "InvalidMetadata"),
            ("x-ms-meta-a-b", "InvalidMetadata"),
            ("x-ms-meta-a.b", "InvalidMetadata"),
        ] {
            assert_eq!(code(&[(name, "v")], Version::NEWEST), expected, "{name}");
        }
        assert_eq!(code(&[("x-ms-meta-a-b", "v")], Version::OLDEST), "ok");
        let twice = [("x-ms-meta-a", "1"), ("x-ms-meta-a", "2")];
        assert_eq!(code(&twice, Version::NEWEST), "InvalidMetadata");
    }

    #[test]
    fn values_are_ascii() {
        assert_eq!(
            code(&[("x-ms-meta-a", "é")], Version::NEWEST),
            "InvalidMetadata"
        );
    }

    #[test]
    fn names_and_values_are_8_kib() {
        let longest = "v".repeat(SIZE_BYTES_MAX - 1);
        assert_eq!(code(&[("x-ms-meta-a", &longest)], Version::NEWEST), "ok");
        assert_eq!(
            code(&[("x-ms-meta-ab", &longest)], Version::NEWEST),
            "MetadataTooLarge"
        );
    }
}
