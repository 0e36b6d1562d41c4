//! A partition behind a connection that passes everything as bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kew_broker::{AdmissionLimits, Answers, Broker, Rejection, Watch};
use kew_engine::bus::{Awaited, BusCommand, BusRefusal};
use kew_engine::{Command, Incarnation, Refusal};
use kew_log_contract::{MemoryOptions, MemorySource};
use kew_loopback::{Loopback, connect};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::bus::{create, orders, read, receive, receive_and_delete, send, view};

const PATIENCE: Duration = Duration::from_secs(30);

async fn queue(broker: &Broker) -> Incarnation {
    broker.submit(create()).await.unwrap();
    view(broker.submit(read()).await.unwrap().outcome)
}

/// Waits until nothing of a node is left at the partition.
async fn until_unwatched(near: &Broker) {
    let unwatched = tokio::time::timeout(PATIENCE, async {
        while near.watch_count() > 0 {
            tokio::task::yield_now().await;
        }
    });
    unwatched
        .await
        .expect("a node that has gone watches nothing");
}

fn far(broker: &Broker) -> (Broker, Arc<Loopback>) {
    connect(broker, AdmissionLimits::default())
}

#[tokio::test]
async fn answers_come_with_their_bodies_and_in_order() {
    let near = Broker::start_in_memory().unwrap();
    let (broker, door) = far(&near);
    queue(&broker).await;
    let twice = broker.submit(create()).await.unwrap_err();
    let exists = BusRefusal::QueueAlreadyExists {
        queue: "orders".into(),
    };
    assert_eq!(twice, Rejection::Refused(Refusal::Bus(exists)));
    let answers = Arc::<Answers>::default();
    let sends = (0..100).map(|key| (key, send(key.to_string())));
    broker
        .for_source()
        .submit_among(sends, &answers, |key, rejection| {
            panic!("{key}: {rejection}");
        });
    let mut keys = Vec::new();
    let mut came = Vec::new();
    while keys.len() < 100 {
        answers.ready().await;
        answers.take(&mut came);
        keys.extend(came.drain(..).map(|(key, reply)| {
            reply.unwrap();
            key
        }));
    }
    assert!(keys.iter().copied().eq(0..100), "{keys:?}");
    let answer = broker.submit(receive(100)).await.unwrap();
    let bodies: Vec<String> = (0..100).map(|key| key.to_string()).collect();
    assert_eq!(answer.bodies, bodies);
    assert_eq!(door.under_way(), 0);
    near.stop();
    assert_eq!(broker.submit(read()).await, Err(Rejection::Stopped));
}

#[tokio::test]
async fn a_node_bounds_what_is_under_way() {
    let near = Broker::start_in_memory().unwrap();
    let limits = AdmissionLimits {
        commands_max: 1,
        ..AdmissionLimits::default()
    };
    let (broker, _) = connect(&near, limits);
    // A command that reads has three quarters of that.
    assert_eq!(broker.submit(read()).await, Err(Rejection::Busy));
    near.stop();
}

/// A partition asks these of itself.
#[tokio::test]
async fn a_node_that_asks_for_what_only_a_partition_does_is_cut_off() {
    let near = Broker::start_in_memory().unwrap();
    let (broker, _) = far(&near);
    let moves = Command::MoveBodies { bodies: Vec::new() };
    assert_eq!(broker.submit(moves).await, Err(Rejection::Unknown));
    assert_eq!(broker.submit(read()).await, Err(Rejection::NotOwner));
    // The others are served.
    queue(&near).await;
    near.stop();
}

