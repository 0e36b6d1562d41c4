use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::Storage as _;

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn refused(path: &Path) -> String {
    DataDir::open(path).unwrap_err().to_string()
}

#[test]
fn a_new_directory_is_private_and_keeps_its_id() {
    let temporary = temporary();
    let path = temporary.path().join("data");
    let first = DataDir::open(&path).unwrap();
    let id = first.id().to_owned();
    assert_eq!(id.len(), 32);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(first);
    let again = DataDir::open(&path).unwrap();
    assert_eq!(again.id(), id);
    assert_eq!(again.path(), path);
    assert!(!path.join(MANIFEST_IN_PREPARATION).exists());
}

#[test]
fn a_second_owner_is_refused_until_the_first_is_gone() {
    let temporary = temporary();
    let first = DataDir::open(temporary.path()).unwrap();
    assert_eq!(
        refused(temporary.path()),
        format!(
            "the data directory {} is in use by another process",
            temporary.path().display()
        )
    );
    // What is read while it is written to looks damaged.
    let looked = DataDir::inspect(temporary.path());
    assert!(matches!(looked, Err(DataDirError::InUse { .. })));
    drop(first);
    let looks = DataDir::inspect(temporary.path()).unwrap();
    let looks_too = DataDir::inspect(temporary.path()).unwrap();
    assert!(refused(temporary.path()).contains("is in use by another process"));
    drop((looks, looks_too));
    DataDir::open(temporary.path()).unwrap();
}

#[test]
fn an_interrupted_creation_is_continued() {
    let temporary = temporary();
    for left_behind in [LOCK, MANIFEST_IN_PREPARATION] {
        fs::write(temporary.path().join(left_behind), "half").unwrap();
    }
    fs::create_dir(temporary.path().join(LOST_AND_FOUND)).unwrap();
    DataDir::open(temporary.path()).unwrap();
}

#[test]
fn parent_directories_are_created_for_their_owner_only() {
    let temporary = temporary();
    let outer = temporary.path().join(".local");
    drop(DataDir::open(outer.join("share/kew")).unwrap());
    for made in [&outer, &outer.join("share"), &outer.join("share/kew")] {
        let mode = fs::metadata(made).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", made.display());
    }
    let dangling = temporary.path().join("dangling");
    symlink(temporary.path().join("absent"), &dangling).unwrap();
    let message = refused(&dangling.join("kew"));
    assert!(message.starts_with("cannot create"), "{message}");
}

#[test]
fn a_foreign_directory_is_left_unchanged() {
    let temporary = temporary();
    fs::write(temporary.path().join("thesis.tex"), "x").unwrap();
    let message = refused(temporary.path());
    assert!(
        message.contains("is not a data directory of Kew; it holds thesis.tex"),
        "{message}"
    );
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    let message = DataDir::inspect(temporary.path()).unwrap_err().to_string();
    assert!(message.contains("it has no MANIFEST"), "{message}");
    let message = refused(&temporary.path().join("thesis.tex"));
    assert!(message.starts_with("cannot create"), "{message}");
}

#[test]
fn a_newer_format_and_a_damaged_manifest_are_refused() {
    let temporary = temporary();
    drop(DataDir::open(temporary.path()).unwrap());
    let manifest = temporary.path().join(MANIFEST);
    let with = |text: &str| {
        fs::write(&manifest, text).unwrap();
        refused(temporary.path())
    };
    let message = with("format = 4\nshards = [1, 2]\n");
    assert!(
        message.ends_with("has format 4, and this version of Kew reads formats up to 2"),
        "{message}"
    );
    for damaged in [
        "",
        "format = 2\n",
        "format = 0\nid = \"00000000000000000000000000000000\"\n",
        "format = 2\nid = \"short\"\n",
        "format = 2\nid = \"00000000000000000000000000000000\"\nmore = 1\n",
        "format",
        "\u{0}\u{0}\u{0}\u{0}",
    ] {
        let message = with(damaged);
        assert!(message.contains("MANIFEST is damaged: "), "{message}");
    }
    fs::write(&manifest, [0xff, 0xfe]).unwrap();
    assert!(refused(temporary.path()).ends_with("it is not text"));
}

