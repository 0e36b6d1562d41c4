//! The permission matrix: every kind of address and every operation of management, by every kind of
//! rule with every set of rights. What is expected is said once more here, and from other words.

use kew_amqp::codec::Map;
use kew_amqp::performative::Role;
use kew_bus_api::{AuthorizationRule, Right, Rights};

use crate::client::{Client, Server, token_by};

const FAR_FUTURE_S: u64 = 9_000_000_000;
const UNAUTHORIZED: &str = "amqp:unauthorized-access";

const SETS: [&[Right]; 4] = [
    &[Right::Send],
    &[Right::Listen],
    &[Right::Send, Right::Listen],
    &[Right::Manage],
];

/// A rule's place, and the path that its token is for.
const PLACES: [(Option<&str>, &str); 5] = [
    (None, ""),
    (None, "jobs"),
    (None, "steps"),
    (Some("jobs"), "jobs"),
    (Some("steps"), "steps"),
];

/// Queues, and what comes before `$management` of each node that they have.
const QUEUES: [&str; 2] = ["jobs", "absent"];
const NODES: [&str; 3] = ["", "/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue"];

const OPERATIONS: [(&str, Right); 12] = [
    ("renew-lock", Right::Listen),
    ("peek-message", Right::Listen),
    ("schedule-message", Right::Send),
    ("cancel-scheduled-message", Right::Send),
    ("receive-by-sequence-number", Right::Listen),
    ("update-disposition", Right::Listen),
    ("batch-delete-messages", Right::Listen),
    ("renew-session-lock", Right::Listen),
    ("get-session-state", Right::Listen),
    ("set-session-state", Right::Listen),
    ("get-message-sessions", Right::Listen),
    ("not-an-operation", Right::Listen),
];

/// What a connection has.
struct Holder {
    name: String,
    rights: Vec<Right>,
    /// Where: everywhere if it is empty.
    reach: &'static str,
    token: Option<String>,
}

impl Holder {
    fn may(&self, right: Right, queue: &str) -> bool {
        let implied = self.rights.contains(&Right::Manage) || self.rights.contains(&right);
        implied && (self.reach.is_empty() || self.reach == queue)
    }
}

async fn holders(server: &Server) -> Vec<Holder> {
    let mut holders = vec![Holder {
        name: "nobody".into(),
        rights: vec![],
        reach: "nowhere",
        token: None,
    }];
    for (index, set) in SETS.into_iter().enumerate() {
        let rights: Rights = set.iter().copied().collect();
        for (entity, _) in PLACES.into_iter().filter(|(_, path)| !path.is_empty()) {
            // The same name in every place: the place tells them apart.
            let rule = AuthorizationRule::generate(&format!("r{index}"), rights, 1).unwrap();
            // The namespace is listed for several paths.
            let _ = server.api.add_rule(entity, rule).await;
        }
        for (entity, path) in PLACES {
            let rule = server.api.rule(entity, &format!("r{index}")).await.unwrap();
            let resource = format!("sb://localhost/{path}");
            holders.push(Holder {
                name: format!("{rights} of {entity:?} for {path:?}"),
                rights: set.to_vec(),
                reach: path,
                token: Some(token_by(
                    &rule.name,
                    &resource,
                    &rule.primary_key,
                    FAR_FUTURE_S,
                )),
            });
        }
    }
    holders
}

async fn connected(server: &Server, holder: &Holder) -> Client {
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    if let Some(token) = &holder.token {
        let audience = format!("sb://localhost/{}", holder.reach);
        let status = client.put_token(&audience, token).await;
        assert_eq!(status, 202, "{}", holder.name);
    }
    client
}

/// What attaching comes to: the condition of the refusal, or nothing.
async fn attach(client: &mut Client, role: Role, address: &str) -> Option<String> {
    let attached = match role {
        Role::Sender => client.sender(address).await,
        Role::Receiver => client.receiver(address).await,
    };
    match attached {
        Ok(link) => {
            client.connection.detach(link, true, None);
            None
        }
        Err(error) => Some(error.condition.to_string()),
    }
}

