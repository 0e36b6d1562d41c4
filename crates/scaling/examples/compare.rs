//! Prints the law beside KEDA's rule for four loads: `benches/run agent`.
//!
//! For each load and rule: the seconds in which the oldest message was older than the goal, the greatest age, the time of
//! all instances together, and how many were started. KEDA's target is a share of what an instance handles within the
//! goal. *Window* is the stabilization window of 300 s with which Kubernetes lowers a number.
//!
//! `benches/run agent GOAL START TASKS SEED` takes other values than 60 s, 30 s, 8 tasks of one message a second, and the
//! loads of seed 1.

use std::process::ExitCode;
use std::time::Duration;

use kew_scaling::simulate::{Keda, Load, Score, Workers, run};
use kew_scaling::{Goal, Law, Settings, SettingsError};

const MAXIMUM: u32 = 20;

struct Setup {
    seed: u64,
    goal_seconds: u32,
    start_seconds: u32,
    tasks: u32,
}

impl Setup {
    fn goal(&self) -> Duration {
        Duration::from_secs(self.goal_seconds.into())
    }

    fn workers(&self) -> Workers {
        Workers {
            rate_per_task: 1.0,
            tasks_max: self.tasks,
            start_seconds: self.start_seconds,
            ready: 0,
        }
    }

    fn law(&self, cool_down: Duration) -> Result<Law, SettingsError> {
        Law::new(Settings {
            cool_down,
            goal: Goal::Age(self.goal()),
            maximum: MAXIMUM,
            tasks_max: self.tasks,
            rate_per_task: Some(1.0),
            start_delay: Duration::from_secs(self.start_seconds.into()),
            ..Settings::default()
        })
    }

    fn keda(&self, percent: u32) -> Keda {
        Keda::new(self.goal_seconds * self.tasks * percent / 100, MAXIMUM)
    }
}

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
    let goal = setup.goal();
    for load in Load::all(setup.seed) {
        let Load { name, .. } = &load;
        println!("\n| {name:30} | late s | oldest | instance-hours | starts |");
        println!(
            "| {:-<30} | -----: | -----: | -------------: | -----: |",
            ""
        );
        for (name, cool_down) in [
            ("kew", Settings::default().cool_down),
            ("kew, no cool-down", Duration::ZERO),
        ] {
            let mut law = setup.law(cool_down)?;
            let course = run(&mut law, &load, setup.workers(), |_| true);
            show(name, course.score(goal));
        }
        for percent in [100, 75, 50, 25] {
            let with_window = setup.keda(percent);
            let without = with_window.clone().without_stabilization();
            for (kind, mut keda) in [("", with_window), (", no window", without)] {
                let course = run(&mut keda, &load, setup.workers(), |_| true);
                let name = format!("KEDA, target {percent} %{kind}");
                show(&name, course.score(goal));
            }
        }
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "this is where errors are printed")]
fn main() -> ExitCode {
    let mut setup = Setup {
        seed: 1,
        goal_seconds: 60,
        start_seconds: 30,
        tasks: 8,
    };
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
