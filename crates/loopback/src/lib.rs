//! A door to a partition that passes everything as bytes, as to another process. For tests: nothing here is in the product.
//!
//! A node of a cluster reaches a partition that another node owns over a connection. This is such a connection without the
//! network: commands, answers with their bodies, rejections, watches, wake-ups and changes of the owner are encoded, and
//! decoded on the other side ([`kew_engine::wire`]). The tests of the front ends run over it, so that nothing they rely on
//! is lost on the way.
//!
//! What a node promises to its clients when its connection is cut is here too: see [`Loopback::cut`]. [`faulty`] is a door
//! that loses or delays chosen commands.

mod faulty;
mod here;
mod reasons;
mod suite;
mod there;

use std::sync::Arc;

use kew_broker::{AdmissionLimits, Broker};
use tokio::sync::mpsc;

pub use self::faulty::{Fault, Faulty, faulty};
pub use self::here::Loopback;
pub use self::suite::{handle_for_test, run_again};

/// What travels: a frame, and on the way to the partition the number of its source before it.
type Bytes = bytes::Bytes;

/// Connects to a partition. Returns a handle whose commands and watches go through the connection, and its door. To be called
/// within a runtime of Tokio. The connection ends with the last handle.
///
/// `limits` bound what is under way, as the partition bounds what comes from all nodes.
pub fn connect(to: &Broker, limits: AdmissionLimits) -> (Broker, Arc<Loopback>) {
    let (to_partition, from_node) = mpsc::unbounded_channel();
    let (to_node, from_partition) = mpsc::unbounded_channel();
    let greeting = there::serve(to.clone(), from_node, to_node);
    let door = here::connect(to_partition, &greeting, from_partition, limits);
    (
        to.through(Arc::clone(&door) as Arc<dyn kew_broker::Door>),
        door,
    )
}
