//! An example of each variant of what travels. Each `after` names the next one: a new variant does not compile until
//! it has a place, and `every_tag_has_an_example` fails until that place is reached.

use bytes::Bytes;
use kew_filter::{Definition, FilterDefinition, SqlDefinition};

use crate::bus::Awaited;
use crate::bus::{
    BatchDeleted, BreakTarget, BusCommand, BusMessage, BusMessageState, BusOutcome, BusQueueCounts,
    BusQueueOptions, BusQueueView, BusRefusal, BusRuleView, ClearedStates, DeadLetterCause,
    DeferredRead, DeliveredMessage, Disposition, EntityKind, EntityStatus, FixedOption,
    InvalidOption, ListedSessions, NewRule, NotSupported, PartRefusal, PeekedBusMessage, Purge,
    Purged, RangedOption, ReceiveMode, Resubmission, Resubmit, ResubmitVerdict, SessionChoice,
    SessionLock, TransactionPart, TransactionWork, Verdict,
};
use crate::storage::{
    AccessPolicies, AccessPolicy, ListedQueue, PeekedMessage, PolicyTime, QueuePage, QueueView,
    ReceivedMessage, SentMessage, StorageCommand, StorageOutcome, StorageRefusal,
};
use crate::wire::{Interest, Unserved, Value, Watched, Woken};
use crate::{
    AccountQuota, AccountRecord, AccountSecret, BodiesMoved, BodyEncoding, BodyLocation,
    BodyToMove, Command, EntityName, Hold, Holder, Incarnation, MovedBody, Outcome, Place,
    QuotaLimit, Refusal, RunLength, SequenceNumber, Service, Source, Timestamp, Token,
    VisibilityTimeout,
};

/// All examples of a type, in the order of their tags.
fn all<T>(first: T, after: impl Fn(&T) -> Option<T>) -> Vec<T> {
    std::iter::successors(Some(first), after).collect()
}

pub(super) fn commands() -> Vec<Command> {
    let first = Command::Initialize {
        secret: [7; 16],
        run_length: RunLength::DEFAULT,
    };
    let all = all(first, after_command).into_iter();
    all.flat_map(|command| match command {
        Command::Storage(first) => self::all(first, after_storage_command)
            .into_iter()
            .map(Command::Storage)
            .collect(),
        Command::Bus(first) => self::all(first, after_bus_command)
            .into_iter()
            .map(Command::Bus)
            .collect(),
        other => vec![other],
    })
    .chain(more_commands())
    .chain([Command::MoveBodies {
        bodies: vec![BodyToMove {
            holder: Holder::Message(Place {
                entity: Incarnation::new(3),
                number: number(200),
            }),
            from: place(4096),
            source: Source::SameAs(moved_body()),
            event_size_bytes: 512,
        }],
    }])
    .chain([Command::Quarantine {
        group: crate::Group {
            entity: Incarnation::new(3),
            run: 300,
            index: 7,
        },
        page: crate::PageNumber::new(400),
    }])
    .collect()
}

/// The variants and empty forms that the others do not have.
fn more_commands() -> Vec<Command> {
    let queue = bus_queue();
    let with_status = |status| BusCommand::CreateQueue {
        queue: bus_queue(),
        options: BusQueueOptions {
            status,
            ..options()
        },
    };
    let with_flags = |filters_before_publishing, dead_letters_filter_failures| {
        let options = BusQueueOptions {
            filters_before_publishing,
            dead_letters_filter_failures,
            ..options()
        };
        let queue = bus_queue();
        BusCommand::UpdateQueue { queue, options }
    };
    let bus = [
        with_status(EntityStatus::Disabled),
        with_status(EntityStatus::ReceiveDisabled),
        with_flags(true, false),
        with_flags(false, true),
        BusCommand::CreateSubscription {
            topic: queue.clone(),
            subscription: subscription(),
            options: options(),
            rule: Some(Box::new(rule())),
        },
        BusCommand::AcceptSession {
            queue: queue.clone(),
            session: SessionChoice::Next,
        },
        BusCommand::SetSessionState {
            queue: queue.clone(),
            session: token(5),
            state: None,
        },
        BusCommand::BreakLock {
            queue: queue.clone(),
            target: BreakTarget::Session("session".into()),
        },
        BusCommand::Transact {
            parts: vec![TransactionPart {
                queue: queue.clone(),
                incarnation: None,
                work: TransactionWork::SendVia(bus_queue(), vec![message()]),
            }],
        },
        BusCommand::Transact {
            parts: vec![TransactionPart {
                queue,
                incarnation: None,
                work: TransactionWork::Transfer(bus_queue(), vec![message()]),
            }],
        },
    ];
    let update = StorageCommand::Update {
        queue: self::queue(),
        message: token(1),
        receipt: token(2),
        visibility_timeout: VisibilityTimeout::default(),
        body: None,
    };
    let update = std::iter::once(Command::Storage(update));
    bus.into_iter().map(Command::Bus).chain(update).collect()
}

pub(super) fn outcomes() -> Vec<Outcome> {
    let all = all(Outcome::Initialized, after_outcome).into_iter();
    all.flat_map(|outcome| match outcome {
        Outcome::Storage(first) => self::all(first, after_storage_outcome)
            .into_iter()
            .map(Outcome::Storage)
            .collect(),
        Outcome::Bus(first) => self::all(first, after_bus_outcome)
            .into_iter()
            .map(Outcome::Bus)
            .collect(),
        other => vec![other],
    })
    .chain([
        Outcome::Bus(BusOutcome::SessionState(None)),
        Outcome::BodiesMoved(BodiesMoved {
            count: 300,
            stored_bytes: 9_000,
            first: vec![(place(4096), moved_body())],
            gone: vec![place(8192)],
        }),
        Outcome::Quarantined(128),
    ])
    .collect()
}