#[test]
fn a_restore_is_no_data_directory_before_it_is_finished() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("new");
    let restoring = Restoring::begin(&path).unwrap();
    fs::write(restoring.log_path().join("segment-1"), "half").unwrap();
    for opened in [DataDir::open(&path), DataDir::open_existing(&path)] {
        assert!(opened.is_err());
    }
    let busy = Restoring::begin(&path);
    assert!(matches!(busy, Err(DataDirError::InUse { .. })), "{busy:?}");
    drop(restoring);
    let refused = DataDir::open(&path);
    assert!(matches!(refused, Err(DataDirError::Restoring { .. })));

    // It goes on or begins anew, and is a data directory in the end, with an id of its own.
    let restoring = Restoring::begin(&path).unwrap();
    let count = || fs::read_dir(restoring.log_path()).unwrap().count();
    assert_eq!(count(), 1);
    restoring.clear().unwrap();
    assert_eq!(count(), 0);
    restoring.finish().unwrap();
    assert_eq!(
        names_in(&path).unwrap(),
        ["MANIFEST", "lock", "partition-0"]
    );
    let id = DataDir::id_of(&path).unwrap();
    assert_eq!(DataDir::open(&path).unwrap().id(), id);
    let refused = Restoring::begin(&path);
    assert!(matches!(refused, Err(DataDirError::NotEmpty { .. })));
}

#[test]
fn a_restore_leaves_other_files_alone_and_accepts_certificates() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path();
    fs::create_dir(path.join("tls")).unwrap();
    fs::create_dir(path.join("partition-0")).unwrap();
    let refused = Restoring::begin(path);
    let Err(DataDirError::NotEmpty { entry, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(entry, "partition-0");
    assert_eq!(names_in(path).unwrap(), ["partition-0", "tls"]);
    fs::remove_dir(path.join("partition-0")).unwrap();
    Restoring::begin(path).unwrap().finish().unwrap();
    DataDir::open(path).unwrap();
}

#[test]
fn the_time_of_the_last_backup_is_kept() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(DataDir::last_backup(place.path()).unwrap(), None);
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_795_219_200_123);
    DataDir::note_backup(place.path(), at).unwrap();
    assert_eq!(DataDir::last_backup(place.path()).unwrap(), Some(at));
    fs::write(place.path().join("LAST_BACKUP"), "damaged").unwrap();
    assert_eq!(DataDir::last_backup(place.path()).unwrap(), None);
}

/// The beginning of a segment, of which magic and version have their places in all formats.
fn segment(version: u8) -> Vec<u8> {
    [b"KEWSEGM\0", &[version, 0, 0, 0, 0, 0, 0, 0][..]].concat()
}

const OLD: &str = "segment-00000000000000000001";
const NEW: &str = "segment-00000000000000000002";
const SET_ASIDE: &str = "damaged-1-segment-00000000000000000001";

/// A directory of the format before, with files that stand for its log.
fn old_directory(path: &Path) {
    fs::create_dir_all(path.join(PARTITION)).unwrap();
    fs::write(path.join(PARTITION).join(SET_ASIDE), "damaged").unwrap();
    fs::write(path.join(PARTITION).join("ballast"), "0").unwrap();
    let id = "0123456789abcdef0123456789abcdef";
    fs::write(path.join(MANIFEST), format!("format = 1\nid = \"{id}\"\n")).unwrap();
    fs::write(path.join(PARTITION).join(OLD), segment(1)).unwrap();
}

/// What stands for the new log.
fn new_log(path: &Path) {
    fs::create_dir_all(path.join(MIGRATED)).unwrap();
    fs::write(path.join(MIGRATED).join(NEW), segment(2)).unwrap();
}

fn log_files(path: &Path) -> Vec<String> {
    names_in(&path.join(PARTITION)).unwrap()
}

#[test]
fn an_old_format_is_refused_by_everything_but_a_migration() {
    let place = temporary();
    let path = place.path().join("data");
    old_directory(&path);
    for refused in [
        DataDir::open(&path).err(),
        DataDir::open_existing(&path).err(),
        DataDir::inspect(&path).err(),
        DataDir::id_of(&path).err(),
    ] {
        let refused = refused.unwrap().to_string();
        assert!(
            refused.contains("has format 1: start kew serve"),
            "{refused}"
        );
    }
    let migrating = Migrating::begin(&path).unwrap().unwrap();
    let busy = Migrating::begin(&path);
    assert!(matches!(busy, Err(DataDirError::InUse { .. })), "{busy:?}");
    assert!(migrating.old_storage().unwrap().create("x").is_err());
    new_log(&path);
    drop(migrating);
    // It was given up: its space is free again.
    assert_eq!(
        names_in(&path).unwrap(),
        ["MANIFEST", "lock", "partition-0"]
    );
    assert_eq!(log_files(&path), ["ballast", SET_ASIDE, OLD]);

    let migrating = Migrating::begin(&path).unwrap().unwrap();
    new_log(&path);
    migrating.finish().unwrap();
    assert_eq!(
        names_in(&path).unwrap(),
        ["MANIFEST", "lock", "partition-0"]
    );
    // What a repair has set aside is nobody's log.
    assert_eq!(log_files(&path), [SET_ASIDE, NEW]);
    assert!(Migrating::begin(&path).unwrap().is_none());
    let directory = DataDir::open(&path).unwrap();
    assert_eq!(directory.id(), "0123456789abcdef0123456789abcdef");
}

