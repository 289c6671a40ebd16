//! `separable`: the verdict about a dataset of two classes as a report.

use std::fmt;
use std::time::Instant;

use serde::Serialize;

use crate::error::SearchError;
use crate::points::Labelled;
use crate::search::Budget;
use crate::separability::{Verdict, separable_until};

/// The answer in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Weights were found and confirmed.
    Separable,
    /// A witness was found and confirmed.
    NotSeparable,
    /// Neither was confirmed.
    Unknown,
}

/// What was found out about a dataset; serialises as its report.
#[derive(Clone, Debug, Serialize)]
pub struct SeparableReport {
    /// The answer.
    pub status: Answer,
    /// How many instances there are.
    pub instances: usize,
    /// How many inputs they have.
    pub inputs: usize,
    /// If separable: the smallest distance of an instance from the hyperplane, where a float can say it.
    pub margin: Option<f64>,
    /// If separable: one weight an input, the bias last, where floats can say them.
    pub weights: Option<Vec<f64>>,
    /// If not: the instances of the witness, counted from 1.
    pub witness: Option<Vec<usize>>,
    /// If not, because two equal instances have different labels: these two, counted from 1.
    pub contradiction: Option<(usize, usize)>,
    /// If unknown: what was tried.
    pub why: Option<String>,
    /// How long it took, exact check included.
    pub seconds: f64,
    /// The verdict itself, for a certificate.
    #[serde(skip)]
    pub verdict: Verdict,
}

impl SeparableReport {
    /// Decides for data of two classes, the second of which has the target +1, within the time of the budget.
    pub fn new(data: &Labelled, budget: Budget) -> Result<Self, SearchError> {
        if data.classes.len() != 2 {
            return Err(SearchError::NotBinary { classes: data.classes.len() });
        }
        let start = Instant::now();
        let over = || budget.time.is_some_and(|time| start.elapsed() >= time);
        let verdict = separable_until(&data.points, &data.targets(0), &over);
        let mut report = SeparableReport {
            status: Answer::Unknown,
            instances: data.points.len(),
            inputs: data.points.inputs(),
            margin: None,
            weights: None,
            witness: None,
            contradiction: None,
            why: None,
            seconds: start.elapsed().as_secs_f64(),
            verdict: verdict.clone(),
        };
        match verdict {
            Verdict::Separable(found) => {
                report.status = Answer::Separable;
                report.margin = Some(found.margin).filter(|&margin| margin > 0.0 && margin.is_finite());
                report.weights = Some(found.weights).filter(|weights| weights.iter().all(|w| w.is_finite()));
            }
            Verdict::NotSeparable(witness) => {
                report.status = Answer::NotSeparable;
                report.witness = Some(witness.iter().map(|(instance, _)| instance + 1).collect());
                report.contradiction = match witness.as_slice() {
                    // Two vectors cancel only if they are opposite, which with a bias of 1 means equal points.
                    [(a, _), (b, _)] => Some((a + 1, b + 1)),
                    _ => None,
                };
            }
            Verdict::Unknown { why } => report.why = Some(why),
        }
        Ok(report)
    }
}

impl fmt::Display for SeparableReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = format!("{} instances, {} inputs, {:.3} s", self.instances, self.inputs, self.seconds);
        match (self.status, self.contradiction) {
            (Answer::Separable, _) => {
                write!(f, "separable, confirmed exactly ({size})")?;
                match self.margin {
                    Some(margin) => write!(f, "\nmargin    {margin:.6e}")?,
                    None => write!(f, "\nmargin    greater than zero, but too small or too large for a float")?,
                }
                let Some(weights) = &self.weights else {
                    return write!(f, "\nweights   too large for floats; a certificate has them exactly");
                };
                let shown: Vec<String> = weights.iter().take(8).map(|w| format!("{w:.6}")).collect();
                let more = if weights.len() > 8 {
                    format!(" … ({} in all, bias last)", weights.len())
                } else {
                    String::new()
                };
                write!(f, "\nweights   {}{more}", shown.join(" "))
            }
            (Answer::NotSeparable, Some((a, b))) => {
                write!(f, "not separable, confirmed exactly ({size})")?;
                write!(f, "\nwitness   instances {a} and {b} are equal but have different labels")
            }
            (Answer::NotSeparable, None) => {
                let witness = self.witness.as_deref().unwrap_or(&[]);
                let shown: Vec<String> = witness.iter().take(12).map(ToString::to_string).collect();
                let more = if witness.len() > 12 { " …" } else { "" };
                write!(f, "not separable, confirmed exactly ({size})")?;
                write!(f, "\nwitness   {} instances that cancel: {}{more}", witness.len(), shown.join(" "))
            }
            (Answer::Unknown, _) => write!(f, "unknown ({size}): {}", self.why.as_deref().unwrap_or("")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(csv: &str) -> SeparableReport {
        SeparableReport::new(&Labelled::from_csv(csv).unwrap(), Budget::default()).unwrap()
    }

    #[test]
    fn answers_come_in_words_and_in_json() {
        let yes = report("0,0,a\n1,1,b\n");
        assert!(yes.to_string().starts_with("separable, confirmed exactly"));
        let json = serde_json::to_value(&yes).unwrap();
        assert_eq!(json["status"], "separable");
        assert!(json["margin"].as_f64().unwrap() > 0.3);
        let tiny = report("1e-400,a\n2e-400,b\n");
        assert!(tiny.to_string().contains("weights   too large for floats"), "{tiny}");
        assert!(tiny.to_string().contains("margin    greater than zero"), "{tiny}");
        let no = report("0,0,a\n1,1,a\n0,1,b\n1,0,b\n");
        assert_eq!(serde_json::to_value(&no).unwrap()["status"], "not-separable");
        assert!(no.to_string().contains("4 instances that cancel: "));
        let twice = report("0,0,a\n1,1,b\n0,0,b\n");
        assert_eq!(twice.contradiction, Some((1, 3)));
        assert!(twice.to_string().contains("instances 1 and 3 are equal"));
        let three = Labelled::from_csv("0,a\n1,b\n2,c\n").unwrap();
        assert!(SeparableReport::new(&three, Budget::default()).unwrap_err().to_string().contains("3 classes"));
    }
}
