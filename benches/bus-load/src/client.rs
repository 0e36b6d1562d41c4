//! Connections over AMQP 1.0 to the measured broker.

use anyhow::{Context as _, Result};
use bus_load::{Client, Rule, receiver_attach};
use kew_amqp::LinkId;
use kew_amqp::performative::{ReceiverSettleMode, SenderSettleMode};

use crate::options::{Auth, Settles, Target};
use crate::token;

/// Connects, begins a session and authenticates.
pub(crate) async fn connect(target: &Target) -> Result<Client> {
    let connected = match target.auth {
        Auth::Cbs => Client::connect_anonymously(target.address).await,
        Auth::Plain => {
            let rule = Rule {
                name: target.user.clone(),
                key: target.password.clone(),
            };
            Client::connect(target.address, &rule).await
        }
    };
    let mut client = connected.with_context(|| format!("cannot connect to {}", target.address))?;
    if target.auth == Auth::Cbs {
        token::put(&mut client, target).await?;
    }
    Ok(client)
}

/// Attaches a link that receives and deletes.
pub(crate) async fn taker(client: &mut Client, address: &str) -> Result<LinkId> {
    let mut attach = receiver_attach(address);
    attach.snd_settle_mode = SenderSettleMode::Settled;
    attach.rcv_settle_mode = ReceiverSettleMode::First;
    Ok(client.attach(attach).await?.0)
}

/// Attaches a link that receives under locks.
pub(crate) async fn receiver(
    client: &mut Client,
    address: &str,
    settles: Settles,
) -> Result<LinkId> {
    let mut attach = receiver_attach(address);
    if settles == Settles::First {
        attach.rcv_settle_mode = ReceiverSettleMode::First;
    }
    Ok(client.attach(attach).await?.0)
}
