//! The bytes of rules in a snapshot: every later version reads them.

use super::*;
use crate::snapshot::RestoringPages;
use crate::vocabulary::PageNumber;

/// A topic with a rule in force and a retired one, which a message waits for.
fn partition() -> Partition {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.pass_ms(1);
    p.subscribe_all(&["a"]);
    p.pass_ms(1);
    p.arrive();
    let red = with_action("Red", "SET a = 1");
    p.set_rule("a", rule("$Default", sql("b = 2"))).unwrap();
    p.add_rule("a", red).unwrap();
    p
}

/// Number 1 was `$Default`, and does not hold for number 2 of the topic any more.
const RULES: &str = "01 04 08 2444656661756c74 03 010000 c2843d 01 01 02 \
     02 04 08 2444656661756c74 0b 0103 05 62203d2032 00 00 00 c3843d 02 00 \
     03 04 03 526564 0f 0100 01 09 5345542061203d2031 00 00 c3843d 02 00";

fn hex(bytes: &[u8]) -> String {
    let bytes = bytes.iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_part_of_rules_has_these_bytes() {
    let p = partition();
    let mut parts = Vec::new();
    p.state.snapshot(|part| parts.push(part.to_vec()));
    let found = parts.iter().filter(|part| part[0] == 39);
    let found: Vec<_> = found.map(|part| hex(part)).collect();
    assert_eq!(found, [format!("270101{RULES}").replace(' ', "")]);
    p.check_rules();
}

#[test]
fn the_pages_of_rules_have_these_bytes() {
    let p = partition();
    let planned = p.state.share().plan_pages();
    let pages = (0..planned.page_count()).map(|index| planned.encode(index).unwrap());
    let found: Vec<_> = pages.filter(|page| page.kind == 6).collect();
    let groups = found.iter().flat_map(|page| &page.groups);
    // All numbers are of one chunk. The page begins with its version and the topic.
    let found: Vec<_> = groups.map(|group| hex(group)).collect();
    assert_eq!(found, [format!("0101{RULES}").replace(' ', "")]);
}

/// Rules in a wrong order, twice, or of something that is no topic.
#[test]
fn damaged_parts_of_rules_are_refused() {
    let p = partition();
    let mut parts = Vec::new();
    p.state.snapshot(|part| parts.push(part.to_vec()));
    let (rules, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part[0] == 39);
    let [rules] = &rules[..] else {
        panic!("all rules are in one part");
    };
    let restored = |parts: &[&[u8]]| {
        let mut state = State::new();
        let mut all = others
            .iter()
            .map(Vec::as_slice)
            .chain(parts.iter().copied());
        all.try_for_each(|part| state.restore(part))
    };
    assert_eq!(restored(&[rules]), Ok(()));
    assert!(restored(&[rules, rules]).is_err());
    for length in 3..rules.len() {
        let cut = restored(&[&rules[..length]]);
        // A part may end behind a rule.
        let whole = [3, 24, 52];
        assert_eq!(cut.is_ok(), whole.contains(&length), "{length}: {cut:?}");
    }
    let mut of_queue = rules.clone();
    of_queue[2] = 2;
    assert!(restored(&[&of_queue]).is_err());
    let mut unordered = rules.clone();
    unordered[3] = 3;
    assert!(restored(&[&unordered]).is_err());
    let mut not_given_out = rules[..24].to_vec();
    not_given_out[3] = 4;
    assert!(restored(&[&not_given_out]).is_err());
}

#[test]
fn a_page_of_rules_without_its_topic_is_refused() {
    let p = partition();
    let planned = p.state.share().plan_pages();
    let mut pages = (0..planned.page_count()).map(|index| planned.encode(index).unwrap());
    let page = pages.find(|page| page.kind == 6).unwrap();
    let groups: Vec<&[u8]> = page.groups.iter().map(Vec::as_slice).collect();
    let mut restoring = RestoringPages::default();
    let restored = State::new().restore_page(&mut restoring, PageNumber::new(1), 6, &groups);
    assert!(restored.is_err());
}
