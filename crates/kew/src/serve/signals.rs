//! The signals that a server handles.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kew_listen::Tls;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::settings::Place;
use crate::settings::tls::{SERVER_CERT, TLS_DIR};

/// How often the certificate's files are checked.
const TLS_WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// The signals of a process, with their handlers installed.
///
/// An early signal is kept until it is handled: SIGTERM and SIGINT stop the server right after the
/// recovery, and SIGHUP never ends it.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Taken by the task that handles it.
    hangup: Option<Signal>,
}

impl Signals {
    /// Installs the handlers: without them, the system ends the process. Needs a runtime.
    pub(super) fn take_over() -> Result<Self> {
        let take = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
            hangup: Some(take(SignalKind::hangup())?),
        })
    }

    /// Resolves when the server should stop.
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = self.interrupt.recv() => tracing::info!("SIGINT: stopping"),
        }
    }

    /// Handles SIGHUP: loads the certificate again or, without one, logs what to do.
    pub(super) fn answer_hangup(&mut self, tls: Option<&Arc<Tls>>, place: &Place) {
        let Some(mut hangup) = self.hangup.take() else {
            return;
        };
        let mut asked = async move || {
            hangup.recv().await;
        };
        match tls {
            Some(tls) => {
                tokio::spawn(Arc::clone(tls).keep_fresh(TLS_WATCH_INTERVAL, asked));
            }
            None => {
                let made = made_by_init(place);
                tokio::spawn(async move {
                    loop {
                        asked().await;
                        explain_without_tls(made.as_ref());
                    }
                });
            }
        }
    }
}

/// Where `kew tls init` puts the server's certificate by default.
fn made_by_init(place: &Place) -> Option<PathBuf> {
    match place {
        Place::Memory => None,
        Place::Directory(path) => Some(path.join(TLS_DIR).join(SERVER_CERT)),
    }
}

fn explain_without_tls(certificate: Option<&PathBuf>) {
    match certificate.filter(|path| path.exists()) {
        Some(path) => tracing::warn!(
            "SIGHUP: this server was started without TLS: restart it to use the certificate in {}",
            path.display()
        ),
        None => tracing::info!(
            "SIGHUP: nothing to load, because this server was started without TLS: to serve TLS, make a \
             certificate with kew tls init or name one with --tls-cert and --tls-key, and restart the \
             server"
        ),
    }
}
