//! Processes that tests start: Kew, and this program as a listener.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{sleep, timeout};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process, and the last value of each `name=value` that it printed. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    facts: Arc<Mutex<BTreeMap<String, String>>>,
    input: Option<ChildStdin>,
}

impl Process {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let facts = Arc::new(Mutex::new(BTreeMap::new()));
        let told = facts.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((name, value)) = line.split_once('=') {
                    let value = value.trim_matches('\'').to_owned();
                    told.lock().unwrap().insert(name.to_owned(), value);
                }
            }
        });
        Self {
            child,
            facts,
            input,
        }
    }

    pub(crate) fn fact(&self, name: &str) -> Option<String> {
        self.facts.lock().unwrap().get(name).cloned()
    }

    /// A fact that is a number, or 0.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.fact(name).map_or(0, |it| it.parse().unwrap())
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends its input, upon which a listener stops, and waits for its end.
    pub(crate) async fn stop(mut self) {
        drop(self.input.take());
        let ended = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let status = timeout(PATIENCE, ended).await.expect("it stops");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kew on free ports, with its data in memory.
pub(crate) async fn kew() -> Process {
    let mut command = Command::new(find_kew());
    for (name, _) in std::env::vars_os() {
        // Settings of another Kew on this machine.
        if name.to_string_lossy().starts_with("KEW_") {
            command.env_remove(name);
        }
    }
    command
        .args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"])
        .args(["--bus-listen", "127.0.0.1:0"])
        .env("KEW_LOG", "error");
    let kew = Process::start(command);
    until("Kew is ready", async || kew.fact("KEW_READY").is_some()).await;
    kew
}

fn find_kew() -> PathBuf {
    if let Some(path) = std::env::var_os("KEW_BINARY") {
        return path.into();
    }
    // Tests are in a folder below that of programs.
    let own = std::env::current_exe().unwrap();
    let beside = own.parent().and_then(|it| it.parent()).unwrap().join("kew");
    let shown = beside.display();
    assert!(
        beside.is_file(),
        "{shown} is absent: build it with cargo build -p kew, or set KEW_BINARY"
    );
    beside
}

/// This program, as the test of that name, with settings.
pub(crate) fn this_program(test: &str, settings: &[(&str, &str)]) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]);
    Process::start({
        command.envs(settings.iter().copied());
        command
    })
}

pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let holds = async {
        while !condition().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let holds = timeout(PATIENCE, holds).await;
    assert!(holds.is_ok(), "never: {what}");
}
