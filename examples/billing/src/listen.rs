//! What the listeners of all programs have in common.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::routing::get;
use kew_claim_check::Checked;
use kew_worker::{
    Announce as _, Announcement, BackOff, Fixed, Handler, Json, Listener, QueueLease, QueueSource,
    Source as _, SourceName, State, Stop, TopicAnnouncements,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::place::{Announcer, Place, TOPIC};
use crate::program::print_line;

/// A message is never buried because programs died with it: only for what it is.
const ATTEMPTS_MAX: u32 = 1_000;

/// The shortest time between announcements of one program for one queue.
const ANNOUNCED_EVERY: Duration = Duration::from_millis(500);

/// How long the handlers of a program may take to end when it stops.
const STOP: Duration = Duration::from_secs(5);

/// Settings of listeners.
#[derive(Clone, Copy, Debug)]
pub struct Tasks {
    /// Dequeue tasks at most. The listener starts as many of them as the depth asks for.
    pub tasks_max: u32,
    /// Messages that are handled at once.
    pub handlers_max: u32,
}

/// A listener of a queue whose messages have claim checks.
pub fn listener<T>(
    place: &Place,
    queue: &str,
    tasks: Tasks,
    handler: impl Handler<T, QueueLease>,
) -> Result<Listener<T, QueueSource>>
where
    T: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
{
    let source = QueueSource::new(place.queues.clone(), place.account(), queue);
    let name = source.name().clone();
    let codec = Checked::new(place.claims(queue)?, Json::<T>::new());
    let builder = Listener::builder(source, codec)
        .subscribe(handler)
        .visibility(Fixed(place.timeout))
        .attempts_max(ATTEMPTS_MAX)
        .tasks_max(tasks.tasks_max)
        .handlers_max(tasks.handlers_max)
        .message_delay(BackOff {
            first: Duration::from_secs(1),
            maximum: Duration::from_secs(30),
        })
        .recheck(Some(place.recheck));
    let Some(bus) = &place.bus else {
        return Ok(builder.build());
    };
    let (client, admin) = (bus.client.clone(), Some(bus.admin.clone()));
    // Its own, and new after a crash: the service deletes what the crashed one had.
    let own = format!(
        "{queue}-{}-{}",
        std::process::id(),
        crate::program::chance()
    );
    let push = TopicAnnouncements::new(client, admin, TOPIC, &own, &name);
    Ok(builder.push(push).build())
}

/// Runs a listener until the program is asked to stop, and reports what it does. The first line of output says that it
/// runs.
pub async fn run<T>(place: &Place, program: &str, listener: &Listener<T, QueueSource>) -> Result<()>
where
    T: Send + Sync + 'static,
{
    listener.start(1)?;
    print_line(&format!("BILLING_PROGRAM={program}"));
    let report = crate::program::Report::new(&place.data, program);
    tokio::select! {
        stopped = crate::program::stop_requested() => stopped?,
        () = async {
            loop {
                report.write(&status(&listener.state()));
                sleep(Duration::from_secs(1)).await;
            }
        } => {}
    }
    let stop = Stop {
        finish_within: STOP,
        return_within: STOP,
    };
    let left = listener.stop(stop).await;
    tracing::info!(?left, "stopped");
    report.remove();
    Ok(())
}

/// Serves the metrics of a listener for Prometheus and the scaling agent. It has no authentication.
pub async fn metrics_page<T>(address: SocketAddr, listener: &Listener<T, QueueSource>) -> Result<()>
where
    T: Send + Sync + 'static,
{
    let bound = TcpListener::bind(address).await;
    let bound = bound.with_context(|| format!("cannot listen on {address}"))?;
    let shown = listener.clone();
    let page = async move || kew_worker::metrics_page([shown.metrics()]);
    axum::serve(bound, Router::new().route("/metrics", get(page))).await?;
    Ok(())
}

/// What the page shows of a program.
fn status(state: &State) -> serde_json::Value {
    serde_json::json!({
        "tasks": state.active_tasks,
        "in_flight": state.in_flight,
        "completed": state.completed,
        "failed": state.failed,
        "requests": state.requests,
        "empty_polls": state.empty_polls,
        "announcements": state.announcements,
    })
}

/// Announces work in one queue, and not more often than listeners need it. Clones share the pace.
///
/// After a call there is always an announcement that was sent later: at once, or at the end of the pause.
#[derive(Clone, Debug)]
pub struct PacedAnnouncer(Arc<Notify>);

impl PacedAnnouncer {
    /// Announces from now on, as long as the runtime runs.
    pub fn start(announcer: Announcer, name: &SourceName, program: &str) -> Self {
        let asked = Arc::new(Notify::new());
        let announcement = Announcement::new(name, program);
        let heard = asked.clone();
        tokio::spawn(async move {
            loop {
                heard.notified().await;
                if let Err(error) = announcer.announce(&announcement).await {
                    tracing::warn!(%error, "work was not announced: listeners find it later");
                }
                sleep(ANNOUNCED_EVERY).await;
            }
        });
        Self(asked)
    }

    /// There is work.
    pub fn announce(&self) {
        self.0.notify_one();
    }
}
