//! Names and values that several parts use.

/// The only namespace, with the name from the emulator's configuration.
pub const NAMESPACE: &str = "sbemulatorns";
/// The rule of the emulator's connection string.
pub const WELL_KNOWN_RULE: &str = "RootManageSharedAccessKey";
/// Its key, which is public: it must only be served to this machine.
pub const WELL_KNOWN_KEY: &str = "SAS_KEY_VALUE";

/// The default window of a queue that detects duplicates: 10 min, as in Azure.
pub(crate) const DUPLICATE_WINDOW_MS: u64 = 600_000;
/// The shortest window that a client can ask for. A configuration file may have one from 5 s.
pub(crate) const DUPLICATE_WINDOW_MS_MIN: u64 = 20_000;
