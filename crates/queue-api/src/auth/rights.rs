//! The rights that each operation needs with each kind of credential: one table, and no other
//! checks.
//!
//! Sources: *Create an account SAS*, *Create a service SAS*, *Permissions for calling data
//! operations*, *Set Queue ACL*.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use kew_issuer::Role;

use crate::route::Operation;
use crate::version::Version;

/// The resource type in the URI of an operation, as in the `srt` of an account SAS.
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
#[repr(u16)]
pub(crate) enum Action {
    QueuesRead = 1,
    QueuesWrite = 1 << 1,
    QueuesDelete = 1 << 2,
    MessagesRead = 1 << 3,
    MessagesAdd = 1 << 4,
    MessagesProcess = 1 << 5,
    MessagesWrite = 1 << 6,
    MessagesDelete = 1 << 7,
    /// `queueServices/read`: properties and statistics of the service.
    ServiceRead = 1 << 8,
    /// `queueServices/write`: properties of the service.
    ServiceWrite = 1 << 9,
    /// `queues/getAcl/action`
    QueuesGetAcl = 1 << 10,
    /// `queues/setAcl/action`
    QueuesSetAcl = 1 << 11,
}

/// Some data actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions(u16);

impl Actions {
    const fn of(actions: &[Action]) -> Self {
        let mut bits = 0;
        let mut rest = actions;
        while let [first, others @ ..] = rest {
            bits |= *first as u16;
            rest = others;
        }
        Self(bits)
    }

    const fn has(self, action: Action) -> bool {
        self.0 & action as u16 != 0
    }
}

/// The bit of a role in a set; roles of other services have none.
const fn bit(role: Role) -> u8 {
    match role {
        Role::Reader => 1,
        Role::Processor => 1 << 1,
        Role::Sender => 1 << 2,
        Role::Contributor => 1 << 3,
        Role::Delegator => 1 << 4,
        Role::BusOwner | Role::BusSender | Role::BusReceiver => 0,
    }
}

/// The actions that a role allows in Queue Storage.
const fn actions(role: Role) -> Actions {
    use Action::{
        MessagesAdd, MessagesDelete, MessagesProcess, MessagesRead, MessagesWrite, QueuesDelete,
        QueuesGetAcl, QueuesRead, QueuesSetAcl, QueuesWrite, ServiceRead, ServiceWrite,
    };
    match role {
        Role::Reader => Actions::of(&[QueuesRead, MessagesRead]),
        Role::Processor => Actions::of(&[MessagesRead, MessagesProcess]),
        Role::Sender => Actions::of(&[MessagesAdd]),
        Role::Contributor => Actions::of(&[
            QueuesRead,
            QueuesWrite,
            QueuesDelete,
            MessagesRead,
            MessagesProcess,
            MessagesWrite,
            MessagesDelete,
            // In Azure these four belong to roles that manage accounts, which Kew does not have.
            ServiceRead,
            ServiceWrite,
            QueuesGetAcl,
            QueuesSetAcl,
        ]),
        Role::Delegator | Role::BusOwner | Role::BusSender | Role::BusReceiver => Actions::of(&[]),
    }
}

/// The roles of one bearer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles(u8);

impl Roles {
    /// The role sets that a user delegation key may be bound to: every possible result of
    /// [`Self::delegated`].
    pub(crate) fn all_delegated() -> impl Iterator<Item = Self> {
        (0..=bit(Role::Contributor)).map(Self)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn byte(self) -> u8 {
        self.0
    }

    /// The roles that matter for a user delegation key: a contributor has all the rights of the
    /// others, and a key cannot create keys.
    pub(crate) const fn delegated(self) -> Self {
        let contributor = bit(Role::Contributor);
        if self.0 & contributor != 0 {
            Self(contributor)
        } else {
            Self(self.0 & (contributor - 1))
        }
    }

    fn actions(self) -> Actions {
        let held = Role::ALL.iter().filter(|role| self.0 & bit(**role) != 0);
        Actions(held.fold(0, |bits, role| bits | actions(*role).0))
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
        Self(roles.into_iter().fold(0, |bits, role| bits | bit(role)))
    }
}

/// The rights that the bearer of a token needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bearer {
    /// Every role allows it.
    AnyRole,
    /// All actions of one of these sets. If there is no set, no role allows it.
    Needs(&'static [&'static [Action]]),
}

/// The rights that an operation needs with each kind of credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Whether a key of the account is enough.
    pub(crate) owner: bool,
    /// One of these letters in an account SAS with this resource type; `None` if no letter is
    /// enough.
    pub(crate) account_sas: Option<(ResourceType, &'static str)>,
    /// The letter in a service SAS of the queue; `None` if no letter is enough. A user delegation
    /// SAS needs the same, and its user must have the right too.
    pub(crate) service_sas: Option<char>,
    pub(crate) bearer: Bearer,
    /// The first version that accepts bearer tokens for it.
    pub(crate) bearer_since: Version,
}

/// The table.
pub(crate) const fn needs(operation: Operation) -> Needs {
    use Action::{
        MessagesAdd, MessagesDelete, MessagesProcess, MessagesRead, MessagesWrite, QueuesDelete,
        QueuesGetAcl, QueuesRead, QueuesSetAcl, QueuesWrite, ServiceRead, ServiceWrite,
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
            bearer_since: Version::V2017_11_09,
        }
    }
    const fn policies(bearer: Alternatives) -> Needs {
        Needs {
            owner: true,
            account_sas: None,
            service_sas: None,
            bearer: Bearer::Needs(bearer),
            bearer_since: Version::V2025_07_05,
        }
    }
    match operation {
        Operation::ListQueues => row(Service, "l", None, &[&[QueuesRead]]),
        Operation::GetUserDelegationKey => Needs {
            owner: false,
            account_sas: None,
            service_sas: None,
            bearer: Bearer::AnyRole,
            bearer_since: Version::V2017_11_09,
        },
        Operation::GetServiceProperties | Operation::GetServiceStats => {
            row(Service, "r", None, &[&[ServiceRead]])
        }
        Operation::SetServiceProperties => row(Service, "w", None, &[&[ServiceWrite]]),
        Operation::GetQueueAcl => policies(&[&[QueuesGetAcl]]),
        Operation::SetQueueAcl => policies(&[&[QueuesSetAcl]]),
        // It is admitted before rights are checked.
        Operation::PreflightRequest => policies(&[]),
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
            // A sender's right to add is part of a contributor's right to write.
            let add = Action::MessagesAdd as u16;
            assert_eq!(delegated.actions().0 | add, roles.actions().0 | add);
        }
    }
}
