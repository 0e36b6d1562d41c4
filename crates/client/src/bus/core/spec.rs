//! What a link is for, and the attach that asks for it.

use std::sync::Arc;
use std::time::Duration;

use kew_amqp::codec::{Map, Symbol, Text, Value};
use kew_amqp::performative::{Attach, ReceiverSettleMode, Role, SenderSettleMode, Source, Target};

/// The filter that asks for a message session: null is the next one that is free.
pub(super) const SESSION_FILTER: &str = "com.microsoft:session-filter";

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
            Self::Send | Self::Receive | Self::ReceiveAndDelete => false,
        }
    }
}

impl LinkSpec {
    pub(super) fn attach(&self, name: &str) -> Attach {
        let (own, remote) = (Text::from(name), Text::from(&*self.address));
        if self.purpose == LinkUse::Send {
            let mut attach = Attach::new(own.clone(), Role::Sender);
            attach.snd_settle_mode = SenderSettleMode::Unsettled;
            attach.source = Some(Source::new(own));
            attach.target = Some(Target::new(remote));
            return attach;
        }
        let mut attach = Attach::new(own.clone(), Role::Receiver);
        let mut source = Source::new(remote);
        attach.target = Some(Target::new(own));
        (attach.snd_settle_mode, attach.rcv_settle_mode) = match &self.purpose {
            LinkUse::ReceiveAndDelete => (SenderSettleMode::Settled, ReceiverSettleMode::First),
            LinkUse::Send | LinkUse::Receive | LinkUse::ReceiveSession { .. } => {
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
