//! How a load grows or falls over many minutes: a straight line through what arrived.

/// Arrivals are watched for at least this time before anything is said, in seconds, and in at least [`LOOKS_MIN`] looks.
const SECONDS_MIN: f64 = 600.0;
const LOOKS_MIN: u32 = 20;
/// What is said of the slope is sure by this many standard errors. One steady load in a thousand seems to fall.
const SURE: f64 = 3.0;
/// Arrivals of the last quarter may be above the line by this many standard errors.
const FITS: f64 = 2.0;
/// A line leaves no more than this of the variance between a look and the next. A step leaves more.
const STEADY: f64 = 2.0;

/// What arrived between two looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// Until so many seconds before the last look.
    pub(crate) ago: f64,
    /// Seconds between the two looks.
    pub(crate) seconds: f64,
    pub(crate) messages: f64,
}

impl Arrived {
    /// The middle of the time, in seconds after the last look, so below 0.
    fn middle(&self) -> f64 {
        -self.ago - self.seconds / 2.0
    }

    fn rate(&self) -> f64 {
        self.messages / self.seconds
    }
}

/// By how many messages a second the rate of arrivals falls in each second, at the least: below 0 if it may grow. `None`
/// if that cannot be said.
///
/// It is the line of the least squares, with what arrived in a second as the unit of weight. What a line does not
/// explain makes it unsure. Nothing is said of a step, nor of a load that fell and has stopped falling, which is above
/// the line at its end.
pub(crate) fn fall_at_least(all: impl Iterator<Item = Arrived> + Clone) -> Option<f64> {
    let all = all.filter(|it| it.seconds > 0.0);
    let sum = |of: &dyn Fn(Arrived) -> f64| all.clone().map(|it| it.seconds * of(it)).sum::<f64>();
    let looks = u32::try_from(all.clone().count()).unwrap_or(u32::MAX);
    let seconds = sum(&|_| 1.0);
    if looks < LOOKS_MIN || seconds < SECONDS_MIN {
        return None;
    }
    let (middle, rate) = (
        sum(&|it| it.middle()) / seconds,
        sum(&|it| it.rate()) / seconds,
    );
    let spread = sum(&|it| (it.middle() - middle).powi(2));
    let slope = sum(&|it| (it.middle() - middle) * (it.rate() - rate)) / spread;
    let above = |it: Arrived| it.rate() - rate - slope * (it.middle() - middle);
    // Of a second.
    let variance = sum(&|it| above(it).powi(2)) / f64::from(looks - 2);
    let is_last = |it: Arrived| f64::from(u8::from(it.ago < seconds / 4.0));
    let last = sum(&is_last);
    let above_at_the_end = sum(&|it| is_last(it) * above(it)) / last;
    let is_line = variance <= STEADY * between_looks(all.clone())
        && above_at_the_end <= FITS * (variance / last).sqrt();
    if !is_line {
        return None;
    }
    Some(-slope - SURE * (variance / spread).sqrt())
}

/// The variance of a second as far as it shows between a look and the next, which no slow change adds to.
fn between_looks(all: impl Iterator<Item = Arrived> + Clone) -> f64 {
    let pairs = all.clone().zip(all.skip(1));
    // The difference of two rates has the variances of both.
    let of_pair = |(a, b): (Arrived, Arrived)| {
        (a.rate() - b.rate()).powi(2) / (1.0 / a.seconds + 1.0 / b.seconds)
    };
    let (sum, count) = pairs
        .map(of_pair)
        .fold((0.0, 0.0), |(sum, count), it| (sum + it, count + 1.0));
    sum / count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `looks` looks of 10 s each, the last one at the end, with `rate(seconds before it)`.
    fn fall(looks: u32, rate: impl Fn(f64) -> f64) -> Option<f64> {
        let all = (0..looks).map(|index| {
            let ago = f64::from(looks - 1 - index) * 10.0;
            // Some noise that has no slope.
            let noise = f64::from(index % 2) - 0.5;
            Arrived {
                ago,
                seconds: 10.0,
                messages: 10.0 * (rate(ago) + noise),
            }
        });
        fall_at_least(all)
    }

    #[test]
    fn a_line_that_falls_is_found_with_less_than_its_slope() {
        let found = fall(180, |ago| 50.0 + 0.005 * ago).unwrap();
        assert!((0.0045..0.005).contains(&found), "{found}");
    }

    #[test]
    fn steady_and_growing_loads_do_not_fall() {
        let found = fall(180, |_| 50.0).unwrap();
        assert!((-0.001..0.0).contains(&found), "{found}");
        let found = fall(180, |ago| 50.0 - 0.005 * ago).unwrap();
        assert!((-0.006..-0.005).contains(&found), "{found}");
    }

    #[test]
    fn a_short_time_says_nothing() {
        assert!(fall(60, |ago| 50.0 + 0.05 * ago).is_some());
        assert_eq!(fall(59, |ago| 50.0 + 0.05 * ago), None);
    }

    #[test]
    fn a_load_that_has_stopped_falling_does_not_fall() {
        // A step down, and a line that ended ten minutes ago.
        assert_eq!(
            fall(180, |ago| if ago < 900.0 { 20.0 } else { 100.0 }),
            None
        );
        assert_eq!(fall(180, |ago| 50.0 + 0.02 * (ago - 600.0).max(0.0)), None);
    }

    #[test]
    fn nothing_that_arrives_has_no_slope() {
        assert_eq!(fall_at_least(std::iter::empty()), None);
        let none = (0..200).map(|index| Arrived {
            ago: f64::from(199 - index) * 10.0,
            seconds: 10.0,
            messages: 0.0,
        });
        assert_eq!(fall_at_least(none), Some(0.0));
    }
}
