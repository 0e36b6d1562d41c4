//! `kew scale record`: the observed load as a file for `kew scale simulate`.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use kew_scale::{Group, Recorder, Sources as _};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::run::Stop;
use super::{one_group, read, runtime, sources};
use crate::cli::{print_error, print_line};
use crate::scale_args::ScaleRecordArgs;

/// No recording is longer: it has one week.
const TIME_MAX: Duration = Duration::from_hours(7 * 24);

pub(super) fn record(args: &ScaleRecordArgs) -> Result<()> {
    let config = read(&args.file)?;
    let group = one_group(&config, args.group.as_deref())?;
    let path = &args.out;
    let file = File::create_new(path);
    let mut file = file.with_context(|| format!("cannot create {}", path.display()))?;
    let messages = runtime()?.block_on(one(group, args, &mut file))?;
    print_line(&format!("{}: {messages} messages", path.display()));
    Ok(())
}

/// Looks until it is told to stop, the time is over, or the week is.
async fn one(group: &Group, args: &ScaleRecordArgs, file: &mut File) -> Result<u64> {
    let mut stop = Stop::new()?;
    let mut sources = sources(group, false)?;
    let mut recorder = Recorder::default();
    let (began, first) = (Instant::now(), group.zone.week_now().since_monday());
    let end = began + args.time.unwrap_or(TIME_MAX).min(TIME_MAX);
    let mut looks = interval(group.every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_first = true;
    loop {
        let is_last = tokio::select! {
            biased;
            () = stop.asked() => true,
            () = sleep_until(end) => true,
            _ = looks.tick() => false,
        };
        let seen = sources.read().await;
        let elapsed = u32::try_from(began.elapsed().as_secs()).unwrap_or(u32::MAX);
        let second = first.saturating_add(elapsed);
        if Recorder::is_over(second) {
            break;
        }
        let recorded = recorder.see(second, &seen);
        if let (Some(source), true) = (recorded.uncounted.first(), is_first) {
            bail!(
                "{source} does not count arrivals: set its metrics to the metrics page of its Kew server"
            );
        }
        if std::mem::take(&mut is_first) {
            print_line(&format!("recording to {}", args.out.display()));
        }
        write(file, &recorded.lines, &args.out)?;
        for (source, why) in &recorded.unreadable {
            print_error(&anyhow!("{source} cannot be read: {why}"));
        }
        for source in &recorded.uncounted {
            print_error(&anyhow!("{source} does not count arrivals any more"));
        }
        if is_last {
            break;
        }
    }
    write(file, &recorder.finish(), &args.out)?;
    Ok(recorder.messages())
}

fn write(file: &mut File, lines: &str, path: &Path) -> Result<()> {
    let written = file.write_all(lines.as_bytes());
    written.with_context(|| format!("cannot write {}", path.display()))
}
