//! The commands of the README, as they stand there: a newcomer starts the programs one by one, and kills a worker.

use std::path::Path;
use std::process::{Command as StdCommand, Output, Stdio};
use std::time::Duration;

use hyper::Method;
use kew_bank::client::Client;
use kew_bank::start::find_kew;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::fleet::{address, programs};
use crate::skip::skip;

const README: &str = include_str!("../../README.md");

const PATIENCE: Duration = Duration::from_secs(60);

/// The block of code with these words.
pub(crate) fn block(words: &str) -> &'static str {
    let mut blocks = README.split("```").skip(1).step_by(2);
    let found = blocks.find(|it| it.contains(words));
    found.unwrap_or_else(|| panic!("the README has no block with {words}"))
}

/// The one line of a block with these words, without its comment.
pub(crate) fn line(words: &str) -> &'static str {
    let found = block(words).lines().find(|it| it.contains(words));
    found.unwrap().split("  #").next().unwrap().trim()
}

/// A folder like that of the repository after a build, and settings with which the programs use ports of their own.
pub(crate) struct Place {
    folder: TempDir,
    settings: Vec<(&'static str, String)>,
    web: String,
    pub(crate) queue_service: String,
    /// The group of the processes in the background.
    background: Option<Pid>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let built = folder.path().join("target/debug");
        std::fs::create_dir_all(&built).unwrap();
        let link = |program: &Path, name: &str| {
            std::os::unix::fs::symlink(program.canonicalize().unwrap(), built.join(name)).unwrap();
        };
        for name in ["bank", "bank-web", "bank-worker"] {
            link(&programs().join(name), name);
        }
        link(&find_kew(&programs()).unwrap(), "kew");
        let (kew, web) = (address(), address());
        let queue_service = format!(
            "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=\
             Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;\
             QueueEndpoint=http://{kew}/devstoreaccount1;"
        );
        let settings = vec![
            ("PATH", std::env::var("PATH").unwrap()),
            ("KEW_QUEUE_LISTEN", kew.to_string()),
            ("KEW_BUS_LISTEN", "none".to_owned()),
            ("BANK_QUEUE_SERVICE", queue_service.clone()),
            ("BANK_LISTEN", web.to_string()),
            ("BANK_WEB", format!("http://{web}")),
            // So that the messages of a killed worker come back soon.
            ("BANK_WORKER_TIMEOUT_S", "2".to_owned()),
        ];
        Self {
            folder,
            settings,
            web: format!("http://{web}"),
            queue_service,
            background: None,
        }
    }

    fn shell(&self, script: &str) -> StdCommand {
        let mut shell = StdCommand::new("bash");
        shell.args(["-c", script]).current_dir(self.folder.path());
        shell.env_clear().envs(self.settings.iter().cloned());
        shell.stdin(Stdio::null());
        shell
    }

    /// Runs what stays in the background until the end of the test.
    pub(crate) fn start(&mut self, script: &str) {
        use std::os::unix::process::CommandExt as _;
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let mut shell = self.shell(script);
        shell.process_group(0);
        shell.stdout(log.try_clone().unwrap()).stderr(log);
        let mut shell = shell.spawn().unwrap();
        self.background = Pid::from_raw(shell.id().cast_signed());
        assert!(shell.wait().unwrap().success());
    }

    /// Runs commands to their end, which must be good.
    pub(crate) async fn run(&self, script: &str) -> String {
        let mut shell = Command::from(self.shell(script));
        let ended = timeout(PATIENCE, shell.kill_on_drop(true).output()).await;
        let Output {
            status,
            stdout,
            stderr,
        } = ended.expect("it ends").unwrap();
        let text = String::from_utf8_lossy(&stdout).into_owned();
        let error = String::from_utf8_lossy(&stderr);
        assert!(
            status.success(),
            "{script}: {text}\n{error}\n{}",
            self.log()
        );
        text
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until the page shows so many workers, and returns their names.
    pub(crate) async fn workers(&self, count: usize) -> Vec<String> {
        let web = Client::new(&self.web).unwrap();
        let shown = async {
            loop {
                let reply = web.call(Method::GET, "/state", None, "").await;
                let state: Value = reply
                    .ok()
                    .and_then(|it| serde_json::from_slice(&it.body).ok())
                    .unwrap_or_default();
                let workers = state["workers"].as_array().cloned().unwrap_or_default();
                if workers.len() == count {
                    let names = workers.iter().map(|it| it["instance"].as_str().unwrap());
                    return names.map(str::to_owned).collect();
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        let shown = timeout(PATIENCE, shown).await;
        shown.unwrap_or_else(|_| panic!("not {count} workers: {}", self.log()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(group) = self.background {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[tokio::test]
async fn the_programs_that_a_newcomer_starts_find_each_other_and_survive_a_kill() {
    let mut place = Place::new();
    place.start(block("target/debug/bank-web &"));
    let workers = place.workers(2).await;
    // Shorter than the peak of the README.
    let replay = format!("{} --seconds 2 --transactions 100", line("bank replay"));
    let kill = async {
        sleep(Duration::from_secs(1)).await;
        let pid: i32 = workers[0]
            .parse()
            .expect("a worker's name is its process id");
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    };
    let (replayed, ()) = tokio::join!(place.run(&replay), kill);
    assert!(replayed.contains("confirmed=100"), "{replayed}");
    let checked = place.run(line("bank check")).await;
    assert!(checked.contains("booked exactly once"), "{checked}");
    let balances = place.run(line("bank balances")).await;
    assert!(balances.contains("user-000|a0"), "{balances}");
    for file in ["bank.sqlite", "journal", "kew"] {
        let path = place.folder.path().join("bank-data").join(file);
        assert!(path.exists(), "{file}");
    }
    calls_are_answered(&place).await;
}

async fn calls_are_answered(place: &Place) {
    if StdCommand::new("curl").arg("--version").output().is_err() {
        return skip(
            "the calls of the bank's README",
            "there is no curl",
            "install curl",
        );
    }
    let calls = block("curl -X POST").replace("http://127.0.0.1:8080", &place.web);
    let answers = place
        .run(&calls.replace("curl ", "curl --silent --show-error "))
        .await;
    assert!(answers.starts_with(r#"{"status":"Succeeded""#), "{answers}");
    // The second call may come before it is booked.
    let looked_up = ["Proceed", "Completed"].map(|it| format!(r#"}}{{"status":"{it}""#));
    assert!(looked_up.iter().any(|it| answers.contains(it)), "{answers}");
}
