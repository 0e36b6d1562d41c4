//! What is wrong with messages that are forwarded to a topic, and with what is sent via one and fails.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use kew_engine::bus::{BusFact, Effect};
use kew_engine::{Event, Fact, Incarnation, Place};
use kew_planted::{Hook, Seam};

use super::hooks::{Known, bus_effects, changed, on};
use super::lost::is_failed_transfer;

/// The topics of a world, and their subscriptions.
#[derive(Clone, Default)]
struct Topics {
    topics: Rc<RefCell<BTreeSet<Incarnation>>>,
    subscriptions: Rc<RefCell<BTreeSet<Incarnation>>>,
}

impl Topics {
    fn has(&self, entity: Incarnation) -> bool {
        self.topics.borrow().contains(&entity)
    }

    /// A bug that knows them, besides what it does itself.
    fn with(&self, mut bug: Hook) -> Hook {
        let topics = self.clone();
        let mut note = on(Seam::Decided, move |events: &mut Vec<Event>| {
            for event in events.iter() {
                match &event.fact {
                    Fact::Bus(BusFact::TopicCreated { topic, .. }) => {
                        topics.topics.borrow_mut().insert(*topic);
                    }
                    Fact::Bus(BusFact::SubscriptionCreated { subscription, .. }) => {
                        topics.subscriptions.borrow_mut().insert(*subscription);
                    }
                    _ => {}
                }
            }
        });
        Box::new(move |seam, value| {
            note(seam, value);
            bug(seam, value);
        })
    }

    /// Whether this ends a message that the effect before it has brought to a topic from elsewhere.
    fn is_end_of_forward(&self, known: &Known, effect: &Effect) -> bool {
        match (known.arrived(), effect) {
            (Some(arrived), Effect::Ended { at, .. }) => {
                arrived.to.entity != at.entity && self.has(arrived.to.entity)
            }
            _ => false,
        }
    }
}

/// A message that is forwarded to a topic stays at its source, the first time.
pub(super) fn forwarded_twice() -> Hook {
    let topics = Topics::default();
    let known_ones = topics.clone();
    let mut kept: BTreeSet<Place> = BTreeSet::new();
    topics.with(bus_effects(move |known, effects| {
        effects.retain(|effect| {
            let is_it = known_ones.is_end_of_forward(known, effect);
            !matches!(effect, Effect::Ended { at, .. } if is_it && kept.insert(*at))
        });
    }))
}

/// A message that is forwarded to a topic is nowhere.
pub(super) fn forward_lost() -> Hook {
    let topics = Topics::default();
    let known_ones = topics.clone();
    topics.with(bus_effects(move |known, effects| {
        effects.retain(|effect| match effect {
            // A schedule that becomes active has no number yet.
            Effect::Arrived { to, message } => {
                let is_forwarded = known.command().is_none() && message.record.hops > 0;
                !(is_forwarded && known_ones.has(to.entity))
            }
            _ => true,
        });
    }))
}

/// Of a message that is forwarded to a topic, the log knows only that it came there: after a crash it is in both places.
pub(super) fn source_not_logged() -> Hook {
    let topics = Topics::default();
    let known_ones = topics.clone();
    topics.with(on(Seam::Recorded, move |events: &mut Vec<Event>| {
        for event in events {
            if let Fact::Bus(BusFact::Messages { effects }) = &mut event.fact {
                changed(effects, |effects| {
                    let mut came = None;
                    effects.retain(|effect| {
                        let before = came.take();
                        match effect {
                            Effect::Arrived { to, .. } => {
                                came = Some(to.entity);
                                true
                            }
                            Effect::Ended { at, .. } => {
                                !before.is_some_and(|to| to != at.entity && known_ones.has(to))
                            }
                            _ => true,
                        }
                    });
                });
            }
        }
    }))
}

/// The copies of a forwarded message are as new: they may be forwarded four times again.
pub(super) fn hops_forgotten() -> Hook {
    let topics = Topics::default();
    let known_ones = topics.clone();
    topics.with(bus_effects(move |_, effects| {
        for effect in effects {
            // Nothing but copies comes to a subscription.
            if let Effect::Arrived { to, message } = effect
                && known_ones.subscriptions.borrow().contains(&to.entity)
            {
                message.record.hops = 0;
            }
        }
    }))
}

/// What is sent via a topic and fails is nowhere.
pub(super) fn failed_transfer_of_topic_lost() -> Hook {
    let topics = Topics::default();
    let known_ones = topics.clone();
    topics.with(bus_effects(move |_, effects| {
        effects.retain(|effect| {
            let topics = known_ones.topics.borrow();
            let is_of_topic =
                |entity| (topics.iter()).any(|topic| topic.with_sub_queues()[2] == entity);
            !(is_failed_transfer(effect) && is_of_topic(effect.entity()))
        });
    }))
}
