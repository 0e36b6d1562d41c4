//! `kew scale simulate`: the law on a load, as text and as a picture.

use anyhow::{Context as _, Result};
use kew_scale::{Config, Group, Simulation, load};

use super::read;
use crate::cli::print_line;
use crate::scale_args::ScaleSimulateArgs;
use crate::settings::SettingsError;

pub(super) fn simulate(args: &ScaleSimulateArgs) -> Result<()> {
    let config = read(&args.file)?;
    let refused = |error: &dyn std::fmt::Display| SettingsError::new(error.to_string());
    let group = group(&config, args)?;
    let load = load(&args.load).map_err(|error| refused(&error))?;
    let simulation = Simulation::new(group, &load, args.beside_keda);
    let simulation = simulation.map_err(|error| refused(&error))?;
    for line in simulation.text().lines() {
        print_line(line);
    }
    if let Some(path) = &args.svg {
        let written = std::fs::write(path, simulation.svg());
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The group that was asked for, or the only one.
fn group<'a>(config: &'a Config, args: &ScaleSimulateArgs) -> Result<&'a Group, SettingsError> {
    let names = config.groups.iter().map(|it| it.name.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    let mut groups = config.groups.iter();
    match &args.group {
        Some(name) => groups.find(|it| it.name == *name).ok_or_else(|| {
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
