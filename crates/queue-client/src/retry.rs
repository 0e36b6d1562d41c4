//! When to retry, and how long to wait before.

use std::time::Duration;

/// The first wait; each next one is twice as long.
const FIRST_DELAY: Duration = Duration::from_millis(400);

/// The longest wait, even if the service asks for more.
const DELAY_MAX: Duration = Duration::from_secs(30);

/// Whether a request with this status may succeed when it is repeated. The SDKs retry the same
/// ones.
pub(crate) const fn is_worth_a_retry(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// How long to wait after failure number `failures` (from 1). It grows exponentially, and is
/// between half and all of that time, so that clients that failed together do not retry together.
/// `retry_after` is the time that the service asked for.
pub(crate) fn delay(failures: u32, retry_after: Option<Duration>) -> Duration {
    // Without a random number all clients wait the whole time, which is harmless.
    let random = getrandom::u32().unwrap_or(u32::MAX);
    spread(failures, random).max(retry_after.unwrap_or_default().min(DELAY_MAX))
}

fn spread(failures: u32, random: u32) -> Duration {
    let whole = FIRST_DELAY
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
        .min(DELAY_MAX);
    let half = whole / 2;
    half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_are_bounded() {
        let range = |failures| (spread(failures, 0), spread(failures, u32::MAX));
        let ms = Duration::from_millis;
        assert_eq!(range(1), (ms(200), ms(400)));
        assert_eq!(range(3), (ms(800), ms(1600)));
        assert_eq!(range(100), (DELAY_MAX / 2, DELAY_MAX));
    }

    #[test]
    fn the_service_may_ask_for_more_within_reason() {
        let asked = |seconds| delay(1, Some(Duration::from_secs(seconds)));
        assert_eq!(asked(5), Duration::from_secs(5));
        assert_eq!(asked(9_999), DELAY_MAX);
    }
}
