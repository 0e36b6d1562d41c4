//! Why a connection is not served.

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// There is no room for another connection.
    Crowded,
    /// It is not encrypted, and has to be.
    Plain,
}