pub(super) fn refusals() -> Vec<Refusal> {
    let all = all(Refusal::AlreadyInitialized, after_refusal).into_iter();
    all.flat_map(|refusal| match refusal {
        Refusal::Storage(first) => self::all(first, after_storage_refusal)
            .into_iter()
            .map(Refusal::Storage)
            .collect(),
        Refusal::Bus(first) => self::all(first, after_bus_refusal)
            .into_iter()
            .chain(all_option_refusals())
            .map(Refusal::Bus)
            .collect(),
        other => vec![other],
    })
    .chain([Refusal::Storage(StorageRefusal::AccountQuotaExceeded {
        account: "account".into(),
        limit: QuotaLimit::Queues,
        needed: 2,
        allowed: 1,
    })])
    .collect()
}

fn queue() -> EntityName {
    EntityName::storage_queue("account", "jobs")
}

fn bus_queue() -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "namespace".into(),
        name: "orders".into(),
    }
}

fn token(byte: u8) -> Token {
    Token::from_bytes([byte; 16])
}

fn number(number: u64) -> SequenceNumber {
    SequenceNumber::named(number)
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(1_700_000_000_000 + ms)
}

fn body() -> Bytes {
    Bytes::from_static(b"body")
}

fn place(record: u64) -> BodyLocation {
    BodyLocation::new(record, 300, 5)
}

fn account(name: &str) -> AccountRecord {
    let key = |byte| AccountSecret::new(&[byte; 4]).expect("a key of 4 bytes");
    AccountRecord {
        name: name.into(),
        keys: [key(1), key(2)],
        quota: AccountQuota {
            queues_max: Some(10),
            size_bytes_max: None,
        },
        is_disabled: true,
    }
}

fn policies() -> AccessPolicies {
    let policy = AccessPolicy {
        id: "reader".into(),
        start: None,
        expiry: Some(PolicyTime(17_000_000_000_000_000)),
        permissions: Some("r".into()),
    };
    AccessPolicies::new(vec![policy]).expect("one with an id")
}

fn after_command(command: &Command) -> Option<Command> {
    Some(match command {
        Command::Initialize { .. } => Command::SetServiceProperties {
            service: Service::QueueStorage,
            account: "account".into(),
            properties: Bytes::from_static(b"properties"),
        },
        Command::SetServiceProperties { .. } => Command::ReadServiceProperties {
            service: Service::ServiceBus,
            account: "account".into(),
        },
        Command::ReadServiceProperties { .. } => Command::PutAccount {
            account: account("account"),
            is_new: true,
        },
        Command::PutAccount { .. } => Command::RemoveAccount {
            account: "account".into(),
            with_queues: false,
        },
        Command::RemoveAccount { .. } => Command::ListAccounts,
        Command::ListAccounts => Command::MoveBodies {
            bodies: all(
                Holder::Message(Place {
                    entity: Incarnation::new(3),
                    number: number(200),
                }),
                after_holder,
            )
            .into_iter()
            .map(|holder| BodyToMove {
                source: Source::Bytes(body()),
                holder,
                from: place(4096),
                event_size_bytes: 512,
            })
            .collect(),
        },
        Command::MoveBodies { .. } => Command::Storage(StorageCommand::CreateQueue {
            queue: queue(),
            metadata: [("Tier", "1")].into_iter().collect(),
        }),
        Command::Storage(_) => Command::Bus(BusCommand::CreateQueue {
            queue: bus_queue(),
            options: options(),
        }),
        Command::Quarantine { .. } | Command::Bus(_) => return None,
    })
}

fn moved_body() -> MovedBody {
    MovedBody {
        holder: Place {
            entity: Incarnation::new(6),
            number: number(2),
        },
        at: place(12_288).with(Hold::Lends),
    }
}

fn after_holder(holder: &Holder) -> Option<Holder> {
    Some(match holder {
        Holder::Message(_) => Holder::Session {
            queue: Incarnation::new(4),
            session: "session".into(),
        },
        Holder::Session { .. } => return None,
    })
}

fn after_storage_command(command: &StorageCommand) -> Option<StorageCommand> {
    let visibility_timeout = VisibilityTimeout::from_seconds(30).expect("below 7 days");
    Some(match command {
        StorageCommand::CreateQueue { .. } => StorageCommand::DeleteQueue { queue: queue() },
        StorageCommand::DeleteQueue { .. } => StorageCommand::ReadQueue { queue: queue() },
        StorageCommand::ReadQueue { .. } => StorageCommand::SetQueueMetadata {
            queue: queue(),
            metadata: [("a", "1"), ("b", "")].into_iter().collect(),
        },
        StorageCommand::SetQueueMetadata { .. } => StorageCommand::ListQueues {
            service: Service::QueueStorage,
            account: "account".into(),
            prefix: "jo".into(),
            from: "job".into(),
            limit: 5000,
            metadata_size_bytes_max: Some(1 << 20),
        },
        StorageCommand::ListQueues { .. } => StorageCommand::Send {
            queue: queue(),
            body: body(),
            encoding: BodyEncoding::Text,
            time_to_live_seconds: Some(604_800),
            visibility_timeout: VisibilityTimeout::ZERO,
        },
        StorageCommand::Send { .. } => StorageCommand::Receive {
            queue: queue(),
            count: 32,
            visibility_timeout,
        },
        StorageCommand::Receive { .. } => StorageCommand::Peek {
            queue: queue(),
            count: 1,
        },
        StorageCommand::Peek { .. } => StorageCommand::Update {
            queue: queue(),
            message: token(1),
            receipt: token(2),
            visibility_timeout,
            body: Some((BodyEncoding::Raw, body())),
        },
        StorageCommand::Update { .. } => StorageCommand::Delete {
            queue: queue(),
            message: token(1),
            receipt: token(2),
        },
        StorageCommand::Delete { .. } => StorageCommand::Clear { queue: queue() },
        StorageCommand::Clear { .. } => StorageCommand::SetQueuePolicies {
            queue: queue(),
            policies: policies(),
        },
        StorageCommand::SetQueuePolicies { .. } => return None,
    })
}

