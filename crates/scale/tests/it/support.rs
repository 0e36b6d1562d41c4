//! What the tests share.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use kew_client::Dial;
use kew_scale::{ClientSources, Config, Connecting, Group};

const STORAGE: &str = "UseDevelopmentStorage=true";
const BUS: &str = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
     SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;";

/// The environment: connection strings of Kew in memory.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    match name {
        "STORAGE" => Some(STORAGE.into()),
        "BUS" => Some(BUS.into()),
        _ => None,
    }
}

/// A source of a file, with these lines beside its queue and its connection.
pub(crate) fn source(queue: &str, variable: &str, more: &str) -> String {
    format!("[[group.source]]\nqueue = '{queue}'\nconnection_env = '{variable}'\n{more}\n")
}

/// The sources of a group with these settings.
pub(crate) fn open(settings: &str, sources: &str, dial: Arc<dyn Dial>) -> ClientSources {
    let text = format!(
        "[[group]]\nname = 'jobs'\n{settings}\n{sources}[group.target.process]\ncommand = ['x']\nstate_directory = '/x'\n"
    );
    let config = Config::parse(Path::new("scale.toml"), &text).unwrap();
    let connecting = Connecting { dial: Some(dial) };
    ClientSources::open(&config.groups[0], &variable, &connecting).unwrap()
}

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
