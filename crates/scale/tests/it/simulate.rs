//! What a simulation shows.

use std::path::Path;

use kew_scale::{Config, Simulation, load};
use kew_scaling::simulate::Load;
use kew_scaling::{Day, TimeOfWeek};

use crate::support::group;

/// Nothing for a minute, then 1,200 messages at once, then nothing for nine minutes.
fn burst() -> Load {
    let mut arrivals = vec![0; 600];
    arrivals[60] = 1200;
    Load {
        name: "one-burst".to_owned(),
        begins: TimeOfWeek::new(Day::Monday, 0, 0),
        arrivals,
    }
}

fn simulate(settings: &str, load: &Load, beside_keda: bool) -> Result<Simulation, String> {
    let group = group(settings, Path::new("/x"), "['x']");
    Simulation::new(&group, load, beside_keda).map_err(|error| error.to_string())
}

const SETTINGS: &str = "rate_per_task = 1\ntasks_max = 4\n";

#[test]
fn a_table_and_blocks_show_what_happens() {
    let text = simulate(SETTINGS, &burst(), true).unwrap().text();
    assert_eq!(text, include_str!("../golden/one-burst.txt"), "{text}");
}

#[test]
fn a_picture_has_four_panels_with_a_line_for_each_rule() {
    let mut load = burst();
    load.name = "<a&b>".to_owned();
    let alone = simulate(SETTINGS, &load, false).unwrap().svg();
    assert_eq!(alone.matches("<polyline").count(), 4);
    assert!(alone.contains(">jobs, &lt;a&amp;b&gt;</text>"), "{alone}");
    let both = simulate(SETTINGS, &load, true).unwrap().svg();
    assert_eq!(both.matches("<polyline").count(), 8);
    for name in [
        "backlog, messages, at most 1200",
        "age of the oldest",
        "instances, at most 18",
        "cost, instance-hours",
    ] {
        assert!(both.contains(name), "{name}");
    }
    // The backlog is the whole height of its panel, once, and nothing before.
    let first = both
        .split("points=\"")
        .nth(1)
        .and_then(|it| it.split('"').next())
        .unwrap();
    let heights: Vec<&str> = first
        .split(' ')
        .map(|it| it.split(',').nth(1).unwrap())
        .collect();
    assert_eq!(heights.len(), 600);
    assert_eq!(
        (heights[59], heights[60], heights[599]),
        ("186.0", "76.0", "186.0")
    );
}

/// A reader sees when something was, and whether it was too late.
#[test]
fn a_picture_has_the_time_and_the_goal() {
    let svg = simulate(SETTINGS, &load("monday-morning").unwrap(), true)
        .unwrap()
        .svg();
    for hour in 6..=12 {
        assert!(
            svg.contains(&format!(">Monday {hour:02}:00</text>")),
            "{svg}"
        );
    }
    assert_eq!(svg.matches(">Monday ").count(), 7);
    assert_eq!(svg.matches(">goal: 60 s</text>").count(), 1);
    // Nothing comes near this goal.
    let goal = format!("{SETTINGS}goal = {{ age = '1h' }}\n");
    let svg = simulate(&goal, &burst(), false).unwrap().svg();
    assert_eq!(svg.matches(">goal: ").count(), 0);
}

/// With metrics pages, the law knows arrivals, and with announcements it looks at once.
#[test]
fn the_law_sees_and_hears_what_the_agent_of_the_group_would() {
    let score = |group: &str, source: &str, load: &Load| {
        let text = format!(
            "[[group]]\nname = 'jobs'\n{group}\n[[group.source]]\nqueue = 'jobs'\nconnection_env = 'STORAGE'\n{source}\n\
             [group.target.process]\ncommand = ['x']\nstate_directory = '/x'\n"
        );
        let config = Config::parse(Path::new("scale.toml"), &text).unwrap();
        let text = Simulation::new(&config.groups[0], load, false)
            .unwrap()
            .text();
        let line = text.lines().find(|it| it.starts_with("| kew ")).unwrap();
        let value = |column| {
            line.split('|')
                .nth(column)
                .unwrap()
                .trim()
                .parse::<f64>()
                .unwrap()
        };
        (value(3), value(4))
    };
    let packages = load("thursday-afternoon").unwrap();
    let rate = "rate_per_task = 1";
    let (_, hours) = score(rate, "", &packages);
    let (_, counted) = score(rate, "metrics = 'http://x/metrics'", &packages);
    assert!(
        counted < 0.8 * hours,
        "{counted} hours, and {hours} without a page"
    );
    let rarely = format!("{rate}\nevery = '5m'");
    let (oldest, _) = score(&rarely, "", &burst());
    let hears = format!("{rarely}\nannouncements = {{ connection_env = 'BUS', topic = 't' }}");
    let (announced, _) = score(&hears, "", &burst());
    assert!(
        announced + 100.0 < oldest,
        "{announced} s, and {oldest} s without announcements"
    );
}

#[test]
fn a_group_must_say_how_fast_its_workers_are() {
    let error = simulate("", &burst(), false).unwrap_err();
    assert!(
        error.starts_with("the group \"jobs\" has no rate_per_task: "),
        "{error}"
    );
}

#[test]
fn every_named_load_can_be_simulated() {
    for name in ["monday-morning", "thursday-afternoon", "burst", "diurnal"] {
        let text = simulate("rate_per_task = 1", &load(name).unwrap(), false)
            .unwrap()
            .text();
        assert!(text.starts_with(&format!("jobs, {name}\n")), "{text}");
        // The law is late for a hundredth of the time at most, though it sees only backlog and age.
        let late = text.lines().find(|it| it.starts_with("| kew ")).unwrap();
        let late: u32 = late.split('|').nth(2).unwrap().trim().parse().unwrap();
        assert!(late < 300, "{text}");
    }
}
