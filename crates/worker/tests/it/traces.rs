//! Spans, and how an application connects them to a trace.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_worker::{Meta, TraceContext};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::fake::Service;
use crate::listener::{until, works};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_a_span_with_its_message_and_its_trace() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(lines.clone())
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let service = Service::new(1);
    let connected = Arc::new(Mutex::new(None));
    let seen = connected.clone();
    let trace = TraceContext::parse(PARENT, None);
    let listener = works::<false>(&service, Duration::ZERO)
        .on_span(move |_, meta: &Meta| {
            *seen.lock().unwrap() = meta.property("traceparent").map(str::to_owned);
        })
        .build();
    listener.start(1).unwrap();
    // Other tests run without a subscriber at the same time. A place in the code that one of them meets first could
    // stay silent, so all of them are met before they are asked again.
    service.put("first");
    until("it is deleted", || service.depth() == 0).await;
    tracing::callsite::rebuild_interest_cache();
    service.put_with("x", vec![("traceparent".to_owned(), PARENT.to_owned())]);
    until("it is deleted", || {
        listener.state().in_flight == 0 && service.depth() == 0
    })
    .await;
    let connected = connected.lock().unwrap().clone();
    assert_eq!(connected, trace.map(|it| it.traceparent()));
    let written = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(written.contains("process{"), "{written}");
    for field in ["messaging.destination.name=\"jobs\"", "messaging.attempt=1"] {
        assert!(written.contains(field), "{field} is not in {written}");
    }
}
