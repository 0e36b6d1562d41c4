//! What a start tells the operator.

use std::collections::BTreeMap;

use super::FoundSnapshots;
use crate::PageDamage;
use crate::format::names;
use crate::pages;
use crate::proof;
use crate::survey::Survey;

pub(super) fn warnings(survey: &Survey, found: &FoundSnapshots, void: u64) -> Vec<String> {
    let void = (void > 0).then(|| {
        format!(
            "{void} records, marks or snapshots did not count, because a later start went on before them: \
             the files are of two histories"
        )
    });
    let damaged = found
        .damaged
        .iter()
        .map(|(_, error)| format!("a snapshot was passed over: {error}"));
    let proof = survey
        .proof
        .damage
        .as_ref()
        .map(|(offset, error)| format!("{} is damaged at byte {offset}: {error}", proof::NAME));
    let foreign = survey
        .foreign
        .iter()
        .map(|name| format!("{name} is not a file of the log and was ignored"));
    // A snapshot that was passed over has its line already.
    let is_told = |file: &str| {
        let mut passed_over = found.damaged.iter();
        passed_over.any(|(position, _)| names::snapshot(position.as_u64()) == file)
    };
    let unread = survey.unread.iter().chain(&found.unread);
    let unread = unread.filter(|failure| !is_told(&failure.file));
    let unread = unread.map(|failure| format!("a snapshot cannot be read: {failure}"));
    let copies = by_file(&found.copies)
        .map(|what| format!("what is damaged was read from its copy: {what}"));
    let lost = by_file(&found.lost)
        .map(|what| format!("what is damaged in both copies is set aside: {what}"));
    let copies = copies.chain(lost);
    let snapshots = damaged.chain(unread).chain(void).chain(copies);
    snapshots.chain(proof).chain(foreign).collect()
}

/// One line for each file, however much of it is damaged.
fn by_file(damage: &[PageDamage]) -> impl Iterator<Item = String> {
    let mut by_file: BTreeMap<&str, (&PageDamage, usize)> = BTreeMap::new();
    for place in damage {
        let (_, count) = by_file.entry(&place.file).or_insert((place, 0));
        *count += 1;
    }
    by_file.into_values().map(|(first, count)| {
        let PageDamage { file, offset, what } = first;
        let others = match count {
            1 => String::new(),
            pages::NOTED_MAX.. => " (and at many other places)".to_owned(),
            _ => format!(" (and at {} other places)", count - 1),
        };
        format!("{file} cannot be used at byte {offset}: {what}{others}")
    })
}
