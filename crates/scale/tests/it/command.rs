//! Targets that are two programs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kew_scale::{CommandTarget, Config, CountOnly, Happened, Target, TargetConfig};
use tempfile::TempDir;

/// Programs, and the file that they keep their number in.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A target of shell scripts, in which `{}` is the folder.
    fn target(&self, count: &str, set: &str, timeout: &str) -> CommandTarget {
        let script = |text: &str| {
            let text = text.replace("{}", &self.folder.path().display().to_string());
            format!("['sh', '-c', {text:?}]")
        };
        self.of(&script(count), &script(set), timeout)
    }

    fn of(&self, count: &str, set: &str, timeout: &str) -> CommandTarget {
        let text = format!(
            "[[group]]\nname = 'jobs'\nstart_delay = '1h'\n\
             [[group.source]]\nqueue = 'jobs'\nconnection_env = 'STORAGE'\n\
             [group.target.command]\ncount = {count}\nset = {set}\ntimeout = '{timeout}'\n"
        );
        let config = Config::parse(Path::new("scale.toml"), &text).unwrap();
        let group = &config.groups[0];
        let TargetConfig::Command(command) = &group.target else {
            panic!("{:?}", group.target);
        };
        CommandTarget::new(group, command)
    }
}

const KEPT: (&str, &str) = ("cat {}/number", "echo $KEW_INSTANCES > {}/number");

async fn told(target: &mut impl Target, count: u32) -> String {
    let mut happened = target.set(count).await;
    assert_eq!(happened.len(), 1, "{happened:?}");
    happened.pop().unwrap().to_string()
}

async fn count(target: &mut impl Target) -> Result<(u32, u32), String> {
    let found = target.instances().await;
    found
        .map(|it| (it.ready, it.starting))
        .map_err(|it| it.to_string())
}

#[tokio::test]
async fn one_program_counts_and_the_other_changes() {
    let place = Place::new();
    std::fs::write(place.file("number"), " 3\n").unwrap();
    let mut target = place.target(KEPT.0, KEPT.1, "1m");
    assert_eq!(count(&mut target).await, Ok((3, 0)));
    assert_eq!(
        told(&mut target, 12).await,
        "the number of instances was set to 12"
    );
    assert_eq!(
        std::fs::read_to_string(place.file("number")).unwrap(),
        "12\n"
    );
    assert_eq!(count(&mut target).await, Ok((3, 9)));
    assert_eq!(
        told(&mut target, 0).await,
        "the number of instances was set to 0"
    );
    assert_eq!(count(&mut target).await, Ok((0, 0)));
    // A dry run counts with the same program.
    let mut dry = CountOnly(place.target("echo 4", KEPT.1, "1m"));
    assert_eq!(count(&mut dry).await, Ok((4, 0)));
    assert!(dry.set(9).await.is_empty());
    assert_eq!(
        std::fs::read_to_string(place.file("number")).unwrap(),
        "0\n"
    );
}

#[tokio::test]
async fn the_program_that_counts_gets_no_number() {
    let place = Place::new();
    let mut target = place.target("echo ${KEW_INSTANCES-7}", "true", "1m");
    assert_eq!(count(&mut target).await, Ok((7, 0)));
}

#[tokio::test]
async fn what_is_wrong_names_its_line() {
    let place = Place::new();
    let cases = [
        ("exit 3", "it has failed with exit status: 3"),
        (
            "echo 5; echo no such cluster >&2; exit 1",
            "it has failed with exit status: 1: \"no such cluster\"",
        ),
        ("kill -9 $$", "it has failed with signal: 9 (SIGKILL)"),
        (
            "true",
            "it has printed \"\", and a whole number of instances was expected",
        ),
        (
            "echo five",
            "it has printed \"five\", and a whole number of instances was expected",
        ),
        (
            "echo 5; echo 6",
            "it has printed \"5\\n6\", and a whole number of instances was expected",
        ),
        (
            "echo -1",
            "it has printed \"-1\", and a whole number of instances was expected",
        ),
        ("yes", "it has printed more than 4096 bytes"),
        (
            "yes >&2 & sleep 0.1; kill $!; echo bad",
            "it has printed \"bad\", and a whole number",
        ),
    ];
    for (script, expected) in cases {
        let mut target = place.target(script, "true", "1m");
        let began = Instant::now();
        let error = count(&mut target).await.unwrap_err();
        let begin = "scale.toml:8:9: count (\"sh\"): ";
        assert!(
            error.starts_with(begin) && error.contains(expected),
            "{script}: {error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(
            began.elapsed() < Duration::from_secs(50),
            "{script}: {:?}",
            began.elapsed()
        );
    }
    let mut target = place.target("echo 1", "echo is full >&2; exit 2", "1m");
    let text = told(&mut target, 5).await;
    let expected = "scale.toml:9:7: set (\"sh\") with KEW_INSTANCES=5: it has failed with exit status: 2: \"is full\"";
    assert_eq!(text, expected);
    let mut target = place.of("['/absent/count']", "['/absent/set']", "1m");
    let error = count(&mut target).await.unwrap_err();
    let expected = "scale.toml:8:9: count (\"/absent/count\"): it cannot be started: No such file";
    assert!(error.starts_with(expected), "{error}");
    let happened = target.set(5).await;
    assert!(
        matches!(happened[..], [Happened::Failed(_)]),
        "{happened:?}"
    );
}

/// A program that does not end is killed, with what it has started.
#[tokio::test]
async fn a_slow_program_is_killed_with_its_children() {
    let place = Place::new();
    // The child keeps the output open, whether its parent has ended or not.
    for end in ["wait", "exit 0"] {
        let script =
            format!("echo $$ > {{}}/pids; sleep 1000 & echo $! >> {{}}/pids; echo 5; {end}");
        let mut target = place.target(&script, "true", "500ms");
        let error = count(&mut target).await.unwrap_err();
        assert!(error.ends_with("it has not ended within 0.5 s"), "{error}");
        let pids = std::fs::read_to_string(place.file("pids")).unwrap();
        assert_eq!(pids.lines().count(), 2, "{pids}");
        let until = Instant::now() + Duration::from_secs(60);
        for pid in pids.lines() {
            while runs(pid) {
                assert!(Instant::now() < until, "{pid} runs");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Whether a process runs, and is not just waited for.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let state = stat
        .ok()
        .and_then(|it| Some(it.rsplit_once(") ")?.1.starts_with('Z')));
    state == Some(false)
}

#[tokio::test]
async fn what_a_program_leaves_running_goes_on() {
    let place = Place::new();
    let set = "sleep 1000 >/dev/null 2>&1 & echo $! > {}/pid";
    let mut target = place.target("echo 0", set, "1m");
    assert_eq!(
        told(&mut target, 1).await,
        "the number of instances was set to 1"
    );
    let pid = std::fs::read_to_string(place.file("pid")).unwrap();
    assert!(runs(pid.trim()));
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
