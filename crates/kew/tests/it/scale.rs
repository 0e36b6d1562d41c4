//! `kew scale` with real queues and real processes. The workers sleep: what matters is which of them run.

mod targets;

use std::collections::BTreeSet;
use std::fs::TryLockError;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::{Done, Shell, command, finish};
use crate::server::{PATIENCE, Server};

/// Every process of a test has its own value of this variable, so that none can hide.
const MARK: &str = "SCALE_TEST";

/// Ready at once, no delay before fewer run, and three at most. One message a second of one task within 15 s.
const SETTINGS: &str = "maximum = 3\nevery = '1s'\nstart_delay = '0s'\ncool_down = '0s'\nidle_after = '1s'\n\
    tasks_max = 1\nrate_per_task = 0.1\n";

/// A Kew, a queue, and a file for an agent. All processes end with the test.
struct Yard {
    place: TempDir,
    kew: Option<Server>,
    shell: Shell,
    connection: String,
    mark: String,
}

impl Yard {
    fn new(settings: &str) -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let kew = Server::start_with(|command| {
            command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
        });
        let shell = Shell::of(&kew);
        shell.ok(&["create", "jobs"]);
        let connection = kew.facts("KEW_QUEUE_CONNECTION_STRING");
        let connection = connection.first().expect("it prints one").clone();
        let mark = place.path().display().to_string();
        let yard = Self {
            place,
            kew: Some(kew),
            shell,
            connection,
            mark,
        };
        let text = format!(
            "[[group]]\nname = 'jobs'\n{settings}\n[[group.source]]\nqueue = 'jobs'\nconnection_env = 'STORAGE'\n\
             [group.target.process]\ncommand = ['sh', '-c', 'exec sleep 1000 >/dev/null 2>&1']\n\
             state_directory = {:?}\n",
            yard.place.path().join("state")
        );
        std::fs::write(yard.file(), text).expect("writable");
        yard
    }

    fn file(&self) -> PathBuf {
        self.place.path().join("scale.toml")
    }

    fn agent(&self) -> Server {
        self.agent_with(&[])
    }

    fn agent_with(&self, more: &[&str]) -> Server {
        Server::spawn(|command| {
            command.args(["scale", "run"]).arg(self.file()).args(more);
            command.env("STORAGE", &self.connection);
            command.env(MARK, &self.mark);
        })
    }

    fn scale(&self, name: &str) -> Done {
        let mut command = command("");
        command.args(["scale", name]).arg(self.file());
        command.env("STORAGE", &self.connection);
        finish(command, b"")
    }

    /// The workers that run, whatever the agent says.
    fn workers(&self) -> BTreeSet<i32> {
        self.running(&["sh", "sleep"])
    }

    /// The workers after an agent was killed. A child that the agent has just started can still be on the way to its
    /// program: it has the agent's lock, and then no arguments and no environment for a moment.
    fn workers_left(&self) -> BTreeSet<i32> {
        let since = Instant::now();
        let lock = std::fs::File::open(self.place.path().join("state/lock"));
        while let Ok(Err(TryLockError::WouldBlock)) = lock.as_ref().map(|it| it.try_lock()) {
            assert!(since.elapsed() < PATIENCE, "the lock is held");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(lock);
        // Others on this machine may have no environment at all.
        while is_one_between_programs() && since.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.workers()
    }

    /// The processes of this test that run one of these programs.
    fn running(&self, programs: &[&str]) -> BTreeSet<i32> {
        let variable = format!("{MARK}={}", self.mark).into_bytes();
        let entries = std::fs::read_dir("/proc").expect("Linux");
        let pids = entries.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
        let is_worker = |pid: &i32| {
            let of = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let environment = of("environ");
            let mut variables = environment.split(|it| *it == 0);
            let arguments = of("cmdline");
            // A child of the agent is the agent until it runs its own program.
            let program = arguments.split(|it| *it == 0).next().unwrap_or_default();
            let is_ours = programs.iter().any(|it| it.as_bytes() == program);
            is_ours && variables.any(|it| it == variable)
        };
        pids.filter(is_worker).collect()
    }

    /// The source has the metrics page of its Kew from now on.
    fn has_page(&self) {
        let endpoint = self.connection.split_once("QueueEndpoint=http://");
        let (_, endpoint) = endpoint.expect("it is plain");
        let address = endpoint.split('/').next().expect("an address");
        let text = std::fs::read_to_string(self.file()).expect("readable");
        let source = "connection_env = 'STORAGE'\n";
        let text = text.replace(source, &format!("{source}metrics = 'http://{address}'\n"));
        std::fs::write(self.file(), text).expect("writable");
    }

    fn put(&self, count: usize) {
        let lines = "x\n".repeat(count);
        let done = self
            .shell
            .run_with(&["send", "jobs", "--lines"], lines.as_bytes());
        assert_eq!(done.code, 0, "{done:?}");
    }

    fn drain(&self) {
        self.shell.ok(&["purge", "jobs", "--yes"]);
    }

    fn wait_for(&self, count: usize) -> BTreeSet<i32> {
        let since = Instant::now();
        loop {
            // Each is `sh` for a moment, and then `sleep`.
            let workers = self.running(&["sleep"]);
            if workers.len() == count && self.workers() == workers {
                return workers;
            }
            assert!(since.elapsed() < PATIENCE, "{workers:?} and not {count}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        for pid in self.workers() {
            if let Some(pid) = Pid::from_raw(pid) {
                // It may have ended.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if let Some(kew) = self.kew.take().filter(|_| !std::thread::panicking()) {
            kew.terminate();
        }
    }
}

/// Whether a process that runs a program has no arguments or no environment: it changes its program.
fn is_one_between_programs() -> bool {
    let entries = std::fs::read_dir("/proc").expect("Linux");
    let mut places = entries.filter_map(|it| Some(it.ok()?.path()));
    places.any(|place| {
        let is_empty = |name: &str| std::fs::read(place.join(name)).is_ok_and(|it| it.is_empty());
        (is_empty("cmdline") || is_empty("environ")) && place.join("exe").exists()
    })
}

#[test]
fn a_backlog_starts_workers_and_an_empty_queue_stops_them() {
    let yard = Yard::new(SETTINGS);
    let agent = yard.agent();
    agent.log_with(&["observing jobs", "hold 0 instances"]);
    assert_eq!(yard.workers(), BTreeSet::new());
    yard.put(100);
    let workers = yard.wait_for(3);
    agent.log_with(&[
        "start instances until there are 3: ",
        "the maximum is 3 instances",
    ]);
    yard.drain();
    yard.wait_for(0);
    let log = agent.log_with(&["stop instances until there are 0: "]);
    for pid in workers {
        assert!(log.contains(&format!("(PID {pid}) was started")), "{log}");
        assert!(log.contains(&format!("(PID {pid}) got SIGTERM")), "{log}");
    }
    // The end of the agent is none of its instances.
    yard.put(100);
    let workers = yard.wait_for(3);
    let log = agent.terminate();
    assert!(
        log.contains("instances go on: kew scale stop stops them"),
        "{log}"
    );
    assert_eq!(yard.workers(), workers);
    let done = yard.scale("stop");
    assert_eq!(
        (done.code, done.text()),
        (0, "jobs: 3 instances stopped\n"),
        "{done:?}"
    );
    assert_eq!(yard.workers(), BTreeSet::new());
}

#[test]
fn an_agent_that_was_killed_is_followed_by_one_that_finds_all_workers() {
    let yard = Yard::new(SETTINGS);
    let agent = yard.agent();
    yard.put(100);
    let workers = yard.wait_for(3);
    agent.kill();
    assert_eq!(yard.workers_left(), workers);
    let agent = yard.agent();
    let found = workers.iter().map(|pid| format!("(PID {pid}) was found"));
    let found: Vec<String> = found.collect();
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    agent.log_with(&found);
    // It does not start others beside them.
    agent.log_with(&["hold 3 instances"]);
    assert_eq!(yard.workers(), workers);
    // Nobody else uses its instances while it runs.
    let refused = yard.scale("stop");
    let holder = format!("in use by the agent with PID {}", agent.pid());
    refused.check_error(1, &["the group \"jobs\"", &holder, "stop that one first"]);
    let second = yard.agent();
    second.fails_with(&holder);
    assert_eq!(yard.workers(), workers);
    yard.drain();
    yard.wait_for(0);
    agent.terminate();
}

/// Whenever it is killed, there are never more workers than the maximum, and the next agent knows all of them.
#[test]
fn an_agent_that_is_killed_at_any_moment_loses_no_worker() {
    let yard = Yard::new(&SETTINGS.replace("maximum = 3", "maximum = 5"));
    for round in 0..12_u64 {
        yard.put(200);
        let agent = yard.agent();
        let since = Instant::now();
        // From before it looks until it has started all.
        let end = Duration::from_millis(round * 7);
        let mut most = 0;
        while since.elapsed() < end || (round.is_multiple_of(3) && most < 5) {
            most = most.max(yard.workers().len());
            assert!(most <= 5, "{most} workers");
            assert!(since.elapsed() < PATIENCE, "{most} workers");
        }
        agent.kill_if_it_runs();
        let left = yard.workers_left();
        assert!(left.len() <= 5, "{left:?}");
        // Every second time the next agent goes on, and otherwise all of them are stopped.
        if round.is_multiple_of(2) {
            let done = yard.scale("stop");
            let expected = match left.len() {
                1 => "jobs: 1 instance stopped\n".to_owned(),
                count => format!("jobs: {count} instances stopped\n"),
            };
            assert_eq!((done.code, done.text()), (0, expected.as_str()), "{done:?}");
            assert_eq!(yard.workers(), BTreeSet::new());
        }
    }
}

#[test]
fn a_dry_run_starts_nothing_and_says_what_it_would_do() {
    let yard = Yard::new(SETTINGS);
    yard.put(100);
    let dry = yard.agent_with(&["--dry-run"]);
    dry.log_with(&["start instances until there are 3: "]);
    assert_eq!(yard.workers(), BTreeSet::new());
    assert!(!yard.place.path().join("state").exists());
    dry.terminate();
}

/// A file of an instance that says nothing keeps nobody from stopping the others.
#[test]
fn a_damaged_file_of_an_instance_is_named_and_stops_nothing() {
    let yard = Yard::new(SETTINGS);
    let agent = yard.agent();
    yard.put(100);
    yard.wait_for(3);
    agent.terminate();
    let empty = "state/instance-0123456789abcdef0123456789abcdef";
    let empty = yard.place.path().join(empty);
    std::fs::write(&empty, "").expect("writable");
    let done = yard.scale("stop");
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.text().contains("jobs: 3 instances stopped"),
        "{done:?}"
    );
    let named = format!(
        "kew: {} was removed: it was empty or damaged",
        empty.display()
    );
    assert!(done.err.contains(&named), "{done:?}");
    assert_eq!(yard.workers(), BTreeSet::new());
}

#[test]
fn a_goal_that_rare_looks_miss_is_a_warning() {
    let yard = Yard::new("every = '2m'\ngoal = { age = '90s' }");
    let agent = yard.agent();
    let warning = "every is 2m, not shorter than the goal of 90s: messages can be older than the goal before the agent \
                   sees them: set every to a part of the goal group=\"jobs\"";
    agent.log_with(&[warning]);
    agent.terminate();
}

#[test]
fn the_reasons_are_explained_in_words() {
    let yard = Yard::new(SETTINGS);
    yard.put(2);
    let done = yard.scale("explain");
    assert_eq!(done.code, 0, "{done:?}");
    let lines: Vec<&str> = done.text().lines().collect();
    assert_eq!(lines[0], "group jobs");
    assert!(
        lines[1].starts_with("  jobs: 2 messages, the oldest is "),
        "{lines:?}"
    );
    assert_eq!(lines[2], "  instances: 0 ready, 0 starting");
    let expected = "  start instances until there are 1: 2 messages will wait when a new instance is ready, after 0 s, \
                    and must be handled within 30 s: 1 instance";
    assert!(lines[3].starts_with(expected), "{lines:?}");
    yard.shell.ok(&["delete", "jobs", "--yes"]);
    let done = yard.scale("explain");
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.text().contains("  jobs: cannot be read: "), "{done:?}");
    assert!(
        done.text()
            .contains("hold 0 instances: jobs cannot be read"),
        "{done:?}"
    );
}

