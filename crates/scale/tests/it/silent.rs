//! Servers that accept connections and never answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_client::{Dial, DialFuture, Stream};
use kew_scale::{ClientSources, Sources as _};

use crate::support::{open, source};

/// The port of the metrics page.
const PORT: u16 = 9464;

/// Takes connections, and never answers.
#[derive(Default)]
struct Silent(Mutex<Vec<(u16, tokio::io::DuplexStream)>>);

impl Dial for Silent {
    fn dial<'a>(&'a self, _: &'a str, port: u16) -> DialFuture<'a> {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        self.0.lock().unwrap().push((port, theirs));
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn Stream>) })
    }
}

impl Silent {
    fn ports(&self) -> Vec<u16> {
        self.0.lock().unwrap().iter().map(|it| it.0).collect()
    }
}

/// Sources of these queues. Some have the page.
fn sources(silent: &Arc<Silent>, queues: &[(&str, &str, bool)]) -> ClientSources {
    let page = format!("metrics = 'http://localhost:{PORT}'");
    let sources = queues.iter().map(|(queue, at, has_page)| {
        let page = if *has_page { page.as_str() } else { "" };
        source(queue, at, page)
    });
    open("", &sources.collect::<String>(), silent.clone())
}

/// The answer of a server that accepts connections and says nothing never comes.
#[tokio::test(start_paused = true)]
async fn a_silent_service_cannot_be_read() {
    let silent = Arc::<Silent>::default();
    let queues = [
        ("jobs", "STORAGE", true),
        ("jobs2", "STORAGE", false),
        ("orders", "BUS", false),
    ];
    let mut sources = sources(&silent, &queues);
    let began = tokio::time::Instant::now();
    for seen in sources.read().await {
        let error = seen.reading.unwrap_err();
        assert!(error.text.contains("within"), "{}: {error:?}", seen.name);
    }
    assert!(
        began.elapsed() <= Duration::from_secs(11),
        "{:?}",
        began.elapsed()
    );
}

/// One source that never answers holds up the start of instances for others once a minute, and not at each look.
#[tokio::test(start_paused = true)]
async fn a_silent_service_has_the_whole_time_once_a_minute() {
    let silent = Arc::<Silent>::default();
    let mut sources = sources(
        &silent,
        &[("jobs", "STORAGE", false), ("orders", "BUS", false)],
    );
    for (pause, seconds) in [(0, 10), (0, 1), (1, 1), (40, 1), (20, 10), (0, 1)] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        let began = tokio::time::Instant::now();
        for seen in sources.read().await {
            let error = seen.reading.unwrap_err();
            assert!(error.text.contains("within"), "{}: {error:?}", seen.name);
        }
        let took = began.elapsed().as_secs_f64();
        let whole = f64::from(seconds);
        assert!((whole - 0.1..=whole + 1.0).contains(&took), "{took} s");
    }
}

/// A silent page makes those sources unreadable that need it, and no others: they are read beside it.
#[tokio::test]
async fn a_silent_page_holds_up_no_source_without_it() {
    let silent = Arc::<Silent>::default();
    let queues = [("jobs", "STORAGE", true), ("jobs2", "STORAGE", false)];
    let mut sources = sources(&silent, &queues);
    let both = async {
        while silent.ports().len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = both => {}
        _ = sources.read() => panic!("{:?}", silent.ports()),
    }
    assert!(silent.ports().contains(&PORT));
}
