//! A simulation as text.

use std::fmt::Write as _;

use super::{Simulation, columns, most};

const WIDTH: usize = 72;
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn draw(simulation: &Simulation) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = table(&mut text, simulation);
    for run in &simulation.runs {
        let _ = writeln!(text, "\n{}", run.rule);
        let mut width = 0;
        for series in run.series() {
            let parts = columns(&series.values, WIDTH);
            let most = most(&parts);
            let _ = writeln!(text, "  {} (at most {})", series.name, shown(most));
            let _ = writeln!(text, "  {}", blocks(&parts, most));
            width = width.max(parts.len());
        }
        let (begin, end) = (simulation.at(0), simulation.at(simulation.seconds));
        let begin = begin.to_string();
        // Both ends of the time, below both ends of the blocks.
        let width = width
            .saturating_sub(begin.len())
            .max(end.to_string().len() + 1);
        let _ = writeln!(text, "  {begin}{:>width$}", end.to_string());
    }
    text
}

fn table(text: &mut String, simulation: &Simulation) -> std::fmt::Result {
    let goal = simulation.goal.as_secs();
    writeln!(text, "{}", simulation.name)?;
    writeln!(text)?;
    let late = format!("s above {goal} s");
    writeln!(
        text,
        "| rule              | {late:>12} | oldest, s | instance-hours | starts |"
    )?;
    writeln!(
        text,
        "| ----------------- | -----------: | --------: | -------------: | -----: |"
    )?;
    for run in &simulation.runs {
        let score = run.score;
        writeln!(
            text,
            "| {:17} | {:12} | {:9} | {:14.1} | {:6} |",
            run.rule, score.late_seconds, score.oldest_seconds, score.instance_hours, score.starts
        )?;
    }
    Ok(())
}

fn blocks(values: &[f64], most: f64) -> String {
    let block = |value: &f64| {
        let level = match *value > 0.0 {
            // What is there is never shown as nothing.
            true => super::whole((value / most * 8.0).round()).clamp(1, 8),
            false => 0,
        };
        usize::try_from(level)
            .ok()
            .and_then(|it| BLOCKS.get(it))
            .copied()
            .unwrap_or(' ')
    };
    values
        .iter()
        .map(block)
        .collect::<String>()
        .trim_end()
        .to_owned()
}

/// Whole numbers, and one digit after the point of small ones.
pub(super) fn shown(value: f64) -> String {
    match value {
        value if value.fract() == 0.0 || value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}
