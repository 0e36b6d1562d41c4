//! Spans of a listener in a trace of OpenTelemetry, as the pages for applications show it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_worker::Meta;
use opentelemetry::trace::{SpanId, TraceId, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use tracing::Span;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::documented::set_parent;
use crate::fake::Service;
use crate::listener::{until, works};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test(start_paused = true)]
async fn the_span_of_an_attempt_is_a_child_of_the_one_that_sent() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _default = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let service = Service::new(1);
    let seen = Arc::new(Mutex::new(0));
    let count = seen.clone();
    let listener = works::<false>(&service, Duration::ZERO)
        .on_span(move |span: &Span, meta: &Meta| {
            *count.lock().unwrap() += 1;
            set_parent(span, meta);
        })
        .build();
    listener.start(1).unwrap();
    // As in `traces`: all places in the code are met before they are asked again.
    service.put("first");
    until("it is deleted", || service.depth() == 0).await;
    tracing::callsite::rebuild_interest_cache();
    service.put_with("x", vec![("traceparent".to_owned(), PARENT.to_owned())]);
    until("it is deleted", || {
        listener.state().in_flight == 0 && service.depth() == 0
    })
    .await;
    assert_eq!(*seen.lock().unwrap(), 2);
    let spans = exporter.get_finished_spans().unwrap();
    let trace = TraceId::from_hex("0af7651916cd43dd8448eb211c80319c").unwrap();
    let ours = spans
        .iter()
        .filter(|it| it.span_context.trace_id() == trace);
    let ours: Vec<_> = ours.map(|it| (&*it.name, it.parent_span_id)).collect();
    let parent = SpanId::from_hex("b7ad6b7169203331").unwrap();
    assert_eq!(ours, [("process", parent)], "{spans:?}");
}
