//! The permission matrix: every kind of address, every operation of management and every one over HTTP,
//! by every kind of rule with every set of rights.
//!
//! The operations come from the tables that the server uses. The expected rights are listed here a
//! second time: an operation without a line here does not compile.

use kew_amqp::codec::Map;
use kew_amqp::performative::Role;
use kew_bus_api::{
    AuthorizationRule, HttpOperation, ManagementOperation, Right, Rights, RuleScope,
};
use kew_engine::bus::{BusCommand, BusQueueOptions};

use crate::client::{Client, Server, queue_named, token_by};
use crate::rest::ask_as;

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

/// Queues, and the prefixes before `$management` of their nodes.
const QUEUES: [&str; 2] = ["jobs", "absent"];
const NODES: [&str; 3] = ["", "/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue"];

fn right_of_request(operation: ManagementOperation) -> Right {
    use ManagementOperation as Asked;
    match operation {
        Asked::ScheduleMessage | Asked::CancelScheduledMessage => Right::Send,
        Asked::RenewLock
        | Asked::PeekMessage
        | Asked::ReceiveBySequenceNumber
        | Asked::UpdateDisposition
        | Asked::BatchDeleteMessages
        | Asked::RenewSessionLock
        | Asked::GetSessionState
        | Asked::SetSessionState
        | Asked::GetMessageSessions
        | Asked::AddRule
        | Asked::RemoveRule
        | Asked::EnumerateRules => Right::Listen,
    }
}

/// The right that an operation over HTTP needs, the queue for which it needs the right (empty for
/// the namespace), and a request for it.
fn http_request(operation: HttpOperation) -> (Right, &'static str, &'static str, &'static str) {
    use HttpOperation as Asked;
    const HEAD: &str = "jobs/messages/head?timeout=0";
    const LOCK: &str = "jobs/messages/1/6e9a8a3e-0d4c-4f43-9a53-2b1e0a5f2d11";
    match operation {
        Asked::SendMessage => (Right::Send, "jobs", "POST", "jobs/messages"),
        Asked::ReceiveAndDelete => (Right::Listen, "jobs", "DELETE", HEAD),
        Asked::PeekLock => (Right::Listen, "jobs", "POST", HEAD),
        Asked::DeleteMessage => (Right::Listen, "jobs", "DELETE", LOCK),
        Asked::UnlockMessage => (Right::Listen, "jobs", "PUT", LOCK),
        Asked::RenewLock => (Right::Listen, "jobs", "POST", LOCK),
        Asked::ReadQueue => (Right::Manage, "jobs", "GET", "jobs"),
        Asked::PutQueue => (Right::Manage, "jobs", "PUT", "jobs"),
        // The queue does not exist.
        Asked::DeleteQueue => (Right::Manage, "jobs", "DELETE", "jobs/$DeadLetterQueue"),
        Asked::ListEntities => (Right::Manage, "", "GET", "$Resources/queues"),
        Asked::ReadNamespace => (Right::Manage, "", "GET", "$namespaceinfo"),
        Asked::Operate => (Right::Manage, "", "GET", "$kew/v1/queues"),
    }
}

/// The credentials of a connection.
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
            // The name is the same in every place: only the place differs.
            let rule = AuthorizationRule::generate(&format!("r{index}"), rights, 1).unwrap();
            // The namespace is listed for several paths.
            let _ = server.add_rule(entity, rule).await;
        }
        for (entity, path) in PLACES {
            let (scope, name) = (RuleScope::of(entity), format!("r{index}"));
            let rule = server.api.rules().find(&scope, &name).await.unwrap();
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

/// The result of attaching: the condition of the refusal, or `None`.
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
            for &operation in ManagementOperation::ALL {
                let right = right_of_request(operation);
                count += 1;
                if !any {
                    // There is no link for requests.
                    let refused = client.sender(&node).await.unwrap_err();
                    assert_eq!(refused.condition, UNAUTHORIZED, "{}", holder.name);
                    continue;
                }
                let operation = format!("com.microsoft:{}", operation.name());
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
        (1 + SETS.len() * PLACES.len()) * 3 * ManagementOperation::ALL.len()
    );
    assert!(count > 600, "{count}");
}

