//! Overload: too much in flight, a busy or stopped broker, a disk that does not answer.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use kew_broker::{AdmissionLimits, Broker, BrokerOptions};
use kew_log::{Epoch, MemoryStorage, Storage, StorageFile};
use kew_log_contract::{MemoryOptions, MemorySource};
use kew_queue_api::Limits;

use crate::client::{Answer, Call, Door, Wire, call, message, put};

const TEXT_SIZE_BYTES: usize = 60_000;

fn text() -> String {
    "x".repeat(TEXT_SIZE_BYTES)
}

#[track_caller]
fn check_busy(answer: &Answer) {
    answer.check_error(503, "ServerBusy");
    assert_eq!(answer.header("retry-after"), Some("1"));
}

/// Repeats a request until there is no room for it: the requests that use the room may not be
/// counted yet.
async fn send_until_busy(wire: &mut Wire, call: &Call) {
    for _ in 0..1000 {
        let answer = wire.send(call.clone()).await;
        if answer.status >= 300 {
            return check_busy(&answer);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("there is always room");
}

fn room_for(size_bytes: usize) -> Limits {
    Limits {
        in_flight_size_bytes_max: size_bytes,
        ..Limits::default()
    }
}

#[tokio::test]
async fn bodies_share_one_budget() {
    let door = Door::with_limits(room_for(100_000));
    door.send(call("PUT", "/orders")).await.check_status(201);
    // One body is arriving, except for its last byte.
    let slow = &mut door.connect();
    let bytes = put("orders", "", &text()).to_bytes();
    let (last, first) = bytes.split_last().unwrap();
    slow.write(first).await;
    let wire = &mut door.connect();
    send_until_busy(wire, &put("orders", "", &text())).await;
    // A small request finds room, on the same connection.
    wire.send(put("orders", "", "x")).await.check_status(201);
    slow.write(&[*last]).await;
    slow.answer(false).await.check_status(201);
    wire.send(put("orders", "", &text()))
        .await
        .check_status(201);
}

#[tokio::test]
async fn answers_count_until_they_are_read() {
    let door = Door::with_limits(room_for(200_000));
    door.send(call("PUT", "/orders")).await.check_status(201);
    for _ in 0..2 {
        let put = put("orders", "", &text());
        door.send(put).await.check_status(201);
    }
    let peek = call("GET", "/orders/messages?peekonly=true&numofmessages=2");
    let slow = &mut door.connect_through(1024);
    slow.write(&peek.to_bytes()).await;
    let wire = &mut door.connect();
    send_until_busy(wire, &peek).await;
    // No message was received for an answer without room.
    let get = call("GET", "/orders/messages?numofmessages=2");
    check_busy(&wire.send(get.clone()).await);
    let answer = slow.answer(false).await;
    assert_eq!(answer.elements("MessageText").len(), 2);
    let answer = wire.send(get).await;
    assert_eq!(answer.elements("DequeueCount"), ["1", "1"]);
}

#[tokio::test]
async fn a_busy_broker_gets_an_error() {
    let options = BrokerOptions {
        admission: AdmissionLimits {
            body_bytes_max: 1000,
            ..AdmissionLimits::default()
        },
        ..BrokerOptions::default()
    };
    let (broker, _) = Broker::start(Arc::new(MemoryStorage::new()), options).unwrap();
    let door = Door::with_broker(broker);
    let wire = &mut door.connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    let long = "x".repeat(1001);
    check_busy(&wire.send(put("orders", "", &long)).await);
    wire.send(put("orders", "", "x")).await.check_status(201);
}

#[tokio::test]
async fn a_stopped_broker_knows_no_outcome() {
    let broker = Broker::start_in_memory().unwrap();
    let door = Door::with_broker(broker.clone());
    let wire = &mut door.connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    broker.stop();
    wire.send(put("orders", "", "x"))
        .await
        .check_error(500, "InternalError");
    let ready = call("GET", "").target("/health/ready").anonymous();
    wire.send(ready).await.check_status(503);
}

/// Another process takes the log over, and the server owns it again when it is told to.
#[tokio::test]
async fn a_broker_that_does_not_own_its_log_is_busy() {
    let source = Arc::new(MemorySource::new(MemoryOptions::default()));
    let (broker, _) = Broker::start_on(source.clone(), BrokerOptions::default()).unwrap();
    let door = Door::with_broker(broker.clone());
    let wire = &mut door.connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    let (other, _) = Broker::start_on(source, BrokerOptions::default()).unwrap();
    wire.send(put("orders", "", "x"))
        .await
        .check_error(500, "OperationTimedOut");
    check_busy(&wire.send(put("orders", "", "x")).await);
    let ready = || call("GET", "").target("/health/ready").anonymous();
    wire.send(ready()).await.check_status(503);
    broker.promote(Epoch::new(100));
    for _ in 0..10_000 {
        if !broker.is_ready() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert!(broker.is_ready(), "it is {:?}", broker.standing());
    wire.send(ready()).await.check_status(200);
    wire.send(put("orders", "", "x")).await.check_status(201);
    other.stop();
}

#[tokio::test]
async fn an_operation_has_the_time_that_its_request_gives() {
    let disk = Arc::new(StuckDisk::default());
    let (broker, _) = Broker::start(disk.clone(), BrokerOptions::default()).unwrap();
    let door = Door::with_broker(broker);
    let wire = &mut door.connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    disk.gate.set_open(false);
    let start = Instant::now();
    wire.send(put("orders", "?timeout=1", "x"))
        .await
        .check_error(500, "OperationTimedOut");
    let waited = start.elapsed().as_secs();
    assert!((1..10).contains(&waited), "{waited}");
    disk.gate.set_open(true);
    // It was carried out nevertheless, and the connection stays usable.
    let get = call("GET", "/orders/messages");
    wire.send(get).await.check_element("MessageText", "x");
}

/// A door to a broker whose disk does not answer from now on. Its queue is `orders`.
async fn stuck() -> (Door, Arc<StuckDisk>) {
    let disk = Arc::new(StuckDisk::default());
    let (broker, _) = Broker::start(disk.clone(), BrokerOptions::default()).unwrap();
    let door = Door::with_broker(broker);
    door.send(call("PUT", "/orders")).await.check_status(201);
    disk.gate.set_open(false);
    (door, disk)
}

#[tokio::test]
async fn every_operation_has_the_time_that_its_request_gives() {
    let (door, disk) = stuck().await;
    let on_message = "/orders/messages/00112233-4455-6677-8899-aabbccddeeff?timeout=1\
                      &popreceipt=AAAAAAAAAAAAAAAAAAAAAA==&visibilitytimeout=0";
    let properties = "/?timeout=1&restype=service&comp=properties";
    // The first writes, so that all others wait behind it.
    let calls = [
        put("orders", "?timeout=1", "x"),
        call("GET", "/?timeout=1&comp=list"),
        call("PUT", "/others?timeout=1"),
        call("DELETE", "/orders?timeout=1"),
        call("GET", "/orders?timeout=1&comp=metadata"),
        call("PUT", "/orders?timeout=1&comp=metadata"),
        call("GET", "/orders?timeout=1&comp=acl"),
        call("PUT", "/orders?timeout=1&comp=acl").body(""),
        call("GET", "/orders/messages?timeout=1"),
        call("GET", "/orders/messages?timeout=1&peekonly=true"),
        call("DELETE", "/orders/messages?timeout=1"),
        call("PUT", on_message).body(""),
        call("DELETE", on_message),
        call("GET", properties),
        call("PUT", properties).body("<StorageServiceProperties/>"),
        call("OPTIONS", "/orders?timeout=1")
            .header("Origin", "http://a")
            .header("Access-Control-Request-Method", "GET"),
        // Its rules are late too, and the two waits do not add up.
        call("GET", "/?timeout=1&comp=list").header("Origin", "http://a"),
    ];
    let start = Instant::now();
    let sent = calls.map(|call| {
        let mut wire = door.connect();
        tokio::spawn(async move { wire.send(call).await })
    });
    for answer in sent {
        answer.await.unwrap().check_error(500, "OperationTimedOut");
    }
    let waited = start.elapsed().as_secs();
    assert!((1..10).contains(&waited), "{waited}");
    disk.gate.set_open(true);
}

#[tokio::test]
async fn nothing_takes_longer_than_30_seconds() {
    let (door, disk) = stuck().await;
    // Only now, because a paused clock would run ahead of the broker.
    tokio::time::pause();
    for query in [
        "",
        "?timeout=0",
        "?timeout=31",
        "?timeout=99999999999999999999",
    ] {
        let start = tokio::time::Instant::now();
        door.send(put("orders", query, "x"))
            .await
            .check_error(500, "OperationTimedOut");
        assert_eq!(start.elapsed().as_secs(), 30, "{query}");
    }
    disk.gate.set_open(true);
}

#[tokio::test]
async fn a_bad_timeout_is_refused_before_the_body_is_read() {
    let wire = &mut Door::open().connect();
    let put = call("POST", "/orders/messages?timeout=soon").body(message("x"));
    wire.write(&put.header("Expect", "100-continue").head())
        .await;
    wire.answer(false)
        .await
        .check_error(400, "InvalidQueryParameterValue")
        .check_element("QueryParameterName", "timeout");
}

/// A disk whose syncs can be made to wait.
#[derive(Default)]
struct StuckDisk {
    disk: MemoryStorage,
    gate: Arc<Gate>,
}

struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            is_open: Mutex::new(true),
            opened: Condvar::new(),
        }
    }
}

impl Gate {
    fn set_open(&self, is_open: bool) {
        *self.is_open.lock().unwrap() = is_open;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let is_open = self.is_open.lock().unwrap();
        let passed = self.opened.wait_while(is_open, |is_open| !*is_open);
        drop(passed.unwrap());
    }
}

impl StuckDisk {
    fn gated(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(StuckFile {
            file,
            gate: Arc::clone(&self.gate),
        })
    }
}

impl Storage for StuckDisk {
    fn create(&self, name: &str) -> std::io::Result<Arc<dyn StorageFile>> {
        self.disk.create(name).map(|file| self.gated(file))
    }

    fn open(&self, name: &str) -> std::io::Result<Arc<dyn StorageFile>> {
        self.disk.open(name).map(|file| self.gated(file))
    }

    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self) -> std::io::Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_dir(&self) -> std::io::Result<()> {
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
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.gate.pass();
        self.file.sync_data()
    }

    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }
}
