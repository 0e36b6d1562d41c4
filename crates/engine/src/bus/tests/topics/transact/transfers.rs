//! Failed transfers: where they were to go, and transactions that name an entity for those that fail only.

use super::via::{UNAVAILABLE, failed_of};
use super::*;

fn transfers(to: &EntityName, via: &EntityName, messages: Vec<BusMessage>) -> TransactionPart {
    part(to, TransactionWork::Transfer(via.clone(), messages))
}

fn of_status(status: EntityStatus) -> BusQueueOptions {
    BusQueueOptions {
        status,
        ..BusQueueOptions::default()
    }
}

impl Partition {
    /// What the failed transfers of an entity say, oldest first.
    fn whys_of(&mut self, name: &str) -> Vec<String> {
        let received =
            self.receive_from(&entity(&format!("{name}/$transfer/$deadletterqueue")), None);
        let overlays: Vec<_> = received.iter().flat_map(|it| it.overlays.clone()).collect();
        let texts = overlays.into_iter().map(|it| {
            let bytes = self.log.bytes(it).unwrap();
            String::from_utf8(bytes.to_vec()).unwrap()
        });
        texts.collect()
    }
}

#[test]
fn a_failed_transfer_says_where_it_was_to_go_and_why_it_could_not() {
    let mut p = with_ways(of_status(EntityStatus::Disabled));
    let sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    p.create(&entity("steps"), sessions).unwrap();
    let long = entity(&"ö".repeat(260));
    for to in [&entity("out"), &entity("gone"), &entity("steps"), &long] {
        let parts = vec![sends_via(&entity("in"), to, vec![text("x")])];
        p.transact(parts).unwrap();
    }
    let counts = p.view(&entity("in")).counts;
    p.check_whole();
    let whys = p.whys_of("in");
    // It counts as a change does.
    let said: u64 = whys.iter().map(|it| it.len() as u64).sum();
    assert_eq!(counts.size_bytes, 4 * size_of("x") + said);
    let begin = "+why=The message was not transferred to";
    assert_eq!(
        whys[..3],
        [
            format!("{begin} 'out': it is disabled for this operation.\n"),
            format!("{begin} 'gone': it could not be found.\n"),
            format!("{begin} 'steps': the entity requires sessions: a session is missing.\n"),
        ]
    );
    assert!(whys[3].starts_with(&format!("{begin} 'ö")), "{}", whys[3]);
    assert!(whys[3].len() <= 512 + 6);
    // A long name is cut, and not the reason.
    assert!(
        whys[3].ends_with("ö': it could not be found.\n"),
        "{}",
        whys[3]
    );
}

#[test]
fn what_a_transaction_cannot_transfer_is_a_failed_transfer_of_the_named_entity() {
    let mut p = with_ways(of_status(EntityStatus::Disabled));
    p.send_to(&entity("in"), text("job"));
    let held = locks(&p.receive_from(&entity("in"), None));
    let done = p.transact(vec![
        transfers(&entity("out"), &entity("in"), vec![text("one")]),
        transfers(&topic(), &entity("in"), vec![text("news")]),
        transfers(&entity("gone"), &topic(), vec![text("two")]),
        completes(&entity("in"), held[0]),
    ]);
    assert_eq!(done, Ok(BusOutcome::Transacted));
    p.check_whole();
    assert_eq!(p.view(&entity("in")).counts.active, 0);
    assert_eq!(failed_of(&mut p, "in"), [("one".into(), UNAVAILABLE)]);
    assert_eq!(failed_of(&mut p, "t"), [("two".into(), UNAVAILABLE)]);
    p.tick();
    assert_eq!(p.texts_at(&subscription("a")), ["news"]);
    // Another queue that has the name by now is not the one that was meant.
    let before = p.view(&entity("in")).incarnation;
    let anew = TransactionPart {
        incarnation: Some(before),
        ..transfers(&entity("out"), &entity("in"), vec![text("three")])
    };
    p.transact(vec![anew]).unwrap();
    assert_eq!(failed_of(&mut p, "in").len(), 1);
}

/// A client that settles messages of a queue may go on while nobody may send to it.
#[test]
fn an_entity_for_failed_transfers_need_not_accept_what_arrives() {
    let small = BusQueueOptions {
        message_size_bytes_max: 1,
        ..of_status(EntityStatus::SendDisabled)
    };
    let mut p = with_ways(BusQueueOptions::default());
    p.create(&entity("small"), small).unwrap();
    let part = |to: &str, via: &str| transfers(&entity(to), &entity(via), vec![text("large")]);
    p.transact(vec![part("out", "small"), part("out", "gone")])
        .unwrap();
    assert_eq!(p.texts_at(&entity("out")), ["large", "large"]);
    p.transact(vec![part("gone", "small")]).unwrap();
    assert_eq!(failed_of(&mut p, "small"), [("large".into(), UNAVAILABLE)]);
    p.check_whole();
}

#[test]
fn without_an_entity_for_failed_transfers_the_destination_refuses() {
    let mut p = with_ways(of_status(EntityStatus::Disabled));
    let queue = || "out".into();
    let disabled = BusRefusal::Disabled { queue: queue() };
    let missing = BusRefusal::QueueNotFound {
        queue: "gone".into(),
    };
    let vias = [
        entity("nothing"),
        subscription("a"),
        entity("in/$deadletterqueue"),
    ];
    for via in &vias {
        for (to, why) in [("out", &disabled), ("gone", &missing)] {
            let refused = p.refused(vec![
                sends(&topic(), vec![text("before")]),
                transfers(&entity(to), via, vec![text("x")]),
            ]);
            assert_eq!(refused, (2, PartRefusal::Refused(why.clone())));
        }
    }
    // Nor is there one without room.
    let full = BusQueueOptions {
        size_bytes_max: size_of("x"),
        ..BusQueueOptions::default()
    };
    p.create(&entity("full"), full).unwrap();
    let (part, why) = p.refused(vec![transfers(
        &entity("out"),
        &entity("full"),
        vec![text("x")],
    )]);
    let text = why.to_string();
    assert!(
        part == 1 && text.starts_with("the failed transfer has no room in 'full', where "),
        "{text}"
    );
    let end = format!(
        " of {} bytes would be used; 'out' refused it: it is disabled for this operation",
        size_of("x")
    );
    assert!(text.ends_with(&end), "{text}");
}
