//! Pages that are read while manifests come and go.

use super::*;

fn files(writer: &Writer) -> Vec<String> {
    let files = writer.storage.files().into_iter();
    files.map(|(name, _)| name).collect()
}

/// A writer that has written one page.
fn with_a_page(storage: &FaultyStorage) -> (Writer, PageNumber) {
    let mut writer = Writer::start(storage, 1).unwrap();
    writer.put(1, b"read");
    writer.write().unwrap();
    let number = *writer.numbers().first().unwrap();
    (writer, number)
}

#[test]
fn the_files_of_a_page_that_is_read_stay_until_then() {
    let storage = FaultyStorage::new();
    let (mut writer, number) = with_a_page(&storage);
    let first_files = files(&writer);
    // Two reads of one page: the second one ends later.
    let reads = [writer.read(number), writer.read(number)];
    for round in 0..40 {
        writer.put(1, &[round; 2000]);
        writer.write().unwrap();
    }
    assert!(writer.store.place(number).is_none(), "no manifest names it");
    for read in reads {
        let (group, read) = read.read(|reader| reader.group(number, 0));
        assert_eq!(group.unwrap(), b"read");
        assert!(read.damage().is_empty());
        assert!(
            first_files
                .iter()
                .all(|it| it.starts_with("snapshot") || files(&writer).contains(it))
        );
        writer.store.end_read(read);
        writer.retire().unwrap();
    }
    assert!(first_files.iter().all(|it| !files(&writer).contains(it)));
}

#[test]
fn a_damaged_copy_that_a_read_finds_is_left_by_the_next_manifest() {
    let storage = FaultyStorage::new();
    let (mut writer, number) = with_a_page(&storage);
    let place = writer.store.place(number).unwrap();
    storage.flip("pages-00000000000000000000", place.offset.into(), 1);
    let read = writer.read(number);
    let (group, read) = read.read(|reader| reader.group(number, 0));
    assert_eq!(group.unwrap(), b"read");
    assert_eq!((read.damage().len(), read.lost().len()), (1, 0));
    writer.store.end_read(read);
    writer.put(2, b"new");
    writer.write().unwrap();
    assert_ne!(writer.store.place(number).unwrap().pair, place.pair);
}

/// What is on no other page and in no memory must not be forgotten, and stops no manifest.
#[test]
fn a_page_that_cannot_be_copied_nor_made_is_named_where_it_lies() {
    let storage = FaultyStorage::new();
    let (mut writer, number) = with_a_page(&storage);
    let place = writer.store.place(number).unwrap();
    for copy in ["pages-00000000000000000000", "pages-00000000000000000001"] {
        storage.flip(copy, place.offset.into(), 1);
        writer.store.note_damage(copy);
    }
    let read = writer.read(number);
    let (group, read) = read.read(|reader| reader.group(number, 0));
    assert!(group.is_err());
    assert_eq!((read.damage().len(), read.lost().len()), (0, 2));
    writer.store.end_read(read);
    writer.cannot_make = Some(1);
    writer.put(2, b"new");
    writer.write().unwrap();
    assert_eq!(writer.store.place(number), Some(place));
    assert_eq!(writer.store.unreadable_count(), 1);
    // One that can be made is made.
    writer.cannot_make = None;
    writer.put(2, b"newer");
    writer.write().unwrap();
    assert_eq!(writer.store.place(number), None);
    assert_eq!(writer.store.unreadable_count(), 0);
}

/// A page is read as long as one copy has each of its groups.
#[test]
fn each_group_is_read_from_a_copy_that_has_it() {
    let storage = FaultyStorage::new();
    let (at, pages) = three_pages(&storage);
    let (number, place) = at[2];
    let end = u64::from(place.offset) + u64::from(place.size_bytes);
    // The last group, of 700 bytes, and the first one.
    storage.flip("pages-00000000000000000000", end - 10, 1);
    storage.flip("pages-00000000000000000001", end - 1000, 1);
    let mut reader = PageReader::new(&storage, IDENTITY);
    let read = reader.read(number, place).unwrap();
    assert_eq!(
        (read.position, &read.content),
        (LogPosition::new(5), &pages[2])
    );
    assert_eq!(reader.damage().len(), 2, "both copies have damage");
    storage.flip("pages-00000000000000000001", end - 10, 1);
    let mut reader = PageReader::new(&storage, IDENTITY);
    assert!(reader.read(number, place).is_err());
}

/// A bad sector hides no more than the group that lies there, whatever is wrong with the other copy.
#[test]
fn a_bad_sector_and_damage_elsewhere_leave_each_group() {
    for is_other_spoiled in [false, true] {
        let storage = FaultyStorage::new();
        let (at, pages) = three_pages(&storage);
        let (number, place) = at[2];
        let end = u64::from(place.offset) + u64::from(place.size_bytes);
        storage.spoil("pages-00000000000000000000", end - 10..end);
        match is_other_spoiled {
            true => storage.spoil("pages-00000000000000000001", end - 1001..end - 1000),
            false => storage.flip("pages-00000000000000000001", end - 1000, 1),
        }
        let mut reader = PageReader::new(&storage, IDENTITY);
        let read = reader.read(number, place).unwrap();
        assert_eq!(read.content, pages[2]);
        storage.spoil("pages-00000000000000000001", end - 10..end);
        let mut reader = PageReader::new(&storage, IDENTITY);
        assert!(matches!(
            reader.read(number, place),
            Err(PageError::Io(failure)) if !failure.is_no_descriptor()
        ));
        storage.fail_after(0, Fault::Emfile, Repeat::Sticky);
        let mut reader = PageReader::new(&storage, IDENTITY);
        assert!(matches!(
            reader.read(number, place),
            Err(PageError::Io(failure)) if failure.is_no_descriptor()
        ));
    }
}
