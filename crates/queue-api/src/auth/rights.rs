//! What each operation asks of each kind of credential: one table, and nothing else decides.
//!
//! Sources: *Create an account SAS*, *Create a service SAS*, *Permissions for calling data
//! operations*, *Set Queue ACL*.

use crate::route::Operation;

/// What the URI of an operation names, as the `srt` of an account SAS counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceType {
    /// `s`: the account's queue service.
    Service,
    /// `c`: a queue.
    Container,
    /// `o`: messages.
    Object,
}

impl ResourceType {
    pub(crate) const fn letter(self) -> char {
        match self {
            Self::Service => 's',
            Self::Container => 'c',
            Self::Object => 'o',
        }
    }
}

/// A data action that a role allows to the bearer of a token. Named after the last parts of the
/// service's own names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Action {
    QueuesRead = 1,
    QueuesWrite = 1 << 1,
    QueuesDelete = 1 << 2,
    MessagesRead = 1 << 3,
    MessagesAdd = 1 << 4,
    MessagesProcess = 1 << 5,
    MessagesWrite = 1 << 6,
    MessagesDelete = 1 << 7,
}

/// Some data actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions(u8);

impl Actions {
    const fn of(actions: &[Action]) -> Self {
        let mut bits = 0;
        let mut rest = actions;
        while let [first, others @ ..] = rest {
            bits |= *first as u8;
            rest = others;
        }
        Self(bits)
    }

    const fn has(self, action: Action) -> bool {
        self.0 & action as u8 != 0
    }
}

/// What the bearer of a token may be, as the claim of the token says. The service's built-in roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Role {
    /// Storage Queue Data Reader: lists queues, reads their metadata, peeks at messages.
    Reader = 1,
    /// Storage Queue Data Message Processor: peeks at, gets and deletes messages.
    Processor = 1 << 1,
    /// Storage Queue Data Message Sender: puts messages.
    Sender = 1 << 2,
    /// Storage Queue Data Contributor: everything with queues and messages.
    Contributor = 1 << 3,
    /// Storage Queue Delegator: gets user delegation keys, and nothing else.
    Delegator = 1 << 4,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [
        Self::Reader,
        Self::Processor,
        Self::Sender,
        Self::Contributor,
        Self::Delegator,
    ];

    /// The name of the built-in role.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reader => "Storage Queue Data Reader",
            Self::Processor => "Storage Queue Data Message Processor",
            Self::Sender => "Storage Queue Data Message Sender",
            Self::Contributor => "Storage Queue Data Contributor",
            Self::Delegator => "Storage Queue Delegator",
        }
    }

    const fn actions(self) -> Actions {
        use Action::{
            MessagesAdd, MessagesDelete, MessagesProcess, MessagesRead, MessagesWrite,
            QueuesDelete, QueuesRead, QueuesWrite,
        };
        match self {
            Self::Reader => Actions::of(&[QueuesRead, MessagesRead]),
            Self::Processor => Actions::of(&[MessagesRead, MessagesProcess]),
            Self::Sender => Actions::of(&[MessagesAdd]),
            Self::Contributor => Actions::of(&[
                QueuesRead,
                QueuesWrite,
                QueuesDelete,
                MessagesRead,
                MessagesProcess,
                MessagesWrite,
                MessagesDelete,
            ]),
            Self::Delegator => Actions::of(&[]),
        }
    }
}

/// The roles of one bearer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles(u8);

impl Roles {
    /// What a user delegation key may be bound to: every set that [`Self::delegated`] can answer.
    pub(crate) fn all_delegated() -> impl Iterator<Item = Self> {
        (0..=Role::Contributor as u8).map(Self)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn byte(self) -> u8 {
        self.0
    }

    /// The roles that still mean something to who uses a key that they were given: a contributor may
    /// all that the others may, and a key gives no keys.
    pub(crate) const fn delegated(self) -> Self {
        let contributor = Role::Contributor as u8;
        if self.0 & contributor != 0 {
            Self(contributor)
        } else {
            Self(self.0 & (contributor - 1))
        }
    }

    fn actions(self) -> Actions {
        let held = Role::ALL.iter().filter(|role| self.0 & **role as u8 != 0);
        Actions(held.fold(0, |bits, role| bits | role.actions().0))
    }

    /// Whether they allow the operation.
    pub(crate) fn allow(self, bearer: Bearer) -> bool {
        match bearer {
            Bearer::AnyRole => !self.is_empty(),
            Bearer::Needs(alternatives) => {
                let actions = self.actions();
                alternatives
                    .iter()
                    .any(|all| all.iter().all(|action| actions.has(*action)))
            }
        }
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().fold(0, |bits, role| bits | role as u8))
    }
}

