//! The operations, and that no command is missing among them.

use std::collections::BTreeSet;

use kew_filter::{Definition, FilterDefinition};

use super::*;
use crate::turn::missing::tests::variants;

impl Case {
    pub(super) fn operations(&self) -> Vec<BusCommand> {
        let all = [
            self.by_number(),
            self.by_lock(),
            self.transactions(),
            self.walks(),
            self.sends(),
            self.of_sessions(),
            self.of_entities(),
            self.of_rules(),
        ];
        all.into_iter().flatten().collect()
    }

    fn queue(&self) -> EntityName {
        self.setting.place.entity()
    }

    fn message(text: &str) -> BusMessage {
        of_session(text, "s")
    }

    fn by_number(&self) -> Vec<BusCommand> {
        let (queue, number) = (|| self.queue(), self.number);
        let take = |mode| BusCommand::TakeMessage {
            queue: queue(),
            number,
            mode,
        };
        let delete = |with_locked| BusCommand::DeleteMessage {
            queue: queue(),
            number,
            with_locked,
        };
        let break_lock = |target| BusCommand::BreakLock {
            queue: queue(),
            target,
        };
        let resubmit = |to: Option<&str>| BusCommand::Resubmit {
            queue: queue(),
            resubmit: Resubmit {
                to: to.map(Into::into),
                messages: vec![Resubmission {
                    sequence_number: number,
                    overlay_count: 0,
                    body: Bytes::from_static(b"again"),
                    message_id: None,
                    session: None,
                    time_to_live_ms: None,
                }],
            },
        };
        vec![
            take(ReceiveMode::PeekLock),
            take(ReceiveMode::ReceiveAndDelete),
            delete(false),
            delete(true),
            break_lock(BreakTarget::Message(number)),
            break_lock(BreakTarget::Session("s".into())),
            BusCommand::CancelScheduled {
                queue: queue(),
                numbers: vec![number],
            },
            resubmit(Some("destination")),
            resubmit(None),
        ]
    }

    fn by_lock(&self) -> Vec<BusCommand> {
        let (queue, lock) = (|| self.queue(), self.lock);
        let overlay = || Some(Bytes::from_static(b"changed"));
        let settle = |disposition| BusCommand::Settle {
            queue: queue(),
            settlements: vec![(lock, disposition)],
        };
        vec![
            settle(Disposition::Complete),
            settle(Disposition::Abandon { overlay: None }),
            settle(Disposition::Abandon { overlay: overlay() }),
            settle(Disposition::Defer { overlay: overlay() }),
            settle(Disposition::DeadLetter { overlay: overlay() }),
            settle(Disposition::Release),
            BusCommand::RenewLocks {
                queue: queue(),
                locks: vec![lock],
            },
            BusCommand::ReadLocked {
                queue: queue(),
                lock,
            },
        ]
    }

    fn transactions(&self) -> Vec<BusCommand> {
        let part = |work| TransactionPart {
            queue: self.queue(),
            incarnation: None,
            work,
        };
        let send = || vec![Self::message("sent")];
        let to = || entity("destination");
        let complete = || part(TransactionWork::Settle(self.lock, Disposition::Complete));
        let all = [
            vec![complete(), part(TransactionWork::Send(send()))],
            vec![complete(), part(TransactionWork::SendVia(to(), send()))],
            vec![complete(), part(TransactionWork::Transfer(to(), send()))],
            vec![part(TransactionWork::CancelScheduled(vec![self.number]))],
        ];
        all.map(|parts| BusCommand::Transact { parts }).into()
    }

    fn walks(&self) -> Vec<BusCommand> {
        let (queue, number, session) = (|| self.queue(), self.number, self.session);
        let receive = |count, mode| BusCommand::Receive {
            queue: queue(),
            count,
            mode,
            session,
        };
        let purge = |with_locked, is_dry_run| BusCommand::Purge {
            queue: queue(),
            purge: Purge {
                from: number,
                until: None,
                before: None,
                count: 3,
                with_locked,
                is_dry_run,
            },
        };
        let batch = |session: Option<&str>| BusCommand::DeleteBatch {
            queue: queue(),
            from: SequenceNumber::default(),
            before: Timestamp::NEVER,
            count: 3,
            session: session.map(Into::into),
        };
        let peek = |session: Option<&str>| BusCommand::Peek {
            queue: queue(),
            from: number,
            count: 3,
            session: session.map(Into::into),
        };
        vec![
            receive(1, ReceiveMode::PeekLock),
            receive(3, ReceiveMode::PeekLock),
            receive(3, ReceiveMode::ReceiveAndDelete),
            peek(None),
            peek(Some("s")),
            purge(false, false),
            purge(true, false),
            purge(true, true),
            batch(None),
            batch(Some("s")),
            BusCommand::ReceiveDeferred {
                read: self.deferred_read(ReceiveMode::PeekLock),
            },
            BusCommand::ReceiveDeferred {
                read: self.deferred_read(ReceiveMode::ReceiveAndDelete),
            },
        ]
    }