#[test]
fn a_migration_that_is_cut_off_leaves_one_log_or_the_other() {
    let place = temporary();
    /// Its name, whether the manifest says the new format then, and what was done until then.
    type Moment = (&'static str, bool, fn(&Path));
    let moments: [Moment; 6] = [
        ("half of the new log", false, |_| {}),
        ("a manifest in preparation", false, |path| {
            fs::write(path.join(MANIFEST_IN_PREPARATION), "format = 2").unwrap();
        }),
        ("the switch", true, |_| {}),
        ("half of the old log removed", true, |path| {
            fs::remove_file(path.join(PARTITION).join(OLD)).unwrap();
        }),
        ("all of the old log removed", true, |path| {
            fs::remove_dir_all(path.join(PARTITION)).unwrap();
        }),
        ("the new log has its name", true, |path| {
            fs::remove_dir_all(path.join(PARTITION)).unwrap();
            fs::rename(path.join(MIGRATED), path.join(PARTITION)).unwrap();
        }),
    ];
    for (number, (moment, is_switched, act)) in moments.into_iter().enumerate() {
        let path = place.path().join(number.to_string());
        old_directory(&path);
        new_log(&path);
        if is_switched {
            write_manifest(&path, "0123456789abcdef0123456789abcdef").unwrap();
        }
        act(&path);
        match Migrating::begin(&path).unwrap() {
            Some(migrating) => {
                assert!(!is_switched, "{moment}");
                assert_eq!(log_files(&path), ["ballast", SET_ASIDE, OLD], "{moment}");
                let new = names_in(&path.join(MIGRATED)).unwrap();
                assert!(new.is_empty(), "{moment}: {new:?}");
                drop(migrating);
                assert!(DataDir::open(&path).is_err());
            }
            None => {
                assert!(is_switched, "{moment}");
                let looked = DataDir::inspect(&path).unwrap();
                let files = looked.storage().list().unwrap();
                assert_eq!(files, [NEW], "{moment}");
                drop(looked);
                DataDir::open(&path).unwrap();
                assert!(log_files(&path).contains(&NEW.to_owned()), "{moment}");
                assert!(!log_files(&path).contains(&OLD.to_owned()), "{moment}");
                assert!(!path.join(MIGRATED).exists(), "{moment}");
            }
        }
    }
}

#[test]
fn two_logs_of_the_present_format_are_both_left_alone() {
    let place = temporary();
    let path = place.path();
    drop(DataDir::open(path).unwrap());
    fs::write(path.join(PARTITION).join(NEW), segment(2)).unwrap();
    new_log(path);
    let inspected = DataDir::inspect(path).err();
    for refused in [DataDir::open(path).err(), inspected] {
        let refused = refused.unwrap();
        assert!(matches!(refused, DataDirError::TwoLogs { .. }), "{refused}");
    }
    assert_eq!(log_files(path), [NEW]);
    assert!(path.join(MIGRATED).join(NEW).exists());
    fs::remove_dir_all(path.join(MIGRATED)).unwrap();
    DataDir::open(path).unwrap();
}

#[test]
fn a_log_that_cannot_be_replaced_is_not_migrated() {
    let place = temporary();
    let path = place.path().join("data");
    old_directory(&path);
    let elsewhere = place.path().join("elsewhere");
    fs::rename(path.join(PARTITION), &elsewhere).unwrap();
    symlink(&elsewhere, path.join(PARTITION)).unwrap();
    let refused = Migrating::begin(&path).unwrap_err();
    assert!(
        matches!(refused, DataDirError::NotMovable { .. }),
        "{refused}"
    );
    // A first start that was killed has made no log.
    fs::remove_file(path.join(PARTITION)).unwrap();
    Migrating::begin(&path).unwrap().unwrap().finish().unwrap();
    assert!(log_files(&path).is_empty());
}
