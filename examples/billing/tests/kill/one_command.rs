//! One command starts everything, submits, checks, reports and stops. Workers come from none and go again, and programs
//! that die are started again.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kew_billing::start::find_kew;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::fleet::programs;

const PATIENCE: Duration = Duration::from_secs(180);

/// Before the address of the page.
const PAGE: &str = "the page is at http://";

/// Those with a queue.
const PROGRAMS: [&str; 3] = ["initiator", "worker", "controller"];

/// What the page shows as JSON.
async fn state(address: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /state HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Lines that a program has printed until now.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn of(stream: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let lines = Self::default();
        let mut read = BufReader::new(stream).lines();
        let all = lines.0.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = read.next_line().await {
                all.lock().unwrap().push(line);
            }
        });
        lines
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }

    fn count(&self, part: &str) -> usize {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|it| it.contains(part)).count()
    }

    /// What follows `before` in the last line that has it.
    fn after(&self, before: &str) -> Option<String> {
        let lines = self.0.lock().unwrap();
        let found = lines.iter().rev().find_map(|it| it.split_once(before));
        found.map(|(_, after)| after.to_owned())
    }
}

/// `billing run`, and what it prints. All that it has started ends with it.
struct Everything {
    child: Child,
    data: PathBuf,
    out: Lines,
    /// The log of the agent is here.
    log: Lines,
}

impl Everything {
    fn start(data: &Path) -> Self {
        Self::start_with(data, &["--idle-after-s", "2"], &[])
    }

    fn start_with(data: &Path, options: &[&str], settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(programs().join("billing"));
        command.args(["run", "--transactions", "1000", "--listen", "127.0.0.1:0"]);
        command.args(["--package-size", "300", "--part-size", "50", "--data"]);
        command.arg(data);
        command.args(["--timeout-s", "5", "--stay"]);
        command.args(options).envs(settings.iter().copied());
        command.env(
            "KEW_BINARY",
            find_kew(&programs()).unwrap().canonicalize().unwrap(),
        );
        command.env("KEW_LOG", "info");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let out = Lines::of(child.stdout.take().unwrap());
        let log = Lines::of(child.stderr.take().unwrap());
        let data = data.to_owned();
        Self {
            child,
            data,
            out,
            log,
        }
    }

    async fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let waiting = async {
            while !is_so(self) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = timeout(PATIENCE, waiting).await;
        waited.unwrap_or_else(|_| panic!("{what}: {}\n{}", self.out.text(), self.log.text()));
    }

    /// The agent has stopped all workers that it has started, which were more than `before`. Returns how many.
    async fn until_zero(&self, before: usize) -> usize {
        let started = |it: &Self| it.log.count(" was started");
        self.until("workers start from none and stop again", |it| {
            started(it) > before && it.log.count(" has ended") == started(it)
        })
        .await;
        started(self)
    }

    /// What a program says on the page, such as its `announcements`, if it runs.
    async fn status(&self, program: &str, what: &str) -> Option<u64> {
        let answer = state(&self.out.after(PAGE).unwrap()).await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let shown: serde_json::Value = serde_json::from_str(body).unwrap();
        let programs = shown["programs"].as_array().unwrap();
        let found = programs.iter().find(|it| it["program"] == program);
        found?["status"][what].as_u64()
    }

    /// No program has a task: only an announcement, or a look after a long time, wakes it up.
    async fn until_idle(&self) {
        for program in PROGRAMS {
            let is_idle = async || self.status(program, "tasks").await == Some(0);
            self.until_so(program, is_idle).await;
        }
    }