fn options() -> BusQueueOptions {
    BusQueueOptions {
        duplicate_window_ms: Some(20_000),
        forward_to: Some("next".into()),
        status: EntityStatus::SendDisabled,
        description: (*b"described").into(),
        ..BusQueueOptions::default()
    }
}

fn message() -> BusMessage {
    BusMessage {
        body: body(),
        message_id: Some("id".into()),
        session: None,
        time_to_live_ms: Some(60_000),
        scheduled_at: Some(at(500)),
    }
}

fn dispositions() -> Vec<Disposition> {
    all(Disposition::Complete, |disposition| {
        let overlay = Some(body());
        Some(match disposition {
            Disposition::Complete => Disposition::Abandon { overlay: None },
            Disposition::Abandon { .. } => Disposition::Defer { overlay },
            Disposition::Defer { .. } => Disposition::DeadLetter { overlay },
            Disposition::DeadLetter { .. } => Disposition::Release,
            Disposition::Release => return None,
        })
    })
}

fn works() -> Vec<TransactionWork> {
    all(TransactionWork::Send(vec![message()]), |work| {
        Some(match work {
            TransactionWork::Send(_) => TransactionWork::Settle(token(3), Disposition::Complete),
            TransactionWork::Settle(..) => TransactionWork::CancelScheduled(vec![number(9)]),
            // Two more are in [`more_commands`].
            TransactionWork::CancelScheduled(_)
            | TransactionWork::SendVia(..)
            | TransactionWork::Transfer(..) => return None,
        })
    })
}

#[expect(clippy::too_many_lines, reason = "a flat table")]
fn after_bus_command(command: &BusCommand) -> Option<BusCommand> {
    let queue = bus_queue();
    let session = token(5);
    Some(match command {
        BusCommand::CreateQueue { .. } => BusCommand::UpdateQueue {
            queue,
            options: BusQueueOptions::default(),
        },
        BusCommand::UpdateQueue { .. } => BusCommand::DeleteQueue { queue },
        BusCommand::DeleteQueue { .. } => BusCommand::ReadQueue { queue },
        BusCommand::ReadQueue { .. } => BusCommand::ListQueues {
            namespace: "namespace".into(),
            from: "a".into(),
            skip: 3,
            limit: 100,
        },
        BusCommand::ListQueues { .. } => BusCommand::Send {
            queue,
            messages: vec![message()],
        },
        BusCommand::Send { .. } => BusCommand::Receive {
            queue,
            count: 10,
            mode: ReceiveMode::PeekLock,
            session: Some(session),
        },
        BusCommand::Receive { .. } => BusCommand::Settle {
            queue,
            settlements: dispositions()
                .into_iter()
                .map(|it| (token(3), it))
                .collect(),
        },
        BusCommand::Settle { .. } => BusCommand::RenewLocks {
            queue,
            locks: vec![token(3), token(4)],
        },
        BusCommand::RenewLocks { .. } => BusCommand::Peek {
            queue,
            from: number(1),
            count: 5,
            session: Some("session".into()),
        },
        BusCommand::Peek { .. } => BusCommand::ReadLocked {
            queue,
            lock: token(3),
        },
        BusCommand::ReadLocked { .. } => BusCommand::CancelScheduled {
            queue,
            numbers: vec![number(7), number(1 << 40)],
        },
        BusCommand::CancelScheduled { .. } => BusCommand::ReceiveDeferred {
            read: DeferredRead {
                queue,
                numbers: vec![number(7)],
                mode: ReceiveMode::ReceiveAndDelete,
                session: None,
            },
        },
        BusCommand::ReceiveDeferred { .. } => BusCommand::AcceptSession {
            queue,
            session: SessionChoice::Named("session".into()),
        },
        BusCommand::AcceptSession { .. } => BusCommand::RenewSession { queue, session },
        BusCommand::RenewSession { .. } => BusCommand::ReleaseSession { queue, session },
        BusCommand::ReleaseSession { .. } => BusCommand::ReadSessionState { queue, session },
        BusCommand::ReadSessionState { .. } => BusCommand::SetSessionState {
            queue,
            session,
            state: Some(body()),
        },
        BusCommand::SetSessionState { .. } => BusCommand::ListSessions {
            queue,
            from: Box::default(),
            state_set_after: Some(at(0)),
            skip: 0,
            limit: 100,
        },
        BusCommand::ListSessions { .. } => BusCommand::Purge {
            queue,
            purge: Purge {
                from: number(1),
                until: Some(number(100)),
                before: Some(Timestamp::NEVER),
                count: 1000,
                with_locked: true,
                is_dry_run: false,
            },
        },
        BusCommand::Purge { .. } => BusCommand::ClearSessionStates {
            queue,
            from: "s".into(),
            count: 10,
            is_dry_run: true,
        },
        BusCommand::ClearSessionStates { .. } => BusCommand::TakeMessage {
            queue,
            number: number(7),
            mode: ReceiveMode::ReceiveAndDelete,
        },
        BusCommand::TakeMessage { .. } => BusCommand::DeleteMessage {
            queue,
            number: number(7),
            with_locked: true,
        },
        BusCommand::DeleteMessage { .. } => BusCommand::BreakLock {
            queue,
            target: BreakTarget::Message(number(7)),
        },
        BusCommand::BreakLock { .. } => BusCommand::Resubmit {
            queue,
            resubmit: Resubmit {
                to: Some("again".into()),
                messages: vec![Resubmission {
                    sequence_number: number(7),
                    overlay_count: 1,
                    body: body(),
                    message_id: None,
                    session: Some("session".into()),
                    time_to_live_ms: Some(1000),
                }],
            },
        },
        BusCommand::Resubmit { .. } => BusCommand::Transact {
            parts: works()
                .into_iter()
                .map(|work| TransactionPart {
                    queue: bus_queue(),
                    incarnation: Some(Incarnation::new(3)),
                    work,
                })
                .collect(),
        },
        BusCommand::Transact { .. } => BusCommand::DeleteBatch {
            queue,
            from: number(1),
            before: at(0),
            count: 500,
            session: None,
        },
        BusCommand::DeleteBatch { .. } => BusCommand::CreateTopic {
            topic: queue,
            options: BusQueueOptions {
                filters_before_publishing: true,
                ..BusQueueOptions::default()
            },
        },
        BusCommand::CreateTopic { .. } => BusCommand::CreateSubscription {
            subscription: EntityName {
                name: "orders/subscriptions/all".into(),
                ..queue.clone()
            },
            topic: queue,
            options: BusQueueOptions {
                dead_letters_filter_failures: true,
                ..BusQueueOptions::default()
            },
            rule: None,
        },
        BusCommand::CreateSubscription { .. } => BusCommand::ListTopics {
            namespace: "namespace".into(),
            skip: 3,
            limit: 100,
        },
        BusCommand::ListTopics { .. } => BusCommand::ListSubscriptions {
            topic: queue,
            skip: 3,
            limit: 100,
        },
        BusCommand::ListSubscriptions { .. } => BusCommand::AddRule {
            subscription: subscription(),
            topic: queue,
            rule: Box::new(rule()),
        },
        BusCommand::AddRule { .. } => BusCommand::SetRule {
            subscription: subscription(),
            topic: queue,
            rule: Box::new(rule()),
        },
        BusCommand::SetRule { .. } => BusCommand::RemoveRule {
            subscription: subscription(),
            topic: queue,
            name: "Red".into(),
        },
        BusCommand::RemoveRule { .. } => BusCommand::ReadRule {
            subscription: subscription(),
            name: "Red".into(),
        },
        BusCommand::ReadRule { .. } => BusCommand::ListRules {
            subscription: subscription(),
            skip: 3,
            limit: 100,
        },
        BusCommand::ListRules { .. } => BusCommand::SendVia {
            via: queue,
            to: subscription(),
            messages: vec![message()],
        },
        BusCommand::SendVia { .. } => BusCommand::Deposit {
            queue: subscription(),
            messages: vec![message()],
        },
        BusCommand::Deposit { .. } => return None,
    })
}

