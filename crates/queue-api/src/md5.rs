//! MD5, only for `Content-MD5`: it detects a damaged body and secures nothing.
//!
//! Source: RFC 1864.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

use crate::error::Error;

/// Checks a body against the value of `Content-MD5`.
///
/// Refuses with `InvalidMd5` a header that is not 128 bits in Base64, and with `Md5Mismatch`
/// another hash.
pub(crate) fn check(header: &[u8], body: &[u8]) -> Result<(), Error> {
    let stated = STANDARD.decode(header).map_err(|_| Error::InvalidMd5)?;
    let stated: [u8; 16] = stated.try_into().map_err(|_| Error::InvalidMd5)?;
    if stated[..] == Md5::digest(body)[..] {
        Ok(())
    } else {
        Err(Error::Md5Mismatch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_checked() {
        assert!(check(b"kAFQmDzST7DWlj99KOF/cg==", b"abc").is_ok());
        assert!(matches!(
            check(b"kAFQmDzST7DWlj99KOF/cg==", b"abd"),
            Err(Error::Md5Mismatch)
        ));
        for header in [&b""[..], b"abc", b"YWJj", b"\xff"] {
            assert!(matches!(check(header, b"abc"), Err(Error::InvalidMd5)));
        }
    }
}
