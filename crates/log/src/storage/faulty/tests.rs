use std::collections::BTreeSet;

use super::*;

/// All states that the given power cuts may leave a file in.
fn states(storage: &FaultyStorage, name: &str) -> BTreeSet<Option<Vec<u8>>> {
    (0..400u64)
        .map(|seed| {
            let mut state = seed;
            let disk = storage.crash(&mut |bound| {
                state = state
                    .wrapping_mul(0x5851_f42d_4c95_7f2d)
                    .wrapping_add(seed | 1);
                u32::try_from((state >> 33) % u64::from(bound)).unwrap()
            });
            disk.content(name)
        })
        .collect()
}

#[test]
fn only_synced_data_is_certain() {
    let storage = FaultyStorage::new();
    let file = storage.create("file").unwrap();
    file.write_at(b"old", 0).unwrap();
    file.sync_data().unwrap();
    // The name is not durable yet.
    let seen = states(&storage, "file");
    assert_eq!(seen, BTreeSet::from([None, Some(b"old".to_vec())]));
    storage.sync_dir().unwrap();
    assert_eq!(states(&storage, "file").len(), 1);

    file.write_at(b"new", 0).unwrap();
    file.write_at(b"now", 0).unwrap();
    let seen = states(&storage, "file");
    let expected = ["old", "new", "now"].map(|text| Some(text.as_bytes().to_vec()));
    assert_eq!(seen, BTreeSet::from(expected));
    file.sync_data().unwrap();
    assert_eq!(storage.crash(&mut |_| 0).content("file").unwrap(), b"now");
}

#[test]
fn sectors_are_lost_one_by_one_and_in_any_order() {
    let storage = FaultyStorage::new();
    let file = storage.create("file").unwrap();
    file.write_at(&[0; 1024], 0).unwrap();
    file.sync_data().unwrap();
    storage.sync_dir().unwrap();
    file.write_at(&[1; 1024], 0).unwrap();
    let seen: BTreeSet<(u8, u8)> = states(&storage, "file")
        .into_iter()
        .map(|content| content.unwrap())
        .map(|content| (content[0], content[512]))
        .collect();
    assert_eq!(seen, BTreeSet::from([(0, 0), (0, 1), (1, 0), (1, 1)]));
}

#[test]
fn a_failed_sync_leaves_pages_that_no_later_sync_writes() {
    let storage = FaultyStorage::new();
    let file = storage.create("file").unwrap();
    storage.sync_dir().unwrap();
    file.write_at(b"lost", 0).unwrap();
    storage.fail_after(0, Fault::Eio, Repeat::Once);
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    assert_eq!(storage.content("file").unwrap(), b"lost");
    let after = storage.crash(&mut |_| 0).content("file").unwrap();
    assert_ne!(after, b"lost");
}

#[test]
fn names_are_lost_in_order() {
    let storage = FaultyStorage::new();
    storage.create("old").unwrap();
    storage.sync_dir().unwrap();
    let file = storage.create("temporary").unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    storage.rename("temporary", "final").unwrap();
    storage.remove("old").unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..200u32 {
        let mut state = seed;
        let disk = storage.crash(&mut |bound| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % bound
        });
        let names: Vec<String> = disk.files().into_iter().map(|(name, _)| name).collect();
        seen.insert(names.join(" "));
    }
    let expected = [
        "",
        "final",
        "final old",
        "old",
        "old temporary",
        "temporary",
    ];
    assert_eq!(seen, BTreeSet::from(expected.map(str::to_owned)));
}

#[test]
fn a_kill_loses_nothing_and_makes_nothing_durable() {
    let storage = FaultyStorage::new();
    let file = storage.create("file").unwrap();
    file.write_at(b"text", 0).unwrap();
    let after = storage.kill();
    assert_eq!(after.content("file").unwrap(), b"text");
    assert_eq!(after.crash(&mut |_| 0).content("file"), None);
}

#[test]
fn without_power_nothing_works_and_nothing_changes() {
    let storage = FaultyStorage::new();
    let file = storage.create("file").unwrap();
    storage.crash_after(1);
    file.write_at(b"a", 0).unwrap();
    assert!(file.write_at(b"b", 0).is_err());
    assert!(file.sync_data().is_err());
    assert!(storage.create("other").is_err());
    assert!(storage.list().is_err());
    assert_eq!(storage.content("file").unwrap(), b"a");
    assert_eq!(storage.calls(), 6);
}

#[test]
fn capacity_bounds_growth_and_not_overwriting() {
    let storage = FaultyStorage::new();
    let file = storage.create("file").unwrap();
    file.write_at(&[1; 100], 0).unwrap();
    storage.set_capacity_bytes(Some(100));
    file.write_at(&[2; 100], 0).unwrap();
    let error = file.write_at(&[2; 101], 0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    storage.remove("file").unwrap();
    storage
        .create("other")
        .unwrap()
        .write_at(&[3; 100], 0)
        .unwrap();
}

#[test]
fn a_file_without_a_name_is_kept_while_it_is_open() {
    let storage = FaultyStorage::new();
    let file = storage.create("file").unwrap();
    file.write_at(b"text", 0).unwrap();
    storage.remove("file").unwrap();
    storage.sync_dir().unwrap();
    let mut buffer = [0; 4];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 4);
    assert_eq!(&buffer, b"text");
    drop(file);
    storage.sync_dir().unwrap();
    assert!(storage.disk().inodes.is_empty());
}
