//! Prints the law beside KEDA's rule for four loads: `benches/run agent`.
//!
//! First come the figures that docs/scale.md states. Then, for each load and more rules: the seconds in which the oldest message was older than the goal, the greatest age, the time of
//! all instances together, and how many were started. KEDA's target is a share of what an instance handles within the
//! goal. *Window* is the stabilization window of 300 s with which Kubernetes lowers a number.
//!
//! `benches/run agent GOAL START TASKS SEED` takes other values than 60 s, 30 s, 8 tasks of one message a second, and the
//! loads of seed 1.

mod table;

use std::process::ExitCode;

use kew_scaling::SettingsError;
use kew_scaling::simulate::{Load, Score};

use table::{Rule, Setup};

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn show(name: &str, score: Score) {
    let Score {
        late_seconds,
        oldest_seconds,
        instance_hours,
        starts,
    } = score;
    println!(
        "| {name:30} | {late_seconds:6} | {oldest_seconds:6} | {instance_hours:14.1} | {starts:6} |"
    );
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn compare(setup: &Setup) -> Result<(), SettingsError> {
    print!("{}", setup.table()?);
    println!();
    for line in setup.shares()? {
        println!("{line}");
    }
    println!();
    for rule in [Rule::KewWithoutCoolDown, Rule::KedaWithoutWindow(50)] {
        let hours = setup.chance(rule)?;
        let hours: Vec<_> = hours.iter().map(|it| format!("{it:.1}")).collect();
        let hours = hours.join(", ");
        println!(
            "Monday morning, instance-hours of seeds 1 to 8: {}: {hours}",
            rule.name()
        );
    }
    for load in Load::all(setup.seed) {
        let Load { name, .. } = &load;
        println!("\n| {name:30} | late s | oldest | instance-hours | starts |");
        println!(
            "| {:-<30} | -----: | -----: | -------------: | -----: |",
            ""
        );
        for rule in [Rule::Kew, Rule::KewWithoutCoolDown] {
            show(&rule.name(), setup.score(rule, &load)?);
        }
        for percent in [100, 75, 50, 25] {
            for rule in [Rule::Keda(percent), Rule::KedaWithoutWindow(percent)] {
                show(&rule.name(), setup.score(rule, &load)?);
            }
        }
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "this is where errors are printed")]
fn main() -> ExitCode {
    let mut setup = Setup::STATED;
    let mut seed = 1;
    let Setup {
        goal_seconds,
        start_seconds,
        tasks,
        ..
    } = &mut setup;
    let places = [goal_seconds, start_seconds, tasks, &mut seed];
    for (place, value) in places.into_iter().zip(std::env::args().skip(1)) {
        match value.parse() {
            Ok(value) => *place = value,
            Err(error) => {
                eprintln!("'{value}' is not a whole number: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    setup.seed = seed.into();
    match compare(&setup) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
