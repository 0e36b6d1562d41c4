//! Makes the golden data directories of the current format: one whose snapshots have no pages, and one with pages.
//!
//! ```text
//! cargo run -p kew-log --example golden -- crates/log/tests/golden/v2
//! cargo run -p kew-log --example golden -- crates/log/tests/golden/v2-pages
//! ```
//!
//! Run it once for a new format version, into a new directory, and keep those of all earlier
//! versions: a test opens each of them. Never create a released directory again.

use std::{env, fs, io, path::PathBuf, sync::Arc};

use kew_log::{FileStorage, Storage};

#[path = "../tests/golden/scenario.rs"]
mod scenario;

#[path = "../tests/golden/pages.rs"]
mod pages;

fn main() -> io::Result<()> {
    let Some(path) = env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("name the directory to create"));
    };
    fs::create_dir(&path)?;
    fs::write(path.join("MANIFEST"), scenario::MANIFEST)?;
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::open(path.join("partition-0"))?);
    match path.to_string_lossy().ends_with("-pages") {
        true => drop(pages::write(&storage)),
        false => drop(scenario::write(&storage)),
    }
    Ok(())
}
