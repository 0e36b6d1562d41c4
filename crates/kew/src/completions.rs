//! `kew completions` and `kew man`: shell completions and manual pages, made from the command
//! line's definition.

use std::io::{self, Write as _};

use anyhow::{Context, Result};
use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionsArgs, ManArgs};

pub(crate) fn run(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kew", &mut script);
    match io::stdout().lock().write_all(&script) {
        // A closed output is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot print the completions")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(crate) fn write_manual(args: &ManArgs) -> Result<()> {
    clap_mangen::generate_to(Cli::command(), &args.dir)
        .with_context(|| format!("cannot write to {}", args.dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_without_contradictions() {
        Cli::command().debug_assert();
    }
}