#[tokio::test]
async fn a_cut_connection_answers_what_is_known_and_wakes_all() {
    let source = MemorySource::new(MemoryOptions {
        heartbeat_ms: Some(1000),
        ..MemoryOptions::default()
    });
    let (near, _) = Broker::start_on(Arc::new(source.clone()), Default::default()).unwrap();
    let (broker, door) = far(&near);
    let entity = queue(&broker).await;
    source.others().fall_silent(None);
    let sending = tokio::spawn({
        let broker = broker.clone();
        async move { broker.submit(send("a")).await }
    });
    let mut watch = broker.watch(entity, Awaited::Message);
    let notify = Arc::<Notify>::default();
    let changes = broker.watch_changes(entity, &notify);
    while door.under_way() == 0 {
        tokio::task::yield_now().await;
    }
    door.cut();
    assert_eq!(sending.await.unwrap(), Err(Rejection::Unknown));
    assert_eq!(broker.submit(read()).await, Err(Rejection::NotOwner));
    tokio::time::timeout(PATIENCE, watch.woken()).await.unwrap();
    assert!(changes.take());
    until_unwatched(&near).await;
    // It was carried out all the same.
    source.others().answer();
    let answer = near.submit(receive(10)).await.unwrap();
    assert_eq!(answer.bodies, ["a"]);
    near.stop();
}

#[tokio::test]
async fn a_change_reaches_everybody_behind_each_door() {
    let near = Broker::start_in_memory().unwrap();
    let entity = queue(&near).await;
    let doors = [far(&near).0, far(&near).0, near.clone()];
    let notify = Arc::<Notify>::default();
    let mut watches = Vec::new();
    let mut changes = Vec::new();
    for broker in &doors {
        for _ in 0..2 {
            watches.push(broker.watch(entity, Awaited::Message));
            changes.push(broker.watch_changes(entity, &notify));
        }
        // What a watch says goes before the commands that follow.
        broker.submit(read()).await.unwrap();
    }
    near.submit(Command::Bus(BusCommand::DeleteQueue { queue: orders() }))
        .await
        .unwrap();
    for mut watch in watches {
        tokio::time::timeout(PATIENCE, watch.woken()).await.unwrap();
    }
    tokio::time::timeout(PATIENCE, async {
        let mut told = vec![false; changes.len()];
        while told.contains(&false) {
            notify.notified().await;
            for (told, change) in told.iter_mut().zip(&changes) {
                *told |= change.take();
            }
        }
    })
    .await
    .unwrap();
    assert!(changes.iter().all(|change| !change.take()), "once");
    near.stop();
}

/// Receivers that wait: the first two behind a door, the third behind another one, and the last beside the partition.
async fn waiting(doors: &[Broker; 3], entity: Incarnation) -> Vec<JoinHandle<Watch>> {
    let mut waiting = Vec::new();
    for nth in [0, 0, 1, 2] {
        let mut watch = doors[nth].watch(entity, Awaited::Message);
        waiting.push(tokio::spawn(async move {
            watch.woken().await;
            watch
        }));
        // It waits before the next one, and is woken before it: what a watch says goes before the commands that follow.
        tokio::task::yield_now().await;
        doors[nth].submit(read()).await.unwrap();
    }
    waiting
}

/// The next one that is woken.
async fn woken(waiting: &mut Vec<JoinHandle<Watch>>) -> Watch {
    let woken = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(nth) = waiting.iter().position(JoinHandle::is_finished) {
                return nth;
            }
            tokio::task::yield_now().await;
        }
    });
    let nth = woken.await.expect("a message wakes a receiver");
    waiting.remove(nth).await.unwrap()
}

#[tokio::test]
async fn a_receiver_behind_a_door_that_goes_away_passes_its_wake_up_on() {
    let near = Broker::start_in_memory().unwrap();
    let entity = queue(&near).await;
    let doors = [far(&near).0, far(&near).0, near.clone()];
    let mut waiting = waiting(&doors, entity).await;
    near.submit(send("a")).await.unwrap();
    for _ in 0..4 {
        drop(woken(&mut waiting).await);
    }
    near.stop();
}

#[tokio::test]
async fn messages_wake_in_turn_behind_all_doors() {
    let near = Broker::start_in_memory().unwrap();
    let entity = queue(&near).await;
    let doors = [far(&near).0, far(&near).0, near.clone()];
    let mut waiting = waiting(&doors, entity).await;
    let mut have_looked = Vec::new();
    for _ in 0..4 {
        near.submit(send("a")).await.unwrap();
        let mut watch = woken(&mut waiting).await;
        watch.looked();
        have_looked.push(watch);
    }
    near.stop();
}

