use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

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

    // It begins anew, and is a data directory in the end, with an id of its own.
    let restoring = Restoring::begin(&path).unwrap();
    assert_eq!(fs::read_dir(restoring.log_path()).unwrap().count(), 0);
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
