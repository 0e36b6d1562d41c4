//! Authorization rules, for administrators of the server.

use super::BusApi;
use crate::authorization::rules::RuleStore;

impl BusApi {
    /// The rules of the namespace and of queues, and the way to change them.
    pub fn rules(&self) -> &RuleStore {
        &self.parts.shared.authority.rules
    }
}
