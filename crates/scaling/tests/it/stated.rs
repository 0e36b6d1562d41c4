//! The figures that docs/scale.md states are those that `benches/run agent` prints.

#[path = "../../examples/compare/table.rs"]
mod table;

use table::{Rule, Setup};

const PAGE: &str = include_str!("../../../../docs/scale.md");

fn check_stated(text: &str) {
    let page = PAGE.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(text), "docs/scale.md does not have: {text}");
}

#[test]
fn the_table_is_what_is_printed() {
    let table = Setup::STATED.table().unwrap();
    assert!(PAGE.contains(&table), "docs/scale.md needs:\n{table}");
}

#[test]
fn the_shares_are_what_is_printed() {
    let lines = Setup::STATED.shares().unwrap();
    let fewer = |line: &String| {
        let (_, after) = line.split_once(": Kew beside KEDA 50 %: ")?;
        let (percent, _) = after.split_once(" % fewer instance-hours")?;
        percent.parse::<u32>().ok()
    };
    let fewer: Vec<u32> = lines.iter().filter_map(fewer).collect();
    assert_eq!(fewer.len(), 4, "{lines:?}");
    let (least, most) = (fewer.iter().min().unwrap(), fewer.iter().max().unwrap());
    check_stated(&format!("{least} to {most} % fewer instance-hours"));
    let thursday = lines.iter().find_map(|it| {
        it.strip_prefix(
            "Thursday afternoon: Kew, `cool_down = \"0s\"` beside KEDA 50 %, no window: ",
        )
    });
    let (more, _) = thursday.unwrap().split_once(", ").unwrap();
    check_stated(&format!("a fifth of the late seconds, for {more}"));
}

#[test]
fn what_chance_does_is_what_is_printed() {
    let hours = Setup::STATED.chance(Rule::KewWithoutCoolDown).unwrap();
    let most = hours.iter().copied().fold(0.0, f64::max);
    let rare = hours.iter().filter(|it| **it > most - 0.5).count();
    assert_eq!((rare, hours.len()), (2, 8), "{hours:?}");
    check_stated(&format!("in two of eight seeds it takes {most:.1} hours"));
}
