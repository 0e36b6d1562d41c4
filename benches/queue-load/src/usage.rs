//! CPU time and memory of a process, read from `/proc`.

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// User and system time together.
    pub(crate) cpu_seconds: f64,
    /// Resident memory.
    pub(crate) resident_mib: f64,
}

impl Usage {
    /// Reads the usage of process `pid`; `None` when there is no such process or no `/proc`.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        // The kernel shows these times in hundredths of a second on every architecture.
        const TICKS_PER_SECOND: f64 = 100.0;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: f64 = resident.split_whitespace().next()?.parse().ok()?;
        Some(Self {
            cpu_seconds: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND,
            resident_mib: kib / 1024.0,
        })
    }
}
