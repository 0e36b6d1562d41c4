//! `kew scale explain`: what the running agent has seen and done, and why; or one look, in words.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use kew_scale::{Agent, Group, Told, ask};

use super::{read, runtime, sources, target};
use crate::cli::print_line;

pub(super) fn explain(file: &Path) -> Result<()> {
    let config = read(file)?;
    runtime()?.block_on(async {
        let mut is_whole = true;
        for group in &config.groups {
            let told = match &group.socket {
                None => look(group, None).await?,
                Some(socket) => match ask(socket).await {
                    Ok(told) => told,
                    Err(error) => {
                        let why = format!("no agent answers at {}: {error}", socket.display());
                        look(group, Some(&why)).await?
                    }
                },
            };
            is_whole &= told.is_whole;
            told.text.lines().for_each(print_line);
        }
        match is_whole {
            true => Ok(()),
            false => bail!("not everything could be read"),
        }
    })
}

/// A look of this command itself, because no agent was asked, or for this reason.
async fn look(group: &Group, why: Option<&str>) -> Result<Told> {
    let (counting, _) = target::counting(group).await?;
    let agent = Agent::new(group, sources(group, false)?, counting);
    let mut agent = agent.with_context(|| format!("the group {:?}", group.name))?;
    let look = agent.look(|| group.zone.week_now()).await;
    let mut text = format!("group {}\n", group.name);
    for line in look.lines() {
        text.push_str(&format!("  {line}\n"));
    }
    if let Some(why) = why {
        text.push_str(&format!("  this is a look of its own: {why}\n"));
    }
    Ok(Told {
        is_whole: look.is_whole(),
        text,
    })
}
