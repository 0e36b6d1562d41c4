//! The epoch of a command: what rests on something that was read under one owner is not carried out under a later one.

use kew_broker::{AdmissionLimits, Broker, Rejection, Standing};
use kew_log::Epoch;
use kew_log_contract::{MemoryOptions, MemorySource};
use kew_loopback::connect;
use tokio::time::timeout;

use super::{PATIENCE, fall, start, until};
use crate::support::{create, peek, send};

/// Waits until the door of this handle knows another epoch.
async fn other_than(broker: &Broker, epoch: Option<Epoch>) -> Option<Epoch> {
    let mut changes = broker.ownership().watch();
    let other = timeout(PATIENCE, changes.wait_for(|now| *now != epoch));
    *other.await.expect("it hears of the change").unwrap()
}

/// The same at the partition and over a connection to it.
async fn check_epochs(own: &Broker, broker: &Broker, source: &MemorySource) {
    let first = broker.ownership().epoch();
    assert!(first.is_some());
    broker.submit_within(first, create()).await.unwrap();
    let other = start(source);
    fall(own).await;
    assert_eq!(other_than(broker, first).await, None);
    let told = broker.submit_within(first, peek()).await;
    assert_eq!(told, Err(Rejection::NotOwner));

    own.promote(Epoch::new(100));
    until(own, Standing::Ready).await;
    let second = other_than(broker, None).await;
    assert_eq!(second, Some(Epoch::new(100)));
    assert_eq!(broker.ownership().epoch(), second);
    for command in [send("late"), peek()] {
        let told = broker.submit_within(first, command).await;
        assert_eq!(told, Err(Rejection::NotOwner));
    }
    let never = Some(Epoch::new(0));
    let told = broker.submit_within(never, peek()).await;
    assert_eq!(told, Err(Rejection::NotOwner));
    let answer = broker.submit_within(second, peek()).await.unwrap();
    assert!(answer.bodies.is_empty(), "{answer:?}");
    other.stop();
}

#[tokio::test]
async fn a_command_of_an_epoch_is_not_carried_out_in_a_later_one() {
    let source = MemorySource::new(MemoryOptions::default());
    let broker = start(&source);
    check_epochs(&broker, &broker, &source).await;
    broker.stop();
}

#[tokio::test]
async fn over_a_connection_a_command_of_an_epoch_is_not_carried_out_in_a_later_one() {
    let source = MemorySource::new(MemoryOptions::default());
    let near = start(&source);
    let (far, door) = connect(&near, AdmissionLimits::default());
    check_epochs(&near, &far, &source).await;
    let before = far.ownership().epoch();
    door.cut();
    assert_eq!(far.ownership().epoch(), None);
    assert_eq!(near.ownership().epoch(), before);
    near.stop();
}

/// A stopped partition is still that of its last epoch: nobody else owns it, as far as is known.
#[tokio::test]
async fn a_stop_is_not_another_owner() {
    let source = MemorySource::new(MemoryOptions::default());
    let broker = start(&source);
    let epoch = broker.ownership().epoch();
    broker.stop();
    assert_eq!(broker.ownership().epoch(), epoch);
    for within in [epoch, Some(Epoch::new(100))] {
        let told = broker.submit_within(within, peek()).await;
        assert_eq!(told, Err(Rejection::Stopped));
    }
}
