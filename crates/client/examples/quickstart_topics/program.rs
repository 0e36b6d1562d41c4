use kew_client::{BusClient, BusNamespace, BusOptions, Entity, Message, ReceiverOptions, Value};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let namespace = BusNamespace::parse(&std::env::var("SERVICEBUS_CONNECTION_STRING")?)?;
    let client = BusClient::new(namespace, BusOptions::default())?;
    let sender = client.sender("events").await?;
    let hello = Message {
        properties: vec![
            ("color".to_owned(), Value::String("red".into())),
            ("size".to_owned(), Value::Int(5)),
        ],
        ..Message::new("hello")
    };
    sender.send(&hello).await?;
    let red = Entity::subscription("events", "red");
    let mut receiver = client.receiver(red, ReceiverOptions::default()).await?;
    let message = receiver.receive().await?;
    println!("{}", String::from_utf8_lossy(&message.body()));
    message.complete().await?;
    Ok(())
}
