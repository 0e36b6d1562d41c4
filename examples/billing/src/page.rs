//! A page that shows how far the work is.

use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::archive::{Archive, Format};
use crate::journal::Journal;
use crate::place::{Place, QUEUES};
use crate::program::reports;

const PAGE: &str = include_str!("page.html");

struct Shown<F> {
    place: Place,
    archive: Archive<F>,
}

/// Serves the page and, as JSON, what it shows. It has no authentication.
pub async fn serve<F: Format>(
    place: Place,
    archive: Archive<F>,
    listener: TcpListener,
) -> Result<()> {
    let shown = Arc::new(Shown { place, archive });
    let router = Router::new()
        .route("/", get(async || Html(PAGE)))
        .route("/state", get(state::<F>))
        .with_state(shown);
    axum::serve(listener, router).await?;
    Ok(())
}

async fn state<F: Format>(State(shown): State<Arc<Shown<F>>>) -> impl IntoResponse {
    let state = match read(&shown).await {
        Ok(state) => state,
        Err(error) => json!({ "error": format!("{error:#}") }),
    };
    ([(CONTENT_TYPE, "application/json")], state.to_string())
}

async fn read<F: Format>(shown: &Shown<F>) -> Result<Value> {
    let mut queues = Vec::new();
    for queue in QUEUES {
        let read = shown.place.queues.queue_properties(queue).await?;
        queues.push(json!({ "name": queue, "depth": read.approximate_message_count }));
    }
    let submitted = Journal::of(&shown.place.data).read()?;
    let complete = shown.archive.packages().await?;
    let count_of = |it: &u32| submitted.get(it).map_or(0, |it| u64::from(it.order.count));
    let transactions: u64 = submitted.values().map(|it| u64::from(it.order.count)).sum();
    let done: u64 = complete.iter().map(count_of).sum();
    Ok(json!({
        "packages": submitted.len(),
        "packages_complete": complete.len(),
        "parts_waiting": shown.archive.waiting_parts().await?,
        "transactions": transactions,
        "transactions_done": done,
        "queues": queues,
        "programs": reports(&shown.place.data),
    }))
}
