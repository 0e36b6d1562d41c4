//! A simulation as a picture: a panel for each of backlog, age, instances and cost, and a line for each rule.

use std::fmt::Write as _;

use super::text::shown;
use super::{Series, Simulation, columns, most};

const WIDTH: u32 = 800;
const LEFT: u32 = 16;
const PANEL: u32 = 110;
const GAP: u32 = 40;
const TOP: u32 = 60;
/// Below the last panel, for the time.
const FOOT: u32 = 20;
/// Seconds between two marks of the time: the first of these with at most [`MARKS`] marks.
const STEPS: [u32; 12] = [
    60, 300, 600, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800,
];
const MARKS: u32 = 7;
/// The panel of the age, which has a line for the goal.
const AGE: usize = 1;
/// Points of a line at most.
const POINTS: usize = 768;
/// Distinguishable also without colours: the second line is dashed.
const LINES: [(&str, &str); 2] = [("#0b62a4", "none"), ("#c2410c", "6 3")];

pub(super) fn draw(simulation: &Simulation) -> String {
    let runs: Vec<[Series; 4]> = simulation.runs.iter().map(super::Run::series).collect();
    let mut svg = String::new();
    // Writing to a text cannot fail.
    let _ = begin(&mut svg, simulation);
    let _ = draw_time(&mut svg, simulation);
    for panel in 0..4_usize {
        let series = runs.iter().filter_map(|run| run.get(panel));
        let goal = (panel == AGE).then_some(simulation.goal.as_secs_f64());
        let _ = draw_panel(&mut svg, panel, &series.collect::<Vec<_>>(), goal);
    }
    svg.push_str("</svg>\n");
    svg
}

fn begin(svg: &mut String, simulation: &Simulation) -> std::fmt::Result {
    let height = bottom() + FOOT;
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">"
    )?;
    writeln!(
        svg,
        "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>"
    )?;
    let name = escaped(&simulation.name);
    writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"20\" font-size=\"16\">{name}</text>"
    )?;
    for ((place, run), (colour, dashes)) in (0_u32..).zip(&simulation.runs).zip(LINES) {
        let x = LEFT + place * 380;
        let label = format!(
            "{}: {} s late, {:.1} instance-hours, {} starts",
            run.rule, run.score.late_seconds, run.score.instance_hours, run.score.starts
        );
        writeln!(
            svg,
            "<path d=\"M{x} 36h24\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\"/><text x=\"{}\" y=\"40\">{}</text>",
            x + 30,
            escaped(&label)
        )?;
    }
    Ok(())
}

/// Where the last panel ends.
const fn bottom() -> u32 {
    TOP + 4 * (PANEL + GAP)
}

/// Upright lines through all panels, each with its time of the week.
fn draw_time(svg: &mut String, simulation: &Simulation) -> std::fmt::Result {
    let seconds = simulation.seconds.max(1);
    let step = STEPS.into_iter().find(|step| seconds / step <= MARKS);
    let step = usize::try_from(step.unwrap_or(seconds)).unwrap_or(usize::MAX);
    for second in (0..=seconds).step_by(step) {
        let part = f64::from(second) / f64::from(seconds);
        let x = f64::from(LEFT) + part * f64::from(WIDTH - 2 * LEFT);
        // The first and the last text would leave the picture.
        let anchor = match part {
            0.0 => "start",
            part if part > 0.95 => "end",
            _ => "middle",
        };
        writeln!(
            svg,
            "<path d=\"M{x:.1} {TOP}V{}\" stroke=\"#eee\"/><text x=\"{x:.1}\" y=\"{}\" fill=\"#666\" \
             text-anchor=\"{anchor}\">{}</text>",
            bottom() - GAP + 16,
            bottom() - GAP + 34,
            simulation.at(second)
        )?;
    }
    Ok(())
}

fn draw_panel(
    svg: &mut String,
    panel: usize,
    series: &[&Series],
    goal: Option<f64>,
) -> std::fmt::Result {
    let panel = u32::try_from(panel).unwrap_or_default();
    let top = TOP + panel * (PANEL + GAP) + 16;
    let bottom = top + PANEL;
    let wide = WIDTH - 2 * LEFT;
    let largest = series.iter().map(|it| most(&it.values)).fold(0.0, f64::max);
    let name = series.first().map_or("", |it| it.name);
    writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\">{name}, at most {}</text><path d=\"M{LEFT} {bottom}h{wide}\" stroke=\"#999\"/>",
        top - 6,
        shown(largest)
    )?;
    if let Some(goal) = goal.filter(|goal| *goal <= largest) {
        let y = f64::from(bottom) - goal / largest * f64::from(PANEL);
        writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}h{wide}\" stroke=\"#999\" stroke-dasharray=\"2 3\"/><text x=\"{}\" y=\"{:.1}\" \
             fill=\"#666\" text-anchor=\"end\">goal: {} s</text>",
            WIDTH - LEFT,
            y - 3.0,
            shown(goal)
        )?;
    }
    for (series, (colour, dashes)) in series.iter().zip(LINES) {
        let values = columns(&series.values, POINTS);
        let step = f64::from(wide) / f64::from(u32::try_from(values.len()).unwrap_or(1).max(1));
        write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\" points=\""
        )?;
        for (place, value) in (0_u32..).zip(&values) {
            let x = f64::from(LEFT) + f64::from(place) * step;
            let part = if largest > 0.0 { value / largest } else { 0.0 };
            let y = f64::from(bottom) - part * f64::from(PANEL);
            let space = if place == 0 { "" } else { " " };
            write!(svg, "{space}{x:.1},{y:.1}")?;
        }
        writeln!(svg, "\"/>")?;
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
