//! To zero, and from zero.

use kew_scaling::simulate::Load;
use kew_scaling::{Action, Day, Peak, Settings, TimeOfWeek};

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
