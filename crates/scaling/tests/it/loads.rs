//! Four loads with their expected courses, and KEDA's rule beside the law.

use std::fmt::Write;
use std::time::Duration;

use kew_scaling::Settings;
use kew_scaling::simulate::{Course, Keda, Load, Score};

use crate::support::{GOAL, law, run, settings, workers};

/// What an instance of [`workers`] handles within the goal: 8 messages a second for 60 s.
const WITHIN_GOAL: u32 = 8 * 60;
const PART_SECONDS: usize = 1800;

fn by_law(load: &Load) -> Course {
    run(&mut law(settings()), load, workers())
}

fn by_keda(load: &Load, target: u32) -> Score {
    run(&mut Keda::new(target, 20), load, workers()).score(GOAL)
}

/// A line for each half hour: instances at least and at most, the largest backlog, the greatest age.
fn table(load: &Load, course: &Course) -> String {
    let mut text = format!("{}\n", load.name);
    for (part, points) in course.points.chunks(PART_SECONDS).enumerate() {
        let counts = || points.iter().map(|it| it.instances);
        let (least, most) = (counts().min().unwrap(), counts().max().unwrap());
        let backlog = points.iter().map(|it| it.backlog).max().unwrap();
        let oldest = points.iter().map(|it| it.oldest_seconds).max().unwrap();
        let begins = load.begins.plus(Duration::from_secs(
            u64::try_from(part * PART_SECONDS).unwrap(),
        ));
        writeln!(
            text,
            "  {begins}  {least:2} to {most:2} instances, {backlog:5} messages, oldest {oldest:3} s"
        )
        .unwrap();
    }
    let Score {
        late_seconds,
        instance_hours,
        starts,
        ..
    } = course.score(GOAL);
    writeln!(
        text,
        "  late for {late_seconds} s, {instance_hours:.1} instance-hours, {starts} starts"
    )
    .unwrap();
    text
}

/// If the law changes on purpose, read the new courses, and put them into the file.
#[test]
fn the_courses_are_those_of_the_table() {
    let all = Load::all(1);
    let found: Vec<_> = all.iter().map(|it| table(it, &by_law(it))).collect();
    let found = found.join("\n");
    let expected = include_str!("../cases/courses.txt");
    assert!(found == expected, "the courses are now:\n{found}");
}

/// The target of KEDA that fits the goal: what an instance handles in the goal without the time of a start.
#[test]
fn half_of_the_late_seconds_of_keda_for_no_more_instance_hours() {
    for seed in 1..=3 {
        for load in Load::all(seed) {
            let ours = by_law(&load).score(GOAL);
            let kedas = by_keda(&load, WITHIN_GOAL / 2);
            let name = &load.name;
            assert!(
                2 * ours.late_seconds <= kedas.late_seconds,
                "{name}, seed {seed}: {ours:?} beside {kedas:?}"
            );
            assert!(
                ours.instance_hours <= kedas.instance_hours,
                "{name}, seed {seed}: {ours:?} beside {kedas:?}"
            );
        }
    }
}

/// The rule without the window of Kubernetes, beside the law without its cool-down.
///
/// A rule that follows each depth starts and stops instances again and again at a steady load. The law keeps a whole
/// number: on Thursdays it has three for the work of two and a half, and that is all that the rule saves then.
#[test]
fn half_of_the_late_seconds_of_a_rule_without_a_window() {
    for seed in 1..=3 {
        for load in Load::all(seed) {
            let name = &load.name;
            let without_cool_down = Settings {
                cool_down: Duration::ZERO,
                ..settings()
            };
            let ours = run(&mut law(without_cool_down), &load, workers()).score(GOAL);
            let mut keda = Keda::new(WITHIN_GOAL / 2, 20).without_stabilization();
            let kedas = run(&mut keda, &load, workers()).score(GOAL);
            assert!(
                2 * ours.late_seconds <= kedas.late_seconds,
                "{name}, seed {seed}: {ours:?} beside {kedas:?}"
            );
            let share = if name == "thursday-afternoon" {
                1.07
            } else {
                1.0
            };
            assert!(
                ours.instance_hours <= share * kedas.instance_hours,
                "{name}, seed {seed}: {ours:?} beside {kedas:?}"
            );
        }
    }
}

/// Whatever the target of KEDA is: if it saves a fiftieth of the instance-hours, it is late for twice as long.
#[test]
fn no_target_of_keda_is_cheap_and_in_time() {
    for load in Load::all(1) {
        let ours = by_law(&load).score(GOAL);
        for percent in (10..=200).step_by(10) {
            let kedas = by_keda(&load, WITHIN_GOAL * percent / 100);
            assert!(
                kedas.instance_hours >= 0.98 * ours.instance_hours
                    || kedas.late_seconds >= 2 * ours.late_seconds.max(1),
                "{} with {percent} %: {ours:?} beside {kedas:?}",
                load.name
            );
        }
    }
}

/// A load is the same each time.
#[test]
fn a_seed_repeats_its_load_and_its_course() {
    let [monday, ..] = Load::all(7);
    let [again, ..] = Load::all(7);
    assert_eq!(monday, again);
    assert_eq!(by_law(&monday), by_law(&again));
    let [other, ..] = Load::all(8);
    assert_ne!(monday, other);
}
