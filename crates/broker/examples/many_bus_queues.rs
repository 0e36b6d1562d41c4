//! Measures the memory of empty Service Bus queues: `many_bus_queues COUNT`.

#![expect(clippy::print_stdout, reason = "it exists for its output")]

use kew_broker::Broker;
use kew_engine::bus::{BusCommand, BusQueueOptions};
use kew_engine::{Command, EntityName, Service};

/// The resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: usize = match std::env::args().nth(1) {
        Some(count) => count.parse()?,
        None => 10_000,
    };
    let broker = Broker::start_in_memory()?;
    let before = resident_kib();
    for number in 0..count {
        let create = BusCommand::CreateQueue {
            queue: EntityName {
                service: Service::ServiceBus,
                account: "sbemulatorns".into(),
                name: format!("queue-{number:06}").into(),
            },
            options: BusQueueOptions::default(),
        };
        broker.submit(Command::Bus(create)).await?;
    }
    let more = resident_kib() - before;
    println!(
        "{count} queues: {more} KiB more, {} bytes each; {} KiB in all",
        more * 1024 / count as u64,
        resident_kib()
    );
    broker.stop();
    Ok(())
}
