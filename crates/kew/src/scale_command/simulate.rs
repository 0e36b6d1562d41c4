//! `kew scale simulate`: the law on a load, as text and as a picture.

use anyhow::{Context as _, Result};
use kew_scale::{Simulation, load};

use super::{one_group, read};
use crate::cli::print_line;
use crate::scale_args::ScaleSimulateArgs;
use crate::settings::SettingsError;

pub(super) fn simulate(args: &ScaleSimulateArgs) -> Result<()> {
    let config = read(&args.file)?;
    let refused = |error: &dyn std::fmt::Display| SettingsError::new(error.to_string());
    let group = one_group(&config, args.group.as_deref())?;
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
