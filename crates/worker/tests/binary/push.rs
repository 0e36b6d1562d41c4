//! Push over Service Bus between processes: over a queue for each listener, and over one topic.

use std::io::Read as _;
use std::time::{Duration, Instant};

use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusNamespace, BusOptions, QueueAccount, QueueClient,
    QueueOptions,
};
use kew_worker::{
    Announce as _, Announcement, BusAnnouncements, BusAnnouncer, Listener, QueueSource,
    QueueTarget, Sender, Source as _, Stop, Target as _, Text, TopicAnnouncements, TopicAnnouncer,
    create_push_topic, handler_fn,
};
use tokio::time::sleep;

use crate::processes::{Process, kew, this_program, until};

const STORAGE: &str = "KEW_WORKER_TEST_STORAGE";
const BUS: &str = "KEW_WORKER_TEST_BUS";
const OWN_QUEUE: &str = "KEW_WORKER_TEST_OWN_QUEUE";
const OWN_SUBSCRIPTION: &str = "KEW_WORKER_TEST_OWN_SUBSCRIPTION";

const TOPIC: &str = "wakeup";

const ACCOUNT: &str = "devstoreaccount1";

fn storage(text: &str) -> QueueClient {
    let account = QueueAccount::parse(text).unwrap();
    QueueClient::new(account, QueueOptions::default()).unwrap()
}

fn bus(text: &str) -> (BusClient, BusAdmin) {
    let namespace = BusNamespace::parse(text).unwrap();
    let client = BusClient::new(namespace.clone(), BusOptions::default());
    let admin = BusAdmin::new(namespace, AdminOptions::default());
    (client.unwrap(), admin.unwrap())
}

/// Not a test, but the process of a listener. It prints its state, and stops at the end of its input.
#[tokio::test]
#[expect(clippy::print_stdout, reason = "the test that started it reads this")]
async fn listener_process() {
    let own_queue = std::env::var(OWN_QUEUE);
    let own_subscription = std::env::var(OWN_SUBSCRIPTION);
    if own_queue.is_err() && own_subscription.is_err() {
        return;
    }
    let client = storage(&std::env::var(STORAGE).unwrap());
    let (bus, admin) = bus(&std::env::var(BUS).unwrap());
    let source = QueueSource::new(client, ACCOUNT, "jobs");
    let name = source.name().clone();
    let builder = Listener::builder(source, Text)
        .subscribe(handler_fn(|_| async { Ok(()) }))
        .recheck(None);
    let builder = match (own_queue, own_subscription) {
        (Ok(queue), _) => builder.push(BusAnnouncements::new(bus, Some(admin), &queue)),
        (Err(_), own) => {
            let own = own.unwrap();
            builder.push(TopicAnnouncements::new(
                bus,
                Some(admin),
                TOPIC,
                &own,
                &name,
            ))
        }
    };
    let listener = builder.build();
    listener.start(1).unwrap();
    let mut input_ends = tokio::task::spawn_blocking(|| {
        let mut input = Vec::new();
        std::io::stdin().read_to_end(&mut input).unwrap();
    });
    let mut printed = String::new();
    while !input_ends.is_finished() {
        let state = listener.state();
        let facts = format!(
            "completed={}\nempty_polls={}\ntasks={}\nannouncements={}",
            state.completed, state.empty_polls, state.active_tasks, state.announcements
        );
        if facts != printed {
            println!("\n{facts}");
            printed = facts;
        }
        sleep(Duration::from_millis(5)).await;
    }
    (&mut input_ends).await.unwrap();
    listener.stop(Stop::default()).await;
}

struct Office {
    kew: Process,
    sender: Sender<String, Text, QueueTarget>,
    announcer: BusAnnouncer,
    admin: BusAdmin,
}

impl Office {
    async fn open() -> Self {
        let kew = kew().await;
        let client = storage(&kew.fact("KEW_QUEUE_CONNECTION_STRING").unwrap());
        client.create_queue("jobs", &[]).await.unwrap();
        let (bus, admin) = bus(&kew.fact("KEW_BUS_CONNECTION_STRING").unwrap());
        let announcer = BusAnnouncer::new(bus, admin.clone(), "wakeup-");
        Self {
            sender: Sender::new(Text, QueueTarget::new(client, ACCOUNT, "jobs"), "office"),
            // Lists are 30 s apart otherwise.
            announcer: announcer.list_kept(Duration::from_millis(200)),
            admin,
            kew,
        }
    }

