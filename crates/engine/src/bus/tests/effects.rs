//! Each effect stands for itself: what it does follows from it alone, and from whether its message is there.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::random::{Client, Step, step};
use super::*;
use crate::bus::message::Message;
use crate::bus::{Effect, OwnEffect};
use crate::effect::{Bodies, Lease, Standing, Was};
use crate::event::Fact;
use crate::vocabulary::{Incarnation, Place};

/// So many numbers are a piece here, so that a short history has several.
const PIECE_LENGTH: u64 = 4;

/// Some messages of an entity.
type Piece = (Incarnation, u64);

fn piece(at: &Place) -> Piece {
    (at.entity, at.number.as_u64() / PIECE_LENGTH)
}

fn decoded(log: &Log) -> Vec<Event> {
    let events = log.events.iter();
    events.map(|bytes| Event::decode(bytes).unwrap()).collect()
}

/// What an event does, one effect at a time.
fn singles(event: &Event) -> Vec<Event> {
    let at = event.at;
    match &event.fact {
        Fact::Bus(BusFact::Messages { effects }) => effects
            .iter()
            .map(|effect| Event {
                at,
                fact: Fact::Bus(BusFact::Messages {
                    effects: effect.clone().into(),
                }),
            })
            .collect(),
        _ => vec![event.clone()],
    }
}

fn effects_of(event: &Event) -> &[Effect] {
    match &event.fact {
        Fact::Bus(BusFact::Messages { effects }) => effects,
        _ => &[],
    }
}

/// The piece that a single effect concerns, if it is about a message.
fn piece_of(event: &Event) -> Option<Piece> {
    let at = effects_of(event).first()?.message()?;
    Some(piece(&at))
}

fn replay<'a>(events: impl IntoIterator<Item = &'a Event>) -> State {
    let mut state = State::new();
    for event in events {
        state.apply(event.clone());
    }
    state
}

/// The messages of each piece.
fn pieces(state: &State) -> BTreeMap<Piece, Vec<Message<'_>>> {
    let mut pieces: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (entity, queue) in state.bus.iter() {
        for message in queue.backlog.messages() {
            let at = Place {
                entity: *entity,
                number: message.number(),
            };
            let piece = pieces.entry(piece(&at));
            piece.or_default().push(message);
        }
    }
    pieces
}

fn run(steps: Vec<Step>, sessions: bool) -> Partition {
    let mut p = Partition::with(BusQueueOptions {
        requires_session: sessions,
        duplicate_window_ms: Some(20_000),
        max_delivery_count: 2,
        dead_letters_expired: true,
        ..BusQueueOptions::default()
    });
    let mut client = Client::default();
    for step in steps {
        client.step(&mut p, step, sessions);
    }
    p
}

/// The same effect, with one thing that it says of the old message changed.
fn with_stale_was(effect: &Effect) -> Vec<Effect> {
    let stale = |was: &Was| {
        let standing = Standing {
            state: match was.standing.state {
                BusMessageState::Ready => BusMessageState::Deferred,
                _ => BusMessageState::Ready,
            },
            ..was.standing
        };
        let until = Standing {
            until: was.standing.until.min(Timestamp::from_ms(7)),
            ..was.standing
        };
        let session = was.session + 1;
        [
            Was { standing, ..*was },
            Was {
                standing: until,
                ..*was
            },
            Was { session, ..*was },
        ]
    };
    match effect {
        Effect::Leased {
            at,
            lease,
            body,
            was,
        } => stale(was)
            .map(|was| Effect::Leased {
                at: *at,
                lease: *lease,
                body: body.clone(),
                was,
            })
            .into(),
        Effect::Ended {
            at,
            was,
            bodies,
            source_length,
        } => {
            let ended = |was, bodies| Effect::Ended {
                at: *at,
                was,
                bodies,
                source_length: *source_length,
            };
            let overlays = vec![bodies.sent; bodies.overlays.len() + 1];
            let changed = Bodies {
                overlays,
                ..bodies.clone()
            };
            let stale = stale(was).map(|was| ended(was, bodies.clone()));
            stale.into_iter().chain([ended(*was, changed)]).collect()
        }
        Effect::Arrived { .. }
        | Effect::Own(OwnEffect::SessionReleasing { .. } | OwnEffect::SessionFreed { .. }) => {
            Vec::new()
        }
        Effect::Own(OwnEffect::FannedOut { topic, next, lent }) => {
            let number = topic.number.next();
            let topic = Place { number, ..*topic };
            let (next, lent) = (*next, *lent);
            vec![Effect::Own(OwnEffect::FannedOut { topic, next, lent })]
        }
        Effect::Own(OwnEffect::Passed { topic, id_hash }) => {
            let number = topic.number.next();
            let topic = Place { number, ..*topic };
            let id_hash = *id_hash;
            vec![Effect::Own(OwnEffect::Passed { topic, id_hash })]
        }
    }
}

