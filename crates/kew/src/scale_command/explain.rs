//! `kew scale explain`: one look, in words.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use kew_scale::{Agent, Look, Seen};

use super::{read, runtime, sources, target};
use crate::cli::print_line;

pub(super) fn explain(file: &Path) -> Result<()> {
    let config = read(file)?;
    runtime()?.block_on(async {
        let mut is_whole = true;
        for group in &config.groups {
            let (counting, _) = target::counting(group).await?;
            let agent = Agent::new(group, sources(group, false)?, counting);
            let mut agent = agent.with_context(|| format!("the group {:?}", group.name))?;
            let look = agent.look(|| group.zone.week_now()).await;
            is_whole &= look.uncounted.is_none();
            is_whole &= look.sources.iter().all(|it| it.reading.is_ok());
            print_line(&format!("group {}", group.name));
            for line in lines(&look) {
                print_line(&format!("  {line}"));
            }
        }
        match is_whole {
            true => Ok(()),
            false => bail!("not everything could be read"),
        }
    })
}

fn lines(look: &Look) -> Vec<String> {
    let mut lines: Vec<String> = look.sources.iter().map(source).collect();
    lines.push(match (&look.uncounted, look.observation.instances) {
        (Some(error), _) => format!("the instances cannot be counted: {error}"),
        (None, Some(found)) => format!(
            "instances: {} ready, {} starting",
            found.ready, found.starting
        ),
        (None, None) => "the instances cannot be counted".to_owned(),
    });
    lines.push(look.decision.to_string());
    lines
}

fn source(seen: &Seen) -> String {
    let name = &seen.name;
    match &seen.reading {
        Err(error) => format!("{name}: cannot be read: {}", error.text),
        Ok(reading) => {
            let age = reading.oldest.map(|it| it.as_secs());
            let age = age.map(|it| format!(", the oldest is {it} s old"));
            let counted = reading.arrived.zip(reading.completed);
            let counted = counted.map(|(arrived, completed)| {
                format!(", {arrived} arrived and {completed} completed since the server started")
            });
            let parts = [age, counted].into_iter().flatten().collect::<String>();
            format!("{name}: {} messages{parts}", reading.backlog)
        }
    }
}
