//! The queue and its workers.

use std::collections::VecDeque;
use std::time::Duration;

use crate::numbers::whole_of;
use crate::observation::{Instances, Reading};

/// What the simulated workers can do.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    /// Messages that one task handles each second.
    pub rate_per_task: f64,
    /// Tasks of an instance at most.
    pub tasks_max: u32,
    /// Seconds from the start of an instance until it is ready.
    pub start_seconds: u32,
    /// Instances that are ready at the beginning.
    pub ready: u32,
}

/// The queue and its workers at one second.
#[derive(Debug)]
pub(super) struct World {
    workers: Workers,
    now: u32,
    /// Messages by the second of their arrival, the oldest first.
    queue: VecDeque<(u32, u32)>,
    backlog: u64,
    arrived: u64,
    completed: u64,
    ready: u32,
    /// When each of the others will be ready, in order.
    starting: VecDeque<u32>,
    tasks: u32,
    /// What the tasks have done of the next message.
    part: f64,
    /// Instances that were started.
    pub(super) starts: u32,
}

impl World {
    pub(super) fn new(workers: Workers) -> Self {
        Self {
            workers,
            now: 0,
            queue: VecDeque::new(),
            backlog: 0,
            arrived: 0,
            completed: 0,
            ready: workers.ready,
            starting: VecDeque::new(),
            tasks: workers.tasks_max,
            part: 0.0,
            starts: 0,
        }
    }

    /// Lets one second pass in which `arrivals` messages arrive.
    pub(super) fn pass(&mut self, arrivals: u32) {
        while self.starting.front().is_some_and(|at| *at <= self.now) {
            self.starting.pop_front();
            self.ready += 1;
        }
        if arrivals > 0 {
            self.queue.push_back((self.now, arrivals));
            self.backlog += u64::from(arrivals);
            self.arrived += u64::from(arrivals);
        }
        self.handle();
        self.now += 1;
    }

    fn handle(&mut self) {
        let tasks = f64::from(self.ready) * f64::from(self.tasks);
        self.part += tasks * self.workers.rate_per_task;
        while self.part >= 1.0
            && let Some((_, count)) = self.queue.front_mut()
        {
            let handled = whole_of(self.part).min(*count);
            *count -= handled;
            self.part -= f64::from(handled);
            self.backlog -= u64::from(handled);
            self.completed += u64::from(handled);
            if *count == 0 {
                self.queue.pop_front();
            }
        }
        if self.queue.is_empty() {
            // Tasks do nothing in advance.
            self.part = 0.0;
        }
    }

    /// Starts or stops instances until `count` run. Those that are not ready stop first.
    pub(super) fn scale(&mut self, count: u32, tasks: u32) {
        self.tasks = tasks.min(self.workers.tasks_max);
        let ready_at = self.now + self.workers.start_seconds;
        while self.count() < count {
            self.starting.push_back(ready_at);
            self.starts += 1;
        }
        while self.count() > count {
            if self.starting.pop_back().is_none() {
                self.ready -= 1;
            }
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.instances().count()
    }

    pub(super) fn instances(&self) -> Instances {
        Instances {
            ready: self.ready,
            starting: u32::try_from(self.starting.len()).expect("counts of instances are u32"),
            tasks: Some(self.tasks),
            ..Instances::default()
        }
    }

    /// Seconds that the oldest message has waited.
    pub(super) fn oldest_seconds(&self) -> u32 {
        let oldest = self.queue.front().map(|it| it.0);
        oldest.map_or(0, |at| self.now - at)
    }

    pub(super) fn reading(&self) -> Reading {
        let oldest = Duration::from_secs(u64::from(self.oldest_seconds()));
        Reading {
            backlog: self.backlog,
            oldest: (self.backlog > 0).then_some(oldest),
            arrived: Some(self.arrived),
            completed: Some(self.completed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_take_their_time_and_handle_the_oldest_first() {
        let mut world = World::new(Workers {
            rate_per_task: 0.5,
            tasks_max: 4,
            start_seconds: 3,
            ready: 0,
        });
        world.scale(2, 4);
        world.pass(10);
        world.pass(0);
        world.pass(0);
        assert_eq!((world.reading().backlog, world.oldest_seconds()), (10, 3));
        world.pass(5);
        assert_eq!((world.reading().backlog, world.oldest_seconds()), (11, 4));
        world.pass(0);
        world.pass(0);
        assert_eq!((world.reading().backlog, world.oldest_seconds()), (3, 3));
        world.pass(0);
        assert_eq!(world.reading().oldest, None);
        world.scale(1, 4);
        world.pass(9);
        assert_eq!(world.reading().backlog, 7);
        assert_eq!((world.count(), world.starts), (1, 2));
    }
}