/// Of those that have waited nobody is left when the wake-up comes. They stay, and do something else.
#[tokio::test]
async fn a_wake_up_that_finds_nobody_comes_back() {
    let near = Broker::start_in_memory().unwrap();
    let entity = queue(&near).await;
    let doors = [far(&near).0, far(&near).0, near.clone()];
    let mut waiting = waiting(&doors, entity).await;
    let mut busy = doors[0].watch(entity, Awaited::Message);
    for waits in waiting.drain(..3) {
        waits.abort();
        assert!(waits.await.is_err_and(|error| error.is_cancelled()));
    }
    {
        let mut waits = std::pin::pin!(busy.woken());
        assert!(poll_once(&mut waits).is_pending());
    }
    near.submit(send("a")).await.unwrap();
    woken(&mut waiting).await;
    near.stop();
}

/// Polls once.
fn poll_once(wait: &mut std::pin::Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
    wait.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets all tasks of a test do what they can.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// A node is woken, and gone before it has looked.
#[tokio::test]
async fn a_wake_up_of_a_node_that_has_gone_comes_back() {
    let near = Broker::start_in_memory().unwrap();
    let entity = queue(&near).await;
    for is_cut in [false, true] {
        let (broker, door) = far(&near);
        let mut first = broker.watch(entity, Awaited::Message);
        let mut waits = std::pin::pin!(first.woken());
        assert!(poll_once(&mut waits).is_pending());
        // Another one there waits, too: the next wake-up is asked for before the first one has looked.
        let mut beside = broker.watch(entity, Awaited::Message);
        let mut waits_beside = std::pin::pin!(beside.woken());
        assert!(poll_once(&mut waits_beside).is_pending());
        settle().await;
        let mut second = near.watch(entity, Awaited::Message);
        let waits_too = tokio::spawn(async move { second.woken().await });
        settle().await;
        near.submit(send("a")).await.unwrap();
        settle().await;
        assert!(!waits_too.is_finished(), "the first one is woken");
        if is_cut {
            door.cut();
        }
        drop((broker, door));
        let woken = tokio::time::timeout(PATIENCE, waits_too);
        woken.await.unwrap().unwrap();
        until_unwatched(&near).await;
        near.submit(receive_and_delete(1)).await.unwrap();
    }
    near.stop();
}

/// Takes messages, each time that it is woken, and goes away and comes again now and then.
async fn take_some(broker: Broker, entity: Incarnation, taken: Arc<AtomicUsize>, stays: usize) {
    let broker = broker.for_source();
    loop {
        let mut watch = broker.watch(entity, Awaited::Message);
        for _ in 0..stays {
            let answer = broker.submit(receive_and_delete(1)).await.unwrap();
            watch.looked();
            taken.fetch_add(answer.bodies.len(), Ordering::Relaxed);
            watch.woken().await;
        }
    }
}

/// Nobody polls: a message that is left would be left for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_behind_several_doors_strand_no_message() {
    let near = Broker::start_in_memory().unwrap();
    let entity = queue(&near).await;
    let doors = [far(&near).0, far(&near).0, near.clone()];
    let taken = Arc::new(AtomicUsize::new(0));
    let mut receivers = Vec::new();
    for (nth, broker) in doors.iter().enumerate() {
        for stays in 1..=3 {
            let take = take_some(broker.clone(), entity, Arc::clone(&taken), nth + stays);
            receivers.push(tokio::spawn(take));
        }
    }
    for round in 1..=300 {
        for nth in 0..round % 4 {
            doors[(round + nth) % 3].submit(send("a")).await.unwrap();
        }
        let sent = (1..=round).map(|round| round % 4).sum::<usize>();
        let all = tokio::time::timeout(PATIENCE, async {
            while taken.load(Ordering::Relaxed) < sent {
                tokio::task::yield_now().await;
            }
        });
        all.await
            .unwrap_or_else(|_| panic!("round {round}: {taken:?} of {sent} are taken"));
    }
    for receiver in receivers {
        receiver.abort();
        assert!(receiver.await.is_err_and(|error| error.is_cancelled()));
    }
    until_unwatched(&near).await;
    near.stop();
}
