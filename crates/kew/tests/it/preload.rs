//! Libraries between the unchanged server and the system, built when a test needs one.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skip::skip;

/// Builds `preload/NAME.c` into a directory; `None`, with a message, if that is not possible.
pub(crate) fn build(name: &str, place: &Path) -> Option<PathBuf> {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        skip(name, "no LD_PRELOAD", "run on Linux with glibc");
        return None;
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/preload");
    let library = place.join(name).with_extension("so");
    let built = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
        .arg("-o")
        .arg(&library)
        .arg(sources.join(name).with_extension("c"))
        .arg("-ldl")
        .status();
    match built {
        Ok(status) => {
            assert!(status.success(), "{name}.c does not compile");
            Some(library)
        }
        Err(error) => {
            skip(
                name,
                &format!("no C compiler ({error})"),
                "install cc (Debian: gcc and libc6-dev)",
            );
            None
        }
    }
}
