//! Which instances still start, where only their number is known.

use std::collections::VecDeque;
use std::time::Duration;

use kew_scaling::Instances;
use tokio::time::Instant;

/// Remembers when the number rose. What is there at the first look counts as ready.
#[derive(Debug)]
pub struct Ages {
    start_delay: Duration,
    count: Option<u32>,
    /// The latest rises: when, and by how many.
    rises: VecDeque<(Instant, u32)>,
}

impl Ages {
    /// Nothing was seen yet. An instance starts for `start_delay`.
    #[must_use]
    pub fn new(start_delay: Duration) -> Self {
        Self {
            start_delay,
            count: None,
            rises: VecDeque::new(),
        }
    }

    /// Sees how many there are. The newest are the first that stop.
    pub fn see(&mut self, count: u32) -> Instances {
        let now = Instant::now();
        let before = self.count.replace(count).unwrap_or(count);
        if count > before {
            self.rises.push_back((now, count - before));
        }
        let mut fewer = before.saturating_sub(count);
        while let Some((_, by)) = self.rises.back_mut()
            && fewer > 0
        {
            let gone = fewer.min(*by);
            *by -= gone;
            fewer -= gone;
            if *by == 0 {
                self.rises.pop_back();
            }
        }
        while self
            .rises
            .front()
            .is_some_and(|(at, _)| now - *at >= self.start_delay)
        {
            self.rises.pop_front();
        }
        let starting = self.rises.iter().map(|(_, by)| by).sum::<u32>().min(count);
        Instances {
            ready: count - starting,
            starting,
            ..Instances::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_that_came_late_start_and_stop_first() {
        let mut ages = Ages::new(Duration::from_secs(30));
        let mut see = |count| {
            let found = ages.see(count);
            (found.ready, found.starting)
        };
        assert_eq!(see(4), (4, 0), "an agent finds what runs");
        assert_eq!(see(7), (4, 3));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(see(9), (4, 5));
        assert_eq!(see(6), (4, 2), "the newest have stopped");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(see(6), (6, 0));
        assert_eq!(see(8), (6, 2));
        assert_eq!(see(1), (1, 0));
        assert_eq!(see(2), (1, 1));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(see(2), (2, 0));
    }
}
