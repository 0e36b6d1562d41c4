//! What is wrong with messages that wait in their topic.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use kew_engine::bus::{BusFact, Effect, OwnEffect};
use kew_engine::{Arrival, Event, Fact, Incarnation, Place, SequenceNumber};
use kew_planted::{Hook, Seam};

use super::hooks::{Known, altered, bus_effects, dropped, on, recorded};

fn is_cursor(effect: &Effect) -> bool {
    matches!(effect, Effect::Own(OwnEffect::FannedOut { .. }))
}

/// Which copies of a message are made is forgotten after each step: they are made again.
pub(super) fn cursor_not_moved() -> Hook {
    dropped(|_, effect| is_cursor(effect))
}

/// The same after a restart only.
pub(super) fn cursor_not_logged() -> Hook {
    recorded(|_, effects| effects.retain(|effect| !is_cursor(effect)))
}

/// The last copy of each step is made again by the next one.
pub(super) fn cursor_too_early() -> Hook {
    let mut last = None;
    altered(move |_, effect| match effect {
        Effect::Arrived { to, .. } => last = Some(to.entity),
        Effect::Own(OwnEffect::FannedOut { next, .. }) => {
            if let Some(last) = last.filter(|last| *last < next.subscription) {
                next.subscription = last;
                next.rule = 0;
            }
        }
        _ => {}
    })
}

/// The first copy of the next step is left out, if it is a plain one.
pub(super) fn cursor_too_far() -> Hook {
    altered(|_, effect| {
        if let Effect::Own(OwnEffect::FannedOut { next, .. }) = effect {
            next.rule = next.rule.max(1);
        }
    })
}

/// A new rule counts for the last three messages, too, if they wait, and the one in its place does not.
pub(super) fn new_rule_too_early() -> Hook {
    on(Seam::Decided, |events: &mut Vec<Event>| {
        for event in events {
            if let Fact::Bus(BusFact::RulesChanged { from, .. }) = &mut event.fact {
                *from = SequenceNumber::named(from.as_u64().saturating_sub(3).max(1));
            }
        }
    })
}

/// A rule that was replaced is forgotten: it does not count for the messages that wait.
pub(super) fn retired_rule_gone() -> Hook {
    on(Seam::Decided, |events: &mut Vec<Event>| {
        let mut gone = Vec::new();
        for event in events.iter_mut() {
            let mut earlier = event.clone();
            if let Fact::Bus(BusFact::RulesChanged { retired, .. }) = &mut event.fact
                && let Fact::Bus(BusFact::RulesChanged { from, added, .. }) = &mut earlier.fact
                && !retired.is_empty()
            {
                // It counted for no number at all.
                *from = SequenceNumber::named(1);
                added.clear();
                retired.clear();
                gone.push(earlier);
            }
            gone.push(event.clone());
        }
        *events = gone;
    })
}

/// A rule that was replaced counts for the next three messages, too, and the one in its place does not.
pub(super) fn old_rule_too_late() -> Hook {
    on(Seam::Decided, |events: &mut Vec<Event>| {
        for event in events {
            if let Fact::Bus(BusFact::RulesChanged { from, .. }) = &mut event.fact {
                *from = SequenceNumber::named(from.as_u64() + 3);
            }
        }
    })
}

/// A message that is sent while another one waits has its copy first: it was made at once.
pub(super) fn waiting_passed() -> Hook {
    let subscriptions = Rc::new(RefCell::new(BTreeSet::<Incarnation>::new()));
    let known_ones = Rc::clone(&subscriptions);
    let mut held: Option<(Place, Arrival)> = None;
    let mut effects = bus_effects(move |known: &Known, effects: &mut Vec<Effect>| {
        let Some(Effect::Arrived { to, message }) = effects.first().cloned() else {
            return;
        };
        // A session would have another number.
        let is_copy = known.command().is_none()
            && known_ones.borrow().contains(&to.entity)
            && message.record.session == 0;
        if !is_copy {
            return;
        }
        match held.take_if(|(place, _)| place.entity == to.entity) {
            Some((_, earlier)) => {
                let mut after = to;
                after.number = SequenceNumber::named(to.number.as_u64() + 1);
                effects.push(Effect::Arrived {
                    to: after,
                    message: earlier,
                });
            }
            None if held.is_none() => {
                held = Some((to, message));
                effects.clear();
            }
            None => {}
        }
    });
    let mut events = on(Seam::Decided, move |events: &mut Vec<Event>| {
        for event in events.iter() {
            if let Fact::Bus(BusFact::SubscriptionCreated { subscription, .. }) = &event.fact {
                subscriptions.borrow_mut().insert(*subscription);
            }
        }
    });
    Box::new(move |seam, value| {
        events(seam, value);
        effects(seam, value);
    })
}
