//! Names that no other process has.

use crate::error::StoreError;

/// 128 random bits, in hexadecimal digits.
pub(crate) fn token() -> Result<String, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::later("the system has no random numbers").because(error))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// A random share of a whole, from 0 to 1. 1 if the system has no random numbers.
pub(crate) fn share() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}