    fn sends(&self) -> Vec<BusCommand> {
        let messages = || vec![Self::message("more")];
        vec![
            BusCommand::Send {
                queue: self.queue(),
                messages: messages(),
            },
            BusCommand::Send {
                queue: self.setting.place.sent_to(),
                messages: messages(),
            },
            BusCommand::Deposit {
                queue: self.queue(),
                messages: messages(),
            },
            BusCommand::SendVia {
                via: self.setting.place.sent_to(),
                to: entity("destination"),
                messages: messages(),
            },
            BusCommand::SendVia {
                via: self.setting.place.sent_to(),
                to: entity("nowhere"),
                messages: messages(),
            },
        ]
    }

    fn of_sessions(&self) -> Vec<BusCommand> {
        let queue = || self.queue();
        // In an entity without sessions it is the lock of none.
        let session = self.session.unwrap_or(self.lock);
        let accept = |session| BusCommand::AcceptSession {
            queue: queue(),
            session,
        };
        vec![
            accept(SessionChoice::Next),
            accept(SessionChoice::Named("s".into())),
            BusCommand::ClearSessionStates {
                queue: queue(),
                from: "".into(),
                count: 3,
                is_dry_run: false,
            },
            BusCommand::ListSessions {
                queue: queue(),
                from: "".into(),
                state_set_after: None,
                skip: 0,
                limit: 3,
            },
            BusCommand::RenewSession {
                queue: queue(),
                session,
            },
            BusCommand::ReleaseSession {
                queue: queue(),
                session,
            },
            BusCommand::ReadSessionState {
                queue: queue(),
                session,
            },
            BusCommand::SetSessionState {
                queue: queue(),
                session,
                state: Some(Bytes::from_static(b"state")),
            },
        ]
    }

    fn of_entities(&self) -> Vec<BusCommand> {
        let (queue, namespace) = (|| self.queue(), jobs().account);
        let options = || BusQueueOptions {
            lock_duration_ms: 20_000,
            ..self.setting.options()
        };
        vec![
            BusCommand::CreateQueue {
                queue: entity("new"),
                options: options(),
            },
            BusCommand::CreateTopic {
                topic: entity("new"),
                options: BusQueueOptions::default(),
            },
            BusCommand::CreateSubscription {
                topic: topic(),
                subscription: entity("t/subscriptions/new"),
                options: options(),
                rule: None,
            },
            BusCommand::UpdateQueue {
                queue: queue(),
                options: options(),
            },
            BusCommand::DeleteQueue { queue: queue() },
            BusCommand::DeleteQueue {
                queue: self.setting.place.sent_to(),
            },
            BusCommand::ReadQueue { queue: queue() },
            BusCommand::ListQueues {
                namespace: namespace.clone(),
                from: "".into(),
                skip: 0,
                limit: 10,
            },
            BusCommand::ListTopics {
                namespace,
                skip: 0,
                limit: 10,
            },
            BusCommand::ListSubscriptions {
                topic: topic(),
                skip: 0,
                limit: 10,
            },
        ]
    }

    fn of_rules(&self) -> Vec<BusCommand> {
        let subscription = || self.queue();
        let rule = |name: &str| {
            Box::new(NewRule {
                name: name.into(),
                definition: Definition::new(FilterDefinition::True, None).unwrap(),
            })
        };
        // The one that every subscription begins with.
        let first: &str = "$Default";
        vec![
            BusCommand::AddRule {
                topic: topic(),
                subscription: subscription(),
                rule: rule("all"),
            },
            BusCommand::SetRule {
                topic: topic(),
                subscription: subscription(),
                rule: rule(first),
            },
            BusCommand::RemoveRule {
                topic: topic(),
                subscription: subscription(),
                name: first.into(),
            },
            BusCommand::ReadRule {
                subscription: subscription(),
                name: first.into(),
            },
            BusCommand::ListRules {
                subscription: subscription(),
                skip: 0,
                limit: 10,
            },
        ]
    }
}

variants!(COMMANDS, command_name, BusCommand:
    CreateQueue UpdateQueue CreateTopic CreateSubscription DeleteQueue ReadQueue ListQueues ListTopics ListSubscriptions
    AddRule SetRule RemoveRule ReadRule ListRules Send Deposit SendVia Receive Settle RenewLocks Peek ReadLocked
    CancelScheduled ReceiveDeferred AcceptSession RenewSession ReleaseSession ReadSessionState SetSessionState ListSessions
    Purge ClearSessionStates TakeMessage DeleteMessage BreakLock Resubmit Transact DeleteBatch);

variants!(WORKS, work_name, TransactionWork: Send SendVia Transfer Settle CancelScheduled);

#[test]
fn every_command_is_among_the_operations() {
    let setting = Setting {
        place: Place::Queue,
        by_session: false,
        forwards: false,
    };
    let operations = Case::new(Found::Ready, setting).operations();
    let commands: BTreeSet<_> = operations.iter().map(command_name).collect();
    assert_eq!(commands, COMMANDS.iter().copied().collect());
    let parts = operations.iter().flat_map(|operation| match operation {
        BusCommand::Transact { parts } => parts.as_slice(),
        _ => &[],
    });
    let works: BTreeSet<_> = parts.map(|part| work_name(&part.work)).collect();
    assert_eq!(works, WORKS.iter().copied().collect());
}
