//! The command line of `kew scale`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::queue_values::duration;

#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    #[command(subcommand)]
    pub(crate) command: ScaleCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScaleCommand {
    /// Run the agent until SIGTERM or SIGINT. Instances go on then.
    ///
    /// The next agent finds them again, also after a crash. Each change of the number of instances, and each change of
    /// the reasons for it, is a line of the log on standard error.
    Run(ScaleRunArgs),
    /// Stop all instances of the file's groups. The agent must not run.
    ///
    /// Each process gets SIGTERM, and SIGKILL after stop_within. The command waits until all have ended. Of other
    /// targets, the number of instances is set to 0.
    Stop(ScaleFileArgs),
    /// Ask the running agent what it has seen and done, and why. Without one, look at the queues and instances once.
    ///
    /// It changes nothing. The agent answers with its last look and its last 40 decisions and events. If none runs, the
    /// command says what an agent that starts now would do: it has looked only once, so it knows no rates, and never
    /// stops instances for a smaller load. Exit code 1 means that something could not be read.
    Explain(ScaleFileArgs),
    /// Write the messages that arrive in a group's queues to a file, which `simulate --load` replays.
    ///
    /// Each source needs the metrics page of its Kew server, which counts arrivals. The file has lines of
    /// second,arrivals from Monday, 00:00, in the time zone of the group. It ends after --for, on Sunday, 24:00, or with
    /// SIGTERM or SIGINT. It changes nothing, and may run beside the agent.
    Record(ScaleRecordArgs),
    /// Run the control law with the file's settings over a load in a simulator, and draw what happens.
    ///
    /// Prints a table, and lines of blocks for backlog, age and instances. Each group needs rate_per_task. The simulator
    /// has no failed messages, no network, and no processors that get slower with more tasks.
    Simulate(ScaleSimulateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ScaleFileArgs {
    /// The configuration file, see docs/scale.md
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ScaleRunArgs {
    /// The configuration file, see docs/scale.md
    pub(crate) file: PathBuf,

    /// Observe, decide and log, and start and stop nothing; may run beside another agent
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScaleRecordArgs {
    /// The configuration file, see docs/scale.md
    pub(crate) file: PathBuf,

    /// The file to write; it must not exist
    #[arg(long, value_name = "LOAD")]
    pub(crate) out: PathBuf,

    /// The group, if the file has several
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,

    /// How long, such as 1h; until Sunday, 24:00, by default
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct ScaleSimulateArgs {
    /// The configuration file, see docs/scale.md
    pub(crate) file: PathBuf,

    /// monday-morning, thursday-afternoon, burst, diurnal, or a file with lines of second,arrivals
    #[arg(long, value_name = "LOAD")]
    pub(crate) load: String,

    /// The group, if the file has several
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,

    /// Show KEDA's rule ceil(backlog / target) beside it, with its defaults and the window of Kubernetes
    #[arg(long)]
    pub(crate) beside_keda: bool,

    /// Also write a picture in SVG to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
