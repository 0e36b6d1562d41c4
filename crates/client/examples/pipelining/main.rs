//! Why sends should be pipelined: 100 messages over a path with 70 ms of delay, one by one, and with 10 in flight.
//!
//! ```text
//! cargo run -p kew-client --example pipelining              # in a queue that it creates and deletes
//! cargo run -p kew-client --example pipelining -- orders    # in an existing queue, which keeps the messages
//! ```
//!
//! `SERVICEBUS_CONNECTION_STRING` names the namespace: of Kew, of the emulator or of Azure. By default it is the
//! emulator's on this machine, which is also that of `kew serve`.

#![expect(clippy::print_stdout, reason = "it prints what it measures")]

mod delay;
mod sends;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use delay::Delayed;
use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusNamespace, BusOptions, Dial, DialFuture, QueueSettings,
    Stream,
};
use tokio::net::TcpStream;

const EMULATOR: &str = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
     SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;";

const MESSAGES: usize = 100;
const IN_FLIGHT: usize = 10;

/// How much later an answer comes: that of a service some thousand kilometres away.
const ROUND_TRIP: Duration = Duration::from_millis(70);

/// The way to the service, without the delay.
struct Tcp;

impl Dial for Tcp {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().nth(1)).await
}

/// In this queue, or in one of its own.
pub(crate) async fn run(queue: Option<String>) -> Result<(), Box<dyn Error>> {
    let given = std::env::var("SERVICEBUS_CONNECTION_STRING");
    let namespace = BusNamespace::parse(given.as_deref().unwrap_or(EMULATOR))?;
    if let Some(queue) = queue {
        return Ok(measure(namespace, &queue).await?);
    }
    let admin = BusAdmin::new(namespace.clone(), AdminOptions::default())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let queue = format!("pipelining-{}", now.as_nanos());
    admin
        .create_queue(&queue, &QueueSettings::default())
        .await?;
    let measured = measure(namespace, &queue).await;
    admin.delete_queue(&queue).await?;
    Ok(measured?)
}

async fn measure(namespace: BusNamespace, queue: &str) -> Result<(), kew_client::Error> {
    let delayed = Delayed {
        inner: Arc::new(Tcp),
        round_trip: ROUND_TRIP,
    };
    let options = BusOptions {
        dial: Some(Arc::new(delayed)),
        ..BusOptions::default()
    };
    let client = BusClient::new(namespace, options)?;
    // The link is attached here, so that neither way pays for it.
    let sender = Arc::new(client.sender(queue).await?);

    let begun = Instant::now();
    sends::one_by_one(&sender, MESSAGES).await?;
    let one_by_one = begun.elapsed().as_secs_f64();
    println!("{MESSAGES} sends one by one:       {one_by_one:.2} s");

    let begun = Instant::now();
    sends::pipelined(&sender, MESSAGES, IN_FLIGHT).await?;
    let pipelined = begun.elapsed().as_secs_f64();
    let factor = one_by_one / pipelined;
    println!(
        "{MESSAGES} sends, {IN_FLIGHT} in flight:     {pipelined:.2} s, {factor:.1} times as fast"
    );
    Ok(())
}
