//! What only one of the services has, at Kew.

use std::time::Duration;

use bytes::Bytes;
use kew_client::{EntityStatus, Message, PutOptions, QueueSettings, ReceiverOptions};
use kew_worker::{
    Announce, Announcement, BusAnnouncements, BusAnnouncer, BusSource, Codec, Delivery, Envelopes,
    ErrorKind, Failure, Fixed, Json, LeaseHint, Listener, Outgoing, QueueSource, QueueTarget, Raw,
    SendError, Sender, SessionSource, Source, Stop, Target, Text, TextEncoding, TraceContext, Xml,
    create_push_queue, handler_fn,
};

use crate::kew::Kew;
use crate::suite::{Order, order, until};

const ACCOUNT: &str = "devstoreaccount1";

/// Handles one message with a codec, and returns it.
pub(crate) async fn receive<T, S>(source: S, codec: impl Codec<T>) -> T
where
    T: Clone + Send + Sync + 'static,
    S: Source,
{
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let listener = Listener::builder(source, codec)
        .subscribe(handler_fn(move |delivery: Delivery<T, S::Lease>| {
            let _ = tell.send(delivery.message().clone());
            async { Ok(()) }
        }))
        .build();
    listener.start(1).unwrap();
    let message = tokio::time::timeout(Duration::from_secs(60), told.recv()).await;
    until("it is deleted", async || listener.state().completed == 1).await;
    message.unwrap().unwrap()
}

#[tokio::test]
async fn every_codec_works_over_queue_storage() {
    let kew = Kew::start().await;
    let client = kew.queue_client();
    for encoding in [TextEncoding::Plain, TextEncoding::Base64] {
        for envelopes in [Envelopes::Off, Envelopes::On] {
            let target = || {
                let target = QueueTarget::new(client.clone(), ACCOUNT, "jobs");
                target.encoding(encoding).envelopes(envelopes)
            };
            let source = || QueueSource::new(client.clone(), ACCOUNT, "jobs").encoding(encoding);
            let json = Sender::new(Json::new(), target(), "test");
            json.send(&order(1)).await.unwrap();
            assert_eq!(receive(source(), Json::<Order>::new()).await, order(1));
            let xml = Sender::new(Xml::new(), target(), "test");
            xml.send(&order(2)).await.unwrap();
            assert_eq!(receive(source(), Xml::<Order>::new()).await, order(2));
            let text = Sender::new(Text, target(), "test");
            text.send(&"a|b".to_owned()).await.unwrap();
            assert_eq!(receive(source(), Text).await, "a|b");
            let raw = Sender::new(Raw, target(), "test");
            let bytes = Bytes::from_static(&[0, 0xff, 7]);
            let sent = raw.send(&bytes).await;
            match (encoding, envelopes) {
                (TextEncoding::Plain, Envelopes::Off) => {
                    let Err(SendError::Target(error)) = sent else {
                        panic!("{sent:?}");
                    };
                    assert_eq!(error.kind(), ErrorKind::Refused);
                }
                _ => {
                    sent.unwrap();
                    assert_eq!(receive(source(), Raw).await, bytes);
                }
            }
        }
    }
}

/// The front end and the worker share nothing but the message.
#[tokio::test]
async fn the_first_lease_is_as_long_as_the_sender_asks() {
    let kew = Kew::start().await;
    let client = kew.queue_client();
    let hint = LeaseHint::new(Duration::from_mins(1), Duration::from_mins(20));
    let target = QueueTarget::new(client.clone(), ACCOUNT, "jobs").envelopes(Envelopes::On);
    let sender = Sender::new(Text, target, "test").lease_hint(hint.clone());
    let source = QueueSource::new(client, ACCOUNT, "jobs").envelopes(Envelopes::On);
    let listener = Listener::builder(source, Text)
        .visibility(Fixed(Duration::from_secs(30)))
        .subscribe(handler_fn(|_| async { Ok(()) }))
        .build();
    listener.start(1).unwrap();
    for (lost, renewals) in [(None, 0), (Some(Duration::from_mins(2)), 1)] {
        if let Some(lease) = lost {
            hint.lengthen(lease);
        }
        let before = listener.state().completed;
        sender.send(&"x".to_owned()).await.unwrap();
        until("it is deleted", async || {
            listener.state().completed == before + 1
        })
        .await;
        assert_eq!(listener.state().renewals, renewals, "{lost:?}");
    }
}

