//! Accepting connections, and handing them to the front end.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use kew_listen::{Door, Opened, Place};
use kew_queue_api::{Origin, QueueApi, Reach};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::open_files::TurnedAwayPlaces;
use crate::settings::tls::PlainHttp;

/// What a listener serves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Queue Storage.
    Queue,
    /// Only metrics and health, without TLS.
    Operator,
}

/// How long to wait after the system has failed to accept a connection.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves the connections of one listener.
pub(crate) struct Acceptor {
    pub(crate) role: Role,
    /// Which clients can reach the listener.
    pub(crate) reach: Reach,
    /// Whether the well-known account is served here.
    pub(crate) may_use_public_key: bool,
    pub(crate) api: QueueApi,
    pub(crate) door: Door,
    pub(crate) plain: PlainHttp,
    pub(crate) turned_away: TurnedAwayPlaces,
    pub(crate) stopping: watch::Receiver<bool>,
}

/// Accepts connections until the server stops, passes each to `serve`, which spawns a task for it, and
/// waits for all tasks to end.
pub(crate) async fn accept(
    listener: TcpListener,
    mut stopping: watch::Receiver<bool>,
    mut serve: impl FnMut(&mut JoinSet<()>, TcpStream, SocketAddr),
) {
    let mut serving = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => break,
            Some(ended) = serving.join_next(), if !serving.is_empty() => {
                if ended.is_err() {
                    tracing::error!("serving a connection panicked; it was closed");
                }
                continue;
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                // Without it, an answer can wait for the client's acknowledgement of the one before.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
                }
                serve(&mut serving, stream, peer);
            }
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Out of memory or file descriptors: others must end first.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while serving.join_next().await.is_some() {}
}

impl Acceptor {
    pub(crate) async fn run(self, listener: TcpListener) {
        let stopping = self.stopping.clone();
        accept(listener, stopping, |serving, stream, peer| {
            self.serve(serving, stream, peer);
        })
        .await;
    }

    fn serve(&self, serving: &mut JoinSet<()>, stream: TcpStream, peer: SocketAddr) {
        if matches!(self.role, Role::Operator) {
            let (api, mut stopping) = (self.api.clone(), self.stopping.clone());
            let reach = self.reach;
            serving.spawn(async move {
                api.serve_operator_connection(stream, reach, stopped(&mut stopping))
                    .await;
            });
            return;
        }
        let connection = Connection {
            api: self.api.clone(),
            door: self.door.clone(),
            plain: self.plain,
            may_use_public_key: self.may_use_public_key,
            peer,
            stopping: self.stopping.clone(),
        };
        // The connection counts from now on, whatever the client sends.
        if let Some(place) = self.api.admit(peer) {
            serving.spawn(connection.serve(stream, place));
        } else if let Some(place) = self.turned_away.take() {
            serving.spawn(async move {
                connection.turn_away(stream).await;
                drop(place);
            });
        } else {
            self.api.note_turned_away(peer);
        }
    }
}

/// A connection that was accepted.
struct Connection {
    api: QueueApi,
    door: Door,
    plain: PlainHttp,
    may_use_public_key: bool,
    peer: SocketAddr,
    stopping: watch::Receiver<bool>,
}

impl Connection {
    async fn serve(self, stream: TcpStream, place: Place) {
        let peer = self.peer;
        let mut stopping = self.stopping.clone();
        let notice = place.notice();
        let opened = tokio::select! {
            biased;
            () = notice.given() => return self.api.note_gave_way(peer),
            opened = self.door.open(stream) => opened,
            // The client has sent no request yet.
            () = stopped(&mut stopping) => return,
        };
        let origin = self.origin(matches!(opened, Ok(Opened::Secure(_))));
        match opened {
            Ok(Opened::Plain(stream)) if self.plain.admits(peer) => {
                let shutdown = stopped(&mut stopping);
                let serving = self.api.serve_admitted(stream, origin, place, shutdown);
                serving.await;
            }
            Ok(Opened::Plain(stream)) => tokio::select! {
                biased;
                () = notice.given() => self.api.note_gave_way(peer),
                () = self.api.refuse_plain(stream, origin) => {}
            },
            Ok(Opened::Secure(stream)) => {
                let shutdown = stopped(&mut stopping);
                let serving = self.api.serve_admitted(stream, origin, place, shutdown);
                // Its state must not make plain connections larger.
                Box::pin(serving).await;
            }
            Err(error) => tracing::debug!(%peer, %error, "connection not opened"),
        }
    }

    async fn turn_away(self, stream: TcpStream) {
        if let Some(stream) = self.door.turn_away(stream).await {
            self.api.turn_away(stream, self.origin(false)).await;
        }
    }

    fn origin(&self, is_secure: bool) -> Origin {
        Origin {
            peer: self.peer,
            is_secure,
            may_use_public_key: self.may_use_public_key,
        }
    }
}

/// Resolves when the server stops.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped, because the server has ended.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
