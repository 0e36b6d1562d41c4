//! Between counts, which are whole, and rates, which are not.

/// The least count that is not below `value`. A millionth above a whole number is noise of the arithmetic, and counts
/// as that number. Anything above 0 counts as at least 1. What is not a number counts as 0.
pub(crate) fn count_for(value: f64) -> u32 {
    let least = if value > 0.0 { 1.0 } else { 0.0 };
    let up = (value - 1e-6).ceil().clamp(least, f64::from(u32::MAX));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the range of the type above; a cast of what is not a number gives 0"
    )]
    let count = up as u32;
    count
}

/// The whole part of `value`. What is negative or not a number counts as 0.
pub(crate) fn whole_of(value: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast stays within the range of the type, and one of what is not a number gives 0"
    )]
    let whole = value as u32;
    whole
}

/// A count as a number to calculate with. Above 2⁵³ it is rounded, and no queue holds as many messages.
pub(crate) fn rate_of(count: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "exact up to 2^53, and rounded above"
    )]
    let rate = count as f64;
    rate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_rounded_up_and_bounded() {
        let cases = [
            (0.0, 0),
            (0.2, 1),
            (1e-7, 1),
            (f64::MIN_POSITIVE, 1),
            (3.0, 3),
            (3.000_000_1, 3),
            (3.01, 4),
            (-7.0, 0),
            (1e300, u32::MAX),
            (f64::NAN, 0),
        ];
        for (value, count) in cases {
            assert_eq!(count_for(value), count, "{value}");
        }
        let wholes = [-1.0, 0.9, 3.0, 3.9, f64::NAN].map(whole_of);
        assert_eq!(wholes, [0, 0, 3, 3, 0]);
    }
}
