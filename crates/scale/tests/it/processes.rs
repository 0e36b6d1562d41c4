//! Real processes: started, found again, and stopped.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use kew_scale::{
    ActError, Group, Happened, OwnPage, Process, ProcessTarget, Survey, Target as _, TargetConfig,
};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::support::group;

const PATIENCE: Duration = Duration::from_secs(60);
const SLEEP: &str = "['sleep', '1000']";

fn process(group: &Group) -> &Process {
    match &group.target {
        TargetConfig::Process(process) => process,
        other => panic!("{other:?}"),
    }
}

fn open(group: &Group) -> Result<(ProcessTarget, Vec<Happened>), ActError> {
    ProcessTarget::open(group, process(group))
}

fn survey(group: &Group) -> Survey {
    Survey::new(group, process(group)).unwrap()
}

/// A state directory whose instances end with the test.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("state")
    }

    fn group(&self, settings: &str, command: &str) -> Group {
        group(settings, &self.path(), command)
    }

    /// The files of instances: name and text.
    fn files(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(self.path()).into_iter().flatten();
        let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
        let names = names.filter(|it| it.starts_with("instance-"));
        let files = names.map(|name| {
            let text = fs::read_to_string(self.path().join(&name)).unwrap();
            (name, text)
        });
        files.collect()
    }

    fn pids(&self) -> BTreeSet<i32> {
        let files = self.files();
        // A test that fails can leave damaged ones.
        let known = files.iter().filter(|(_, text)| text.contains("pid="));
        known.map(|(_, text)| pid_in(text)).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.pids() {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

fn pid_in(text: &str) -> i32 {
    let line = text.lines().find_map(|it| it.strip_prefix("pid="));
    line.unwrap().parse().unwrap()
}

fn started(happened: &[Happened]) -> Vec<i32> {
    let pid = |it: &Happened| match it {
        Happened::Started(it) | Happened::Found(it) | Happened::Stopping(it) => it.pid,
        other => panic!("{other}"),
    };
    happened.iter().map(pid).collect()
}

/// Waits until none runs.
async fn end_all(target: &mut ProcessTarget) -> Vec<String> {
    let mut told = Vec::new();
    let all = async {
        while target.running() > 0 {
            let happened = target.changed().await;
            told.extend(happened.iter().map(ToString::to_string));
        }
    };
    timeout(PATIENCE, all).await.unwrap();
    told
}

/// A process that has just started has no environment for a moment.
fn environment_of(pid: i32) -> Vec<u8> {
    let since = Instant::now();
    loop {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        if !environment.is_empty() {
            return environment;
        }
        assert!(since.elapsed() < PATIENCE, "PID {pid} has no environment");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn instances_start_and_the_newest_stop_first() {
    let place = Place::new();
    let (mut target, found) = open(&place.group("", SLEEP)).unwrap();
    assert!(found.is_empty());
    let pids = started(&target.set(4).await);
    assert_eq!(pids.len(), 4);
    assert_eq!(place.pids(), pids.iter().copied().collect());
    let count = target.instances().await.unwrap();
    assert_eq!((count.ready, count.starting), (0, 4));
    // Each has its token.
    for (name, text) in place.files() {
        let token = name.strip_prefix("instance-").unwrap();
        let variable = format!("KEW_INSTANCE={token}\0");
        let environment = environment_of(pid_in(&text));
        let mut windows = environment.windows(variable.len());
        assert!(windows.any(|it| it == variable.as_bytes()));
    }
    let stopped = started(&target.set(1).await);
    assert_eq!(stopped, [pids[3], pids[2], pids[1]]);
    let count = target.instances().await.unwrap();
    assert_eq!(count.starting, 1, "those that stop do not count");
    while target.running() > 1 {
        timeout(PATIENCE, target.changed()).await.unwrap();
    }
    assert_eq!(place.pids(), [pids[0]].into());
    target.set(0).await;
    let told = end_all(&mut target).await;
    assert!(told[0].contains("has ended: signal: 15"), "{told:?}");
    assert!(place.files().is_empty());
}

#[tokio::test]
async fn the_next_agent_finds_what_the_one_before_has_started() {
    let place = Place::new();
    let group = place.group("start_delay = '0s'", SLEEP);
    let (mut target, _) = open(&group).unwrap();
    let pids = started(&target.set(3).await);
    // Nobody else may start any.
    let error = open(&group).unwrap_err();
    assert!(matches!(error, ActError::InUse { .. }), "{error}");
    let mut survey = survey(&group);
    assert_eq!(survey.instances().await.unwrap().ready, 3);
    drop(target);
    let (mut target, found) = open(&group).unwrap();
    assert_eq!(started(&found), pids);
    assert_eq!(target.instances().await.unwrap().ready, 3);
    // They go on in their order.
    let more = started(&target.set(4).await);
    assert_eq!(started(&target.set(2).await), [more[0], pids[2]]);
    target.set(0).await;
    end_all(&mut target).await;
    assert_eq!(survey.instances().await.unwrap().ready, 0);
}

/// Each instance has a port for its metrics page, also after another agent has found it. One that is taken is left out.
#[tokio::test]
async fn each_instance_has_a_port_of_its_own() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let first = taken.local_addr().unwrap().port().min(65_500);
    let ports = |it: &[OwnPage]| -> Vec<u16> { it.iter().map(|it| it.port).collect() };
    let settings = |delay| format!("maximum = 3\nstart_delay = '{delay}'");
    let command = format!(
        "['sh', '-c', 'exec sleep 1000', 'port={{port}}']\nports = '{first}-{}'",
        first + 30
    );
    let group = place.group(&settings("0s"), &command);
    let (mut target, _) = open(&group).unwrap();
    let pids = started(&target.set(2).await);
    let pages = target.pages();
    assert_eq!(pages.len(), 2);
    assert!(!ports(&pages).contains(&first) || taken.local_addr().unwrap().port() != first);
    assert_ne!(pages[0].port, pages[1].port);
    for (pid, page) in pids.iter().zip(&pages) {
        let text = fs::read_to_string(place.path().join(file_of(&place, *pid))).unwrap();
        assert!(text.contains(&format!("port={}\n", page.port)), "{text}");
    }
    assert_eq!(survey(&group).pages(), pages);
    drop(target);
    let (mut target, _) = open(&group).unwrap();
    assert_eq!(target.pages(), pages);
    // Those that stop have no page to ask.
    target.set(1).await;
    assert_eq!(target.pages(), pages[..1]);
    end_one(&mut target).await;
    target.set(2).await;
    // Usually the port of the one that has ended.
    let again = ports(&target.pages());
    assert_eq!((again.len(), again[0]), (2, pages[0].port));
    assert_ne!(again[1], again[0]);
    drop(target);
    let (mut target, _) = open(&place.group(&settings("1h"), &command)).unwrap();
    // One that starts may be silent.
    let pages = target.pages();
    assert_eq!(ports(&pages), again);
    assert!(pages.iter().all(|it| it.is_starting), "{pages:?}");
    assert_eq!(
        survey(&place.group(&settings("1h"), &command)).pages(),
        pages
    );
    target.set(0).await;
    end_all(&mut target).await;
}

/// The clock stands still, so ages are those that the test adds.
#[tokio::test(start_paused = true)]
async fn an_instance_is_ready_when_its_page_has_answered_once() {
    let place = Place::new();
    let command = "['sh', '-c', 'exec sleep 1000', '{port}']\nports = '23900-23999'";
    let group = place.group("maximum = 3\nstart_delay = '1h'", command);
    let (mut target, _) = open(&group).unwrap();
    started(&target.set(2).await);
    let hour = Duration::from_secs(3600);
    let numbers: Vec<u64> = target.pages().iter().map(|it| it.instance).collect();
    let [first, second] = numbers[..] else {
        panic!("{numbers:?}");
    };
    let mut survey = survey(&group);
    for target in [&mut target as &mut dyn kew_scale::Target, &mut survey] {
        let found = target.instances().await.unwrap();
        assert_eq!((found.ready, found.starting), (0, 2));
        // Long before its delay is over. One of another agent says nothing.
        target.answered(&[first, 99].into());
        let found = target.instances().await.unwrap();
        assert_eq!((found.ready, found.starting), (1, 1));
        let starting = target.pages().into_iter().map(|it| it.is_starting);
        assert_eq!(starting.collect::<Vec<_>>(), [false, true]);
        // It stays ready when its page does not answer any more.
        target.answered(&[second].into());
        let found = target.instances().await.unwrap();
        assert_eq!((found.ready, found.starting), (2, 0));
        target.answered(&BTreeSet::new());
        let found = target.instances().await.unwrap();
        assert_eq!((found.ready, found.starting), (2, 0));
    }
    // One whose page never answers counts as ready in the end.
    started(&target.set(3).await);
    for (after, ready) in [
        (3 * hour - Duration::from_millis(1), 2),
        (Duration::from_millis(1), 3),
    ] {
        tokio::time::advance(after).await;
        assert_eq!(target.instances().await.unwrap().ready, ready, "{after:?}");
    }
    // The next agent asks again.
    drop(target);
    let (mut target, _) = open(&group).unwrap();
    assert_eq!(target.instances().await.unwrap().starting, 3);
    target.answered(&[second].into());
    assert_eq!(target.instances().await.unwrap().ready, 1);
    target.set(0).await;
    while target.running() > 0 {
        target.changed().await;
    }
}

/// The name of the file of a process.
fn file_of(place: &Place, pid: i32) -> String {
    let files = place.files();
    let found = files.into_iter().find(|(_, text)| pid_in(text) == pid);
    found.unwrap().0
}

async fn end_one(target: &mut ProcessTarget) {
    let before = target.running();
    while target.running() == before {
        timeout(PATIENCE, target.changed()).await.unwrap();
    }
}

/// The agent was killed between the start and the second write.
#[tokio::test]
async fn a_process_without_a_number_is_found_by_its_token() {
    let place = Place::new();
    // A child of the program has the token too.
    let group = place.group(
        "",
        "['sh', '-c', 'sleep 1000 & trap \"kill $!; exit\" TERM; wait']",
    );
    let (mut target, _) = open(&group).unwrap();
    let pids = started(&target.set(2).await);
    drop(target);
    for (name, text) in place.files() {
        let lines = text
            .lines()
            .filter(|it| !it.starts_with("pid=") && !it.starts_with("start="));
        let text = lines.map(|it| format!("{it}\n")).collect::<String>();
        fs::write(place.path().join(name), text).unwrap();
    }
    assert_eq!(survey(&group).instances().await.unwrap().starting, 2);
    let (mut target, found) = open(&group).unwrap();
    // It is the program itself, and not what that has started.
    assert_eq!(started(&found), pids);
    assert_eq!(place.pids(), pids.into_iter().collect());
    target.set(0).await;
    end_all(&mut target).await;
}

/// It says nothing but its token. A process that cannot be examined, such as one of the system, is no reason to stop.
#[tokio::test]
async fn a_damaged_file_is_removed_or_written_again() {
    let place = Place::new();
    let group = place.group("", SLEEP);
    let (mut target, _) = open(&group).unwrap();
    let pid = started(&target.set(1).await)[0];
    drop(target);
    let (name, whole) = place.files().pop().unwrap();
    let none = "instance-0123456789abcdef0123456789abcdef";
    for damaged in ["", "number=", "number=1\nboot=x\npid=1\nstart=0\n"] {
        for file in [&*name, none] {
            fs::write(place.path().join(file), damaged).unwrap();
        }
        assert_eq!(survey(&group).instances().await.unwrap().starting, 1);
        let (target, found) = open(&group).unwrap();
        assert_eq!(target.running(), 1);
        let mut told: Vec<String> = found.iter().map(ToString::to_string).collect();
        told.sort();
        let [forgotten, named] = &told[..] else {
            panic!("{told:?}");
        };
        let removed = format!(
            "{} was removed: it was empty or damaged",
            place.path().join(none).display()
        );
        assert!(forgotten.starts_with(&removed), "{told:?}");
        assert!(
            named.ends_with(&format!("(PID {pid}) was found: it runs")),
            "{told:?}"
        );
        // Number and time of the file are new, and the process is the same.
        let (again, text) = place.files().pop().unwrap();
        assert_eq!((&again, place.files().len()), (&name, 1));
        let start = whole.lines().find(|it| it.starts_with("start="));
        assert!(
            text.contains(start.unwrap()) && text.ends_with("end\n"),
            "{text}"
        );
    }
    let (mut target, _) = open(&group).unwrap();
    target.set(0).await;
    end_all(&mut target).await;
}

/// Another program uses the variable for something else.
#[tokio::test]
async fn what_is_no_token_is_looked_for_in_no_process() {
    let place = Place::new();
    let group = place.group("", SLEEP);
    drop(open(&group).unwrap());
    let mut other = std::process::Command::new("sleep")
        .arg("1000")
        .env("KEW_INSTANCE", "1")
        .spawn()
        .unwrap();
    environment_of(i32::try_from(other.id()).unwrap());
    fs::write(place.path().join("instance-1"), "").unwrap();
    let opened = open(&group);
    other.kill().unwrap();
    other.wait().unwrap();
    let (target, found) = opened.unwrap();
    assert_eq!(target.running(), 0, "{found:?}");
    assert!(
        matches!(found[..], [Happened::Forgotten { .. }]),
        "{found:?}"
    );
    assert!(place.files().is_empty());
}

/// What names no process that runs is forgotten: the number belongs to another one, the system has started again, the
/// agent was killed before the start.
#[tokio::test]
async fn other_processes_are_never_taken_for_instances() {
    let place = Place::new();
    let group = place.group("", SLEEP);
    let (mut target, _) = open(&group).unwrap();
    let pid = started(&target.set(1).await)[0];
    drop(target);
    let (name, text) = place.files().pop().unwrap();
    let path = place.path().join(name);
    let line = |key: &str| {
        text.lines()
            .find(|it| it.starts_with(key))
            .unwrap()
            .to_owned()
    };
    let token = "0123456789abcdef0123456789abcdef";
    for changed in [
        text.replace(&line("start="), "start=1"),
        text.replace(&line("boot="), "boot=0"),
        text.replace(&line("pid="), &format!("pid={}", i32::MAX)),
    ] {
        fs::write(&path, changed).unwrap();
        assert_eq!(survey(&group).instances().await.unwrap().starting, 0);
        let (target, found) = open(&group).unwrap();
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(target.running(), 0);
        assert!(place.files().is_empty());
    }
    let (boot, since) = (line("boot="), line("since="));
    fs::write(
        place.path().join(format!("instance-{token}")),
        format!("number=9\n{boot}\n{since}\nend\n"),
    )
    .unwrap();
    let (mut target, found) = open(&group).unwrap();
    assert!(found.is_empty());
    assert!(place.files().is_empty());
    // None of them was touched.
    fs::write(&path, &text).unwrap();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    // Numbers go on behind all that were seen.
    let Happened::Started(named) = target.set(1).await.pop().unwrap() else {
        panic!("none was started");
    };
    assert_eq!(named.number, 10);
    target.set(0).await;
    end_all(&mut target).await;
    // The child of this test is still a child of this test.
    fs::write(&path, &text).unwrap();
}

#[tokio::test]
async fn an_instance_that_ignores_sigterm_is_killed() {
    let place = Place::new();
    let ready = place.0.path().join("ready");
    let command = format!(
        "['sh', '-c', \"trap '' TERM; touch {}; while :; do sleep 0.05; done\"]",
        ready.display()
    );
    let mut group = place.group("", &command);
    let TargetConfig::Process(process) = &mut group.target else {
        panic!("{:?}", group.target);
    };
    process.stop_within = Duration::from_millis(50);
    let (mut target, _) = open(&group).unwrap();
    let pid = started(&target.set(1).await)[0];
    let trapped = async {
        while !ready.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, trapped).await.unwrap();
    target.set(0).await;
    let told = end_all(&mut target).await;
    assert_eq!(
        told[0],
        format!("instance 1 (PID {pid}) did not end in time, and got SIGKILL")
    );
    assert!(told[1].contains("has ended: signal: 9"), "{told:?}");
}

#[tokio::test]
async fn instances_that_still_stop_keep_their_places() {
    let place = Place::new();
    let ready = place.0.path().join("ready");
    let command = format!(
        "['sh', '-c', \"trap '' TERM; touch {}; while :; do sleep 0.05; done\"]",
        ready.display()
    );
    let (mut target, _) = open(&place.group("maximum = 2", &command)).unwrap();
    assert_eq!(started(&target.set(1).await).len(), 1);
    let trapped = async {
        while !ready.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, trapped).await.unwrap();
    target.set(0).await;
    let happened = target.set(2).await;
    assert_eq!(happened.len(), 2, "{happened:?}");
    assert!(matches!(happened[0], Happened::Started(_)));
    assert!(matches!(happened[1], Happened::Full));
    assert_eq!(target.running(), 2);
}

/// The clock stands still: only what the test adds to it passes, however busy the machine is.
#[tokio::test(start_paused = true)]
async fn a_program_that_ends_at_once_is_not_started_again_at_once() {
    let place = Place::new();
    let (mut target, _) = open(&place.group("", "['sh', '-c', 'exit 3']")).unwrap();
    assert_eq!(started(&target.set(3).await).len(), 3);
    // Without a limit of time, because a clock that stands still would go to its end at once.
    let mut told = Vec::new();
    while target.running() > 0 {
        let happened = target.changed().await;
        told.extend(happened.iter().map(ToString::to_string));
    }
    assert!(
        told[0].ends_with("has ended by itself: exit status: 3"),
        "{told:?}"
    );
    let delays = told
        .iter()
        .filter(|it| *it == "an instance ended within 10 s: none starts for 1 s");
    assert_eq!(delays.count(), 1, "{told:?}");
    tokio::time::advance(Duration::from_millis(999)).await;
    let again = target.set(3).await;
    assert!(matches!(again[..], [Happened::Waiting]), "{again:?}");
    assert!(place.files().is_empty());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(started(&target.set(1).await).len(), 1);
    while target.running() > 0 {
        target.changed().await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let place = Place::new();
    let (mut target, _) = open(&place.group("", "['/absent/worker']")).unwrap();
    let happened = target.set(3).await;
    let told: Vec<_> = happened.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].starts_with("cannot start \"/absent/worker\": No such file"),
        "{told:?}"
    );
    assert_eq!(
        told[1],
        "an instance could not be started: none starts for 1 s"
    );
    assert!(place.files().is_empty());
    assert_eq!(target.instances().await.unwrap().starting, 0);
    // The next try is a second later.
    let happened = target.set(3).await;
    assert!(matches!(happened[..], [Happened::Waiting]), "{happened:?}");
}

#[tokio::test]
async fn the_maximum_of_tasks_reaches_the_program() {
    let place = Place::new();
    let out = place.0.path().join("out");
    let command = format!("['sh', '-c', 'echo $0 > {}', 'n={{tasks}}']", out.display());
    let (mut target, _) = open(&place.group("tasks_max = 5", &command)).unwrap();
    target.set(1).await;
    end_all(&mut target).await;
    assert_eq!(fs::read_to_string(out).unwrap(), "n=5\n");
}
