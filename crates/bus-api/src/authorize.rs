//! Who a caller is, from a token.

use crate::api::Shared;
use crate::cbs::now_s;
use crate::http::HttpError;
use crate::sas::{self, Grant};

/// What a token allows that came in an Authorization header.
pub(crate) async fn grant_of(
    shared: &Shared,
    authorization: &str,
    _path: &str,
    _may_use_public_key: bool,
) -> Result<Grant, HttpError> {
    sas::check(authorization, &shared.rules, now_s())
        .map_err(|error| HttpError::unauthorized(error.to_string()))
}
