//! Measures the memory of idle connections: `idle_connections COUNT [STAGE]`.
//!
//! The stages are `header` (the protocol's header was exchanged), `open` (opened without a token)
//! and `receiver` (a link that waits for messages). The server is this process, the clients are a
//! second one; both need slightly more than COUNT open files.

#![expect(clippy::print_stdout, reason = "it exists for its output")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use kew_amqp::codec::Symbol;
use kew_amqp::performative::{Attach, Role, SenderSettleMode, Source, Target};
use kew_amqp::{Config, Connection, Event, Limits as WireLimits, Millis, Sasl};
use kew_broker::Broker;
use kew_bus_api::{
    BusApi, BusApiOptions, Limits, Origin, WELL_KNOWN_KEY, WELL_KNOWN_RULE, import, read_config,
};
use tokio::net::TcpListener;

const QUEUES: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "jobs"}]}]}}"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["client", address, count, stage] => hold(address, count.parse()?, stage),
        [count] => measure(count.parse()?, "open"),
        [count, stage] => measure(count.parse()?, stage),
        _ => Err("usage: idle_connections COUNT [header|open|receiver]".into()),
    }
}

/// The resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[tokio::main]
async fn measure(count: usize, stage: &str) -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::start_in_memory()?;
    import(&broker, read_config(QUEUES)?).await?;
    let limits = Limits {
        connections_max: count,
        token_timeout: Duration::from_mins(10),
        ..Limits::default()
    };
    let options = BusApiOptions {
        limits,
        ..BusApiOptions::default()
    };
    let api = BusApi::open(broker.clone(), options).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let before = resident_kib();
    let mut clients = Command::new(std::env::current_exe()?)
        .args(["client", &listener.local_addr()?.to_string()])
        .args([&count.to_string(), stage])
        .stdin(Stdio::piped())
        .spawn()?;
    for _ in 0..count {
        let (stream, peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let permit = api.admit(peer).ok_or("there is room")?;
        let api = api.clone();
        tokio::spawn(async move {
            let origin = Origin {
                peer,
                is_secure: false,
                public_key: Ok(()),
            };
            Box::pin(api.serve(stream, origin, permit, std::future::pending())).await;
        });
    }
    println!("all are connected: {} KiB", resident_kib() - before);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(4)).await;
        let more = resident_kib() - before;
        println!(
            "{count} {stage}: {more} KiB more, {} bytes each; {} KiB in all",
            more * 1024 / count as u64,
            resident_kib()
        );
    }
    clients.kill()?;
    clients.wait()?;
    broker.stop();
    Ok(())
}

/// Makes connections and holds them until the end of the input.
fn hold(address: &str, count: usize, stage: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        match stage {
            "header" => {
                stream.write_all(b"AMQP\x03\x01\x00\x00")?;
                // A client that continues before it is served is delayed if too many wait for
                // service.
                stream.read_exact(&mut [0; 8])?;
            }
            "open" => talk(&mut stream, "ANONYMOUS", false)?,
            "receiver" => talk(&mut stream, "PLAIN", true)?,
            other => return Err(format!("no stage {other}").into()),
        }
        held.push(stream);
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Opens a connection, and attaches a receiver with credit if the stage needs one.
fn talk(
    stream: &mut TcpStream,
    mechanism: &'static str,
    receives: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let password = format!("\0{WELL_KNOWN_RULE}\0{WELL_KNOWN_KEY}");
    let config = Config {
        sasl: Sasl::Client {
            mechanism: Symbol::from_static(mechanism),
            initial_response: receives.then(|| password.into_bytes().into()),
        },
        ..Config::default()
    };
    let mut connection = Connection::client(config, WireLimits::default(), Millis(0));
    let mut buffer = [0; 4096];
    loop {
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Opened(_) if !receives => return Ok(()),
                Event::Opened(_) => drop(connection.begin()),
                Event::Begun { session, .. } => {
                    let mut attach = Attach::new("receiver".into(), Role::Receiver);
                    attach.source = Some(Source::new("jobs".into()));
                    attach.target = Some(Target::new("here".into()));
                    attach.snd_settle_mode = SenderSettleMode::Unsettled;
                    connection.attach(session, attach);
                }
                Event::Attached { link, .. } => {
                    connection.grant(link, 10);
                    stream.write_all(&connection.take_output(Millis(0)))?;
                    return Ok(());
                }
                Event::Closed { error, .. } => return Err(format!("{error:?}").into()),
                _ => {}
            }
        }
        stream.write_all(&connection.take_output(Millis(0)))?;
        let size = stream.read(&mut buffer)?;
        connection.feed(buffer.get(..size).unwrap_or_default(), Millis(0));
    }
}
