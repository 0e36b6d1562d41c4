use super::*;

#[test]
fn short_and_interrupted_calls_are_finished() {
    let storage = FaultyStorage::new();
    let file = create(&storage, "file").unwrap();
    storage.fail_after(0, Fault::ShortWrite, Repeat::Once);
    storage.fail_after(1, Fault::Eintr, Repeat::Once);
    write_all_at(&*file, "file", b"0123456789", 3).unwrap();
    let mut buffer = [9; 20];
    storage.fail_after(0, Fault::Eintr, Repeat::Once);
    let count = read_at(&*file, "file", &mut buffer, 1).unwrap();
    assert_eq!(&buffer[..count], b"\0\x000123456789");
}

#[test]
fn failures_name_the_call_and_the_place() {
    let storage = FaultyStorage::new();
    let file = create(&storage, "file").unwrap();
    storage.fail_after(0, Fault::Enospc, Repeat::Sticky);
    let full = write_all_at(&*file, "file", b"x", 7).unwrap_err();
    assert!(full.is_no_space());
    assert!(
        full.to_string()
            .starts_with("cannot write file at byte 7: ")
    );
    let full = create(&storage, "other").err().unwrap();
    assert!(full.to_string().starts_with("cannot create other: "));
    storage.clear_faults();
    storage.fail_after(0, Fault::Eio, Repeat::Once);
    let broken = sync_dir(&storage).unwrap_err();
    assert!(!broken.is_no_space());
    assert!(
        broken
            .to_string()
            .starts_with("cannot sync the directory: ")
    );
    remove(&storage, "never there").unwrap();
}

#[test]
fn memory_holds_only_nonzero_pages() {
    let storage = MemoryStorage::new();
    let file = storage.create("file").unwrap();
    file.write_at(&[0; 1 << 20], 0).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
    assert_eq!(storage.allocated_bytes(), 0);
    // Over the border of two chunks.
    file.write_at(&[1, 2, 3, 4], (64 << 10) - 2).unwrap();
    assert_eq!(storage.allocated_bytes(), 128 << 10);
    let mut buffer = [9; 6];
    assert_eq!(file.read_at(&mut buffer, (64 << 10) - 3).unwrap(), 6);
    assert_eq!(buffer, [0, 1, 2, 3, 4, 0]);
    assert_eq!(file.read_at(&mut buffer, (1 << 20) - 2).unwrap(), 2);
    assert_eq!(file.read_at(&mut buffer, 1 << 20).unwrap(), 0);
    file.sync_data().unwrap();
    storage.sync_dir().unwrap();
}

#[test]
fn memory_keeps_names_as_a_directory_does() {
    let storage = MemoryStorage::new();
    let file = storage.create("a").unwrap();
    assert!(storage.create("a").is_err());
    storage.create("b").unwrap();
    file.write_at(b"x", 0).unwrap();
    storage.rename("a", "b").unwrap();
    assert!(storage.rename("a", "b").is_err());
    assert_eq!(list(&storage).unwrap(), ["b"]);
    assert_eq!(storage.open("b").unwrap().len().unwrap(), 1);
    storage.remove("b").unwrap();
    assert!(storage.remove("b").is_err());
    assert!(storage.open("b").is_err());
}
