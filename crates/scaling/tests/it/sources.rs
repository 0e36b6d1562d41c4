//! What cannot be read, and what services do not report.

use std::time::Duration;

use kew_scaling::simulate::{Course, Load, Scaler, Workers};
use kew_scaling::{
    Action, Day, Goal, Instances, Law, Moment, Observation, Reading, Reason, Settings, Source,
    TimeOfWeek,
};
use proptest::prelude::*;

use crate::support::{at, changes, law, quiet, reading, run, seen, settings, workers};

const BEGINS: fn() -> TimeOfWeek = || TimeOfWeek::new(Day::Wednesday, 12, 0);

proptest! {
    /// Whatever was seen before, and however long nothing can be read.
    #[test]
    fn unreadable_sources_hold_the_number(
        backlog in 0_u64..10_000,
        running in 0_u32..=20,
        looks in 1_u64..200,
    ) {
        let mut law = law(settings());
        for look in 0..10 {
            law.decide(at(look * 10), &seen(Some(reading(backlog, 1, look * 1000)), running));
        }
        for look in 10..10 + looks {
            let decision = law.decide(at(look * 10), &seen(None, running));
            prop_assert_eq!(decision.action, Action::Hold, "{}", decision);
            prop_assert_eq!(decision.instances, Some(running));
        }
    }
}

#[test]
fn after_an_outage_fewer_must_be_enough_for_a_whole_cool_down_again() {
    let mut law = law(settings());
    quiet(&mut law, 0, 110, 4);
    law.decide(at(120), &seen(None, 4));
    let early = quiet(&mut law, 130, 150, 4);
    assert_eq!(early.action, Action::Hold, "{early}");
    let later = quiet(&mut law, 160, 160, 4);
    assert_eq!(later.action, Action::Stop(1), "{later}");
    let idle = quiet(&mut law, 170, 300, 1);
    assert_eq!(idle.action, Action::Stop(0), "{idle}");
}

#[test]
fn an_outage_in_the_middle_of_a_load_changes_nothing() {
    let load = Load::even("even", BEGINS(), 7200, |_| 50.0);
    let mut law = law(settings());
    let course = kew_scaling::simulate::run(&mut law, &load, workers(), |second| {
        !(3600..5400).contains(&second)
    });
    assert_eq!(changes(&course, 3000), 0);
    assert_eq!(course.points.last().unwrap().instances, 7);
}

/// A backlog without counters: then one instance stops at a time.
fn only_backlog(ready: u32) -> Observation {
    let empty_soon = Reading {
        backlog: 1,
        oldest: Some(Duration::ZERO),
        ..Reading::default()
    };
    seen(Some(empty_soon), ready)
}

/// A stop can fail, or take its time: the next look decides the same again.
#[test]
fn a_stop_stays_decided_until_an_instance_has_stopped() {
    let mut law = law(settings());
    for second in [0, 10, 20] {
        let decision = law.decide(at(second), &only_backlog(4));
        assert_eq!(decision.action, Action::Hold, "{decision}");
    }
    for second in [30, 40, 50, 60, 70, 80] {
        let decision = law.decide(at(second), &only_backlog(4));
        assert_eq!(decision.action, Action::Stop(3), "{decision}");
    }
    // The cool-down begins when it has stopped.
    for second in [90, 100, 110] {
        let decision = law.decide(at(second), &only_backlog(3));
        assert_eq!(decision.action, Action::Hold, "{decision}");
    }
    let decision = law.decide(at(120), &only_backlog(3));
    assert_eq!(decision.action, Action::Stop(2), "{decision}");
}

/// What is told stays until the next decision, and the autoscaler of Kubernetes asks each 15 s.
#[test]
fn an_autoscaler_that_asks_seldom_hears_of_each_stop() {
    for asks_at in 0..15 {
        let mut law = law(Settings {
            cool_down: Duration::from_secs(40),
            ..settings()
        });
        let (mut running, mut told) = (4, 4);
        for second in 0..300 {
            if second % 5 == 0 {
                let decision = law.decide(at(second), &only_backlog(running));
                told = decision.instances.unwrap();
            }
            if second % 15 == asks_at {
                running = told;
            }
        }
        assert_eq!(running, 1, "it asks at second {asks_at}");
    }
}

