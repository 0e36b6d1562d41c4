//! Topics with as many subscriptions as there can be: a message costs what its copies cost, and no walk over all others.

use super::*;

const COUNT: usize = 2_000;

/// How many steps a command of one message may take here, at most: a copy, a rule, and the message itself.
const FEW_STEPS: u64 = 200;

impl Partition {
    /// With so many subscriptions, each of which wants another color, and one that wants all.
    fn with_many() -> Self {
        let mut p = Self::with_topic(BusQueueOptions::default());
        p.cold = None;
        for number in 1..COUNT {
            p.create_for_color(&format!("c{number}"));
        }
        p.subscribe("all", BusQueueOptions::default()).unwrap();
        p.state.take_copied();
        p
    }

    /// Creates a subscription that wants messages of the color which it is named after.
    fn create_for_color(&mut self, color: &str) {
        let create = BusCommand::CreateSubscription {
            topic: topic(),
            subscription: subscription(color),
            options: BusQueueOptions::default(),
            rule: Some(Box::new(rule("$Default", correlation(color)))),
        };
        self.decide(Command::Bus(create), USUAL).unwrap();
    }

    /// Decides a command as a partition does. It walks over no subscriptions, and takes few steps.
    fn in_few_steps(&mut self, command: BusCommand) -> BusOutcome {
        self.state.take_copied();
        let command = Command::Bus(command);
        self.state.catalogue.walked.set(0);
        command.describe().room_size_bytes_max(&self.state, USUAL);
        let outcome = self.decide(command, USUAL).unwrap();
        self.check_few_steps();
        match outcome {
            Outcome::Bus(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn check_few_steps(&mut self) {
        let steps = self.state.take_copied();
        assert!(steps < FEW_STEPS, "{steps}");
        assert_eq!(self.state.catalogue.walked.get(), 0);
    }

    fn take_one(&mut self, name: &str) {
        let received = self.in_few_steps(BusCommand::Receive {
            queue: subscription(name),
            count: 1,
            mode: ReceiveMode::PeekLock,
            session: None,
        });
        let BusOutcome::Received(messages) = received else {
            panic!("{received:?}")
        };
        let settled = self.in_few_steps(BusCommand::Settle {
            queue: subscription(name),
            settlements: vec![(locks(&messages)[0], Disposition::Complete)],
        });
        assert_eq!(settled, BusOutcome::Settled(vec![Verdict::Settled]));
    }

    fn publish_in_few_steps(&mut self, body: &str) {
        self.in_few_steps(BusCommand::Send {
            queue: topic(),
            messages: vec![text(body)],
        });
    }
}

#[test]
fn a_message_of_one_subscription_of_many_costs_no_look_at_the_others() {
    let mut p = Partition::with_many();
    p.publish_in_few_steps("color=c1234");
    for name in ["c1234", "all"] {
        p.take_one(name);
    }
    // Nor does one that waits for its copies.
    p.copies_at_once = 0;
    p.publish_in_few_steps("color=c999");
    p.state.catalogue.walked.set(0);
    assert!(!p.tick_once(7));
    p.check_few_steps();
    for name in ["c999", "all"] {
        p.take_one(name);
    }
    assert_eq!(p.view(&topic()).counts.size_bytes, 0);
    assert_eq!(p.view(&topic()).counts.subscriptions, COUNT as u64);
    p.check_kept();
}

/// A topic is full because one subscription is behind. Each message that it completes makes room for another one.
#[test]
fn a_full_topic_does_not_look_for_its_largest_subscription_each_time() {
    let mut p = Partition::with_many();
    p.publish_in_few_steps("color=c7");
    p.take_one("all");
    let one = "color=c7".len() as u64 + OVERHEAD_BYTES;
    let options = BusQueueOptions {
        size_bytes_max: 10 * one,
        ..BusQueueOptions::default()
    };
    let queue = topic();
    p.decide(
        Command::Bus(BusCommand::UpdateQueue { queue, options }),
        USUAL,
    )
    .unwrap();
    while p.publish(vec![text("color=c7")]).is_ok() {
        p.take_one("all");
    }
    for _ in 0..10 {
        p.take_one("c7");
        p.publish_in_few_steps("color=c7");
        p.take_one("all");
        p.state.catalogue.walked.set(0);
        let send = BusCommand::Send {
            queue: topic(),
            messages: vec![text("color=c7")],
        };
        p.decide(Command::Bus(send), USUAL).unwrap_err();
        // A refusal is sure, so the largest one is looked for if it is not known. That counts.
        let walked = p.state.catalogue.walked.get();
        let steps = p.state.take_copied();
        assert!(walked == 0 || steps >= COUNT as u64, "{walked}, {steps}");
    }
    p.check_kept();
}

/// Subscriptions that came after a message that waits get nothing of it. To pass over them takes steps all the same, and so
/// does a rule that was retired before a message came.
#[test]
fn to_look_at_a_rule_that_does_not_hold_is_a_step() {
    const LATER: u64 = 300;
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.cold = None;
    p.subscribe_all(&["first"]);
    p.copies_at_once = 0;
    p.publish(vec![text("x")]).unwrap();
    for number in 0..LATER {
        p.subscribe_all(&[&format!("s{number}")]);
    }
    p.publish(vec![text("w")]).unwrap();
    for number in 0..LATER {
        p.set_rule(&format!("s{number}"), rule("$Default", correlation("red")))
            .unwrap();
    }
    p.add_many("first", 1_000, &FilterDefinition::True);
    // What is sent behind it looks at the rules that were retired, too.
    p.state.take_copied();
    p.publish(vec![text("y")]).unwrap();
    let steps = p.state.take_copied();
    assert!(steps >= LATER, "{steps}");
    // A unit is 200 steps.
    assert!(p.tick_once(1), "more to look at");
    while p.tick_once(7) {}
    assert_eq!(p.view(&subscription("first")).counts.active, 3);
    assert_eq!(p.view(&subscription("s7")).counts.active, 1);
    p.check_kept();
}