fn subscription() -> EntityName {
    EntityName {
        name: "orders/subscriptions/all".into(),
        ..bus_queue()
    }
}

fn rule() -> NewRule {
    let sql = |text: &str| SqlDefinition {
        text: text.into(),
        ..SqlDefinition::default()
    };
    let filter = FilterDefinition::Sql(sql("color = 'red'"));
    NewRule {
        name: "Red".into(),
        definition: Definition::new(filter, Some(sql("SET size = 1"))).unwrap(),
    }
}

fn rule_view() -> BusRuleView {
    BusRuleView {
        name: rule().name,
        definition: rule().definition.bytes().into(),
        created_at: at(0),
    }
}

fn after_outcome(outcome: &Outcome) -> Option<Outcome> {
    Some(match outcome {
        Outcome::Initialized => Outcome::ServicePropertiesSet,
        Outcome::ServicePropertiesSet => {
            Outcome::ServiceProperties(Some(Bytes::from_static(b"properties")))
        }
        Outcome::ServiceProperties(_) => Outcome::AccountPut,
        Outcome::AccountPut => Outcome::AccountRemoved,
        Outcome::AccountRemoved => Outcome::Accounts(vec![account("one"), account("two")]),
        Outcome::Accounts(_) => Outcome::BodiesMoved(BodiesMoved {
            count: 300,
            ..BodiesMoved::default()
        }),
        Outcome::BodiesMoved(_) => Outcome::Storage(StorageOutcome::QueueCreated),
        Outcome::Storage(_) => Outcome::Bus(BusOutcome::QueueCreated(Box::new(view()))),
        Outcome::Quarantined(_) | Outcome::Bus(_) => return None,
    })
}

