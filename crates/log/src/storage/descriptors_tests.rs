use super::*;

fn creating() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    options
}

fn read(file: &dyn StorageFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 8];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// A file that has its name as its content, and is not written any more.
fn released(descriptors: &Arc<Descriptors>, name: &str) -> Arc<dyn StorageFile> {
    let file = descriptors.create(name, &creating()).unwrap();
    file.write_at(name.as_bytes(), 0).unwrap();
    file.sync_data().unwrap();
    file.release();
    file
}

#[test]
fn few_descriptors_serve_many_files() {
    let directory = tempfile::tempdir().unwrap();
    let descriptors = Descriptors::of(directory.path().into(), true, 3);
    let files: Vec<_> = (0..20)
        .map(|it| (it, released(&descriptors, &it.to_string())))
        .collect();
    for (number, file) in &files {
        assert_eq!(read(&**file).unwrap(), number.to_string().as_bytes());
        assert!(descriptors.open_count() <= 3);
    }
    drop(files);
    let files = descriptors.lock();
    assert!(files.by_id.is_empty() && files.by_name.is_empty() && files.closable.is_empty());
}

#[test]
fn the_files_that_were_used_last_stay_open() {
    let directory = tempfile::tempdir().unwrap();
    let descriptors = Descriptors::of(directory.path().into(), true, 2);
    let [a, _b, _c] = ["a", "b", "c"].map(|name| released(&descriptors, name));
    read(&*a).unwrap();
    let files = descriptors.lock();
    let open = files.by_id.values().filter(|known| known.open.is_some());
    let open: Vec<_> = open.filter_map(|known| known.name.as_deref()).collect();
    assert_eq!(open, ["a", "c"]);
}

#[test]
fn a_file_that_was_written_keeps_its_descriptor_until_it_is_released() {
    let directory = tempfile::tempdir().unwrap();
    let descriptors = Descriptors::of(directory.path().into(), true, 0);
    let file = descriptors.create("a", &creating()).unwrap();
    file.write_at(b"one", 0).unwrap();
    file.sync_data().unwrap();
    let others = ["b", "c"].map(|name| released(&descriptors, name));
    assert_eq!(descriptors.open_count(), 1);
    file.release();
    assert_eq!(read(&*others[0]).unwrap(), b"b");
    assert_eq!(descriptors.open_count(), 0);
    // It can be written again.
    file.write_at(b"two", 0).unwrap();
    assert_eq!(descriptors.open_count(), 1);
    assert_eq!(read(&*file).unwrap(), b"two");
}

#[test]
fn handles_of_one_file_share_a_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let descriptors = Descriptors::of(directory.path().into(), true, 1);
    let one = released(&descriptors, "a");
    let other = descriptors.open("a").unwrap();
    assert_eq!(descriptors.open_count(), 1);
    drop(one);
    assert_eq!(read(&*other).unwrap(), b"a");
    drop(other);
    assert_eq!(descriptors.open_count(), 0);
    let missing = descriptors.open("b").map(|_| ());
    assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_handle_stays_with_its_file_when_names_change() {
    let directory = tempfile::tempdir().unwrap();
    let descriptors = Descriptors::of(directory.path().into(), true, 0);
    let [old, new, gone] = ["old", "new", "gone"].map(|name| released(&descriptors, name));
    let path = |name: &str| directory.path().join(name);
    descriptors
        .rename("new", "old", || std::fs::rename(path("new"), path("old")))
        .unwrap();
    descriptors
        .remove("gone", || std::fs::remove_file(path("gone")))
        .unwrap();
    assert_eq!(read(&*old).unwrap(), b"old");
    assert_eq!(read(&*new).unwrap(), b"new");
    assert_eq!(read(&*gone).unwrap(), b"gone");
    // Another file can have the name.
    let another = descriptors.create("gone", &creating()).unwrap();
    another.write_at(b"another", 0).unwrap();
    another.release();
    assert_eq!(read(&*another).unwrap(), b"another");
    assert_eq!(read(&*gone).unwrap(), b"gone");
    // A rename or a removal that fails changes nothing.
    let failed = descriptors.rename("old", "other", || Err(io::ErrorKind::Other.into()));
    assert!(failed.is_err());
    let failed = descriptors.remove("old", || Err(io::ErrorKind::Other.into()));
    assert!(failed.is_err());
    assert_eq!(read(&*new).unwrap(), b"new");
}

#[test]
fn a_file_that_is_written_waits_for_no_other_that_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let descriptors = Descriptors::of(directory.path().into(), true, 2);
    let written = descriptors.create("written", &creating()).unwrap();
    written.write_at(b"one", 0).unwrap();
    let removed = released(&descriptors, "removed");
    let (began, has_begun) = std::sync::mpsc::channel();
    let (end, has_ended) = std::sync::mpsc::channel::<()>();
    let removing = std::thread::spawn({
        let descriptors = Arc::clone(&descriptors);
        move || {
            descriptors.remove("removed", || {
                began.send(()).unwrap();
                has_ended.recv().map_err(io::Error::other)
            })
        }
    });
    has_begun.recv().unwrap();
    // The removal goes on until this is done.
    written.write_at(b"two", 0).unwrap();
    written.sync_data().unwrap();
    assert_eq!(read(&*written).unwrap(), b"two");
    end.send(()).unwrap();
    removing.join().unwrap().unwrap();
    drop(removed);
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_closed_or_beside_one_that_is_opened_is_not_read_without_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let descriptors = Descriptors::of(directory.path().into(), true, 1);
    let file = released(&descriptors, "a");
    let mut bytes = [0];
    let mut is_at_hand = || match file.read_cached_at(&mut bytes, 0) {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
        // Not every file system can tell.
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            true
        }
    };
    assert!(is_at_hand());
    let opening = descriptors.lock();
    assert!(!is_at_hand());
    drop(opening);
    let _other = released(&descriptors, "b");
    assert!(!is_at_hand(), "it was closed");
    read(&*file).unwrap();
    assert!(is_at_hand());
}
