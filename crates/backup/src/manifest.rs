//! The manifest of a backup: which files it has, and what they hold.
//!
//! It is one object of JSON. Its last field is the checksum of the same object with an empty checksum.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::BackupError;

/// The format that this version writes.
pub(crate) const FORMAT: u32 = 1;

/// Everything that a restore needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of this format.
    pub format: u32,
    /// The version of Kew that has taken the backup.
    pub kew: String,
    /// The id of the data directory.
    pub data_dir_id: String,
    /// The time of the state, in RFC 3339.
    pub taken_at: String,
    /// The log position of the state: everything before it is in the backup, and nothing after it.
    pub position: u64,
    /// In the order in which they were copied.
    pub files: Vec<StoredFile>,
    /// CRC-32C of this object without it, in hexadecimal digits.
    pub checksum: String,
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredFile {
    /// Its name in the log's directory.
    pub name: String,
    /// Its name in the backup.
    pub stored_as: String,
    /// Its size in the backup.
    pub size_bytes: u64,
    /// Its size when it is restored. Zeros follow the stored bytes.
    pub restored_size_bytes: u64,
    /// The log position up to which it has records. That of the backup for a snapshot.
    pub end: u64,
    /// CRC-32C of the stored bytes, in hexadecimal digits.
    pub crc32c: String,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl Manifest {
    /// The size of all its files.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }

    pub(crate) fn sealed(self) -> Self {
        Self {
            checksum: self.checksum_of_rest(),
            ..self
        }
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut json =
            serde_json::to_vec_pretty(self).expect("plain structures can be written as JSON");
        json.push(b'\n');
        json
    }

    /// Reads the manifest at `path`, which is named in errors.
    pub(crate) fn from_json(json: &[u8], path: &Path) -> Result<Self, BackupError> {
        let damaged = |what: String| BackupError::DamagedManifest {
            path: path.to_owned(),
            what,
        };
        // Read the format first: the other fields depend on it.
        let Format { format } =
            serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        if format > FORMAT {
            return Err(BackupError::NewerFormat {
                path: path.to_owned(),
                found: format,
                supported: FORMAT,
            });
        }
        let manifest: Self =
            serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        let checksum = manifest.checksum_of_rest();
        if manifest.checksum != checksum {
            return Err(damaged(format!(
                "its checksum is {} and must be {checksum}",
                manifest.checksum
            )));
        }
        match manifest.wrong_name() {
            Some(name) => Err(damaged(format!("{name:?} is not the name of a file"))),
            None => Ok(manifest),
        }
    }

    /// Names come from outside: they must not lead anywhere else.
    fn wrong_name(&self) -> Option<&String> {
        let files = self.files.iter();
        let mut names = files.flat_map(|file| [&file.name, &file.stored_as]);
        names.find(|name| !is_plain(name))
    }

    fn checksum_of_rest(&self) -> String {
        let rest = Self {
            checksum: String::new(),
            ..self.clone()
        };
        hex(crc32c::crc32c(&rest.to_json()))
    }
}

fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.bytes().all(is_plain)
}

pub(crate) fn hex(crc: u32) -> String {
    format!("{crc:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            format: FORMAT,
            kew: "0.1.0".into(),
            data_dir_id: "ab".repeat(16),
            taken_at: "2026-11-24T15:00:00Z".into(),
            position: 4711,
            files: vec![StoredFile {
                name: "segment-00000000000000000001".into(),
                stored_as: "segment-00000000000000000001-0000002a-100-deadbeef".into(),
                size_bytes: 100,
                restored_size_bytes: 4096,
                end: 4711,
                crc32c: "deadbeef".into(),
            }],
            checksum: String::new(),
        }
        .sealed()
    }

    fn refusal(json: &[u8]) -> String {
        let read = Manifest::from_json(json, Path::new("dest/BACKUP"));
        read.expect_err("it is refused").to_string()
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let written = manifest();
        let read = Manifest::from_json(&written.to_json(), Path::new("BACKUP"));
        let read = read.expect("it is readable");
        assert_eq!(read, written);
        assert_eq!(read.size_bytes(), 100);
    }

    #[test]
    fn every_changed_or_missing_byte_of_a_value_is_noticed() {
        let json = manifest().to_json();
        for at in 0..json.len() - 1 {
            assert!(!refusal(&json[..at]).is_empty());
            // White space between fields means nothing.
            if !json[at].is_ascii_whitespace() {
                let mut changed = json.clone();
                changed[at] ^= 1;
                assert!(!refusal(&changed).is_empty(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_newer_format_is_not_damage() {
        let newer = br#"{"format": 2, "parts": []}"#;
        assert!(
            refusal(newer).contains("has format 2"),
            "{}",
            refusal(newer)
        );
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        for name in ["../x", "/etc/passwd", "a/b", "", "."] {
            let mut manifest = manifest();
            manifest.files[0].stored_as = name.into();
            let json = manifest.sealed().to_json();
            assert!(refusal(&json).contains("is not the name of a file"));
        }
    }
}
