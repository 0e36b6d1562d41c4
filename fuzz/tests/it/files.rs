//! The manifest of a data directory.

use std::fs;

use kew_fuzz::gauge;
use kew_fuzz::golden::MANIFEST;
use kew_fuzz::mutate::{Input, changes};
use kew_log::{DataDir, DataDirError};

use crate::{INPUT_SIZE_MAX, INPUTS};

/// A TOML parser and the text of its error.
const MEMORY_MAX_BYTES: usize = 1 << 20;

#[test]
fn manifest() {
    let place = crate::scratch();
    fs::create_dir(place.path().join("partition-0")).expect("writable");
    let path = place.path().join("MANIFEST");
    let check = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("writable");
        match gauge::within(MEMORY_MAX_BYTES, || DataDir::inspect(place.path())) {
            // A changed digit may make another format of it.
            Ok(_)
            | Err(
                DataDirError::DamagedManifest { .. }
                | DataDirError::NewerFormat { .. }
                | DataDirError::OldFormat { .. },
            ) => {}
            Err(error) => panic!("a bad manifest is not {error}"),
        }
    };
    bolero::check!()
        .with_iterations(INPUTS / 4)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            check(bytes);
            let mut text = MANIFEST.as_bytes().to_vec();
            changes(&mut text, &mut Input::new(bytes));
            check(&text);
        });
}