fn after_storage_outcome(outcome: &StorageOutcome) -> Option<StorageOutcome> {
    Some(match outcome {
        StorageOutcome::QueueCreated => StorageOutcome::QueueUnchanged,
        StorageOutcome::QueueUnchanged => StorageOutcome::QueueDeleted,
        StorageOutcome::QueueDeleted => StorageOutcome::Queue(QueueView {
            metadata: [("Tier", "1")].into_iter().collect(),
            approximate_message_count: 200,
            policies: policies(),
        }),
        StorageOutcome::Queue(_) => StorageOutcome::QueueMetadataSet,
        StorageOutcome::QueueMetadataSet => StorageOutcome::Queues(QueuePage {
            queues: vec![ListedQueue {
                name: "jobs".into(),
                metadata: [("Tier", "1")].into_iter().collect(),
            }],
            next: Some("later".into()),
        }),
        StorageOutcome::Queues(_) => StorageOutcome::Sent(SentMessage {
            message: token(1),
            receipt: token(2),
            inserted_at: at(0),
            expires_at: Timestamp::NEVER,
            visible_at: at(1),
        }),
        StorageOutcome::Sent(_) => StorageOutcome::Received(vec![ReceivedMessage {
            message: token(1),
            receipt: token(2),
            inserted_at: at(0),
            expires_at: at(9),
            visible_at: at(1),
            delivery_count: 3,
            encoding: BodyEncoding::Text,
            body: place(4096),
        }]),
        StorageOutcome::Received(_) => StorageOutcome::Peeked(vec![PeekedMessage {
            message: token(1),
            inserted_at: at(0),
            expires_at: at(9),
            delivery_count: 0,
            encoding: BodyEncoding::Raw,
            body: place(4096),
        }]),
        StorageOutcome::Peeked(_) => StorageOutcome::Updated {
            receipt: token(2),
            visible_at: at(1),
        },
        StorageOutcome::Updated { .. } => StorageOutcome::Deleted,
        StorageOutcome::Deleted => StorageOutcome::Cleared,
        StorageOutcome::Cleared => StorageOutcome::QueuePoliciesSet,
        StorageOutcome::QueuePoliciesSet => return None,
    })
}

fn view() -> BusQueueView {
    BusQueueView {
        kind: EntityKind::Queue,
        incarnation: Incarnation::new(3),
        name: "orders".into(),
        options: options(),
        created_at: at(0),
        updated_at: at(1),
        used_at: at(2),
        is_suspended: false,
        counts: BusQueueCounts {
            active: 6,
            ready: 5,
            scheduled: 4,
            dead_letters: 3,
            failed_transfers: 2,
            size_bytes: 10_000,
            subscriptions: 0,
        },
    }
}

fn other_view(kind: EntityKind) -> BusQueueView {
    let mut other = view();
    other.kind = kind;
    other.options.dead_letters_filter_failures = true;
    other.counts.subscriptions = 12;
    other
}

fn states() -> Vec<BusMessageState> {
    all(BusMessageState::Ready, |state| {
        Some(match state {
            BusMessageState::Ready => BusMessageState::Locked { deferred: false },
            BusMessageState::Locked { deferred: false } => {
                BusMessageState::Locked { deferred: true }
            }
            BusMessageState::Locked { deferred: true } => BusMessageState::Scheduled,
            BusMessageState::Scheduled => BusMessageState::Deferred,
            BusMessageState::Deferred => return None,
        })
    })
}

fn causes() -> Vec<DeadLetterCause> {
    all(DeadLetterCause::MaxDeliveryCountExceeded, |cause| {
        Some(match cause {
            DeadLetterCause::MaxDeliveryCountExceeded => DeadLetterCause::Expired,
            DeadLetterCause::Expired => DeadLetterCause::MaxTransferHopCountExceeded,
            DeadLetterCause::MaxTransferHopCountExceeded => DeadLetterCause::SessionIdIsNull,
            DeadLetterCause::SessionIdIsNull => DeadLetterCause::DestinationUnavailable,
            DeadLetterCause::DestinationUnavailable => DeadLetterCause::ByReceiver,
            // A line of its own has the later ones.
            DeadLetterCause::ByReceiver
            | DeadLetterCause::FilterFailed
            | DeadLetterCause::BodyDamaged
            | DeadLetterCause::TransferFailed
            | DeadLetterCause::TransferNeedsSession => return None,
        })
    })
}

fn delivered(cause: DeadLetterCause) -> DeliveredMessage {
    DeliveredMessage {
        sequence_number: number(8),
        first_sequence_number: number(2),
        lock: Some(token(3)),
        locked_until: at(60_000),
        enqueued_at: at(0),
        expires_at: Timestamp::NEVER,
        delivery_count: 1,
        state: BusMessageState::Ready,
        cause: Some(cause),
        dead_letter_source: Some("orders".into()),
        body: place(4096),
        overlays: vec![place(8192), place(9000)],
    }
}

fn peeked(state: BusMessageState) -> PeekedBusMessage {
    PeekedBusMessage {
        sequence_number: number(8),
        first_sequence_number: number(6),
        enqueued_at: at(0),
        expires_at: at(90_000),
        due_at: at(60_000),
        delivery_count: 0,
        state,
        cause: None,
        dead_letter_source: None,
        body: place(4096),
        overlays: Vec::new(),
    }
}

fn verdicts() -> Vec<Verdict> {
    all(Verdict::Settled, |verdict| {
        Some(match verdict {
            Verdict::Settled => Verdict::LockLost,
            Verdict::LockLost => Verdict::SessionLockLost,
            Verdict::SessionLockLost => Verdict::NotAllowed,
            Verdict::NotAllowed => Verdict::TooManyChanges,
            Verdict::TooManyChanges => Verdict::QuotaExceeded,
            Verdict::QuotaExceeded => return None,
        })
    })
}

