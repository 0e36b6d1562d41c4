//! `kew disk-test`: how fast the disk makes small writes durable.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cli::{DiskTestArgs, print_line};

/// The part of the file that is written repeatedly: the size of a young segment.
const FILE_SIZE_BYTES: usize = 8 * 1024 * 1024;

/// Sizes of one write: a single message, a small group, a large one.
const WRITE_SIZES_BYTES: [usize; 3] = [4 * 1024, 64 * 1024, 1024 * 1024];

pub(crate) fn run(args: &DiskTestArgs) -> Result<()> {
    std::fs::create_dir_all(&args.data_dir)
        .with_context(|| format!("cannot create {}", args.data_dir.display()))?;
    let path = args
        .data_dir
        .join(format!("kew-disk-test-{}", std::process::id()));
    let measured = measure(&path, Duration::from_secs(args.seconds));
    let removed = std::fs::remove_file(&path);
    measured.with_context(|| format!("cannot measure with {}", path.display()))?;
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

fn measure(path: &Path, length: Duration) -> Result<()> {
    let file = File::create_new(path)?;
    file.write_all_at(&vec![0; FILE_SIZE_BYTES], 0)?;
    file.sync_all()?;
    print_line("write and sync, into space that was written before, one at a time");
    print_line("   size      syncs/s      MB/s    p50 us    p99 us    max us");
    for size in WRITE_SIZES_BYTES {
        print_line(&measure_size(&file, size, length)?);
    }
    print_line("");
    print_line(
        "Every acknowledged request waits for one such sync; requests that come in meanwhile",
    );
    print_line("share the next. So syncs/s bounds one client, and MB/s bounds all together.");
    Ok(())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and sizes are far below 2^53, and the result is printed with three digits"
)]
fn measure_size(file: &File, size: usize, length: Duration) -> Result<String> {
    let block = vec![0x5a; size];
    let mut latencies_us = Vec::new();
    let start = Instant::now();
    let mut offset = 0;
    while start.elapsed() < length {
        let before = Instant::now();
        file.write_all_at(&block, offset as u64)?;
        file.sync_data()?;
        latencies_us.push(before.elapsed().as_micros());
        offset = (offset + size) % FILE_SIZE_BYTES;
    }
    let seconds = start.elapsed().as_secs_f64();
    latencies_us.sort_unstable();
    let count = latencies_us.len();
    let at = |percent: usize| {
        latencies_us
            .get((count * percent / 100).min(count - 1))
            .copied()
            .unwrap_or(0)
    };
    let rate = count as f64 / seconds;
    Ok(format!(
        "{:>4} KiB {:>12.0} {:>9.1} {:>9} {:>9} {:>9}",
        size / 1024,
        rate,
        rate * size as f64 / 1e6,
        at(50),
        at(99),
        at(100)
    ))
}
