//! The operations of clients and the right that each needs, in one table.
//!
//! Code that carries out an operation names it by its variant here and asks for the variant's [`right`]. So an
//! operation without a right does not compile. The tests of permissions run over the same lists. A link needs
//! the right of its direction: the code that attaches links decides it.
//!
//! [`right`]: ManagementOperation::right

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use super::rights::Right;

/// One row an operation: its variant, its name, and the right that it needs.
macro_rules! operations {
    (
        $(#[$about:meta])*
        $table:ident { $($(#[$row_about:meta])* $variant:ident = $name:literal needs $right:ident,)+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $table {
            $($(#[$row_about])* $variant,)+
        }

        impl $table {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The right that a client needs for it.
            pub const fn right(self) -> Right {
                match self {
                    $(Self::$variant => Right::$right,)+
                }
            }
        }
    };
}

operations! {
    /// A request to the node `$management` of an entity.
    ///
    /// Source: Service Bus, *AMQP request-response based operations*.
    ManagementOperation {
        /// Renews the locks of messages.
        RenewLock = "renew-lock" needs Listen,
        /// Shows messages.
        PeekMessage = "peek-message" needs Listen,
        /// Sends messages for later.
        ScheduleMessage = "schedule-message" needs Send,
        /// Cancels scheduled messages.
        CancelScheduledMessage = "cancel-scheduled-message" needs Send,
        /// Receives deferred messages.
        ReceiveBySequenceNumber = "receive-by-sequence-number" needs Listen,
        /// Settles messages.
        UpdateDisposition = "update-disposition" needs Listen,
        /// Deletes messages.
        BatchDeleteMessages = "batch-delete-messages" needs Listen,
        /// Renews the lock of a session.
        RenewSessionLock = "renew-session-lock" needs Listen,
        /// Reads the state of a session.
        GetSessionState = "get-session-state" needs Listen,
        /// Replaces the state of a session.
        SetSessionState = "set-session-state" needs Listen,
        /// Lists sessions.
        GetMessageSessions = "get-message-sessions" needs Listen,
        /// Adds a rule to a subscription. Over HTTP, that needs `Manage`.
        AddRule = "add-rule" needs Listen,
        /// Removes a rule of a subscription.
        RemoveRule = "remove-rule" needs Listen,
        /// Lists the rules of a subscription.
        EnumerateRules = "enumerate-rules" needs Listen,
    }
}

operations! {
    /// A request over HTTP.
    ///
    /// Source: Service Bus, REST API, and `docs/operator-api.md` for operations that Azure does not have.
    HttpOperation {
        /// `POST …/messages`.
        SendMessage = "send a message" needs Send,
        /// `DELETE …/messages/head`.
        ReceiveAndDelete = "receive and delete a message" needs Listen,
        /// `POST …/messages/head`.
        PeekLock = "lock a message" needs Listen,
        /// `DELETE …/messages/ID/LOCK`.
        DeleteMessage = "complete a message" needs Listen,
        /// `PUT …/messages/ID/LOCK`.
        UnlockMessage = "abandon a message" needs Listen,
        /// `POST …/messages/ID/LOCK`.
        RenewLock = "renew the lock of a message" needs Listen,
        /// `GET QUEUE`, and the same for topics, subscriptions and rules, as in the next three lines.
        ReadQueue = "read the settings of a queue" needs Manage,
        /// `PUT QUEUE`.
        PutQueue = "create or change a queue" needs Manage,
        /// `DELETE QUEUE`.
        DeleteQueue = "delete a queue" needs Manage,
        /// `GET $Resources/…`.
        ListEntities = "list entities" needs Manage,
        /// `GET $namespaceinfo`.
        ReadNamespace = "read the properties of the namespace" needs Manage,
        /// All of `$kew/v1/…`, for the namespace.
        Operate = "use the operator API" needs Manage,
    }
}

impl ManagementOperation {
    /// The operation with this name, which has no `com.microsoft:` before it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|operation| operation.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_known_by_their_names() {
        for operation in ManagementOperation::ALL {
            assert_eq!(
                ManagementOperation::named(operation.name()),
                Some(*operation)
            );
        }
        assert_eq!(ManagementOperation::named("get-rules"), None);
        assert_eq!(ManagementOperation::named(""), None);
    }
}
