//! Unsupported links: they are refused, and the connection stays usable.

use kew_amqp::codec::{Map, Symbol, Text};
use kew_amqp::performative::{Attach, Role, Source, Target, TargetNode};

use crate::client::{Client, Server, message};

const NOT_IMPLEMENTED: &str = "amqp:not-implemented";

fn sender() -> Attach {
    let mut attach = Attach::new("link".into(), Role::Sender);
    attach.source = Some(Source::new("here".into()));
    attach.target = Some(Target::new("jobs".into()));
    attach
}

fn receiver(change: impl FnOnce(&mut Source)) -> Attach {
    let mut attach = Attach::new("link".into(), Role::Receiver);
    let mut source = Source::new("jobs".into());
    change(&mut source);
    attach.source = Some(source);
    attach.target = Some(Target::new("here".into()));
    attach
}

/// Checks that a link is refused, and that a plain one with the same name is served afterwards.
async fn check_refused(client: &mut Client, attach: Attach, said: &str) {
    let plain = match attach.role {
        Role::Sender => sender(),
        Role::Receiver => receiver(|_| ()),
    };
    let error = client.attach(attach).await.unwrap_err();
    assert_eq!(error.condition, NOT_IMPLEMENTED);
    let text = error.description.unwrap();
    assert!(text.as_str().contains(said), "{text}");
    let (link, _) = client.attach(plain).await.unwrap();
    client.connection.detach(link, true, None);
}

#[tokio::test]
async fn unsupported_links_are_refused() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    for mode in ["copy", "sideways"] {
        let mode = Symbol::from_static(mode);
        let said = format!("'{mode}'");
        let browser = receiver(|source| source.distribution_mode = Some(mode));
        check_refused(&mut client, browser, &said).await;
    }
    let temporary = receiver(|source| {
        source.address = None;
        source.dynamic = true;
    });
    check_refused(&mut client, temporary, "Dynamic").await;
    let mut temporary = sender();
    temporary.target = temporary.target.map(|target| match target {
        Target::Node(node) => Target::Node(TargetNode {
            dynamic: true,
            ..node
        }),
        other => other,
    });
    check_refused(&mut client, temporary, "Dynamic").await;
    for target in [None, Some(Target::new("".into()))] {
        let anonymous = Attach {
            target: target.or_else(without_address),
            ..sender()
        };
        let said = "anonymous senders are not supported";
        check_refused(&mut client, anonymous, said).await;
    }
}

/// The anonymous terminus: each message names its own destination.
fn without_address() -> Option<Target> {
    sender().target.map(|target| match target {
        Target::Node(node) => Target::Node(TargetNode {
            address: None,
            ..node
        }),
        other => other,
    })
}

#[tokio::test]
async fn a_receiver_learns_which_of_its_options_apply() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let selector = Symbol::from_static("apache.org:selector-filter:string");
    let wishes = receiver(|source| {
        source.distribution_mode = Some(Symbol::from_static("move"));
        source.filter = Some(Map::build(|map| {
            map.entry(&selector, &Text::from("a = 'b'"));
        }));
    });
    let (link, answer) = client.attach(wishes).await.unwrap();
    let source = answer.source.unwrap();
    assert_eq!(source.distribution_mode, Some(Symbol::from_static("move")));
    assert_eq!(source.filter, None);
    let jobs = client.sender("jobs").await.unwrap();
    client.send(jobs, 0, message("m")).await;
    client.connection.grant(link, 1);
    client.delivery().await;
}