#[tokio::test]
async fn what_queue_storage_lacks_is_refused() {
    let kew = Kew::start().await;
    let client = kew.queue_client();
    let target = QueueTarget::new(client.clone(), ACCOUNT, "jobs");
    for message in [
        Outgoing {
            id: Some("a".to_owned()),
            ..Outgoing::default()
        },
        Outgoing {
            session_id: Some("a".to_owned()),
            ..Outgoing::default()
        },
    ] {
        let refused = target.send(&message).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused, "{message:?}");
    }
    let one = QueueTarget::new(client.clone(), ACCOUNT, "jobs");
    let other = QueueTarget::new(client.clone(), ACCOUNT, "jobs");
    let hint = LeaseHint::new(Duration::from_mins(1), Duration::from_mins(2));
    let marks = Sender::new(Text, one, "test").lease_hint(hint.clone());
    marks.send(&"x".to_owned()).await.unwrap();
    assert_eq!(
        receive(QueueSource::new(client.clone(), ACCOUNT, "jobs"), Text).await,
        "x"
    );
    hint.lengthen(Duration::ZERO);
    let trace = TraceContext::begin().unwrap();
    let traces = Sender::new(Text, other, "test");
    let text = "x".to_owned();
    for refused in [
        marks.send(&text).await,
        traces.send_with(&text, |_| {}, Some(&trace)).await,
    ] {
        let Err(SendError::Target(error)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(error.kind(), ErrorKind::Refused);
    }
    // Without envelopes there is no place for a checkpoint.
    Sender::new(Text, target, "test")
        .send(&"x".to_owned())
        .await
        .unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let listener = Listener::builder(QueueSource::new(client, ACCOUNT, "jobs"), Text)
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            let tell = tell.clone();
            async move {
                let saved = delivery.save("progress").await;
                let _ = tell.send(saved.map_err(|error| error.to_string()));
                Ok(())
            }
        }))
        .build();
    listener.start(1).unwrap();
    let refused = told.recv().await.unwrap().unwrap_err();
    assert!(refused.contains("QueueSource::envelopes"), "{refused}");
}

#[tokio::test]
async fn checkpoints_and_malformed_texts_of_queue_storage() {
    let kew = Kew::start().await;
    let client = kew.queue_client();
    let source = || {
        let source = QueueSource::new(client.clone(), ACCOUNT, "jobs");
        source.envelopes(Envelopes::On)
    };
    client
        .put("jobs", "a plain text", PutOptions::default())
        .await
        .unwrap();
    let listener = Listener::builder(source(), Text)
        .subscribe(handler_fn(|delivery: Delivery<String, _>| async move {
            assert_eq!(delivery.message(), "a plain text");
            match delivery.checkpoint() {
                None => {
                    delivery.save("page 3").await?;
                    delivery.save("page 4").await?;
                    Err(Failure::new("halfway").retry_after(Duration::ZERO))
                }
                Some(progress) => {
                    assert_eq!(progress, "page 4");
                    assert_eq!(delivery.meta().history.len(), 1);
                    Ok(())
                }
            }
        }))
        .build();
    listener.start(1).unwrap();
    until("it resumed", async || listener.state().completed == 1).await;
    listener.stop(Stop::default()).await;
    let source = source()
        .encoding(TextEncoding::Base64)
        .poison_queue("graves");
    let listener = Listener::builder(source, Text)
        .subscribe(handler_fn(|_| async { Ok(()) }))
        .build();
    client
        .put("jobs", "no Base64!", PutOptions::default())
        .await
        .unwrap();
    listener.start(1).unwrap();
    until("it is buried", async || listener.state().buried == 1).await;
    let graves = QueueSource::new(client.clone(), ACCOUNT, "graves");
    let graves = graves.encoding(TextEncoding::Base64);
    assert_eq!(receive(graves, Text).await, "no Base64!");
}

#[tokio::test]
async fn a_poison_message_that_is_too_large_goes_alone() {
    let kew = Kew::start().await;
    let client = kew.queue_client();
    let text = "x".repeat(64 << 10);
    client
        .put("jobs", &text, PutOptions::default())
        .await
        .unwrap();
    let listener = Listener::builder(QueueSource::new(client.clone(), ACCOUNT, "jobs"), Text)
        .subscribe(handler_fn(|_| async {
            Err(Failure::new("no").permanent("Never"))
        }))
        .visibility(Fixed(Duration::from_secs(30)))
        .build();
    listener.start(1).unwrap();
    until("it is buried", async || listener.state().buried == 1).await;
    let buried = client.peek("jobs-poison", 1).await.unwrap();
    assert_eq!(buried[0].text, text);
}

