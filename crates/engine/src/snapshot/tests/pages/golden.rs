//! These bytes lie on disks: a page of each kind.

use super::ids::remember;
use super::{ENTITY, Queue, kind};
use crate::bus::{AddedRule, BusFact, BusQueueOptions};
use crate::event::Fact;
use crate::snapshot::{DecodedPage, PageBytes};
use crate::vocabulary::{EntityName, Incarnation, SequenceNumber, Service};

/// A queue with a run that has a page and changes, one with a run that has none, sessions, and ids.
fn pages() -> Vec<PageBytes> {
    let mut queue = Queue::new();
    remember(&mut queue, 1000, 3);
    let sessions = b"!\x01\x05\x01\x01s\x01\xe9\x07\x00\x01";
    queue.state.restore(sessions).unwrap();
    queue.create(ENTITY, "queue");
    queue.put(900..1000);
    queue.put(1024..1030);
    queue.snapshot();
    queue.lease(930..932);
    queue.delete(940..942);
    queue.snapshot();
    queue.check();
    let pages = queue.store.pages.into_iter();
    pages.map(|(_, bytes)| bytes).collect()
}

#[test]
fn pages_have_these_bytes() {
    let hex = |bytes: &[u8]| -> String {
        let bytes = bytes.iter();
        bytes.map(|byte| format!("{byte:02x}")).collect()
    };
    let pages = pages();
    let groups = |page: &PageBytes| page.groups.iter().map(|it| hex(it)).collect::<Vec<_>>();
    let found: Vec<(u8, Vec<String>)> = pages.iter().map(|it| (it.kind, groups(it))).collect();
    let found: Vec<String> = found
        .into_iter()
        .map(|(kind, groups)| format!("{kind} {}", groups.join(" ")))
        .collect();
    assert_eq!(found, PAGES);
}

/// The pages of a topic with a rule. The tests of rules have their bytes.
fn pages_of_rules() -> Vec<PageBytes> {
    let mut queue = Queue::new();
    let name = |name: &str| EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: name.into(),
    };
    let (topic, subscription) = (Incarnation::new(1), Incarnation::new(4));
    queue.apply(Fact::Bus(BusFact::TopicCreated {
        topic,
        name: name("t"),
        options: BusQueueOptions::default(),
    }));
    queue.apply(Fact::Bus(BusFact::SubscriptionCreated {
        subscription,
        name: name("t/subscriptions/a"),
        options: BusQueueOptions::default(),
        of: topic,
    }));
    queue.apply(Fact::Bus(BusFact::RulesChanged {
        topic,
        subscription,
        from: SequenceNumber::FIRST,
        retired: Vec::new(),
        added: vec![AddedRule {
            id: 2,
            name: "red".into(),
            definition: [1, 0, 0].into(),
        }],
    }));
    let planned = queue.state.share().plan_pages();
    let pages = (0..planned.page_count()).map(|index| planned.encode(index).unwrap());
    pages.collect()
}

#[test]
fn a_page_of_another_version_is_refused() {
    let pages = [pages(), pages_of_rules()].concat();
    assert!(
        kind::ALL
            .iter()
            .all(|kind| pages.iter().any(|it| it.kind == *kind))
    );
    for page in pages {
        let decoded = |first: &[u8]| {
            let rest = page.groups[1..].iter().map(Vec::as_slice);
            let groups: Vec<&[u8]> = std::iter::once(first).chain(rest).collect();
            DecodedPage::decode(page.kind, &groups)
        };
        let mut first = page.groups[0].clone();
        assert!(decoded(&first).is_ok());
        first[0] += 1;
        assert!(decoded(&first).is_err());
        assert!(DecodedPage::decode(page.kind, &[]).is_err());
    }
}

const PAGES: [&str; 6] = [
    "1 0101001702010301076163636f756e7405717565756500eb078608",
    "1 0102003e20010502026e73046a6f62730100e0d4030affffffffffffffffff010101a09c0100e0a7120001046465616403\
     e807640474657874e907e907e907ca01014e20010602026e73156a6f62732f24646561646c657474657271756575650205e0\
     d4030affffffffffffffffff010101a09c0100e0a7120001046465616403e807640474657874e907e907e907010058200107\
     02026e731f6a6f62732f247472616e736665722f24646561646c657474657271756575650305e0d4030affffffffffffffff\
     ff010101a09c0100e0a7120001046465616403e807640474657874e907e907e9070100",
    "4 02038008808040020001000000a0f0ffffffffcfffffffffffffff000000000000a0f0fffffff3cfffffffffffffff0000\
     008093010000ec07000100e0550100020000003f00000000000000020000003f0000000000000080090000ed07000100a0050002\
     00eb07001090fc0700008800280000400000010000010000000000000000010008a20700100000000001000090bf05000006\
     00ec07000190020100e0fb22002800004000000000000000000000000000000000050000a80a00000000000000",
    "5 0103800880804000 00 00 00 00 00 00 00 6400eb07000190020100e0ec1e0028000040000000000000000000000000\
     00000000010201008c1c00000000000000",
    "2 01050100010000010000000000010000e8070000000000000000000000010073",
    "3 01050304e80700240000000000000000000000000000000000000000000000000000000000000001000000000000000000\
     00000000000002",
];

/// The directory in the first version, in which more pages have to be read.
pub(super) const DIRECTORY_V1: &str = "01038008808040020001000000a0f0ffffffffcfffffffffffffff000000000000a0f0fffffff3cfffffffffffffff0000\
     0080930100000100e0550200eb07001090fc0700008800280000400000010000010000000000000000010008a20700100000\
     000001000090bf0500000100020000003f00000000000000020000003f00000000000000800900000100a0050600ec070001\
     90020100e0fb22002800004000000000000000000000000000000000050000a80a00000000000000";

pub(super) fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().map(|it| it.to_digit(16).unwrap()).collect();
    let bytes = digits.chunks(2).map(|two| two[0] << 4 | two[1]);
    bytes.map(|byte| u8::try_from(byte).unwrap()).collect()
}
