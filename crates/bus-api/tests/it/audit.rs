//! The content of the audit log.

use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, Once};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The records of all tests.
static RECORDS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Audit;

impl Subscriber for Audit {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "audit"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        RECORDS.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

/// Keeps all records from now on.
pub(crate) fn listen() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| tracing::subscriber::set_global_default(Audit).unwrap());
}

/// All records so far that contain this text.
pub(crate) fn records_with(text: &str) -> Vec<String> {
    let records = RECORDS.lock().unwrap();
    let found = records.iter().filter(|record| record.contains(text));
    found.cloned().collect()
}

/// The first record with this text. No other test may cause one.
pub(crate) async fn record_with(text: &str) -> String {
    let found = async {
        loop {
            let records = RECORDS.lock().unwrap().clone();
            if let Some(record) = records.into_iter().find(|record| record.contains(text)) {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(60), found).await;
    found.unwrap_or_else(|_| panic!("no record with {text}"))
}