/// One of two queues cannot be read. The other one may ask for more, and no instance stops.
#[test]
fn a_readable_source_may_start_instances_beside_an_unreadable_one() {
    let mut law = law(settings());
    let both = |backlog| {
        let mut seen = seen(Some(reading(backlog, 1, 5000 + backlog)), 3);
        let name = "invoices".to_owned();
        seen.sources.push(Source {
            name,
            reading: None,
        });
        seen
    };
    for look in 0..20 {
        let decision = law.decide(at(look * 10), &both(0));
        assert_eq!(decision.action, Action::Hold, "{decision}");
    }
    let decision = law.decide(at(200), &both(3000));
    assert!(matches!(decision.action, Action::Start(_)), "{decision}");
}

#[test]
fn instances_that_cannot_be_counted_are_left_alone() {
    let mut law = law(settings());
    let mut observation = seen(Some(reading(10_000, 500, 10_000)), 1);
    observation.instances = None;
    let decision = law.decide(at(0), &observation);
    assert_eq!((decision.action, decision.instances), (Action::Hold, None));
}

/// A service that reports less than the law could use.
struct Reduced<F> {
    law: Law,
    reduce: F,
}

impl<F: Fn(&mut Reading)> Scaler for Reduced<F> {
    fn every(&self) -> Duration {
        self.law.every()
    }

    fn has_push(&self) -> bool {
        false
    }

    fn scale(&mut self, now: Moment, seen: &Observation) -> Option<(u32, u32)> {
        let mut seen = seen.clone();
        let readings = seen.sources.iter_mut().filter_map(|it| it.reading.as_mut());
        readings.for_each(&self.reduce);
        self.law.scale(now, &seen)
    }
}

fn reduced(settings: Settings, load: &Load, reduce: impl Fn(&mut Reading)) -> Course {
    let law = law(settings);
    run(&mut Reduced { law, reduce }, load, workers())
}

fn late(course: &Course, from: usize) -> usize {
    let points = course.points.iter().skip(from);
    points.filter(|it| it.oldest_seconds > 60).count()
}

#[test]
fn without_counters_of_arrivals_or_an_age_the_goal_is_met() {
    let load = Load::random("random", BEGINS(), 7200, 3, |_| 60.0);
    let no_arrivals = reduced(settings(), &load, |it| it.arrived = None);
    assert_eq!(late(&no_arrivals, 300), 0);
    assert!(changes(&no_arrivals, 1800) <= 2);
    let depth_only = reduced(settings(), &load, |it| {
        *it = Reading {
            backlog: it.backlog,
            ..Reading::default()
        };
    });
    let late = late(&depth_only, 300);
    assert_eq!(late, 0);
}

/// The law starts with a wrong rate, or with none, and measures it.
#[test]
fn the_rate_of_a_task_is_measured() {
    let load = Load::random("random", BEGINS(), 7200, 3, |_| 60.0);
    for rate_per_task in [None, Some(0.3), Some(4.0)] {
        let mut law = law(Settings {
            rate_per_task,
            ..settings()
        });
        let course = run(&mut law, &load, workers());
        assert_eq!(late(&course, 900), 0, "from {rate_per_task:?}");
        if rate_per_task != Some(0.3) {
            let rate = law.rate_per_task().unwrap();
            assert!((rate - 1.0).abs() < 0.1, "{rate} from {rate_per_task:?}");
        }
    }
}

#[test]
fn the_rate_of_a_task_follows_from_its_handling_time_at_first() {
    let mut law = law(Settings {
        rate_per_task: None,
        ..settings()
    });
    let mut observation = seen(Some(reading(1, 0, 1)), 1);
    let instances = observation.instances.as_mut().unwrap();
    instances.handling = Some(Duration::from_millis(250));
    law.decide(at(0), &observation);
    assert_eq!(law.rate_per_task(), Some(4.0));
}