    /// Starts a listener, and waits until it hears and has stopped polling.
    async fn listener(&self, own_queue: &str) -> Process {
        self.process((OWN_QUEUE, own_queue)).await
    }

    async fn process(&self, own: (&str, &str)) -> Process {
        let storage = self.kew.fact("KEW_QUEUE_CONNECTION_STRING").unwrap();
        let bus = self.kew.fact("KEW_BUS_CONNECTION_STRING").unwrap();
        let settings = [(STORAGE, &*storage), (BUS, &*bus), own];
        let process = this_program("push::listener_process", &settings);
        until("it does not poll", async || {
            process.count("empty_polls") > 0 && process.count("tasks") == 0
        })
        .await;
        process
    }

    /// Sends a message, and announces it. That waits for no listener.
    async fn work(&self) {
        self.sender.send(&"x".to_owned()).await.unwrap();
        let began = Instant::now();
        let announcement = Announcement::new(self.sender.target().name(), "office");
        self.announcer.announce(&announcement).await.unwrap();
        // A queue that does not answer would take 10 s.
        assert!(
            began.elapsed() < Duration::from_secs(9),
            "{:?}",
            began.elapsed()
        );
    }
}

#[tokio::test]
async fn every_process_is_offered_each_announcement_and_a_dead_one_leaves_nothing_behind() {
    let office = Office::open().await;
    let mut first = office.listener("wakeup-1").await;
    let second = office.listener("wakeup-2").await;
    for count in 1..=5 {
        office.work().await;
        until("both are offered it", async || {
            [&first, &second].map(|it| it.count("announcements")) == [count; 2]
        })
        .await;
        until("one handled it", async || {
            first.count("completed") + second.count("completed") == count
        })
        .await;
    }

    // One dies. Its queue is there, and the other one is offered everything until the queue does not exist any more.
    first.kill();
    let done_before = second.count("completed");
    let mut works = 0;
    while office.admin.queue_exists("wakeup-1").await.unwrap() {
        office.work().await;
        works += 1;
        until("the other one is offered it", async || {
            second.count("announcements") == 5 + works
        })
        .await;
        assert!(works < 1_000, "the queue of the dead one stays");
    }
    assert!(works >= 4, "only {works}: one late answer is no death");
    until("the other one handled all", async || {
        second.count("completed") == done_before + works
    })
    .await;
    assert!(office.admin.queue_exists("wakeup-2").await.unwrap());

    // It comes back under the same name, and is offered announcements again.
    let again = office.listener("wakeup-1").await;
    until("it is offered one", async || {
        office.work().await;
        again.count("announcements") >= 1
    })
    .await;
    for process in [again, second] {
        process.stop().await;
    }
    for queue in ["wakeup-1", "wakeup-2"] {
        assert!(!office.admin.queue_exists(queue).await.unwrap(), "{queue}");
    }
}

#[tokio::test]
async fn one_send_to_a_topic_wakes_every_process_also_after_one_died() {
    let office = Office::open().await;
    let (bus, admin) = bus(&office.kew.fact("KEW_BUS_CONNECTION_STRING").unwrap());
    create_push_topic(&admin, TOPIC).await.unwrap();
    let announcer = TopicAnnouncer::new(bus, TOPIC);
    let work = async || {
        office.sender.send(&"x".to_owned()).await.unwrap();
        let announcement = Announcement::new(office.sender.target().name(), "office");
        announcer.announce(&announcement).await.unwrap();
    };
    let mut first = office.process((OWN_SUBSCRIPTION, "worker-1")).await;
    let second = office.process((OWN_SUBSCRIPTION, "worker-2")).await;
    for count in 1..=5 {
        work().await;
        until("both are offered it", async || {
            [&first, &second].map(|it| it.count("announcements")) == [count; 2]
        })
        .await;
        until("one handled it", async || {
            first.count("completed") + second.count("completed") == count
        })
        .await;
    }
    first.kill();
    let done_before = second.count("completed");
    for count in 1..=3 {
        work().await;
        until("the other one handled it", async || {
            second.count("completed") == done_before + count
        })
        .await;
    }
    // Announcements wait for the dead one, which comes back under its name and is offered them.
    let again = office.process((OWN_SUBSCRIPTION, "worker-1")).await;
    until("it is offered what waited", async || {
        again.count("announcements") == 3
    })
    .await;
    for process in [again, second] {
        process.stop().await;
    }
    for name in ["worker-1", "worker-2"] {
        assert!(
            !admin.subscription_exists(TOPIC, name).await.unwrap(),
            "{name}"
        );
    }
}
