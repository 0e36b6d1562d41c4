//! Bit rot of segments that bodies have moved to.

use std::fmt::Write as _;
use std::ops::Range;

use kew_log::LogPosition;

use super::{Closed, PAGE_SIZE, RotCounts, contents};
use crate::checker::Violation;
use crate::disk::failure::{Failure, guard};
use crate::disk::host::Host;
use crate::disk::setting::Setting;
use crate::disk::step::Step;
use crate::disk::workload::WorkloadKind;
use crate::random::Stream;
use crate::seam::files_of;

/// The name of a world, for running only that.
pub fn moved_rot_case(setting: Setting) -> String {
    format!("rot/{}", setting.name)
}

/// Lets a partition move bodies, and damages it in `injections` ways, one after the other: two in five times where the
/// bodies are now. Returns also how many have moved.
pub fn rot_moved(
    setting: Setting,
    seed: u64,
    injections: u64,
) -> Result<(RotCounts, u64), Box<Failure>> {
    let case = moved_rot_case(setting);
    guard(&case, seed, |place| {
        let mut random = Stream::new(seed, &case);
        let (closed, moved) = Closed::after_moves(setting, &mut random)?;
        let mut counts = RotCounts {
            worlds: 1,
            ..RotCounts::default()
        };
        for number in 0..injections {
            let Some(damage) = closed.damage(&mut random) else {
                continue;
            };
            place.clear();
            let _ = write!(place, "injection {number}, {damage}");
            closed.check(&damage, random.next(), &mut counts)?;
        }
        Ok((counts, moved))
    })
}

impl Closed {
    /// A partition that has moved bodies. What counts as its last batches is what the moves have written.
    fn after_moves(setting: Setting, random: &mut Stream) -> Result<(Self, u64), Violation> {
        let kind = match setting.has_bus {
            true => WorkloadKind::WithBus,
            false => WorkloadKind::Storage,
        };
        let setting = setting.plain();
        let mut host = setting.prepare(random.next())?;
        let mut past = vec![contents(host.tape().disk())];
        let begin = host.partition().log().end();
        host.play(Step::Tidy)?;
        let (last_segment, last_batches) = written_since(&host, begin);
        let moved = host.partition().moved_count();
        past.push(contents(host.tape().disk()));
        let mut closed = Self::close(host, kind, past, random)?;
        (closed.last_segment, closed.last_batches) = (last_segment, last_batches);
        if !closed.contents.contains_key(&closed.last_segment) {
            return Err(Violation {
                promise: "bodies stay where they have moved",
                seen: format!("{} is not there", closed.last_segment),
            });
        }
        Ok((closed, moved))
    }
}

/// The segment with most of what was written from a position on, and where it lies there.
fn written_since(host: &Host, begin: LogPosition) -> (String, Range<usize>) {
    let log = host.partition().log();
    let written = files_of(log).segments().map(|span| {
        let begin = span.first.max(begin).as_u64();
        let end = span.end.min(log.end()).as_u64().max(begin);
        let offset = |at: u64| {
            let offset = usize::try_from(at - span.first.as_u64());
            PAGE_SIZE + offset.expect("an offset in memory")
        };
        let file = format!("segment-{:020}", span.number);
        (file, offset(begin)..offset(end))
    });
    let most = written.max_by_key(|(_, range)| range.len());
    most.expect("a log has a segment")
}