    /// The page shows it.
    async fn until_so(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let waiting = async {
            while !is_so().await {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let waited = timeout(PATIENCE, waiting).await;
        waited.unwrap_or_else(|_| panic!("{what}: {}\n{}", self.out.text(), self.log.text()));
    }

    fn pid(&self, name: &str) -> String {
        let pid = self.out.after(&format!("{name} runs with PID "));
        pid.unwrap_or_else(|| panic!("{name} has no PID: {}", self.out.text()))
    }

    /// Kills a program, and waits until it runs again.
    async fn kill(&self, name: &str) {
        let before = self.pid(name);
        let pid = Pid::from_raw(before.parse().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let expected = format!("{name} ended by itself: signal: 9 (SIGKILL); it is started again");
        self.until(name, |it| {
            it.out.count(&expected) == 1 && it.pid(name) != before
        })
        .await;
    }

    /// Runs a command of the customer, with the settings that were printed for it.
    async fn customer(&self, arguments: &[&str]) -> String {
        let mut settings = BTreeMap::new();
        for name in ["BILLING_STORAGE", "BILLING_BUS", "BILLING_DATA"] {
            let value = self.out.after(&format!("export {name}=")).unwrap();
            settings.insert(name, value.trim_matches('\'').to_owned());
        }
        let mut command = Command::new(programs().join("billing"));
        command.args(arguments).envs(settings).stdin(Stdio::null());
        let output = timeout(PATIENCE, command.output()).await.expect("it ends");
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}");
        text
    }

    async fn stop(mut self) -> (ExitStatus, String) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends");
        (status.unwrap(), self.out.text())
    }
}

impl Drop for Everything {
    /// After a failure: its programs have process groups of their own, and those of the agent outlive the agent.
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.start_kill();
        let since = Instant::now();
        // One that was about to start another one may have done so.
        while since.elapsed() < Duration::from_secs(10) {
            let running = running_with(&self.data);
            if running.is_empty() {
                return;
            }
            for pid in running {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Processes that were told a place: in their arguments, or in their environment.
fn running_with(data: &Path) -> Vec<Pid> {
    let place = data.as_os_str().as_bytes();
    let is_told = |pid: &Pid| {
        let told = ["cmdline", "environ"].map(|file| {
            let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
            // One that has ended says nothing.
            std::fs::read(path).unwrap_or_default()
        });
        let mut told = told.iter();
        told.any(|it| it.windows(place.len()).any(|part| part == place))
    };
    let entries = std::fs::read_dir("/proc").expect("Linux");
    let pids = entries.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).filter(is_told).collect()
}

/// A test that fails drops what it has started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_started_ends_with_a_test_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let ports = ["--ports", "23620-23629"];
    let options = [&["--idle-after-s", "600"], &ports[..]].concat();
    let all = Everything::start_with(&data, &options, &[]);
    all.until("a worker", |it| it.log.count(" was started") > 0)
        .await;
    // Run, Kew, the agent, and a program of each kind.
    assert!(running_with(&data).len() >= 6);
    drop(all);
    assert_eq!(running_with(&data), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_transactions_are_charged_by_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let all = Everything::start(&folder.path().join("data"));
    all.until("the page", |it| it.out.after(PAGE).is_some())
        .await;
    let shown = state(&all.out.after(PAGE).unwrap()).await;
    assert!(shown.contains(r#""name":"billing-items""#), "{shown}");
    assert!(shown.contains(r#""program":"initiator""#), "{shown}");
    all.until("the report", |it| {
        it.out.count("Ctrl-C stops everything") == 1
    })
    .await;
    let text = all.out.text();
    for expected in [
        "packages=4 complete=4 transactions=1000 charged_once=1000",
        "faults=0",
        "every submitted transaction is charged exactly once",
        "storage_requests=",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    // The data are new, so no worker ran before the agent has started the first one.
    let workers = all.until_zero(0).await;
    // What dies is started again, and Kew has its addresses again.
    for name in ["billing-initiator", "billing-controller", "agent", "kew"] {
        all.kill(name).await;
    }
    let amount = ["--transactions", "500", "--package-size", "300"];
    let submitted = all.customer(&[&["submit"], &amount[..]].concat()).await;
    assert_eq!(submitted, "submitted=2\n");
    let checked = all.customer(&["check", "--wait", "120"]).await;
    let expected = "packages=6 complete=6 transactions=1500 charged_once=1500";
    assert!(checked.contains(expected), "{checked}");
    all.until_zero(workers).await;
    let (status, text) = all.stop().await;
    assert!(status.success(), "{status}: {text}");
    assert!(text.contains("kew stopped: exit status: 0"), "{text}");
}

/// Each program looks at its queue once a day only, and the one worker stays: what wakes them up is a push.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_wakes_idle_programs_up() {
    let folder = tempfile::tempdir().unwrap();
    // Another test has workers at the same time.
    let ports = ["--ports", "23500-23509"];
    let options = [&["--idle-after-s", "600", "--instances", "1"], &ports[..]].concat();
    let settings = [("BILLING_RECHECK_S", "86400")];
    let all = Everything::start_with(&folder.path().join("data"), &options, &settings);
    all.until("the report", |it| {
        it.out.count("Ctrl-C stops everything") == 1
    })
    .await;
    all.until_idle().await;
    let mut before = BTreeMap::new();
    for program in PROGRAMS {
        before.insert(program, all.status(program, "announcements").await);
    }
    let amount = ["--transactions", "500", "--package-size", "300"];
    all.customer(&[&["submit"], &amount[..]].concat()).await;
    let checked = all.customer(&["check", "--wait", "120"]).await;
    let expected = "packages=6 complete=6 transactions=1500 charged_once=1500";
    assert!(checked.contains(expected), "{checked}");
    // What the page shows is up to a second old.
    for (program, heard) in before {
        let more = async || all.status(program, "announcements").await > heard;
        all.until_so(program, more).await;
    }
    // The worker is the same: a new one would have looked at its queue at its start.
    assert_eq!(all.log.count(" was started"), 1, "{}", all.log.text());
    let (status, text) = all.stop().await;
    assert!(status.success(), "{status}: {text}");
}
