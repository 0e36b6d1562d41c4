//! `kew scale record`: the observed load as a file for `kew scale simulate`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use kew_scale::{Group, Recorded, Recorder, Sources as _};
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
    let messages = runtime()?.block_on(one(group, args))?;
    print_line(&format!("{}: {messages} messages", args.out.display()));
    Ok(())
}

/// Creates the file, which must not be there.
fn create(path: &Path) -> Result<File> {
    let file = File::create_new(path);
    file.with_context(|| format!("cannot create {}", path.display()))
}

/// Looks until it is told to stop, the time is over, or the week is.
async fn one(group: &Group, args: &ScaleRecordArgs) -> Result<u64> {
    let mut stop = Stop::new()?;
    let mut sources = sources(group, false)?;
    let mut recorder = Recorder::default();
    let (began, first) = (Instant::now(), group.zone.week_now().since_monday());
    let end = began + args.time.unwrap_or(TIME_MAX).min(TIME_MAX);
    let mut looks = interval(group.every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut file = None;
    let mut told = Told::default();
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
        let mut uncounted = recorded.uncounted.iter();
        if let Some(source) = uncounted.find(|it| !recorder.has_counted(it)) {
            bail!(
                "{source} does not count arrivals: set its metrics to the metrics page of its Kew server"
            );
        }
        if file.is_none()
            && group
                .sources
                .iter()
                .any(|it| recorder.has_counted(&it.name))
        {
            file = Some(create(&args.out)?);
            print_line(&format!("recording to {}", args.out.display()));
        }
        if let Some(file) = &mut file {
            write(file, &recorded.lines, &args.out)?;
        }
        told.tell(&recorded);
        if is_last {
            break;
        }
    }
    if let Some(file) = &mut file {
        write(file, &recorder.finish(), &args.out)?;
    }
    let names = || group.sources.iter().map(|it| it.name.as_str());
    if let Some(source) = names().find(|it| !recorder.has_counted(it)) {
        bail!("{source} was never read: its messages are not in the recording");
    }
    if let Some(source) = told.missing.keys().next() {
        bail!("{source} could not be read at the end: its last messages are not in the recording");
    }
    Ok(recorder.messages())
}

/// What is wrong with sources, so that nothing is told twice.
#[derive(Default)]
struct Told {
    missing: BTreeMap<String, String>,
}

impl Told {
    fn tell(&mut self, recorded: &Recorded) {
        for source in &recorded.restarted {
            print_error(&anyhow!(
                "{source} counts from 0 again: what came before that, since the last look, is not in the recording"
            ));
        }
        let unreadable = recorded.unreadable.iter();
        let unreadable = unreadable.map(|(source, why)| (source, format!("cannot be read: {why}")));
        let uncounted = recorded.uncounted.iter();
        let uncounted = uncounted.map(|it| (it, "does not count arrivals any more".to_owned()));
        let mut missing = BTreeMap::new();
        for (source, why) in unreadable.chain(uncounted) {
            if self.missing.get(source) != Some(&why) {
                print_error(&anyhow!("{source} {why}"));
            }
            missing.insert(source.clone(), why);
        }
        self.missing = missing;
    }
}

fn write(file: &mut File, lines: &str, path: &Path) -> Result<()> {
    let written = file.write_all(lines.as_bytes());
    written.with_context(|| format!("cannot write {}", path.display()))
}
