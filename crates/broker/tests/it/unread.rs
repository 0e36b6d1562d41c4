//! Messages that are received and deleted after they were read.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kew_broker::{AdmissionLimits, Answers, Broker, BrokerOptions, Rejection, Reply};
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueOptions, ReceiveMode, SessionChoice, SessionLock,
};
use kew_engine::{Command, EntityName, Outcome, Service};
use kew_log::{MemoryStorage, Storage, StorageFile};

use crate::bus::{create, damage, forgetful, receive, receive_and_delete, send, take};

fn steps() -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: "steps".into(),
    }
}

/// A session client that has failed releases the session, and accepts the next one.
#[tokio::test]
async fn a_damaged_message_does_not_block_its_session() {
    let (storage, broker) = forgetful().await;
    let options = BusQueueOptions {
        requires_session: true,
        max_delivery_count: 3,
        ..BusQueueOptions::default()
    };
    let queue = steps();
    let ask = async |command: BusCommand| broker.submit(Command::Bus(command)).await;
    ask(BusCommand::CreateQueue {
        queue: queue.clone(),
        options,
    })
    .await
    .unwrap();
    for body in ["damaged body", "whole body"] {
        let message = BusMessage {
            body: body.into(),
            message_id: None,
            session: Some("s".into()),
            time_to_live_ms: None,
            scheduled_at: None,
        };
        ask(BusCommand::Send {
            queue: queue.clone(),
            messages: vec![message],
        })
        .await
        .unwrap();
    }
    damage(&storage, b"damaged body");
    let receive = |session: &SessionLock| BusCommand::Receive {
        queue: queue.clone(),
        count: 1,
        mode: ReceiveMode::ReceiveAndDelete,
        session: Some(session.lock),
    };
    let mut failed = 0;
    let bodies = loop {
        let accepted = ask(BusCommand::AcceptSession {
            queue: queue.clone(),
            session: SessionChoice::Next,
        });
        let Outcome::Bus(BusOutcome::SessionAccepted(session)) = accepted.await.unwrap().outcome
        else {
            panic!("the session is free");
        };
        match ask(receive(&session)).await {
            Ok(answer) => break answer.bodies,
            Err(rejection) => assert_eq!(rejection, Rejection::Unreadable),
        }
        failed += 1;
        assert!(failed <= 3, "it is never counted");
        ask(BusCommand::ReleaseSession {
            queue: queue.clone(),
            session: session.lock,
        })
        .await
        .unwrap();
    };
    assert_eq!(bodies, ["whole body"]);
    assert_eq!(failed, 3);
    let read = ask(BusCommand::ReadQueue {
        queue: queue.clone(),
    });
    let Outcome::Bus(BusOutcome::Queue(view)) = read.await.unwrap().outcome else {
        panic!("it is there");
    };
    assert_eq!((view.counts.active, view.counts.dead_letters), (0, 1));
    broker.stop();
}

#[tokio::test]
async fn a_read_message_waits_for_a_busy_broker_to_be_deleted() {
    let disk = Arc::new(StuckDisk::default());
    let mut options = BrokerOptions {
        admission: AdmissionLimits {
            commands_max: 4,
            ..AdmissionLimits::default()
        },
        ..BrokerOptions::default()
    };
    options.partition.log.recent_bytes_max = 0;
    let (broker, _) = Broker::start(disk.clone(), options).unwrap();
    broker.submit(create()).await.unwrap();
    broker.submit(send("body")).await.unwrap();
    let answers = Arc::<Answers>::default();
    let asked = std::iter::once((1, receive_and_delete(1)));
    broker.submit_among(asked, &answers, |_, rejection| panic!("{rejection}"));
    let answered = first(&answers).await.unwrap();

    // All possible jobs in progress wait for the disk.
    disk.gate.set_open(false);
    let mut is_busy = false;
    while !is_busy {
        let more = [(2, send("more")), (3, receive(1))];
        broker.submit_among(more.into_iter(), &answers, |key, rejection| {
            assert_eq!(rejection, Rejection::Busy);
            is_busy |= key == 3;
        });
    }
    tokio::time::pause();
    let mut read = std::pin::pin!(broker.read(answered));
    let waited = tokio::time::timeout(Duration::from_secs(1), &mut read).await;
    assert!(waited.is_err(), "{waited:?}");
    tokio::time::resume();
    disk.gate.set_open(true);
    let read = take(read.await.unwrap());
    assert_eq!(read, [(1, Bytes::from("body"))]);
    broker.stop();
}

async fn first(answers: &Answers) -> Reply {
    let mut came = Vec::new();
    while came.is_empty() {
        answers.ready().await;
        answers.take(&mut came);
    }
    came.remove(0).1
}

/// A disk whose syncs can be made to wait.
#[derive(Default)]
struct StuckDisk {
    disk: MemoryStorage,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn set_open(&self, is_open: bool) {
        *self.is_closed.lock().unwrap() = !is_open;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let is_closed = self.is_closed.lock().unwrap();
        drop(self.changed.wait_while(is_closed, |is_closed| *is_closed));
    }
}

impl StuckDisk {
    fn gated(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        let gate = Arc::clone(&self.gate);
        Arc::new(StuckFile { file, gate })
    }
}

impl Storage for StuckDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.create(name).map(|file| self.gated(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.open(name).map(|file| self.gated(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.disk.free_bytes()
    }
}

struct StuckFile {
    file: Arc<dyn StorageFile>,
    gate: Arc<Gate>,
}

impl StorageFile for StuckFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass();
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
