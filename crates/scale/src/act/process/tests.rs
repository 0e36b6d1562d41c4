//! What real processes cannot be made to do: to get no signals, and not to end after SIGKILL.

use std::os::fd::OwnedFd;
use std::path::Path;

use tempfile::TempDir;

use super::token::checked;
use super::*;
use crate::config::{Config, TargetConfig};

fn target(place: &TempDir) -> ProcessTarget {
    let text = format!(
        "[[group]]\nname = 'jobs'\n[[group.source]]\nqueue = 'jobs'\nconnection_env = 'STORAGE'\n\
         [group.target.process]\ncommand = ['sleep', '1000']\nstate_directory = {:?}\n",
        place.path().join("state")
    );
    let config = Config::parse(Path::new("scale.toml"), &text).unwrap();
    let group = &config.groups[0];
    let TargetConfig::Process(process) = &group.target else {
        panic!("{:?}", group.target);
    };
    ProcessTarget::locked(User::Agent, group, process).unwrap()
}

/// An instance that gets no signals. It has not ended while the returned descriptor is open.
fn deaf(target: &mut ProcessTarget) -> OwnedFd {
    let (reader, writer) = std::io::pipe().unwrap();
    let number = target.take_number();
    let instance = Instance::without_process(number, reader.into());
    target.instances.push(instance);
    writer.into()
}

fn told(happened: &[Happened]) -> Vec<String> {
    happened.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn an_instance_that_gets_no_signal_does_not_keep_others_from_stopping() {
    let place = tempfile::tempdir().unwrap();
    let mut target = target(&place);
    let started = target.start().unwrap();
    assert_eq!(started.len(), 1, "{started:?}");
    let _open = deaf(&mut target);
    let happened = target.set(1).await;
    assert!(matches!(happened[0], Happened::Failed(_)), "{happened:?}");
    assert!(matches!(happened[1], Happened::Stopping(_)), "{happened:?}");
    assert_eq!(happened.len(), 2, "{happened:?}");
    // All are stopped, and it is told which one was not.
    let mut happened = Vec::new();
    let stopped = target.stop_all(|it| happened.push(it)).await;
    let told = told(&happened);
    assert!(
        told[0].starts_with("cannot send a signal to PID 2147483647"),
        "{told:?}"
    );
    assert_eq!((stopped.ended, stopped.has_failed), (1, true), "{told:?}");
    assert_eq!(stopped.left.len(), 1, "{told:?}");
    assert_eq!(stopped.left[0].pid, i32::MAX);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_does_not_end_after_sigkill_is_left() {
    let place = tempfile::tempdir().unwrap();
    let mut target = target(&place);
    let _open = deaf(&mut target);
    target.instances[0].stop = Stop::Killed;
    let since = Instant::now();
    let stopped = target.stop_all(drop).await;
    assert_eq!(since.elapsed(), Duration::from_secs(40));
    assert_eq!((stopped.ended, stopped.left.len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_sigkill_that_failed_is_sent_again_and_told_once() {
    let place = tempfile::tempdir().unwrap();
    let mut target = target(&place);
    let _open = deaf(&mut target);
    target.instances[0].stop = Stop::Until(Instant::now());
    let since = Instant::now();
    for second in 0..3 {
        let happened = target.changed().await;
        match second {
            0 => assert!(
                matches!(happened[..], [Happened::Failed(_)]),
                "{happened:?}"
            ),
            _ => assert!(happened.is_empty(), "{second}: {happened:?}"),
        }
        // The clock of timers has whole milliseconds.
        let late = since.elapsed().saturating_sub(Duration::from_secs(second));
        assert!(late < Duration::from_millis(10), "{second}: {late:?}");
    }
    // Another reason is news.
    target.instances[0].kill_failed = Some("another reason".to_owned());
    let happened = target.changed().await;
    assert!(
        matches!(happened[..], [Happened::Failed(_)]),
        "{happened:?}"
    );
}

/// The disk was full when the process of a record was to be written.
#[tokio::test]
async fn a_process_that_could_not_be_noted_is_noted_later() {
    let place = tempfile::tempdir().unwrap();
    let mut target = target(&place);
    let record = Record {
        token: new_token().unwrap(),
        number: 1,
        boot: target.boot.clone(),
        since_ticks: proc::ticks_now(),
        port: None,
        process: None,
    };
    target.state.write(&record).unwrap();
    let mut child = target.command_with(&record).spawn().unwrap();
    let directory = target.state.path().to_owned();
    // Nothing can be written where a directory is.
    let obstacle = directory.join(format!("instance-{}.new", record.token));
    std::fs::create_dir(&obstacle).unwrap();
    let found = target.adopt().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    assert!(
        matches!(found[0], Happened::Found(named) if named.pid == pid),
        "{found:?}"
    );
    assert!(matches!(found[1], Happened::Failed(_)), "{found:?}");
    let noted = || {
        let records = records(&directory, &target.boot).unwrap();
        records[0].process.as_ref().map(|it| it.pid)
    };
    assert_eq!(noted(), None);
    std::fs::remove_dir(&obstacle).unwrap();
    let boot = target.boot.clone();
    assert_eq!(target.instances().await.unwrap().starting, 1);
    let records = records(&directory, &boot).unwrap();
    assert_eq!(records[0].process.as_ref().map(|it| it.pid), Some(pid));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_process_that_cannot_be_examined_matters_to_a_whole_file_alone() {
    let record = Record {
        token: "5f".to_owned(),
        number: 3,
        boot: String::new(),
        since_ticks: 44,
        port: None,
        process: None,
    };
    let found = || {
        let path = Path::new("/proc/7/environ");
        let error = ActError::file("read", path, std::io::ErrorKind::PermissionDenied.into());
        proc::Found {
            process: None,
            unread: vec![error],
        }
    };
    let error = checked(found(), &record, Path::new("/state")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the instance of /state/instance-5f may run, and its process is not known: cannot read /proc/7/environ: permission \
         denied; remove the file if no instance runs"
    );
    for damaged in [
        Record {
            number: 0,
            ..record.clone()
        },
        Record {
            since_ticks: 0,
            ..record
        },
    ] {
        let found = checked(found(), &damaged, Path::new("/state")).unwrap();
        assert_eq!(found.unread.len(), 1);
    }
}