#[test]
fn a_backlog_for_each_task_is_a_goal_too() {
    let goal = Goal::BacklogPerTask(10);
    let load = Load::random("random", BEGINS(), 7200, 3, |_| 60.0);
    let course = run(&mut law(Settings { goal, ..settings() }), &load, workers());
    let above = |it: &&kew_scaling::simulate::Point| it.backlog > 10 * 8 * u64::from(it.instances);
    assert_eq!(course.points.iter().skip(300).filter(above).count(), 0);
    assert!(changes(&course, 1800) <= 2);
}

#[test]
fn busy_processors_get_no_more_tasks_but_more_instances() {
    let decide = |cpu| {
        let mut law = law(settings());
        let mut observation = seen(Some(reading(500, 5, 500)), 1);
        observation.instances = Some(Instances {
            ready: 1,
            tasks: Some(2),
            cpu: Some(cpu),
            ..Instances::default()
        });
        law.decide(at(0), &observation);
        let decision = law.decide(at(10), &observation);
        (decision.tasks, decision.instances)
    };
    assert_eq!(decide(0.5).0, 8);
    assert_eq!(decide(0.95).0, 2);
    assert!(
        decide(0.95).1 > decide(0.5).1,
        "{:?} {:?}",
        decide(0.95),
        decide(0.5)
    );
}

/// More processes on a machine without free processors handle no more messages.
#[test]
fn a_machine_whose_processors_are_used_up_gets_no_more_instances() {
    let decide = |cpu, share_processors, minimum| {
        let mut law = law(Settings {
            minimum,
            ..settings()
        });
        let mut observation = seen(Some(reading(5000, 50, 5000)), 2);
        observation.instances = Some(Instances {
            ready: 2,
            cpu,
            share_processors,
            ..Instances::default()
        });
        law.decide(at(0), &observation)
    };
    let full = decide(Some(0.95), true, 0);
    assert_eq!(full.action, Action::Hold, "{full}");
    let why = "the instances use 95 % of the processors of this machine, and more instances would share them";
    assert!(full.to_string().contains(why), "{full}");
    // The minimum is the operator's.
    let minimum = decide(Some(0.95), true, 3);
    assert_eq!(minimum.action, Action::Start(3), "{minimum}");
    // With free processors, with unknown ones, and with processors of their own, more of them handle more.
    for (cpu, shared) in [(Some(0.8), true), (None, true), (Some(0.95), false)] {
        let decision = decide(cpu, shared, 0);
        assert!(matches!(decision.action, Action::Start(_)), "{decision}");
        assert!(!decision.to_string().contains(why), "{decision}");
    }
}

/// The autoscaler of Kubernetes ignores changes of up to a tenth.
#[test]
fn changes_are_large_enough_to_be_noticed() {
    let tolerant = || {
        law(Settings {
            tolerance: 0.1,
            ..settings()
        })
    };
    let mut law = tolerant();
    let mut running = 20;
    let mut stops = Vec::new();
    for second in (0..=600).step_by(10) {
        let decision = law.decide(at(second), &only_backlog(running));
        if let Action::Stop(count) = decision.action {
            stops.push(count);
            // It does what the autoscaler does.
            if f64::from(count) / f64::from(running) < 0.9 {
                running = count;
            }
        }
    }
    assert_eq!(
        stops.first_chunk(),
        Some(&[17, 15, 13, 11, 9, 8]),
        "{stops:?}"
    );
    assert_eq!(running, 1);
    // One more than ten would be ignored, so there are two more, and never more than the maximum.
    let more = |running, arrived| {
        let decision = tolerant().decide(at(0), &seen(Some(reading(arrived, 0, arrived)), running));
        assert!(matches!(decision.action, Action::Start(_)), "{decision}");
        decision.instances
    };
    assert_eq!(more(10, 2520), Some(12));
    assert_eq!(more(19, 4680), Some(20));
}

#[test]
fn a_service_that_refuses_requests_gets_no_more_instances() {
    let mut law = law(Settings {
        minimum: 2,
        ..settings()
    });
    let mut observation = seen(Some(reading(10_000, 50, 10_000)), 1);
    observation.is_throttled = true;
    let decision = law.decide(at(0), &observation);
    assert_eq!(decision.action, Action::Start(2), "{decision}");
    observation.instances.as_mut().unwrap().ready = 3;
    let decision = law.decide(at(10), &observation);
    assert_eq!(decision.action, Action::Hold, "{decision}");
    assert!(
        decision.to_string().contains("refuses requests"),
        "{decision}"
    );
}