#[test]
fn the_running_agent_explains_what_it_did() {
    let yard = Yard::new(SETTINGS);
    let agent = yard.agent();
    agent.log_with(&["hold 0 instances"]);
    yard.put(100);
    let workers = yard.wait_for(3);
    let done = yard.scale("explain");
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.text()
            .starts_with("group jobs\n  the agent has run for "),
        "{done:?}"
    );
    for pid in workers {
        let started = format!("(PID {pid}) was started\n");
        assert!(done.text().contains(&started), "{done:?}");
    }
    let decided = "s ago: start instances until there are 3: ";
    assert!(done.text().contains(decided), "{done:?}");
    agent.terminate();
    let done = yard.scale("explain");
    assert_eq!(done.code, 0, "{done:?}");
    let own = "  this is a look of its own: no agent answers at ";
    assert!(done.text().contains(own), "{done:?}");
    assert_eq!(yard.scale("stop").code, 0);
}

/// The system allows no long paths of sockets. Nobody looks for the reason in a page of the documentation.
#[test]
fn an_agent_that_cannot_be_asked_says_so_and_what_to_do() {
    let yard = Yard::new(SETTINGS);
    let state = yard.place.path().join("state").display().to_string();
    let text = std::fs::read_to_string(yard.file()).expect("readable");
    let long = format!("{state}{}", "e".repeat(100));
    std::fs::write(yard.file(), text.replace(&state, &long)).expect("writable");
    let agent = yard.agent();
    agent.log_with(&[
        "state_directory is too long for a socket in it: set socket to a shorter path",
    ]);
    agent.terminate();
}

