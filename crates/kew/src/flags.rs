//! Flags that several commands share.

use std::path::PathBuf;

use clap::Args;

/// Before something is lost.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Yes {
    /// Do not ask for confirmation. Without a terminal, Kew never asks
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Before much is changed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Caution {
    /// Count what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    yes: Yes,
}

impl Caution {
    /// Whether to ask before it is done.
    pub(crate) fn asks(self) -> bool {
        !self.dry_run && !self.yes.yes
    }
}

/// The data directory to use.
#[derive(Debug, Args)]
pub(crate) struct DataDirArgs {
    /// The data directory
    /// [default: $XDG_DATA_HOME/kew or ~/.local/share/kew]
    #[arg(long, env = "KEW_DATA_DIR", value_name = "DIR", global = true)]
    pub(crate) data_dir: Option<PathBuf>,
}

/// How a command finds the server or the data directory.
#[derive(Debug, Args)]
pub(crate) struct DirectoryArgs {
    #[command(flatten)]
    pub(crate) of: DataDirArgs,

    /// The server's administration socket, if it is not admin.sock in the data directory
    #[arg(long, env = "KEW_ADMIN_SOCKET", value_name = "PATH", global = true)]
    pub(crate) admin_socket: Option<PathBuf>,

    /// Print the result as one line of JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}
