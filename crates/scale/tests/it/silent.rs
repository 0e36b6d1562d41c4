//! Servers that accept connections and never answer.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_client::{Dial, DialFuture, Stream};
use kew_scale::{ClientSources, Config, Connecting, Sources as _};

const STORAGE: &str = "UseDevelopmentStorage=true";
const BUS: &str = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
     SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;";

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
fn open(silent: &Arc<Silent>, queues: &[(&str, &str, bool)]) -> ClientSources {
    let sources = queues.iter().map(|(queue, variable, has_page)| {
        let page = if *has_page {
            format!("metrics = 'http://localhost:{PORT}'\n")
        } else {
            String::new()
        };
        format!("[[group.source]]\nqueue = '{queue}'\nconnection_env = '{variable}'\n{page}")
    });
    let text = format!(
        "[[group]]\nname = 'jobs'\n{}[group.target.process]\ncommand = ['x']\nstate_directory = '/x'\n",
        sources.collect::<String>()
    );
    let config = Config::parse(Path::new("scale.toml"), &text).unwrap();
    let variable = |name: &str| match name {
        "STORAGE" => Some(STORAGE.into()),
        "BUS" => Some(BUS.into()),
        _ => None,
    };
    let connecting = Connecting {
        dial: Some(silent.clone()),
    };
    ClientSources::open(&config.groups[0], &variable, &connecting).unwrap()
}

/// The answer of a server that accepts connections and says nothing never comes.
#[tokio::test(start_paused = true)]
async fn a_silent_service_cannot_be_read() {
    let silent = Arc::<Silent>::default();
    let sources = [
        ("jobs", "STORAGE", true),
        ("jobs2", "STORAGE", false),
        ("orders", "BUS", false),
    ];
    let mut sources = open(&silent, &sources);
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

/// A silent page makes those sources unreadable that need it, and no others: they are read beside it.
#[tokio::test]
async fn a_silent_page_holds_up_no_source_without_it() {
    let silent = Arc::<Silent>::default();
    let queues = [("jobs", "STORAGE", true), ("jobs2", "STORAGE", false)];
    let mut sources = open(&silent, &queues);
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
