//! What everything else speaks of: times, names, tokens and numbers, places in the log, and the
//! bytes of all these. It knows nothing above it.

mod body;
pub(crate) mod codec;
pub(crate) mod column;
pub(crate) mod elements;
mod hint;
mod name;
mod page;
pub(crate) mod place;
mod time;
pub(crate) mod token;

pub use self::body::{BodyLocation, BodyRead, Hold};
pub use self::codec::DecodeError;
pub(crate) use self::hint::Hint;
pub use self::name::{EntityName, SUBSCRIPTIONS, SUBSCRIPTIONS_LIST, Service, topic_of_path};
pub use self::page::PageNumber;
pub use self::place::{BodyMove, Place};
pub use self::time::{Timestamp, VisibilityTimeout};
pub use self::token::{Incarnation, LeaseGeneration, SequenceNumber, Token};
