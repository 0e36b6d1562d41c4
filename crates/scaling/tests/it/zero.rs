//! To zero, and from zero.

use std::time::Duration;

use kew_scaling::simulate::Load;
use kew_scaling::{Action, Day, Goal, Peak, Reason, Settings, TimeOfWeek};

use crate::support::{START_SECONDS, at, law, quiet, reading, run, seen, settings, workers};

#[test]
fn the_last_instance_stops_when_the_queue_was_empty_for_long() {
    let mut law = law(settings());
    let busy = law.decide(at(0), &seen(Some(reading(5, 1, 5)), 1));
    assert_eq!(busy.action, Action::Hold);
    let early = quiet(&mut law, 10, 110, 1);
    assert_eq!(early.action, Action::Hold, "{early}");
    let later = quiet(&mut law, 120, 130, 1);
    assert_eq!(later.action, Action::Stop(0), "{later}");
}

#[test]
fn a_minimum_spare_instances_and_a_peak_keep_instances() {
    let keep = |change: &dyn Fn(&mut Settings)| {
        let mut settings = settings();
        change(&mut settings);
        quiet(&mut law(settings), 0, 600, 5).instances
    };
    assert_eq!(keep(&|_| {}), Some(0));
    assert_eq!(keep(&|it| it.minimum = 2), Some(2));
    assert_eq!(keep(&|it| it.spare = 3), Some(3));
    let peak = |instances| Peak {
        from: TimeOfWeek::new(Day::Wednesday, 11, 0),
        until: TimeOfWeek::new(Day::Wednesday, 18, 0),
        instances,
    };
    assert_eq!(keep(&|it| it.peaks = vec![peak(1), peak(4)]), Some(4));
}

/// They are ready before the load needs them, and none takes the place of one that it needs.
#[test]
fn spare_instances_run_beyond_those_that_the_load_needs() {
    let with = |spare, backlog| {
        let mut law = law(Settings {
            spare,
            ..settings()
        });
        let first = law.decide(at(0), &seen(Some(reading(backlog, 1, backlog)), 0));
        first.instances.unwrap()
    };
    for backlog in [1, 100, 1000] {
        let needed = with(0, backlog);
        assert!((1..17).contains(&needed), "{backlog}: {needed}");
        assert_eq!(with(3, backlog), needed + 3, "{backlog}");
    }
    // The maximum counts all of them.
    assert_eq!(with(3, 100_000), 20);
}

#[test]
fn announced_work_starts_an_instance_at_once_even_if_nothing_can_be_read() {
    for readable in [Some(reading(0, 0, 0)), None] {
        let mut law = law(settings());
        quiet(&mut law, 0, 600, 0);
        let mut announced = seen(readable, 0);
        announced.announced = true;
        let decision = law.decide(at(601), &announced);
        assert_eq!(decision.action, Action::Start(1), "{decision}");
    }
}

#[test]
fn a_first_message_starts_instances_for_the_whole_backlog() {
    let mut law = law(settings());
    quiet(&mut law, 0, 600, 0);
    let one = law.decide(at(610), &seen(Some(reading(1, 1, 1)), 0));
    assert_eq!(one.action, Action::Start(1), "{one}");
    let many = law.decide(at(620), &seen(Some(reading(1000, 1, 1000)), 0));
    let Action::Start(count) = many.action else {
        panic!("{many}")
    };
    assert!(count > 5, "{many}");
}

/// The whole way: a message after a long silence waits for the start of an instance and for nothing else.
#[test]
fn a_message_to_an_empty_queue_waits_for_one_start_only() {
    let begins = TimeOfWeek::new(Day::Wednesday, 12, 0);
    let lonely = |second| f64::from(u8::from(second == 1003 || second == 2507));
    let load = Load::even("lonely", begins, 3600, lonely);
    let course = run(&mut law(settings()), &load, workers());
    assert_eq!(course.starts, 2);
    let oldest = course.points.iter().map(|it| it.oldest_seconds).max();
    assert!(oldest <= Some(START_SECONDS + 2), "{oldest:?}");
    let running = course.points.iter().filter(|it| it.instances > 0).count();
    assert!(running < 2 * 180, "{running} s");
    assert_eq!(course.points.last().unwrap().instances, 0);
}

/// Without a time to wait, the last instances stop at the first look that finds the queue empty, and not before.
#[test]
fn instances_run_while_messages_wait_whatever_the_idle_time_is() {
    let mut law = law(Settings {
        idle_after: Duration::ZERO,
        ..settings()
    });
    let busy = law.decide(at(0), &seen(Some(reading(100, 1, 100)), 0));
    assert!(matches!(busy.action, Action::Start(_)), "{busy}");
    let still = law.decide(at(10), &seen(Some(reading(5, 1, 105)), 3));
    assert_eq!(still.action, Action::Hold, "{still}");
    let is_idle = |it: &Reason| matches!(it, Reason::Idle(_));
    assert!(!still.reasons.iter().any(is_idle), "{still}");
    let mut announced = seen(Some(reading(0, 0, 105)), 1);
    announced.announced = true;
    let announced = law.decide(at(1000), &announced);
    assert_eq!(announced.action, Action::Hold, "{announced}");
    let unreadable = law.decide(at(1010), &seen(None, 1));
    assert_eq!(unreadable.action, Action::Hold, "{unreadable}");
    let idle = law.decide(at(1020), &seen(Some(reading(0, 0, 105)), 1));
    assert_eq!(idle.action, Action::Stop(0), "{idle}");
}

/// One message needs a millionth of an instance or less, and that is one instance.
#[test]
fn one_message_starts_an_instance_however_small_its_need_is() {
    let day = 86_400;
    for (goal, tasks_max, rate) in [
        (day, 8, 10.0),
        (3600, 64, 20.0),
        (7 * day, 8, 1.0),
        (7 * day, 10_000, 1e6),
    ] {
        let mut law = law(Settings {
            goal: Goal::Age(Duration::from_secs(goal)),
            tasks_max,
            rate_per_task: Some(rate),
            ..settings()
        });
        quiet(&mut law, 0, 600, 0);
        let one = law.decide(at(610), &seen(Some(reading(1, 1, 1)), 0));
        assert_eq!(one.action, Action::Start(1), "{one}");
    }
}
