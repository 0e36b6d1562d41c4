//! What programs get of the agent's environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kew_scale::{CommandTarget, Config, Group, ProcessTarget, Target as _, TargetConfig};
use tempfile::TempDir;

/// A group with this target. Its line 7 is the first one of `target`.
fn parse(target: &str) -> Result<Group, String> {
    let text = format!(
        "[[group]]\nname = 'jobs'\n[[group.source]]\nqueue = 'jobs'\nconnection_env = 'STORAGE'\n\n{target}\n"
    );
    let config = Config::parse(Path::new("scale.toml"), &text);
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.groups.into_iter().next().unwrap())
}

/// Where a program writes what it got.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("env")
    }

    /// A shell that writes its environment in one step. `NAME=VALUE` that the shell itself sets does not count.
    fn script(&self) -> String {
        let file = self.file().display().to_string();
        format!("['/bin/sh', '-c', '/usr/bin/env > {file}.new; /bin/mv {file}.new {file}']")
    }

    async fn seen(&self) -> Vec<String> {
        let text = loop {
            if let Ok(text) = std::fs::read_to_string(self.file()) {
                break text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let of_shell = |it: &&str| {
            ["PWD=", "OLDPWD=", "SHLVL=", "_="]
                .iter()
                .any(|own| it.starts_with(own))
        };
        let seen = text.lines().filter(|it| !of_shell(it)).map(str::to_owned);
        let mut seen: Vec<String> = seen.collect();
        seen.sort();
        seen
    }
}

/// The environment of the test has CARGO_MANIFEST_DIR or at least PATH, and no variable ABSENT_VARIABLE.
#[tokio::test]
async fn an_instance_gets_the_named_variables_and_no_others() {
    let place = Place::new();
    let state = place.0.path().join("state");
    let group = parse(&format!(
        "[group.target.process]\ncommand = {}\nstate_directory = {state:?}\n\
         environment = ['PATH', 'ABSENT_VARIABLE', 'WORKER_NAME=a=b', 'EMPTY=']\n",
        place.script()
    ));
    let group = group.unwrap();
    let TargetConfig::Process(process) = &group.target else {
        panic!("{:?}", group.target);
    };
    let (mut target, _) = ProcessTarget::open(&group, process).unwrap();
    target.set(1).await;
    let seen = place.seen().await;
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    let [empty, instance, found, named] = seen.as_slice() else {
        panic!("{seen:?}");
    };
    assert_eq!(
        (empty.as_str(), named.as_str()),
        ("EMPTY=", "WORKER_NAME=a=b")
    );
    assert!(instance.starts_with("KEW_INSTANCE="), "{seen:?}");
    assert_eq!(*found, path);
}

#[tokio::test]
async fn programs_that_change_the_number_get_the_named_variables_and_no_others() {
    let place = Place::new();
    let group = parse(&format!(
        "[group.target.command]\ncount = ['true']\nset = {}\nenvironment = []\n",
        place.script()
    ));
    let group = group.unwrap();
    let TargetConfig::Command(command) = &group.target else {
        panic!("{:?}", group.target);
    };
    let mut target = CommandTarget::new(&group, command);
    let happened = target.set(7).await;
    assert_eq!(place.seen().await, ["KEW_INSTANCES=7"], "{happened:?}");
}

#[tokio::test]
async fn without_the_setting_an_instance_gets_all() {
    let place = Place::new();
    let state = place.0.path().join("state");
    let lines = format!("command = {}\nstate_directory = {state:?}", place.script());
    let group = parse(&format!("[group.target.process]\n{lines}\n")).unwrap();
    let TargetConfig::Process(process) = &group.target else {
        panic!("{:?}", group.target);
    };
    let (mut target, _) = ProcessTarget::open(&group, process).unwrap();
    target.set(1).await;
    let seen = place.seen().await;
    assert!(seen.iter().any(|it| it.starts_with("PATH=")), "{seen:?}");
    assert!(seen.len() > 2, "{seen:?}");
}

#[test]
fn wrong_variables_are_refused_at_their_place_without_their_values() {
    let process = |value: &str| {
        let lines = "command = ['w']\nstate_directory = '/s'";
        parse(&format!(
            "[group.target.process]\n{lines}\nenvironment = {value}\n"
        ))
    };
    for (value, expected) in [
        (
            "['A-B=secret']",
            "10:16: environment has an entry without a valid name: write NAME, which is passed on, or NAME=VALUE",
        ),
        (
            "['=secret']",
            "10:16: environment has an entry without a valid name",
        ),
        (
            "['A', '1=secret']",
            "10:21: environment has an entry without a valid name",
        ),
        (
            "['KEW_INSTANCE=secret']",
            "10:16: environment has KEW_INSTANCE, which the agent sets: leave it out",
        ),
        (
            "['KEW_INSTANCES']",
            "10:16: environment has KEW_INSTANCES, which",
        ),
        ("['A=secret', 'A']", "10:28: environment has A twice"),
        (
            "[\"A=secret\\u0000\"]",
            "10:16: environment has a zero byte in A, which no variable can have",
        ),
        (
            "'A'",
            "10:15: invalid type: string \"A\", expected a sequence",
        ),
    ] {
        let error = process(value).unwrap_err();
        let place = error.strip_prefix("scale.toml:").unwrap();
        assert!(place.starts_with(expected), "{error}\n{expected}");
        assert!(!error.contains("secret"), "{error}");
    }
}
