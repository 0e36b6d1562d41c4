//! Carries out acts of the command line: through the server that uses the data directory or, without a server,
//! on the directory itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use kew_broker::Broker;
use kew_bus_api::{BusApi, BusApiOptions};
use kew_log::{DataDir, DataDirError};
use kew_queue_api::{ServedAccounts, StorageAccounts};

use super::account::Endpoint;
use super::client::Connection;
use super::rule::BusEndpoint;
use super::{Act, Administered, Answer, Failure, carry_out};
use crate::migration::migrate_if_old;
use crate::serve::broker_options;
use crate::settings;
use crate::{holders, start_error};

/// The default addresses of a server, for connection strings: without a server, its addresses are unknown.
const ENDPOINT_DEFAULT: &str = "127.0.0.1:10001";
const BUS_ENDPOINT_DEFAULT: &str = "sb://localhost:5672";

/// Carries out an act.
pub(crate) fn ask(
    data_dir: Option<PathBuf>,
    admin_socket: Option<PathBuf>,
    act: Act,
) -> Result<Result<Answer, Failure>> {
    match (data_dir, admin_socket) {
        // A socket without a directory belongs to a server with --ephemeral or with another directory.
        (None, Some(socket)) => match Connection::open(&socket)? {
            Some(server) => server.ask(&act),
            None => bail!("no server answers at {}", socket.display()),
        },
        (data_dir, socket) => {
            let path = settings::data_dir_or_default(data_dir)?;
            let socket = socket.unwrap_or_else(|| path.join(settings::ADMIN_SOCKET));
            match Connection::open(&socket)? {
                Some(server) => server.ask(&act),
                None => in_directory(&path, act),
            }
        }
    }
}

/// Carries out an act on a data directory that no server uses.
fn in_directory(path: &Path, act: Act) -> Result<Result<Answer, Failure>> {
    migrate_if_old(path)?;
    let data_dir = DataDir::open_existing(path).map_err(|error| {
        let why = match &error {
            DataDirError::InUse { .. } => {
                "no server answers at admin.sock, and the data directory cannot be used"
            }
            DataDirError::Missing { .. } => "no server answers, and there is no data directory",
            _ => "no server answers, and the data directory cannot be used",
        };
        holders::of_data_dir(error).context(why)
    })?;
    let storage = Arc::new(data_dir.storage()?);
    let (broker, _) = Broker::start(storage, broker_options())
        .map_err(|error| start_error::explain(error, path))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let answered = runtime.block_on(async {
        let accounts = ServedAccounts::default();
        let administered = Administered {
            accounts: StorageAccounts::open(broker.clone(), accounts, false).await?,
            endpoint: Endpoint(ENDPOINT_DEFAULT.parse()?),
            bus: BusApi::open(broker.clone(), BusApiOptions::default()).await?,
            bus_endpoint: BusEndpoint {
                endpoint: BUS_ENDPOINT_DEFAULT.into(),
                is_plain: true,
            },
            broker: broker.clone(),
            backups: None,
        };
        anyhow::Ok(carry_out(&administered, act, "command line").await)
    });
    broker.stop();
    answered
}
