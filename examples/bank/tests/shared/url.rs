//! How programs are told of a PostgreSQL server.

use kew_idempotency::tokio_postgres::config::Host;

use crate::server::Server;

/// The address of a database, by the folder of the server's socket.
pub(crate) fn url(server: &Server, name: &str) -> String {
    let config = server.config(name);
    let folder = match &config.get_hosts()[0] {
        Host::Unix(folder) => folder.display().to_string(),
        Host::Tcp(host) => host.clone(),
    };
    format!("postgres://kew@{}/{name}", folder.replace('/', "%2F"))
}
