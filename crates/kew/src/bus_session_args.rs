//! The arguments of `kew bus session`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::operate_args::Common;
use crate::queue_values::bus_entity;

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the ids of sessions that have messages or a state
    List(SessionListArgs),
    /// Print the state of a session. The command locks the session for a moment
    State(SessionNameArgs),
    /// Set or clear the state of a session. The command locks the session for a moment
    SetState(SetStateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SessionListArgs {
    /// The queue or subscription
    #[arg(value_parser = bus_entity)]
    pub(super) queue: String,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct SessionNameArgs {
    /// The queue or subscription
    #[arg(value_parser = bus_entity)]
    pub(super) queue: String,
    /// The id of the session
    pub(super) session: String,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct SetStateArgs {
    #[command(flatten)]
    pub(super) of: SessionNameArgs,
    /// The state; without it and without --file, read it from standard input
    #[arg(conflicts_with_all = ["file", "clear"])]
    pub(super) text: Option<String>,
    /// Use the whole file as the state
    #[arg(long, value_name = "FILE", conflicts_with = "clear")]
    pub(super) file: Option<PathBuf>,
    /// Clear the state
    #[arg(long)]
    pub(super) clear: bool,
}