/// What was sent is what a simulation replays.
#[test]
fn a_recorded_load_is_what_was_sent() {
    let yard = Yard::new(SETTINGS);
    let load = yard.place.path().join("load.csv");
    let record = |time: &str| {
        let mut command = command("");
        command.args(["scale", "record"]).arg(yard.file());
        command.arg("--out").arg(&load).args(["--for", time]);
        command.env("STORAGE", &yard.connection);
        command
    };
    let refused = finish(record("1s"), b"");
    refused.check_error(1, &["jobs does not count arrivals: set its metrics to"]);
    assert!(!load.exists(), "the next try has its place");
    // Nothing is recorded of a source that is never read.
    let text = std::fs::read_to_string(yard.file()).expect("readable");
    let source = "connection_env = 'STORAGE'\n";
    let silent = text.replace(source, &format!("{source}metrics = 'http://127.0.0.1:1'\n"));
    std::fs::write(yard.file(), silent).expect("writable");
    let refused = finish(record("1s"), b"");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("jobs was never read"), "{refused:?}");
    assert!(!load.exists(), "nothing was recorded");
    std::fs::write(yard.file(), text).expect("writable");
    yard.has_page();
    std::fs::write(&load, "").expect("writable");
    finish(record("1s"), b"").check_error(1, &["cannot create", "load.csv"]);
    std::fs::remove_file(&load).expect("it is there");
    // These came before.
    yard.put(5);
    let mut recording = record("1h");
    let mut recording = recording.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut first = String::new();
    let out = recording.stdout.take().expect("it is piped");
    BufReader::new(out).read_line(&mut first).expect("a line");
    assert_eq!(first, format!("recording to {}\n", load.display()));
    yard.put(7);
    let pid = i32::try_from(recording.id()).expect("a number");
    kill_process(Pid::from_raw(pid).expect("above 0"), Signal::TERM).expect("it runs");
    assert!(recording.wait().expect("it ends").success());
    let text = std::fs::read_to_string(&load).expect("readable");
    let counts = text.lines().filter_map(|it| it.split_once(','));
    let counts = counts.map(|(_, count)| count.parse::<u32>().expect("a count"));
    assert_eq!(counts.sum::<u32>(), 7, "{text}");
    let load = load.to_str().expect("a text");
    let mut simulate = command("");
    simulate.args(["scale", "simulate"]).arg(yard.file());
    simulate.args(["--load", load]);
    let done = finish(simulate, b"");
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.text().contains("instance-hours"), "{done:?}");
}

