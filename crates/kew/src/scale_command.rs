//! `kew scale`: the scaling agent.

mod cluster;
mod explain;
mod record;
mod run;
mod simulate;
mod stop;
mod target;

use std::path::Path;

use anyhow::{Context as _, Result};
use kew_scale::{ActError, ClientSources, Config, ConfigError, Connecting, Group};
use tokio::runtime::Runtime;

use crate::scale_args::{ScaleArgs, ScaleCommand};
use crate::settings::SettingsError;

pub(crate) fn run(args: &ScaleArgs) -> Result<()> {
    match &args.command {
        ScaleCommand::Run(args) => run::run(args),
        ScaleCommand::Stop(args) => stop::stop(&args.file),
        ScaleCommand::Explain(args) => explain::explain(&args.file),
        ScaleCommand::Record(args) => record::record(args),
        ScaleCommand::Simulate(args) => simulate::simulate(args),
    }
}

fn read(file: &Path) -> Result<Config> {
    Ok(Config::read(file).map_err(refused)?)
}

/// An error of the file or of its environment: the exit code is that of invalid settings.
fn refused(error: ConfigError) -> SettingsError {
    SettingsError::new(error.to_string())
}

/// The sources of a group. The agent alone hears its announcements: each has one receiver.
fn sources(group: &Group, hears: bool) -> Result<ClientSources> {
    let variable = |name: &str| std::env::var_os(name);
    let connecting = Connecting::default();
    let mut opened = ClientSources::open(group, &variable, &connecting).map_err(refused)?;
    if hears {
        let heard = opened.hear(group, &variable, &connecting);
        heard.map_err(refused)?;
    }
    Ok(opened)
}

fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let builder = builder.enable_all().thread_name("kew-scale");
    builder.build().context("cannot start threads")
}

/// An error about the instances of a group.
fn in_group(group: &Group, error: ActError) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("the group {:?}", group.name))
}

/// The group that was asked for, or the only one.
fn one_group<'a>(config: &'a Config, asked: Option<&str>) -> Result<&'a Group, SettingsError> {
    let names = config.groups.iter().map(|it| it.name.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    let mut groups = config.groups.iter();
    match asked {
        Some(name) => groups.find(|it| it.name == name).ok_or_else(|| {
            SettingsError::new(format!(
                "--group is {name:?}: the file has the groups {names}"
            ))
        }),
        None => match config.groups.as_slice() {
            [group] => Ok(group),
            _ => Err(SettingsError::new(format!(
                "the file has several groups: name one with --group: {names}"
            ))),
        },
    }
}
