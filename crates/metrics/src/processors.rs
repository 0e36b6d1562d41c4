//! How many processors this process may use: those on which it may run, and the quota of its container.
//!
//! The standard library has whole processors only. A container often has a part of one.

use std::ops::RangeInclusive;
use std::path::Path;

/// Where control groups of version 2 are, and the controller `cpu` of version 1.
const GROUPS: &str = "/sys/fs/cgroup";
const GROUPS_V1: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];

/// The processors that this process may use at the same time, on average. It is a fraction if the control group of the
/// process, or one above that, has such a quota. `None` if it cannot be found out.
///
/// Source: cgroup-v2 (`cpu.max`), and sched-bwc (`cpu.cfs_quota_us`) of the Linux kernel's documentation.
#[must_use]
pub fn processors() -> Option<f64> {
    let found = found(&|path| std::fs::read_to_string(path).ok());
    found.or_else(|| Some(count(std::thread::available_parallelism().ok()?.get())))
}

/// What the files say. `read` returns the text of one.
fn found(read: &dyn Fn(&Path) -> Option<String>) -> Option<f64> {
    let status = read(Path::new("/proc/self/status"))?;
    let mut lines = status.lines();
    let allowed = lines.find_map(|it| it.strip_prefix("Cpus_allowed_list:"))?;
    let online = read(Path::new("/sys/devices/system/cpu/online"))?;
    // Those that are not there may be allowed, too.
    let there = common(&ranges(allowed)?, &ranges(&online)?);
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let quotas = groups.lines().flat_map(|line| quotas_of(line, read));
    let found = quotas.fold(count(there), f64::min);
    (found > 0.0).then_some(found)
}

/// Lists of processors, such as `0-2,7`.
fn ranges(text: &str) -> Option<Vec<RangeInclusive<usize>>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').map(range).collect()
}

fn common(some: &[RangeInclusive<usize>], others: &[RangeInclusive<usize>]) -> usize {
    let pairs = some.iter().flat_map(|a| others.iter().map(move |b| (a, b)));
    let size = |(a, b): (&RangeInclusive<usize>, &RangeInclusive<usize>)| {
        let (first, last) = (*a.start().max(b.start()), *a.end().min(b.end()));
        (last + 1).saturating_sub(first)
    };
    pairs.map(size).sum()
}

/// The quotas of the group in a line of `/proc/self/cgroup`, and of all groups around it. In a container, the path can be
/// that of the host, and only the outermost directory is there.
fn quotas_of(line: &str, read: &dyn Fn(&Path) -> Option<String>) -> Vec<f64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let roots: &[&str] = match controllers {
        "" => &[GROUPS],
        _ if controllers.split(',').any(|it| it == "cpu") => &GROUPS_V1,
        _ => &[],
    };
    let of_root = |root: &&str| {
        let group = Path::new(root).join(path.trim_start_matches('/'));
        let around = group.ancestors().take_while(|it| it.starts_with(root));
        around.filter_map(|it| quota(it, read)).collect::<Vec<_>>()
    };
    roots.iter().flat_map(of_root).collect()
}

/// The quota of one group, in processors.
fn quota(group: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Option<f64> {
    let (quota, period) = match read(&group.join("cpu.max")) {
        Some(both) => {
            let (quota, period) = both.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
        None => (
            read(&group.join("cpu.cfs_quota_us"))?,
            read(&group.join("cpu.cfs_period_us"))?,
        ),
    };
    // Without a limit it is `max`, or below 0.
    let quota: f64 = quota.trim().parse().ok()?;
    let period: f64 = period.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[expect(clippy::cast_precision_loss, reason = "processors are few")]
fn count(processors: usize) -> f64 {
    processors as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in these files, with four processors of which three are allowed.
    fn with(files: &[(&str, &str)]) -> Option<f64> {
        found(&|path| {
            let mut all = files.iter().copied().chain([
                (
                    "/proc/self/status",
                    "Name:\tx\nCpus_allowed_list:\t0-1,3-127\n",
                ),
                ("/sys/devices/system/cpu/online", "0-3\n"),
            ]);
            let found = all.find(|it| Path::new(it.0) == path)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn without_a_quota_those_count_that_are_allowed_and_there() {
        assert_eq!(with(&[]), Some(3.0));
        let files = [
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/cpu.max", "max 100000\n"),
        ];
        assert_eq!(with(&files), Some(3.0));
        assert_eq!(with(&[("/proc/self/status", "Name:\tx\n")]), None);
        assert!(processors().is_some_and(|it| it > 0.0));
    }

    #[test]
    fn the_smallest_quota_of_nested_groups_counts() {
        let cgroup = ("/proc/self/cgroup", "0::/pods/one/main\n");
        let one = ("/sys/fs/cgroup/pods/one/cpu.max", "50000 100000\n");
        let main = ("/sys/fs/cgroup/pods/one/main/cpu.max", "150000 100000\n");
        assert_eq!(with(&[cgroup, main]), Some(1.5));
        assert_eq!(with(&[cgroup, one, main]), Some(0.5));
        let pods = ("/sys/fs/cgroup/pods/cpu.max", "800000 100000\n");
        assert_eq!(with(&[cgroup, pods]), Some(3.0));
    }

    #[test]
    fn a_quota_of_version_1_counts_also_in_a_container() {
        let quota = |directory: &str, quota: &str| {
            let place = |name| format!("/sys/fs/cgroup/{directory}/{name}");
            let (quota_at, period_at) = (place("cpu.cfs_quota_us"), place("cpu.cfs_period_us"));
            with(&[
                (
                    "/proc/self/cgroup",
                    "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n",
                ),
                (&quota_at, quota),
                (&period_at, "100000\n"),
            ])
        };
        assert_eq!(quota("cpu/docker/x", "25000\n"), Some(0.25));
        // The path is that of the host, and the container has its own group there.
        assert_eq!(quota("cpu,cpuacct", "25000\n"), Some(0.25));
        assert_eq!(quota("cpu", "-1\n"), Some(3.0));
    }
}