/// A new agent does not know what its predecessor saw. It holds until it has seen a cool-down.
#[test]
fn a_new_law_holds_what_it_finds() {
    let load = Load::even("even", BEGINS(), 1800, |_| 50.0);
    let ready = Workers {
        ready: 7,
        ..workers()
    };
    let course = run(&mut law(settings()), &load, ready);
    assert_eq!(changes(&course, 0), 0);
}

/// Also without a cool-down: one look says nothing of how many messages come.
#[test]
fn a_new_law_without_a_cool_down_stops_nothing_at_its_first_look() {
    let mut law = law(Settings {
        cool_down: Duration::ZERO,
        ..settings()
    });
    let look = |ready, arrived: u64| seen(Some(reading(3, 0, 1000 + arrived)), ready);
    let first = law.decide(at(0), &look(10, 0));
    assert_eq!(first.action, Action::Hold, "{first}");
    let second = law.decide(at(10), &look(10, 120));
    assert_eq!(second.action, Action::Stop(2), "{second}");
}

/// A damaged counter of one queue is no reason to end, nor to think that there is little to do.
#[test]
fn backlogs_that_no_number_holds_together_are_the_largest_number() {
    let mut law = law(settings());
    let mut seen = seen(Some(reading(0, 0, 0)), 1);
    seen.sources = [u64::MAX, u64::MAX, 7]
        .map(|backlog| Source {
            name: format!("queue of {backlog} {}", law.settings().maximum),
            reading: Some(Reading {
                backlog,
                ..Reading::default()
            }),
        })
        .into();
    let decision = law.decide(at(0), &seen);
    assert_eq!(decision.action, Action::Start(20), "{decision}");
}

/// Deferred messages are old for ever, and no instance handles them. They do not keep instances that a burst has started.
#[test]
fn old_messages_that_stay_keep_few_instances() {
    let mut law = law(settings());
    let mut running = 20;
    for look in 0..200 {
        let old = Reading {
            oldest: Some(Duration::from_secs(500_000 + look * 10)),
            ..reading(500, 40 * look, 40 * look)
        };
        if let Action::Stop(count) = law.decide(at(look * 10), &seen(Some(old), running)).action {
            running = count;
        }
    }
    assert!(running <= 8, "{running}");
}

/// A message that fails again and again is old, and more instances would not change that.
#[test]
fn one_old_message_starts_nothing() {
    let mut law = law(settings());
    for look in 0..100 {
        let old = Reading {
            oldest: Some(Duration::from_secs(500_000 + look * 10)),
            ..reading(3, 0, 100 + look * 10)
        };
        let decision = law.decide(at(look * 10), &seen(Some(old), 1));
        assert_eq!(decision.action, Action::Hold, "{decision}");
    }
}

/// A service that reports a depth and nothing else: nobody knows how many of them are needed.
#[test]
fn without_arrivals_one_instance_stops_in_each_cool_down() {
    let mut law = law(settings());
    let depth = Reading {
        backlog: 1,
        ..Reading::default()
    };
    let mut running = 5;
    let mut stops = Vec::new();
    for second in (0..=100).step_by(10) {
        let decision = law.decide(at(second), &seen(Some(depth), running));
        if let Action::Stop(count) = decision.action {
            stops.push((second, count));
            running = count;
        }
    }
    assert_eq!(stops, [(30, 4), (70, 3)]);
}

/// The maximum is the operator's and no guess, so it holds. Then nothing says that no instance stops.
#[test]
fn instances_above_the_maximum_stop_although_nothing_can_be_read() {
    let mut law = law(settings());
    let decision = law.decide(at(0), &seen(None, 25));
    assert_eq!(decision.action, Action::Stop(20), "{decision}");
    assert_eq!(decision.reasons, [Reason::Maximum(20)], "{decision}");
}
