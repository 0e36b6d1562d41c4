//! `kew-null-server`: the ceiling of a durable queue over HTTP on this machine.
//!
//! Without `--log` it reads each request and sends a canned answer of realistic size. With `--log`
//! it also does the minimum of a durable queue: it checks an HMAC over as many bytes as a Shared
//! Key signature covers, appends a record to a log (the body of a put, 64 bytes for anything else)
//! and answers only after the fdatasync of the record's group.
//!
//! With `--stream` it is the ceiling of a broker instead: see the module `stream`.
//!
//! It keeps no queue and accepts every signature. It is a yardstick, not a service.

mod log;
mod stream;

use std::convert::Infallible;
use std::hint::black_box;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use aws_lc_rs::hmac;
use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use crate::log::Log;
use crate::stream::Stream;

/// Answers queue requests without being a queue.
#[derive(Parser)]
struct Options {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Threads that serve requests, besides the one that syncs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,

    /// Make each request durable in this file. It is overwritten.
    #[arg(long)]
    log: Option<PathBuf>,

    /// Size of the log, in MiB.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..))]
    log_size_mib: u32,

    /// Serve a stream of messages instead of HTTP, for `kew-bus-load --protocol null`.
    #[arg(long)]
    stream: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let log = match &options.log {
        Some(path) => {
            let log = Log::create(path, options.log_size_mib);
            Some(log.with_context(|| format!("cannot prepare {}", path.display()))?)
        }
        None => None,
    };
    let runtime = match options.threads {
        1 => Builder::new_current_thread().enable_io().build(),
        threads => Builder::new_multi_thread()
            .worker_threads(threads as usize)
            .enable_io()
            .build(),
    };
    runtime
        .context("cannot start the runtime")?
        .block_on(serve(&options, log))
}

async fn serve(options: &Options, log: Option<Arc<Log>>) -> Result<()> {
    let listen = options.listen;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen on {listen}"))?;
    let address = listener.local_addr()?;
    writeln!(std::io::stdout(), "NULL_LISTEN={address}\nNULL_READY=1")?;
    let messages = options.stream.then(|| Arc::new(Stream::new(log.clone())));
    let answers = Arc::new(Answers::new(log));
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept")?;
        stream.set_nodelay(true)?;
        if let Some(messages) = &messages {
            let messages = messages.clone();
            tokio::spawn(async move { messages.serve(stream).await });
            continue;
        }
        let answers = answers.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answers.answer(request));
            // A client that disconnects affects only its own connection.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

struct Answers {
    log: Option<Arc<Log>>,
    key: hmac::Key,
}

impl Answers {
    fn new(log: Option<Arc<Log>>) -> Self {
        Self {
            log,
            key: hmac::Key::new(hmac::HMAC_SHA256, &[7; 64]),
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let (status, text) = canned(&head.method, head.uri.query().unwrap_or_default());
        if let Some(log) = &self.log {
            // Finding a wrong tag costs as much as finding a right one.
            let _ = black_box(hmac::verify(&self.key, black_box(&[b's'; 260]), &[0; 32]));
            log.append(if body.is_empty() { &[1; 64] } else { &body })
                .await;
        }
        let response = Response::builder()
            .status(status)
            .header("content-type", "application/xml")
            .body(Full::new(text.into()));
        Ok(response.expect("a status and one constant header are valid"))
    }
}

/// The status and body of a queue's answer.
fn canned(method: &Method, query: &str) -> (StatusCode, String) {
    const HEAD: &str = "<MessageId>00000000-0000-0000-0000-000000000000</MessageId>\
        <InsertionTime>Fri, 20 Nov 2026 23:00:00 GMT</InsertionTime>\
        <ExpirationTime>Fri, 27 Nov 2026 23:00:00 GMT</ExpirationTime>\
        <PopReceipt>AAAAAAAAAAAAAAAAAAAAAAAA</PopReceipt>\
        <TimeNextVisible>Fri, 20 Nov 2026 23:00:00 GMT</TimeNextVisible>";
    match *method {
        Method::GET => {
            let asked = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("numofmessages="));
            let count = asked
                .and_then(|count| count.parse().ok())
                .unwrap_or(1)
                .min(32);
            let text = "x".repeat(1024);
            let one = format!(
                "<QueueMessage>{HEAD}<DequeueCount>1</DequeueCount>\
                 <MessageText>{text}</MessageText></QueueMessage>"
            );
            let all = one.repeat(count);
            let list = format!("<QueueMessagesList>{all}</QueueMessagesList>");
            (StatusCode::OK, list)
        }
        Method::DELETE => (StatusCode::NO_CONTENT, String::new()),
        _ => {
            let list = format!(
                "<QueueMessagesList><QueueMessage>{HEAD}</QueueMessage></QueueMessagesList>"
            );
            (StatusCode::CREATED, list)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_get_answers_as_many_messages_as_asked_for() {
        for (query, count) in [
            ("", 1),
            ("numofmessages=3&visibilitytimeout=1", 3),
            ("numofmessages=99", 32),
        ] {
            let (status, text) = canned(&Method::GET, query);
            assert_eq!(
                (status, text.matches("<QueueMessage>").count()),
                (StatusCode::OK, count)
            );
        }
    }
}