#[tokio::test]
async fn operations_over_http() {
    let server = Server::start().await;
    let mut count = 0;
    for holder in holders(&server).await {
        for &operation in HttpOperation::ALL {
            count += 1;
            let (right, queue, method, path) = http_request(operation);
            let headers = holder.token.as_deref().map(|it| ("Authorization", it));
            let answer = ask_as(&server, method, path, headers.as_slice(), "").await;
            let expected = !holder.may(right, queue);
            let name = &holder.name;
            assert_eq!(
                answer.status == 401,
                expected,
                "{name}: {method} {path}: {answer:?}"
            );
        }
    }
    assert_eq!(
        count,
        (1 + SETS.len() * PLACES.len()) * HttpOperation::ALL.len()
    );
    assert!(count > 200, "{count}");
}

#[tokio::test]
async fn unknown_operations_are_not_carried_out() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    for name in ["com.microsoft:not-an-operation", "renew-lock", ""] {
        let properties = Map::build(|map| map.entry("operation", name));
        let answer = client
            .ask("jobs/$management", &properties, &Map::default())
            .await;
        let status = answer.get("statusCode").unwrap().value().as_integer();
        assert_eq!(status, Some(501), "{name}");
    }
}

/// The name of a queue can look like a request about another one.
#[tokio::test]
async fn a_token_for_a_queue_is_for_no_other_whose_requests_have_its_name() {
    let server = Server::start().await;
    let rule = AuthorizationRule::generate("r", Rights::ALL, 1).unwrap();
    server.add_rule(None, rule.clone()).await.unwrap();
    let own = AuthorizationRule::generate("own", Rights::ALL, 1).unwrap();
    server.add_rule(Some("jobs"), own.clone()).await.unwrap();
    let by = |rule: &AuthorizationRule, path: &str| {
        let resource = format!("sb://localhost/{path}");
        token_by(&rule.name, &resource, &rule.primary_key, FAR_FUTURE_S)
    };
    let requests = [
        ("POST", "jobs/messages"),
        ("POST", "jobs/messages/head?timeout=0"),
        ("DELETE", "jobs/messages/head?timeout=0"),
    ];
    let names = ["jobs/messages", "jobs/messages/head"];
    let check = async |rule, is_allowed: bool| {
        for path in names {
            let token = by(rule, path);
            for (method, target) in requests {
                let authorization = [("Authorization", token.as_str())];
                let answer = ask_as(&server, method, target, &authorization, "x").await;
                let covers = target.strip_prefix(path);
                let covers = covers.is_some_and(|rest| !rest.starts_with(char::is_alphabetic));
                let expected = !(is_allowed && covers);
                assert_eq!(
                    answer.status == 401,
                    expected,
                    "{path}: {method} {target} {answer:?}"
                );
            }
        }
    };
    // Some clients sign the whole address of their request.
    check(&rule, true).await;
    check(&own, true).await;
    for name in names {
        let queue = queue_named(name);
        let options = BusQueueOptions::default();
        server
            .order(BusCommand::CreateQueue { queue, options })
            .await;
    }
    check(&rule, false).await;
    // The rule of a queue is always for that one.
    check(&own, true).await;
    let token = by(&rule, "jobs/messages");
    let authorization = [("Authorization", token.as_str())];
    for path in ["jobs/messages/messages", "JOBS/Messages/MESSAGES"] {
        let answer = ask_as(&server, "POST", path, &authorization, "x").await;
        assert_eq!(answer.status, 201, "{path} {answer:?}");
    }
}

#[tokio::test]
async fn passwords_have_the_rights_of_their_rule() {
    let server = Server::start().await;
    for set in SETS {
        let rights: Rights = set.iter().copied().collect();
        let rule = AuthorizationRule::generate("plain", rights, 1).unwrap();
        server.add_rule(None, rule.clone()).await.unwrap();
        for key in [&rule.primary_key, &rule.secondary_key] {
            let mut client = server.connect("PLAIN", Some(&format!("\0plain\0{key}")));
            client.begun().await;
            for (role, right) in [(Role::Sender, Right::Send), (Role::Receiver, Right::Listen)] {
                let found = attach(&mut client, role, "jobs").await;
                let expected = (!rights.has(right)).then_some(UNAUTHORIZED);
                assert_eq!(found.as_deref(), expected, "{rights} {role:?}");
            }
        }
        server.remove_rule(None, "plain").await.unwrap();
    }
}