#[tokio::test]
async fn a_dead_letter_has_reason_description_and_details() {
    let kew = Kew::start().await;
    let client = kew.bus_client();
    let sender = client.sender("jobs").await.unwrap();
    sender.send(&Message::new("x")).await.unwrap();
    let listener = Listener::builder(BusSource::new(client.clone(), "ns", "jobs"), Text)
        .subscribe(handler_fn(|_| async {
            let error = "x".parse::<u32>().unwrap_err();
            Err(Failure::from(error).permanent("BadNumber"))
        }))
        .build();
    listener.start(1).unwrap();
    let dead = kew_client::Entity::new("jobs").dead_letters();
    let mut receiver = client
        .receiver(&dead, ReceiverOptions::default())
        .await
        .unwrap();
    let letter = receiver.receive().await.unwrap();
    assert_eq!(letter.dead_letter_reason().as_deref(), Some("BadNumber"));
    let description = letter.dead_letter_description().unwrap();
    assert!(description.contains("invalid digit"), "{description}");
    for name in ["kew-history", "kew-error-chain"] {
        let value = letter.property(name).unwrap();
        assert!(value.as_str().unwrap().contains("invalid digit"), "{name}");
    }
}

#[tokio::test]
async fn a_message_of_the_largest_size_is_buried_with_what_fits() {
    let kew = Kew::start().await;
    let client = kew.bus_client();
    let sender = client.sender("jobs").await.unwrap();
    let size = usize::try_from(sender.message_size_max()).unwrap();
    let body = vec![b'x'; size - 200];
    sender.send(&Message::new(body.clone())).await.unwrap();
    let text = "long ".repeat(1_000);
    let listener = Listener::builder(BusSource::new(client.clone(), "ns", "jobs"), Text)
        .subscribe(handler_fn(move |_| {
            let failure = Failure::new(text.clone()).permanent("Large");
            async { Err(failure) }
        }))
        .build();
    listener.start(1).unwrap();
    until("it is buried", async || listener.state().buried == 1).await;
    let dead = kew_client::Entity::new("jobs").dead_letters();
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver(&dead, options).await.unwrap();
    let letter = receiver.receive().await.unwrap();
    assert_eq!(letter.dead_letter_reason().as_deref(), Some("Large"));
    assert_eq!(letter.body().len(), body.len());
}

#[tokio::test]
async fn an_error_with_characters_that_xml_forbids_is_buried() {
    let kew = Kew::start().await;
    let client = kew.queue_client();
    let options = PutOptions::default();
    client.put("jobs", "x", options).await.unwrap();
    let listener = Listener::builder(QueueSource::new(client.clone(), ACCOUNT, "jobs"), Text)
        .subscribe(handler_fn(|_| async {
            Err(Failure::new("not \u{0}\u{FFFE}\u{FFFF} a name").permanent("Never"))
        }))
        .build();
    listener.start(1).unwrap();
    until("it is buried", async || listener.state().buried == 1).await;
    let buried = client.peek("jobs-poison", 1).await.unwrap();
    let text = &buried[0].text;
    assert!(text.contains("\u{FFFD}\u{FFFD} a name"), "{text}");
}

