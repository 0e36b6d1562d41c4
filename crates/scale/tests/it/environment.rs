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

/// The agent is an instance itself, and was started by a program that changes the number. The test runs itself again with
/// their variables.
#[tokio::test]
async fn variables_of_another_agent_reach_no_program() {
    const INSIDE: &str = "KEW_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return programs_get_their_own_variable().await;
    }
    let mut again = tokio::process::Command::new(std::env::current_exe().unwrap());
    again.args([
        "--exact",
        "environment::variables_of_another_agent_reach_no_program",
    ]);
    again
        .env("KEW_INSTANCE", "outer")
        .env("KEW_INSTANCES", "99");
    let output = again.env(INSIDE, "1").output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

async fn programs_get_their_own_variable() {
    let own = |seen: &[String]| -> Vec<String> {
        let own = seen.iter().filter(|it| it.starts_with("KEW_INSTANCE"));
        own.cloned().collect()
    };
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
    let [token] = &own(&seen)[..] else {
        panic!("{seen:?}");
    };
    assert!(
        token.starts_with("KEW_INSTANCE=") && token != "KEW_INSTANCE=outer",
        "{token}"
    );
    assert!(seen.iter().any(|it| it.starts_with("PATH=")), "{seen:?}");

    for (count, set, expected) in [
        (
            "['true']".to_owned(),
            place.script(),
            &["KEW_INSTANCES=7"][..],
        ),
        (place.script(), "['true']".to_owned(), &[]),
    ] {
        std::fs::remove_file(place.file()).unwrap();
        let lines = format!("[group.target.command]\ncount = {count}\nset = {set}\n");
        let group = parse(&lines).unwrap();
        let TargetConfig::Command(command) = &group.target else {
            panic!("{:?}", group.target);
        };
        let mut target = CommandTarget::new(&group, command);
        // The program that counts prints no number here.
        let _ = target.instances().await;
        target.set(7).await;
        assert_eq!(own(&place.seen().await), expected);
    }
}

/// It gets the number, and no token of an instance.
#[test]
fn each_target_refuses_the_variable_of_the_other_one() {
    let target = "[group.target.command]\ncount = ['c']\nset = ['s']\nenvironment = ";
    for (name, expected) in [
        (
            "KEW_INSTANCE",
            "which only instances of the target process get: leave it out",
        ),
        ("KEW_INSTANCES", "which the agent sets: leave it out"),
    ] {
        let error = parse(&format!("{target}['{name}']\n")).unwrap_err();
        let expected = format!("scale.toml:10:16: environment has {name}, {expected}");
        assert_eq!(error, expected);
    }
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
            "10:16: environment has KEW_INSTANCES, which only programs of the target command get: leave it out",
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
