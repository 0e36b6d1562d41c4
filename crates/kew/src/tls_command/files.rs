//! Writes certificates and keys atomically: a reader finds either the old file or the new one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result};

const MODE_KEY: u32 = 0o600;
const MODE_CERTIFICATE: u32 = 0o644;

/// Creates a directory for keys, if it does not exist.
pub(super) fn create_dir(dir: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot create {}", dir.display()))
}

/// Writes a private key, which only its owner can read.
pub(super) fn write_key(path: &Path, text: &str) -> Result<()> {
    replace(path, text, MODE_KEY)
}

/// Writes a file that everyone may read.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    replace(path, text, MODE_CERTIFICATE)
}

fn replace(path: &Path, text: &str, mode: u32) -> Result<()> {
    let replaced = || -> io::Result<()> {
        let new = path.with_extension("new");
        // A file left behind may have another mode.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        match path.parent() {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    };
    replaced().with_context(|| format!("cannot write {}", path.display()))
}