fn resubmissions() -> Vec<ResubmitVerdict> {
    all(ResubmitVerdict::Resubmitted(number(9)), |verdict| {
        Some(match verdict {
            ResubmitVerdict::Resubmitted(_) => ResubmitVerdict::NotFound,
            ResubmitVerdict::NotFound => ResubmitVerdict::Locked,
            ResubmitVerdict::Locked => ResubmitVerdict::Changed,
            ResubmitVerdict::Changed => ResubmitVerdict::Duplicate,
            ResubmitVerdict::Duplicate => ResubmitVerdict::TooLarge,
            ResubmitVerdict::TooLarge => ResubmitVerdict::SessionRequired,
            ResubmitVerdict::SessionRequired => ResubmitVerdict::Full,
            // They came later, and have lines of their own.
            ResubmitVerdict::Full | ResubmitVerdict::Unselected | ResubmitVerdict::NotCompared => {
                return None;
            }
        })
    })
}

fn after_bus_outcome(outcome: &BusOutcome) -> Option<BusOutcome> {
    Some(match outcome {
        BusOutcome::QueueCreated(it) if it.kind == EntityKind::Topic => {
            BusOutcome::QueueUpdated(Box::new(other_view(EntityKind::Subscription)))
        }
        BusOutcome::QueueUpdated(it) if it.kind == EntityKind::Subscription => {
            BusOutcome::Queue(Box::new(other_view(EntityKind::Topic)))
        }
        BusOutcome::Queue(it) if it.is_suspended => return None,
        BusOutcome::Queue(it) if it.kind == EntityKind::Topic => {
            let kinds = [EntityKind::Topic, EntityKind::Subscription];
            BusOutcome::Queues(kinds.map(other_view).into())
        }
        BusOutcome::Queues(all) if all.iter().any(|it| it.kind != EntityKind::Queue) => {
            BusOutcome::RuleAdded(rule_view())
        }
        BusOutcome::RuleAdded(_) => BusOutcome::RuleReplaced(rule_view()),
        BusOutcome::RuleReplaced(_) => BusOutcome::RuleRemoved,
        BusOutcome::RuleRemoved => BusOutcome::Rule(rule_view()),
        BusOutcome::Rule(_) => BusOutcome::Rules(vec![rule_view(), rule_view()]),
        BusOutcome::Rules(_) => BusOutcome::Queue(Box::new(BusQueueView {
            is_suspended: true,
            ..other_view(EntityKind::Subscription)
        })),
        BusOutcome::QueueCreated(_) => BusOutcome::QueueUpdated(Box::new(view())),
        BusOutcome::QueueUpdated(_) => BusOutcome::QueueDeleted,
        BusOutcome::QueueDeleted => BusOutcome::Queue(Box::new(view())),
        BusOutcome::Queue(_) => BusOutcome::Queues(vec![view(), view()]),
        BusOutcome::Queues(_) => BusOutcome::Sent(vec![Some(number(1)), None]),
        BusOutcome::Sent(_) => BusOutcome::Received(causes().into_iter().map(delivered).collect()),
        BusOutcome::Received(all) if all.len() > 2 => {
            BusOutcome::Received(vec![delivered(DeadLetterCause::FilterFailed)])
        }
        BusOutcome::Received(all) if all.len() == 1 => BusOutcome::Received(vec![
            delivered(DeadLetterCause::TransferFailed),
            delivered(DeadLetterCause::TransferNeedsSession),
        ]),
        BusOutcome::Received(_) => BusOutcome::Settled(verdicts()),
        BusOutcome::Settled(_) => BusOutcome::LocksRenewed(vec![at(1), Timestamp::NEVER]),
        BusOutcome::LocksRenewed(_) => {
            BusOutcome::Peeked(states().into_iter().map(peeked).collect())
        }
        BusOutcome::Peeked(_) => BusOutcome::Cancelled,
        BusOutcome::Cancelled => BusOutcome::SessionAccepted(SessionLock {
            session: "session".into(),
            lock: token(5),
            locked_until: at(60_000),
        }),
        BusOutcome::SessionAccepted(_) => BusOutcome::SessionRenewed(at(60_000)),
        BusOutcome::SessionRenewed(_) => BusOutcome::SessionReleased,
        BusOutcome::SessionReleased => BusOutcome::SessionState(Some(place(4096))),
        BusOutcome::SessionState(_) => BusOutcome::SessionStateSet,
        BusOutcome::SessionStateSet => BusOutcome::Sessions(ListedSessions {
            ids: vec!["a".into(), "b".into()],
            skipped: 2,
            next: Some("c".into()),
        }),
        BusOutcome::Sessions(_) => BusOutcome::BatchDeleted(BatchDeleted {
            count: 500,
            next: Some(number(501)),
        }),
        BusOutcome::BatchDeleted(_) => BusOutcome::Purged(Purged {
            count: 10,
            locked_count: 1,
            next: None,
            until: number(100),
        }),
        BusOutcome::Purged(_) => BusOutcome::SessionStatesCleared(ClearedStates {
            count: 3,
            next: None,
        }),
        BusOutcome::SessionStatesCleared(_) => BusOutcome::MessageDeleted,
        BusOutcome::MessageDeleted => BusOutcome::LockBroken,
        BusOutcome::LockBroken => BusOutcome::Resubmitted(resubmissions()),
        BusOutcome::Resubmitted(verdicts) if verdicts.len() > 1 => {
            BusOutcome::Resubmitted(vec![ResubmitVerdict::Unselected])
        }
        BusOutcome::Resubmitted(verdicts) if verdicts[..] == [ResubmitVerdict::Unselected] => {
            BusOutcome::Resubmitted(vec![ResubmitVerdict::NotCompared])
        }
        BusOutcome::Resubmitted(_) => BusOutcome::Transacted,
        BusOutcome::Transacted => BusOutcome::QueueCreated(Box::new(other_view(EntityKind::Topic))),
    })
}

