//! Decisions in words.

use kew_scaling::{Day, Peak, Settings, TimeOfWeek};

use crate::support::{at, law, quiet, reading, seen, settings};

#[track_caller]
fn check(decision: &kew_scaling::Decision, text: &str) {
    assert_eq!(decision.to_string(), text);
}

#[test]
fn a_start_names_the_backlog_and_the_age() {
    let mut law = law(settings());
    law.decide(at(0), &seen(Some(reading(0, 0, 0)), 1));
    let decision = law.decide(at(10), &seen(Some(reading(900, 70, 980)), 1));
    check(
        &decision,
        "start instances until there are 15: 3600 messages will wait when a new instance is ready, after 30 \
         s, and must be handled within 30 s: 15 instances; 900 messages wait, and those left when a new \
         instance is ready must be handled within 15 s: 6 instances; the oldest message is 70 s old, above \
         the goal of 60 s",
    );
}

#[test]
fn a_hold_names_what_it_waits_for() {
    let mut law = law(settings());
    for second in [0, 10, 20] {
        law.decide(at(second), &seen(Some(reading(2, 0, second)), 4));
    }
    let decision = law.decide(at(25), &seen(Some(reading(2, 0, 25)), 4));
    check(
        &decision,
        "hold 4 instances: 1.0 messages arrive each second, and an instance that is busy for at most 96 % \
         of its time handles 7.7: 1 instance; 2 messages wait, and instances stop only if the others handle those \
         within 15 s: 1 instance; 1 instance would be enough now, but not during all of the last 30 s",
    );
}

#[test]
fn an_idle_queue_says_since_when() {
    check(
        &quiet(&mut law(settings()), 0, 60, 1),
        "hold 1 instance: no messages came for 60 s, and the last instance stops after 120 s",
    );
    check(
        &quiet(&mut law(settings()), 0, 120, 1),
        "stop instances until there are 0: no messages came for 120 s",
    );
}

#[test]
fn what_cannot_be_read_is_named() {
    check(
        &law(settings()).decide(at(0), &seen(None, 4)),
        "hold 4 instances: orders cannot be read, so no instance stops",
    );
    let mut uncounted = seen(None, 0);
    uncounted.instances = None;
    check(
        &law(settings()).decide(at(0), &uncounted),
        "hold: the instances cannot be counted, so their number stays",
    );
}

#[test]
fn bounds_and_peaks_are_named() {
    let peak = Peak {
        from: TimeOfWeek::new(Day::Wednesday, 8, 0),
        until: TimeOfWeek::new(Day::Wednesday, 18, 0),
        instances: 3,
    };
    let settings = Settings {
        peaks: vec![peak],
        maximum: 5,
        spare: 1,
        ..settings()
    };
    check(
        &law(settings.clone()).decide(at(0), &seen(Some(reading(0, 0, 0)), 1)),
        "start instances until there are 3: spare capacity: 1 instance; the peak of Wednesday 08:00 to Wednesday 18:00 \
         needs 3 instances",
    );
    check(
        &law(settings).decide(at(0), &seen(Some(reading(9999, 1, 9999)), 1)),
        "start instances until there are 5: 9999 messages wait, and those left when a new instance is ready must be handled \
         within 17 s: 72 instances; 9999 messages will wait when a new instance is ready, after 30 s, and must be \
         handled within 30 s: 42 instances; spare capacity: 1 instance; the peak of Wednesday 08:00 to Wednesday \
         18:00 needs 3 instances; the maximum is 5 instances",
    );
}

#[test]
fn an_unknown_rate_is_named() {
    let mut law = law(Settings {
        rate_per_task: None,
        ..settings()
    });
    check(
        &law.decide(at(0), &seen(Some(reading(50, 40, 50)), 2)),
        "start instances until there are 4: messages wait, and the rate of a task is not known yet: 4 instances",
    );
}

#[test]
fn one_message_waits_and_two_wait() {
    check(
        &law(settings()).decide(at(0), &seen(Some(reading(1, 0, 1)), 0)),
        "start instances until there are 1: 1 message waits, and those left when a new instance is ready must be handled \
         within 18 s: 1 instance; 1 message will wait when a new instance is ready, after 30 s, and must be handled \
         within 30 s: 1 instance",
    );
}
