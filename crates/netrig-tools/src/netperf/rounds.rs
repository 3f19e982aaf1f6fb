//! The confidence loop of `-I` and `-i`.

use rig_stats::confidence::Level;

use super::figures::Widths;
use super::options::Confidence;

/// What one iteration found.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Iteration {
    pub elapsed: f64,
    pub throughput: f64,
    /// Percent, and microseconds for each unit; -1 where they were not measured.
    pub local_cpu: f64,
    pub remote_cpu: f64,
    pub local_demand: f64,
    pub remote_demand: f64,
}

/// All iterations so far.
#[derive(Debug, Clone, Default)]
pub struct Rounds(Vec<Iteration>);

impl Rounds {
    pub fn add(&mut self, iteration: Iteration) {
        self.0.push(iteration);
    }

    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    pub fn mean(&self, of: impl Fn(&Iteration) -> f64) -> f64 {
        self.0.iter().map(of).sum::<f64>() / self.0.len() as f64
    }

    /// Percent of the mean, 0 with one iteration. Twice Student's t times the standard error, as netperf has it: the whole interval.
    fn width(&self, confidence: &Confidence, of: impl Fn(&Iteration) -> f64) -> f64 {
        let count = self.0.len() as f64;
        let Ok(level) = Level::new(f64::from(confidence.level)) else { return 0.0 };
        if self.0.len() < 2 {
            return 0.0;
        }
        let mean = self.mean(&of);
        let variance = self.mean(|iteration| (of(iteration) - mean).powi(2));
        if variance == 0.0 {
            return 0.0;
        }
        2.0 * level.student_t(count - 1.0) * (variance / (count - 1.0)).sqrt() / mean * 100.0
    }

    pub fn widths(&self, confidence: &Confidence) -> Widths {
        Widths {
            throughput: self.width(confidence, |iteration| iteration.throughput),
            local_cpu: self.width(confidence, |iteration| iteration.local_cpu),
            remote_cpu: self.width(confidence, |iteration| iteration.remote_cpu),
        }
    }

    /// Whether all widths that count are as narrow as was asked for.
    pub fn is_confident(&self, confidence: &Confidence) -> bool {
        let widths = self.widths(confidence);
        let counted: &[f64] = match confidence.result_only {
            true => &[widths.throughput],
            false => &[widths.throughput, widths.local_cpu, widths.remote_cpu],
        };
        self.0.len() > 1 && counted.iter().all(|&width| width <= confidence.width * 100.0)
    }

    /// Whether one more is to be made.
    pub fn goes_on(&self, confidence: Option<&Confidence>) -> bool {
        match confidence {
            None => self.0.is_empty(),
            Some(confidence) => {
                self.count() < confidence.least || (self.count() < confidence.most && !self.is_confident(confidence))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(throughputs: &[f64]) -> Rounds {
        let iteration =
            |&throughput: &f64| Iteration { throughput, local_cpu: -1.0, remote_cpu: -1.0, ..Iteration::default() };
        Rounds(throughputs.iter().map(iteration).collect())
    }

    const ASKED: Confidence = Confidence { level: 95, width: 0.05, least: 3, most: 5, result_only: false };

    #[test]
    fn the_width_is_that_of_the_whole_interval() {
        // t of 95 % and 2 degrees of freedom is 4.303; the standard error of 99, 100, 101 is 1 / sqrt(3).
        let width = rounds(&[99.0, 100.0, 101.0]).widths(&ASKED).throughput;
        assert!((width - 2.0 * 4.3027 / 3_f64.sqrt()).abs() < 1e-3, "{width}");
    }

    #[test]
    fn it_goes_on_until_it_is_narrow_or_may_not() {
        assert!(rounds(&[]).goes_on(None) && !rounds(&[1.0]).goes_on(None));
        assert!(rounds(&[100.0, 100.0]).goes_on(Some(&ASKED)), "three at least");
        assert!(!rounds(&[100.0, 100.0, 100.0]).goes_on(Some(&ASKED)));
        assert!(rounds(&[50.0, 100.0, 150.0, 100.0]).goes_on(Some(&ASKED)));
        assert!(!rounds(&[50.0, 100.0, 150.0, 100.0, 80.0]).goes_on(Some(&ASKED)), "five at most");
        assert!(!rounds(&[50.0, 100.0, 150.0, 100.0, 80.0]).is_confident(&ASKED));
    }

    #[test]
    fn cpu_time_counts_unless_the_result_alone_does() {
        let mut rounds = rounds(&[100.0, 100.0, 100.0]);
        rounds.0[0].local_cpu = 50.0;
        rounds.0[1].local_cpu = 10.0;
        assert!(!rounds.is_confident(&ASKED));
        assert!(rounds.is_confident(&Confidence { result_only: true, ..ASKED }));
    }
}
