//! Names and values that more than one part needs.

/// The one namespace, under the name that the emulator's configuration gives it.
pub const NAMESPACE: &str = "sbemulatorns";
/// The rule of the emulator's connection string.
pub const WELL_KNOWN_RULE: &str = "RootManageSharedAccessKey";
/// Its key, which is public: it must only be served to this machine.
pub const WELL_KNOWN_KEY: &str = "SAS_KEY_VALUE";

/// The window of a queue that detects duplicates and says nothing of it: the service's 10 min.
pub(crate) const DUPLICATE_WINDOW_MS: u64 = 600_000;
