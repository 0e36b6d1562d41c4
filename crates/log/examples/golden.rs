//! Makes the golden data directory of the current format.
//!
//! ```text
//! cargo run -p kew-log --example golden -- crates/log/tests/golden/v2
//! ```
//!
//! Run it once for a new format version, into a new directory, and keep those of all earlier
//! versions: a test opens each of them. Never create a released directory again.

use std::{env, fs, io, path::PathBuf};

use kew_log::FileStorage;

#[path = "../tests/golden/scenario.rs"]
mod scenario;

fn main() -> io::Result<()> {
    let Some(path) = env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("name the directory to create"));
    };
    fs::create_dir(&path)?;
    fs::write(path.join("MANIFEST"), scenario::MANIFEST)?;
    let storage = FileStorage::open(path.join("partition-0"))?;
    scenario::write(&storage);
    Ok(())
}