#[test]
fn a_metrics_page_tells_what_came_and_was_completed() {
    let yard = Yard::new(SETTINGS);
    yard.has_page();
    yard.put(2);
    let done = yard.scale("explain");
    assert_eq!(done.code, 0, "{done:?}");
    let expected = ", 2 arrived and 0 completed since the server started";
    let line = done
        .text()
        .lines()
        .find(|it| it.starts_with("  jobs: 2 messages, the oldest is "));
    assert!(line.is_some_and(|it| it.ends_with(expected)), "{done:?}");
}

#[test]
fn a_wrong_file_is_refused_with_its_line() {
    let yard = Yard::new("maximum = 'many'");
    for name in ["run", "stop", "explain"] {
        let done = yard.scale(name);
        let place = format!("{}:3:11: ", yard.file().display());
        done.check_error(2, &[&place, "invalid type: string \"many\", expected u32"]);
    }
    let yard = Yard::new(SETTINGS);
    let mut command = command("");
    command.args(["scale", "run"]).arg(yard.file());
    let done = finish(command, b"");
    done.check_error(2, &["connection_env is \"STORAGE\"", "is not set"]);
    assert!(!yard.place.path().join("state").exists());
}

#[test]
fn a_load_is_simulated_and_drawn() {
    let yard = Yard::new(SETTINGS);
    let load = yard.place.path().join("load.csv");
    std::fs::write(&load, "10,30\n300,0\n").expect("writable");
    let svg = yard.place.path().join("out.svg");
    let simulate = |load: &str| {
        let mut command = command("");
        command.args([
            "scale",
            "simulate",
            "--beside-keda",
            "--load",
            load,
            "--svg",
        ]);
        command.arg(&svg).arg(yard.file());
        finish(command, b"")
    };
    let done = simulate(load.to_str().expect("UTF-8"));
    assert_eq!(done.code, 0, "{done:?}");
    for text in ["| kew ", "| KEDA, target 3 ", "instances (at most 3)", "█"] {
        assert!(done.text().contains(text), "{text}: {done:?}");
    }
    let picture = std::fs::read_to_string(&svg).expect("it is written");
    assert!(picture.ends_with("</svg>\n"), "{picture}");
    simulate("sunday").check_error(2, &["\"sunday\" is none of monday-morning"]);
}

/// The example of docs/scale.md is accepted, with the state directory in another place.
#[test]
fn the_example_of_the_page_starts() {
    let page = include_str!("../../../../docs/scale.md");
    let (_, example) = page.split_once("```toml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let yard = Yard::new(SETTINGS);
    let state = yard.place.path().join("state");
    let state = state.to_str().expect("UTF-8");
    let place = "/var/lib/kew-scale/billing";
    assert!(example.contains(place), "{example}");
    std::fs::write(yard.file(), example.replace(place, state)).expect("writable");
    let agent = Server::spawn(|command| {
        command.args(["scale", "run"]).arg(yard.file());
        command.env("KEW_STORAGE", &yard.connection);
    });
    agent.log_with(&["observing billing-in"]);
    agent.terminate();
    assert!(Path::new(state).join("lock").exists());
}