/// What the bearer of a token needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bearer {
    /// Every role allows it.
    AnyRole,
    /// All actions of one of these. If there is none of these, no role allows it.
    Needs(&'static [&'static [Action]]),
}

/// What an operation asks of each kind of credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Whether a key of the account is enough.
    pub(crate) owner: bool,
    /// One of these letters in an account SAS that has this resource type, if any will do.
    pub(crate) account_sas: Option<(ResourceType, &'static str)>,
    /// The letter in a service SAS of the queue, if any will do. A user delegation SAS needs the same,
    /// and that its user may do it.
    pub(crate) service_sas: Option<char>,
    pub(crate) bearer: Bearer,
}

/// The table.
pub(crate) const fn needs(operation: Operation) -> Needs {
    use Action::{
        MessagesAdd, MessagesDelete, MessagesProcess, MessagesRead, MessagesWrite, QueuesDelete,
        QueuesRead, QueuesWrite,
    };
    use ResourceType::{Container, Object, Service};
    type Alternatives = &'static [&'static [Action]];
    const fn row(
        resource_type: ResourceType,
        letters: &'static str,
        service_sas: Option<char>,
        bearer: Alternatives,
    ) -> Needs {
        Needs {
            owner: true,
            account_sas: Some((resource_type, letters)),
            service_sas,
            bearer: Bearer::Needs(bearer),
        }
    }
    match operation {
        Operation::ListQueues => row(Service, "l", None, &[&[QueuesRead]]),
        Operation::GetUserDelegationKey => Needs {
            owner: false,
            account_sas: None,
            service_sas: None,
            bearer: Bearer::AnyRole,
        },
        Operation::GetServiceProperties | Operation::GetServiceStats => {
            row(Service, "r", None, &[])
        }
        Operation::SetServiceProperties => row(Service, "w", None, &[]),
        // A preflight is let in before anybody asks for its rights.
        Operation::GetQueueAcl | Operation::SetQueueAcl | Operation::PreflightRequest => Needs {
            owner: true,
            account_sas: None,
            service_sas: None,
            bearer: Bearer::Needs(&[]),
        },
        Operation::CreateQueue => row(Container, "cw", None, &[&[QueuesWrite]]),
        Operation::DeleteQueue => row(Container, "d", None, &[&[QueuesDelete]]),
        Operation::GetQueueMetadata => row(Container, "r", Some('r'), &[&[QueuesRead]]),
        Operation::SetQueueMetadata => row(Container, "w", None, &[&[QueuesWrite]]),
        Operation::PutMessage => row(Object, "a", Some('a'), &[&[MessagesAdd], &[MessagesWrite]]),
        Operation::GetMessages => row(
            Object,
            "p",
            Some('p'),
            &[&[MessagesProcess], &[MessagesRead, MessagesDelete]],
        ),
        Operation::PeekMessages => row(Object, "r", Some('r'), &[&[MessagesRead]]),
        Operation::ClearMessages => row(Object, "d", None, &[&[MessagesDelete]]),
        Operation::UpdateMessage => row(Object, "u", Some('u'), &[&[MessagesWrite]]),
        Operation::DeleteMessage => row(
            Object,
            "p",
            Some('p'),
            &[&[MessagesProcess], &[MessagesDelete]],
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegated_roles_are_all_listed_and_give_no_more() {
        for bits in 0..32 {
            let roles = Roles(bits);
            let delegated = roles.delegated();
            assert!(Roles::all_delegated().any(|listed| listed == delegated));
            assert_eq!(delegated.delegated(), delegated);
            // A sender's right to add is a contributor's right to write.
            let add = Action::MessagesAdd as u8;
            assert_eq!(delegated.actions().0 | add, roles.actions().0 | add);
        }
    }
}