#[tokio::test]
async fn every_listener_of_other_processes_is_offered_an_announcement() {
    let kew = Kew::start().await;
    let storage = kew.queue_client();
    let mut listeners = Vec::new();
    for number in 0..2 {
        let queue = format!("wakeup-{number}");
        // A connection of its own, as in another process.
        let push = BusAnnouncements::new(kew.bus_client(), Some(kew.admin()), &queue);
        let source = QueueSource::new(storage.clone(), ACCOUNT, "jobs");
        let listener = Listener::builder(source, Text)
            .subscribe(handler_fn(|_| async { Ok(()) }))
            .push(push)
            .recheck(None)
            .build();
        listener.start(1).unwrap();
        listeners.push(listener);
    }
    until("nobody polls", async || {
        listeners.iter().all(|it| it.state().active_tasks == 0)
    })
    .await;
    let polls: Vec<u64> = listeners.iter().map(|it| it.state().empty_polls).collect();
    let target = QueueTarget::new(storage, ACCOUNT, "jobs");
    let sender = Sender::new(Text, target, "web-1");
    let announcer = BusAnnouncer::new(kew.bus_client(), kew.admin(), "wakeup-");
    sender.send(&"x".to_owned()).await.unwrap();
    let announcement = Announcement::new(sender.target().name(), "web-1");
    announcer.announce(&announcement).await.unwrap();
    until("all heard of it", async || {
        listeners.iter().all(|it| it.state().announcements == 1)
    })
    .await;
    until("one handled it", async || {
        listeners.iter().map(|it| it.state().completed).sum::<u64>() == 1
    })
    .await;
    assert!(polls.iter().all(|it| *it > 0));
    let other = Announcement::new(&kew_worker::SourceName::new(ACCOUNT, "other"), "web-1");
    announcer.announce(&other).await.unwrap();
    announcer.announce(&announcement).await.unwrap();
    until("all heard the third", async || {
        listeners.iter().all(|it| it.state().announcements == 2)
    })
    .await;
}

#[tokio::test]
async fn an_announcement_names_the_work_and_its_sender() {
    let kew = Kew::start().await;
    create_push_queue(&kew.admin(), "wakeup-1").await.unwrap();
    let announcer = BusAnnouncer::new(kew.bus_client(), kew.admin(), "wakeup-");
    let announcement = Announcement {
        size_bytes: Some(1_024),
        ..Announcement::new(&kew_worker::SourceName::new("a", "jobs"), "web-1")
    };
    announcer.announce(&announcement).await.unwrap();
    let client = kew.bus_client();
    let options = ReceiverOptions::default();
    let mut receiver = client.deleting_receiver("wakeup-1", options).await.unwrap();
    let message = receiver.receive().await.unwrap();
    assert_eq!(message.subject(), Some("work detected"));
    let expected = r#"{"account":"a","queue":"jobs","size_bytes":1024,"sender":"web-1"}"#;
    assert_eq!(message.body(), expected);
}

#[tokio::test]
async fn an_announcer_knows_new_listeners_and_passes_over_bad_queues() {
    let kew = Kew::start().await;
    let (storage, admin) = (kew.queue_client(), kew.admin());
    let announcer = BusAnnouncer::new(kew.bus_client(), kew.admin(), "wakeup-");
    let target = QueueTarget::new(storage.clone(), ACCOUNT, "jobs");
    let announcement = Announcement::new(target.name(), "web-1");
    // Nobody is there: this is not remembered.
    announcer.announce(&announcement).await.unwrap();
    let disabled = QueueSettings {
        status: Some(EntityStatus::SendDisabled),
        ..QueueSettings::default()
    };
    admin.create_queue("wakeup-0-bad", &disabled).await.unwrap();
    let push = BusAnnouncements::new(kew.bus_client(), Some(kew.admin()), "wakeup-1");
    let listener = Listener::builder(QueueSource::new(storage, ACCOUNT, "jobs"), Text)
        .subscribe(handler_fn(|_| async { Ok(()) }))
        .push(push)
        .recheck(None)
        .build();
    listener.start(1).unwrap();
    until("nobody polls", async || listener.state().active_tasks == 0).await;
    for count in 1..=2 {
        let announced = announcer.announce(&announcement).await;
        assert!(announced.is_err(), "the bad queue is reported");
        until("it heard", async || listener.state().announcements == count).await;
    }
    listener.stop(Stop::default()).await;
    assert!(!admin.queue_exists("wakeup-1").await.unwrap());
    assert!(admin.queue_exists("wakeup-0-bad").await.unwrap());
}

/// Fails to compile if the type has the trait: then both implementations of `f` fit.
macro_rules! lacks {
    ($type:ty, $trait:path) => {{
        trait Lacks<Which> {
            fn f() {}
        }
        impl<T> Lacks<()> for T {}
        struct Has;
        impl<T: $trait> Lacks<Has> for T {}
        <$type as Lacks<_>>::f();
    }};
}

#[test]
fn what_service_bus_lacks_does_not_compile() {
    lacks!(kew_worker::BusLease, kew_worker::Checkpoints);
    lacks!(BusSource, kew_worker::ChosenLease);
    lacks!(SessionSource, kew_worker::ChosenLease);
}