fn expected(holder: &Holder, role: Role, queue: &str, node: &str) -> Option<&'static str> {
    let right = match role {
        Role::Sender => Right::Send,
        Role::Receiver => Right::Listen,
    };
    match (holder.may(right, queue), queue, node) {
        (false, _, _) => Some(UNAUTHORIZED),
        (true, "absent", _) => Some("amqp:not-found"),
        (true, _, "") => None,
        (true, _, _) if role == Role::Sender => Some("amqp:not-allowed"),
        (true, _, _) => None,
    }
}

#[tokio::test]
async fn links() {
    let server = Server::start().await;
    let mut count = 0;
    for holder in holders(&server).await {
        let mut client = connected(&server, &holder).await;
        for role in [Role::Sender, Role::Receiver] {
            let mut check = async |address: &str, expected: Option<&str>| {
                let found = attach(&mut client, role, address).await;
                let name = &holder.name;
                assert_eq!(found.as_deref(), expected, "{name}: {role:?} {address}");
                count += 1;
            };
            check("$cbs", None).await;
            check("not a queue", Some("amqp:not-found")).await;
            for queue in QUEUES {
                let any = Right::ALL.into_iter().any(|right| holder.may(right, queue));
                let managed = (!any).then_some(UNAUTHORIZED);
                for node in NODES {
                    let address = format!("{queue}{node}");
                    check(&address, expected(&holder, role, queue, node)).await;
                    check(&format!("{address}/$management"), managed).await;
                }
            }
        }
    }
    assert_eq!(count, (1 + SETS.len() * PLACES.len()) * 2 * (2 + 2 * 3 * 2));
    assert!(count > 300, "{count}");
}

#[tokio::test]
async fn operations() {
    let server = Server::start().await;
    let mut count = 0;
    for holder in holders(&server).await {
        let mut client = connected(&server, &holder).await;
        let any = Right::ALL
            .into_iter()
            .any(|right| holder.may(right, "jobs"));
        for node in NODES {
            let node = format!("jobs{node}/$management");
            for (operation, right) in OPERATIONS {
                count += 1;
                if !any {
                    // There is no link over which to ask.
                    let refused = client.sender(&node).await.unwrap_err();
                    assert_eq!(refused.condition, UNAUTHORIZED, "{}", holder.name);
                    continue;
                }
                let operation = format!("com.microsoft:{operation}");
                let properties = Map::build(|map| map.entry("operation", operation.as_str()));
                let answer = client.ask(&node, &properties, &Map::default()).await;
                let status = answer.get("statusCode").unwrap().value().as_integer();
                let is_refused = status == Some(401);
                let (name, may) = (&holder.name, holder.may(right, "jobs"));
                assert_eq!(
                    is_refused, !may,
                    "{name}: {operation} at {node}: {status:?}"
                );
                if is_refused {
                    let condition = answer.get("errorCondition").unwrap().value();
                    assert_eq!(condition.as_str(), Some(UNAUTHORIZED));
                }
            }
        }
    }
    assert_eq!(
        count,
        (1 + SETS.len() * PLACES.len()) * 3 * OPERATIONS.len()
    );
    assert!(count > 300, "{count}");
}

#[tokio::test]
async fn passwords_have_the_rights_of_their_rule() {
    let server = Server::start().await;
    for set in SETS {
        let rights: Rights = set.iter().copied().collect();
        let rule = AuthorizationRule::generate("plain", rights, 1).unwrap();
        server.api.add_rule(None, rule.clone()).await.unwrap();
        for key in [&rule.primary_key, &rule.secondary_key] {
            let mut client = server.connect("PLAIN", Some(&format!("\0plain\0{key}")));
            client.begun().await;
            for (role, right) in [(Role::Sender, Right::Send), (Role::Receiver, Right::Listen)] {
                let found = attach(&mut client, role, "jobs").await;
                let expected = (!rights.has(right)).then_some(UNAUTHORIZED);
                assert_eq!(found.as_deref(), expected, "{rights} {role:?}");
            }
        }
        server.api.remove_rule(None, "plain").await.unwrap();
    }
}