fn after_refusal(refusal: &Refusal) -> Option<Refusal> {
    let account = "account".into();
    Some(match refusal {
        Refusal::AlreadyInitialized => Refusal::AccountAlreadyExists { account },
        Refusal::AccountAlreadyExists { .. } => Refusal::AccountNotFound { account },
        Refusal::AccountNotFound { .. } => Refusal::AccountNotEmpty { account, queues: 4 },
        Refusal::AccountNotEmpty { .. } => Refusal::PropertiesTooLarge {
            size_bytes: 70_000,
            limit_bytes: 65_536,
        },
        Refusal::PropertiesTooLarge { .. } => Refusal::Storage(StorageRefusal::QueueNotFound {
            queue: "jobs".into(),
        }),
        Refusal::Storage(_) => Refusal::Bus(BusRefusal::QueueNotFound {
            queue: "orders".into(),
        }),
        Refusal::Bus(_) => return None,
    })
}

fn after_storage_refusal(refusal: &StorageRefusal) -> Option<StorageRefusal> {
    Some(match refusal {
        StorageRefusal::QueueNotFound { .. } => StorageRefusal::QueueAlreadyExists {
            queue: "jobs".into(),
        },
        StorageRefusal::QueueAlreadyExists { .. } => StorageRefusal::MessageNotFound,
        StorageRefusal::MessageNotFound => StorageRefusal::PopReceiptMismatch,
        StorageRefusal::PopReceiptMismatch => StorageRefusal::HiddenBeyondExpiry {
            visibility_timeout_seconds: 60,
            time_to_live_seconds: 30,
        },
        StorageRefusal::HiddenBeyondExpiry { .. } => StorageRefusal::AccountQuotaExceeded {
            account: "account".into(),
            limit: QuotaLimit::SizeBytes,
            needed: 200,
            allowed: 100,
        },
        StorageRefusal::AccountQuotaExceeded { .. } => StorageRefusal::BodyTooLarge {
            size_bytes: 70_000,
            limit_bytes: 65_536,
        },
        StorageRefusal::BodyTooLarge { .. } => return None,
    })
}

/// The refusals of each setting, and of each kind of part.
fn all_option_refusals() -> impl Iterator<Item = BusRefusal> {
    let ranged = all(RangedOption::LockDuration, |option| {
        Some(match option {
            RangedOption::LockDuration => RangedOption::MaxDeliveryCount,
            RangedOption::MaxDeliveryCount => RangedOption::DefaultTimeToLive,
            RangedOption::DefaultTimeToLive => RangedOption::DuplicateWindow,
            RangedOption::DuplicateWindow => RangedOption::AutoDeleteOnIdle,
            RangedOption::AutoDeleteOnIdle => RangedOption::Size,
            RangedOption::Size => RangedOption::MessageSize,
            RangedOption::MessageSize => RangedOption::Description,
            RangedOption::Description => RangedOption::NameLength,
            RangedOption::NameLength => RangedOption::RuleNameLength,
            RangedOption::RuleNameLength => return None,
        })
    });
    let ranged = ranged.into_iter();
    let ranged = ranged.map(|option| InvalidOption { option, value: 300 }.into());
    let fixed = all(FixedOption::RequiresSession, |option| match option {
        FixedOption::RequiresSession => Some(FixedOption::RequiresDuplicateDetection),
        FixedOption::RequiresDuplicateDetection => None,
    });
    let fixed = fixed.into_iter();
    let fixed = fixed.map(|option| BusRefusal::UnchangeableOption { option });
    let parts = all(
        PartRefusal::Refused(BusRefusal::LockLost),
        |why| match why {
            PartRefusal::Refused(_) => Some(PartRefusal::Unsettled(Verdict::LockLost)),
            PartRefusal::Unsettled(_) => None,
        },
    );
    let parts = parts.into_iter().map(|why| BusRefusal::Transaction {
        part: 2,
        queue: "orders".into(),
        why: Box::new(why),
    });
    ranged.chain(fixed).chain(parts)
}

fn after_not_supported(what: NotSupported) -> Option<NotSupported> {
    Some(match what {
        NotSupported::DuplicateDetection => NotSupported::ScheduledMessage,
        NotSupported::ScheduledMessage => NotSupported::Transaction,
        NotSupported::Transaction => NotSupported::ForwardToTopic,
        NotSupported::ForwardToTopic => NotSupported::ResubmitToTopic,
        NotSupported::ResubmitToTopic => NotSupported::Update,
        NotSupported::Update => NotSupported::FiltersBeforePublishing,
        NotSupported::FiltersBeforePublishing => NotSupported::AutoDeleteOnIdle,
        NotSupported::AutoDeleteOnIdle => NotSupported::Status,
        NotSupported::Status => return None,
    })
}

