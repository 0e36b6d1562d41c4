//! Short scripts, with the power off at every storage call.

use kew_sim::{Step, crash_at_every_call};

use crate::support::on_all_cores;

#[test]
fn every_crash_point_of_every_short_script_recovers() {
    let mut scripts: Vec<Vec<Step>> = Step::ALL.iter().map(|step| vec![*step]).collect();
    for first in Step::ALL {
        scripts.extend(Step::ALL.iter().map(|second| vec![first, *second]));
    }
    let work = |index| {
        let script = &scripts[usize::try_from(index).expect("a list's index")];
        crash_at_every_call(script, 4).unwrap_or_else(|violation| panic!("{script:?}: {violation}"))
    };
    let disks = on_all_cores(scripts.len() as u64, work, |sum, more| *sum += more);
    println!("simulation: {disks} disks after a power cut in a short script");
    assert!(disks > scripts.len() as u64 * 4, "{disks}");
}
