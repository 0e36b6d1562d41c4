//! What the tests share.

use std::path::Path;

use kew_scale::{Config, Group};

/// The group of a file with these settings beside its name, its source and its target.
pub(crate) fn group(settings: &str, directory: &Path, command: &str) -> Group {
    let text = format!(
        "[[group]]\nname = 'jobs'\n{settings}\n\
         [[group.source]]\nqueue = 'jobs'\nconnection_env = 'STORAGE'\n\
         [group.target.process]\ncommand = {command}\nstate_directory = {directory:?}\nstop_within = '20s'\n"
    );
    let config = Config::parse(Path::new("scale.toml"), &text).unwrap();
    config.groups.into_iter().next().unwrap()
}