fn after_bus_refusal(refusal: &BusRefusal) -> Option<BusRefusal> {
    let queue = "orders".into();
    let (size_bytes, limit_bytes) = (2000, 1000);
    Some(match refusal {
        BusRefusal::QueueNotFound { .. } => BusRefusal::QueueAlreadyExists { queue },
        BusRefusal::QueueAlreadyExists { .. } => BusRefusal::InvalidOption(InvalidOption {
            option: RangedOption::LockDuration,
            value: 1000,
        }),
        BusRefusal::InvalidOption(_) => BusRefusal::UnchangeableOption {
            option: FixedOption::RequiresSession,
        },
        BusRefusal::UnchangeableOption { .. } => BusRefusal::Disabled { queue },
        BusRefusal::Disabled { .. } => BusRefusal::QuotaExceeded {
            size_bytes,
            limit_bytes,
        },
        BusRefusal::QuotaExceeded { .. } => BusRefusal::MessageTooLarge {
            size_bytes,
            limit_bytes,
        },
        BusRefusal::MessageTooLarge { .. } => BusRefusal::NotSendable { queue },
        BusRefusal::NotSendable { .. } => BusRefusal::Forwards { queue },
        BusRefusal::Forwards { .. } => BusRefusal::DestinationNotFound { queue },
        BusRefusal::DestinationNotFound { .. } => BusRefusal::SessionRequired,
        BusRefusal::SessionRequired => BusRefusal::SessionsNotSupported,
        BusRefusal::SessionsNotSupported => BusRefusal::SessionCannotBeLocked {
            session: "session".into(),
        },
        BusRefusal::SessionCannotBeLocked { .. } => BusRefusal::NoSessionAvailable,
        BusRefusal::NoSessionAvailable => BusRefusal::LockLost,
        BusRefusal::LockLost => BusRefusal::SessionLockLost,
        BusRefusal::SessionLockLost => BusRefusal::MessageNotFound { sequence_number: 7 },
        BusRefusal::MessageNotFound { .. } => BusRefusal::MessageLocked {
            sequence_number: 7,
            until: Timestamp::NEVER,
        },
        BusRefusal::MessageLocked { .. } => BusRefusal::MessageScheduled { sequence_number: 7 },
        BusRefusal::MessageScheduled { .. } => BusRefusal::NotLocked,
        BusRefusal::NotLocked => BusRefusal::TooMany {
            count: 5000,
            limit: 4096,
        },
        BusRefusal::TooMany { .. } => BusRefusal::SessionIdTooLong {
            size_bytes,
            limit_bytes,
        },
        BusRefusal::SessionIdTooLong { .. } => BusRefusal::Transaction {
            part: 1,
            queue,
            why: Box::new(PartRefusal::Refused(BusRefusal::SessionRequired)),
        },
        BusRefusal::Transaction { .. } => BusRefusal::SessionStateTooLarge {
            size_bytes,
            limit_bytes,
        },
        BusRefusal::SessionStateTooLarge { .. } => {
            BusRefusal::MessageDamaged { sequence_number: 7 }
        }
        BusRefusal::MessageDamaged { .. } => BusRefusal::NotSendableSubscription { queue },
        BusRefusal::NotSendableSubscription { .. } => BusRefusal::NotReceivable { queue },
        BusRefusal::NotReceivable { .. } => BusRefusal::TooManySubscriptions { queue, limit: 64 },
        BusRefusal::TooManySubscriptions { .. } => BusRefusal::TooManyCopies {
            copies: 5000,
            limit: 4096,
        },
        BusRefusal::TooManyCopies { .. } => BusRefusal::NotSupportedYet {
            queue,
            what: NotSupported::DuplicateDetection,
        },
        BusRefusal::NotSupportedYet { what, .. } => match after_not_supported(*what) {
            Some(what) => BusRefusal::NotSupportedYet { queue, what },
            None => BusRefusal::RuleNotFound { rule: "Red".into() },
        },
        BusRefusal::RuleNotFound { rule } => BusRefusal::RuleAlreadyExists { rule: rule.clone() },
        BusRefusal::RuleAlreadyExists { .. } => BusRefusal::InvalidRule {
            why: "column 9".into(),
        },
        BusRefusal::InvalidRule { .. } => BusRefusal::TooManyRules { queue, limit: 2000 },
        BusRefusal::TooManyRules { .. } => BusRefusal::RulesBusy { queue },
        BusRefusal::RulesBusy { .. } => BusRefusal::RulesTooLarge {
            queue,
            limit_bytes: 4096,
        },
        BusRefusal::RulesTooLarge { .. } => BusRefusal::RulesTakeLong { limit: 50_000 },
        BusRefusal::RulesTakeLong { .. } => BusRefusal::CopiesTooLarge { limit_bytes },
        BusRefusal::CopiesTooLarge { .. } => BusRefusal::NotAMessage,
        BusRefusal::NotAMessage => BusRefusal::NoMatchingSubscription { queue, message: 7 },
        BusRefusal::NoMatchingSubscription { .. } => BusRefusal::TransferFull {
            queue,
            size_bytes,
            limit_bytes,
            to: "out".into(),
            why: "the queue is disabled".into(),
        },
        BusRefusal::TransferFull { .. } => return None,
    })
}

/// What travels beside commands and outcomes.
pub(super) fn around() -> Vec<Value> {
    let mut all = vec![
        Value::Answer(
            Outcome::Initialized,
            vec![Bytes::from_static(b"first"), Bytes::new()],
        ),
        Value::GiveUp,
    ];
    let unserved = [
        Unserved::Busy,
        Unserved::Full,
        Unserved::Stopped,
        Unserved::Unknown,
        Unserved::NotOwner,
        Unserved::ReadFailed,
    ];
    all.extend(unserved.map(Value::Unserved));
    let watched = |awaited| Watched {
        entity: Incarnation::new(300),
        awaited,
    };
    for (awaited, interest) in [
        (None, Interest::Begins),
        (Some(Awaited::Message), Interest::Waits),
        (Some(Awaited::OfSession("s".into())), Interest::PassesOn),
        (Some(Awaited::Session), Interest::Ends),
    ] {
        all.push(Value::Interest(watched(awaited), interest));
    }
    for woken in [Woken::One, Woken::All] {
        all.push(Value::Woken(watched(Some(Awaited::Message)), woken));
    }
    all.push(Value::Within(300, Command::ListAccounts));
    all.extend([0, 300].map(Value::Owned));
    all
}
