//! The roles of a token's bearer.

/// A role of a token's bearer, as the claim of the token names it. Both services have built-in
/// roles; each service uses only its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Storage Queue Data Reader: lists queues, reads their metadata, peeks at messages.
    Reader,
    /// Storage Queue Data Message Processor: peeks at, gets and deletes messages.
    Processor,
    /// Storage Queue Data Message Sender: puts messages.
    Sender,
    /// Storage Queue Data Contributor: everything with queues and messages.
    Contributor,
    /// Storage Queue Delegator: gets user delegation keys, and nothing else.
    Delegator,
    /// Azure Service Bus Data Owner: manages, sends and receives.
    BusOwner,
    /// Azure Service Bus Data Sender: sends.
    BusSender,
    /// Azure Service Bus Data Receiver: receives.
    BusReceiver,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 8] = [
        Self::Reader,
        Self::Processor,
        Self::Sender,
        Self::Contributor,
        Self::Delegator,
        Self::BusOwner,
        Self::BusSender,
        Self::BusReceiver,
    ];

    /// The name of the built-in role.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reader => "Storage Queue Data Reader",
            Self::Processor => "Storage Queue Data Message Processor",
            Self::Sender => "Storage Queue Data Message Sender",
            Self::Contributor => "Storage Queue Data Contributor",
            Self::Delegator => "Storage Queue Delegator",
            Self::BusOwner => "Azure Service Bus Data Owner",
            Self::BusSender => "Azure Service Bus Data Sender",
            Self::BusReceiver => "Azure Service Bus Data Receiver",
        }
    }

    /// The word for it in settings.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Processor => "processor",
            Self::Sender => "sender",
            Self::Contributor => "contributor",
            Self::Delegator => "delegator",
            Self::BusOwner => "bus-owner",
            Self::BusSender => "bus-sender",
            Self::BusReceiver => "bus-receiver",
        }
    }
}
