//! What a link is for, and the attach that asks for it.

use std::sync::Arc;
use std::time::Duration;

use kew_amqp::codec::{Map, Symbol, Symbols, Text, Value};
use kew_amqp::performative::{
    Attach, Coordinator, ReceiverSettleMode, Role, SenderSettleMode, Source, Target,
};

use crate::error::Error;

/// The filter that asks for a message session: null is the next one that is free.
pub(super) const SESSION_FILTER: &str = "com.microsoft:session-filter";

/// What a coordinator is asked for.
const LOCAL_TRANSACTIONS: &str = "amqp:local-transactions";

/// Until when a session is locked, in ticks of .NET.
pub(super) const LOCKED_UNTIL: &str = "com.microsoft:locked-until-utc";

/// A link that a handle has.
#[derive(Clone, Debug)]
pub(in crate::bus) struct LinkSpec {
    pub(in crate::bus) address: Arc<str>,
    /// The entity that its token is for.
    pub(in crate::bus) audience: Arc<str>,
    pub(in crate::bus) purpose: LinkUse,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::bus) enum LinkUse {
    Send,
    /// Messages stay locked until they are settled.
    Receive,
    /// Messages are gone when they are sent.
    ReceiveAndDelete,
    /// Transactions are declared and discharged over it.
    Coordinate,
    /// Messages of this session, or of the next one that is free within that time.
    ReceiveSession {
        id: Option<String>,
        within: Duration,
    },
}

impl LinkUse {
    /// Whether what the link stands for ends with it.
    pub(super) fn is_session(&self) -> bool {
        match self {
            Self::ReceiveSession { .. } => true,
            Self::Send | Self::Coordinate | Self::Receive | Self::ReceiveAndDelete => false,
        }
    }

    /// Whether messages come in over it.
    pub(in crate::bus) fn receives(&self) -> bool {
        match self {
            Self::Receive | Self::ReceiveAndDelete | Self::ReceiveSession { .. } => true,
            Self::Send | Self::Coordinate => false,
        }
    }

    /// What remains to be said when a link that was attached is lost, if another one cannot take its place.
    pub(super) fn end(&self, error: &Error) -> Option<Error> {
        match self {
            Self::Send | Self::Receive | Self::ReceiveAndDelete => None,
            Self::Coordinate => {
                let text = format!("the transaction ended with its link: {}", error.text());
                Some(Error::rolled_back(text))
            }
            Self::ReceiveSession { .. } => {
                let text = format!("the link of the session is gone: {}", error.text());
                Some(Error::session_lock_lost(text))
            }
        }
    }
}

impl LinkSpec {
    pub(super) fn attach(&self, name: &str) -> Attach {
        let (own, remote) = (Text::from(name), Text::from(&*self.address));
        if !self.purpose.receives() {
            let mut attach = Attach::new(own.clone(), Role::Sender);
            attach.snd_settle_mode = SenderSettleMode::Unsettled;
            attach.source = Some(Source::new(own));
            attach.target = Some(match self.purpose {
                LinkUse::Coordinate => Target::Coordinator(Coordinator {
                    capabilities: Symbols::new(&[Symbol::from_static(LOCAL_TRANSACTIONS)]),
                }),
                LinkUse::Send
                | LinkUse::Receive
                | LinkUse::ReceiveAndDelete
                | LinkUse::ReceiveSession { .. } => Target::new(remote),
            });
            return attach;
        }
        let mut attach = Attach::new(own.clone(), Role::Receiver);
        let mut source = Source::new(remote);
        attach.target = Some(Target::new(own));
        (attach.snd_settle_mode, attach.rcv_settle_mode) = match &self.purpose {
            LinkUse::ReceiveAndDelete => (SenderSettleMode::Settled, ReceiverSettleMode::First),
            LinkUse::Send
            | LinkUse::Coordinate
            | LinkUse::Receive
            | LinkUse::ReceiveSession { .. } => {
                (SenderSettleMode::Unsettled, ReceiverSettleMode::Second)
            }
        };
        if let LinkUse::ReceiveSession { id, within } = &self.purpose {
            let wanted = id
                .as_deref()
                .map_or(Value::Null, |id| Value::String(id.into()));
            source.filter = Some(Map::build(|map| {
                map.entry(&Symbol::from_static(SESSION_FILTER), &wanted);
            }));
            let ms = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
            attach.properties = Some(Map::build(|map| {
                map.entry(&Symbol::from_static("com.microsoft:timeout"), &ms);
            }));
        }
        attach.source = Some(source);
        attach
    }
}