proptest! {
    #[test]
    fn each_effect_alone_gives_what_all_give(
        steps in prop::collection::vec(step(), 1..120),
        sessions: bool,
    ) {
        let p = run(steps, sessions);
        let all: Vec<_> = decoded(&p.log).iter().flat_map(singles).collect();
        prop_assert_eq!(&replay(&all), &p.state);

        // Each piece from its own effects.
        let expected = pieces(&p.state);
        let named: BTreeSet<_> = all.iter().filter_map(piece_of).collect();
        for piece in named {
            let own = |event: &&Event| piece_of(event).is_none_or(|of| of == piece);
            let alone = replay(all.iter().filter(own));
            let alone = pieces(&alone);
            prop_assert_eq!(alone.get(&piece), expected.get(&piece));
        }
    }

    #[test]
    fn what_is_not_true_of_the_old_message_is_noticed(
        steps in prop::collection::vec(step(), 1..80),
        sessions: bool,
    ) {
        let p = run(steps, sessions);
        let mut state = State::new();
        for event in decoded(&p.log).iter().flat_map(singles) {
            if let Some(effect) = effects_of(&event).first() {
                prop_assert!(state.bus.is_exact(effect));
                for stale in with_stale_was(effect) {
                    prop_assert!(!state.bus.is_exact(&stale));
                }
            }
            state.apply(event);
        }
    }
}

/// In a replay from pieces of different age, the counters may be newer than a queue and its messages.
#[test]
fn counters_that_are_newer_hide_no_queue_and_no_message() {
    let mut p = Partition::with(BusQueueOptions::default());
    for _ in 0..3 {
        p.send(text("x")).unwrap();
    }
    let events = decoded(&p.log);
    let mut newer = State::new();
    newer.catalogue.next_incarnation = Incarnation::new(1000);
    for event in &events {
        newer.apply(event.clone());
        for (_, queue) in newer.bus.iter_mut() {
            queue.backlog.set_next(SequenceNumber::new(500));
        }
    }
    assert_eq!(pieces(&newer), pieces(&p.state));
    assert_eq!(newer.catalogue.next_incarnation, Incarnation::new(1000));
    // A queue and messages that are there do not come again.
    for event in &events {
        newer.apply(event.clone());
    }
    assert_eq!(pieces(&newer), pieces(&p.state));
}

/// All of it is in the events: the lock, its end, the move to the dead letters.
#[test]
fn an_event_says_what_the_old_message_counted_for() {
    let mut p = Partition::with(BusQueueOptions {
        max_delivery_count: 1,
        ..BusQueueOptions::default()
    });
    p.send(text("a")).unwrap();
    let lock = p.receive()[0].lock.unwrap();
    let overlay = Some(Bytes::from_static(b"why"));
    p.settle(lock, Disposition::Abandon { overlay });
    let events = decoded(&p.log);
    let [.., sent, locked, moved] = &events[..] else {
        panic!("{events:?}");
    };
    let [Effect::Arrived { to: at, message }] = effects_of(sent) else {
        panic!("{sent:?}");
    };
    let standing = Standing {
        state: BusMessageState::Locked { deferred: false },
        until: p.now.plus_ms(60_000),
    };
    let leased = Effect::Leased {
        at: *at,
        lease: Lease {
            generation: crate::LeaseGeneration::new(1),
            deliveries: 0,
            standing,
        },
        body: None,
        was: Was::default(),
    };
    assert_eq!(effects_of(locked), [leased]);
    let [
        Effect::Arrived {
            to,
            message: letter,
        },
        ended,
    ] = effects_of(moved)
    else {
        panic!("{moved:?}");
    };
    assert_eq!(to.entity, at.entity.next());
    assert_eq!(
        (letter.record.deliveries, letter.record.cause),
        (1, Some(DeadLetterCause::MaxDeliveryCountExceeded))
    );
    assert_eq!(letter.overlays().len(), 1);
    let was = Was {
        standing,
        session: 0,
    };
    let bodies = Bodies {
        sent: message.record.body,
        overlays: Vec::new(),
    };
    let source_length = None;
    let expected = Effect::Ended {
        at: *at,
        was,
        bodies,
        source_length,
    };
    assert_eq!(*ended, expected);
}

#[test]
fn effects_of_one_command_are_one_event() {
    let mut p = Partition::with(BusQueueOptions::default());
    for _ in 0..100 {
        p.send(text("a")).unwrap();
    }
    let before = p.log.events.len();
    let received = p.ask(BusCommand::Receive {
        queue: jobs(),
        count: 100,
        mode: ReceiveMode::PeekLock,
        session: None,
    });
    let Ok(BusOutcome::Received(messages)) = received else {
        panic!("{received:?}");
    };
    let settlements = locks(&messages).into_iter();
    let settlements = settlements.map(|lock| (lock, Disposition::Complete));
    p.ask(BusCommand::Settle {
        queue: jobs(),
        settlements: settlements.collect(),
    })
    .unwrap();
    assert_eq!(p.log.events.len(), before + 2);
    assert_eq!(p.counts().active, 0);
    assert_eq!(p.replayed(), p.state);
}
