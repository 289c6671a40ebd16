//! `solve`: a problem, a network shape, a search and a budget become a network with a report.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::error::SearchError;
use crate::exact::check_separation;
use crate::learner::LearnerKind;
use crate::network::{ExactNetwork, Network, as_points};
use crate::points::Labelled;
use crate::problem::Problem;
use crate::rational::Rational;
use crate::search::{
    Bound, Budget, Control, Found, Known, Loss, MANY_INPUTS, Progress, Proof, SearchKind, Setup, Stop,
};
use crate::separability::{Verdict, separable};

/// What `solve` needs to know beside the problem.
#[derive(Clone, Debug)]
pub struct SolveConfig {
    /// The widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// How to search; [`Anytime`](crate::Anytime) if none.
    pub search: Option<SearchKind>,
    /// How units learn; chosen by the size of the problem if none.
    pub learner: Option<LearnerKind>,
    /// What to minimise.
    pub loss: Loss,
    /// When to end.
    pub budget: Budget,
    /// What random choices depend on.
    pub seed: u64,
    /// How many threads may work.
    pub threads: usize,
    /// What an earlier search found: this one goes on from there, and its result is not worse.
    pub known: Option<Known>,
    /// Rows and columns, where the inputs are a picture's pixels: heuristics may then move pictures about.
    pub picture: Option<[usize; 2]>,
}

impl Default for SolveConfig {
    fn default() -> Self {
        SolveConfig {
            hidden: vec![2],
            search: None,
            learner: None,
            loss: Loss::ZeroOne,
            budget: Budget::default(),
            seed: 1,
            threads: 1,
            known: None,
            picture: None,
        }
    }
}

/// Hidden widths as `2` or `8,4`.
pub fn parse_hidden(text: &str) -> Result<Vec<usize>, SearchError> {
    let width = |part: &str| usize::from_str(part.trim()).ok().filter(|&width| width > 0);
    let widths: Option<Vec<usize>> = text.split(',').map(width).collect();
    widths.ok_or_else(|| SearchError::BadHidden { text: text.to_string() })
}

/// How a result is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// No network of this shape has a lower loss on the training instances; proved.
    Optimal,
    /// The network makes no errors, so its targets are feasible (Definition 2); its loss is not proved to be least.
    Feasible,
    /// The search stopped, by itself or because it had to, with errors left that are not proved necessary.
    Stopped,
}

/// Right and wrong answers on some instances.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// The part of right answers.
    pub accuracy: f64,
    /// The number of wrong ones.
    pub errors: usize,
    /// The number of instances.
    pub instances: usize,
}

impl Score {
    /// In exact arithmetic.
    fn new(network: &ExactNetwork, data: &Labelled) -> Result<Self, SearchError> {
        let (errors, instances) = (network.errors(data)?, data.labels.len());
        Ok(Score { accuracy: 1.0 - errors as f64 / instances as f64, errors, instances })
    }
}

/// What `solve` found; serialises as its report.
#[derive(Clone, Debug, Serialize)]
pub struct Solution {
    /// The name of the problem.
    pub problem: String,
    /// The widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// The search's name.
    pub search: String,
    /// The learner's name, if the search uses one.
    pub learner: Option<String>,
    /// What was minimised.
    pub loss: Loss,
    /// Its value on the training instances.
    pub loss_value: f64,
    /// How the result is to be taken.
    pub status: Status,
    /// Whether it is proved optimal.
    pub proved: bool,
    /// No network of this shape has a lower loss than this; known from the proof in `bound`.
    pub at_least: f64,
    /// What the file that it went on from says instead, if that is more and nothing contradicts it: a search found it that
    /// nobody has seen since.
    pub at_least_on_trust: Option<f64>,
    /// Why the search stopped.
    pub stop: Stop,
    /// Nodes looked at, as [`Budget::nodes`] counts them.
    pub nodes: u64,
    /// How long it took.
    pub seconds: f64,
    /// The seed of the random choices.
    pub seed: u64,
    /// Training instances, in exact arithmetic.
    pub train: Score,
    /// Test instances, if there are some.
    pub test: Option<Score>,
    /// Two equal instances with different labels, counted from 1: with them no network is free of errors.
    pub contradiction: Option<(usize, usize)>,
    /// The network, in floats.
    pub network: Network,
    /// The network exactly: what is proved is proved about this one.
    #[serde(skip)]
    pub exact: ExactNetwork,
    /// How low the loss can be, with the proof.
    #[serde(skip)]
    pub bound: Bound,
}

/// Solves a problem. Ends early, with the best network so far, when `stop` becomes true.
pub fn solve(
    problem: &Problem,
    config: &SolveConfig,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Solution, SearchError> {
    config.budget.check()?;
    if config.hidden.is_empty() || config.hidden.contains(&0) {
        return Err(SearchError::BadHidden { text: format!("{:?}", config.hidden) });
    }
    if let Some(known) = config.known.as_ref().filter(|known| known.loss != config.loss) {
        return Err(SearchError::OtherLoss { known: known.loss.to_string(), wanted: config.loss.to_string() });
    }
    check_memory(&problem.train, config)?;
    let learner = config.learner.unwrap_or_else(|| usual_learner(&problem.train));
    let control = Control::new(config.budget, stop, progress);
    let setup = Setup {
        data: &problem.train,
        hidden: &config.hidden,
        loss: config.loss,
        learner: &*learner.learner(),
        seed: config.seed,
        threads: config.threads.max(1),
        known: config.known.as_ref(),
        picture: config.picture,
    };
    let search = config.search.unwrap_or(SearchKind::Anytime).search();
    let found = search.run(&setup, &control)?;
    let seconds = control.elapsed().as_secs_f64();
    let mut exact = settle(&found, &problem.train)?;
    let loss_of = |network: &ExactNetwork| -> Result<f64, SearchError> {
        Ok(match config.loss {
            Loss::ZeroOne => network.errors(&problem.train)? as f64,
            Loss::Hinge => network.hinge(&problem.train)?.approximate(),
        })
    };
    let mut loss_value = loss_of(&exact)?;
    let Found { mut bound, mut stop, .. } = found;
    // Not every search begins with what is known, and none may end with less.
    if let Some(known) = &config.known {
        let before = loss_of(&known.network)?;
        if before < loss_value {
            (exact, loss_value) = (known.network.clone(), before);
        }
        let unproved = loss_value > bound.at_least + 1e-6;
        bound = known.or_better(bound);
        if unproved && loss_value <= bound.at_least + 1e-6 {
            stop = Stop::Exhausted;
        }
    }
    // A bound that a caller brought along may be wrong.
    if loss_value + 1e-6 < bound.at_least {
        bound = Bound { at_least: setup.floor(), proof: Proof::Labels };
    }
    let on_trust = config.known.as_ref().and_then(Known::on_trust);
    let on_trust = on_trust.filter(|&most| most > bound.at_least + 1e-6 && most <= loss_value + 1e-6);
    let train = Score::new(&exact, &problem.train)?;
    // Should rounding ever have made the final network worse than what was proved, nothing is claimed.
    let proved = loss_value <= bound.at_least + 1e-6;
    let status = match train.errors {
        _ if proved => Status::Optimal,
        0 => Status::Feasible,
        _ => Status::Stopped,
    };
    Ok(Solution {
        problem: problem.name.clone(),
        hidden: config.hidden.clone(),
        search: search.name().to_string(),
        learner: search.uses_learner().then(|| learner.to_string()),
        loss: config.loss,
        loss_value,
        status,
        proved,
        at_least: bound.at_least,
        at_least_on_trust: on_trust,
        stop,
        nodes: control.nodes(),
        seconds,
        seed: config.seed,
        train,
        test: problem.test.as_ref().map(|test| Score::new(&exact, test)).transpose()?,
        contradiction: problem.train.contradiction().map(|(a, b)| (a + 1, b + 1)),
        network: exact.approximate(),
        exact,
        bound,
    })
}

/// Bytes that a weight takes in all: as a float a few times, as a fraction, and in the result. Measured with layers of a
/// million units.
const BYTES_OF_A_WEIGHT: usize = 320;

/// What learning a layer takes: the linear program's inverse has the square of a unit's inputs, or of the instances if
/// those are fewer, and weights and targets are kept a few times.
fn check_memory(data: &Labelled, config: &SolveConfig) -> Result<(), SearchError> {
    let mut needed = 0usize;
    let mut fan_in = data.points.inputs();
    for &width in config.hidden.iter().chain(&[data.outputs()]) {
        let side = fan_in.min(data.points.len()).saturating_add(1);
        let inverse = side.saturating_mul(side).saturating_mul(8);
        let of_a_unit = fan_in.saturating_add(1).saturating_mul(BYTES_OF_A_WEIGHT);
        let held = width.saturating_mul(of_a_unit.saturating_add(4 * data.points.len()));
        needed = needed.max(inverse).saturating_add(held);
        fan_in = width;
    }
    let most = config.budget.memory();
    if needed > most {
        return Err(SearchError::Memory { needed: needed >> 20, most: most >> 20 });
    }
    Ok(())
}

/// Few inputs: linear programming, which always recognises feasible targets. Many: the regularised hinge loss,
/// which generalises where almost any targets are feasible.
fn usual_learner(data: &Labelled) -> LearnerKind {
    if data.points.inputs() <= MANY_INPUTS { LearnerKind::LinearProgram } else { LearnerKind::Hinge { cost: 1.0 } }
}

/// The same network, as far as the training instances can tell, with every hidden unit strictly off its boundary
/// and with weights of f32 where those do, so that a certificate can be given and a saved model is the same network.
fn settle(found: &Found, data: &Labelled) -> Result<ExactNetwork, SearchError> {
    let exact = match &found.exact {
        Some(exact) => exact.clone(),
        None => ExactNetwork::of(&found.network).ok_or(SearchError::Overflow)?,
    };
    let (hidden, classes) = exact.run(&data.points)?;
    let rounded = ExactNetwork::of(&exact.approximate().rounded());
    let mut settled = exact.clone();
    for (depth, layer) in hidden.iter().enumerate() {
        let below = depth.checked_sub(1).map(|below| as_points(&hidden[below]));
        let inputs = below.as_ref().unwrap_or(&data.points);
        for (unit, targets) in layer.iter().enumerate() {
            let small = rounded.as_ref().map(|rounded| &rounded.layers[depth][unit]);
            let candidates = small.into_iter().chain([&exact.layers[depth][unit]]);
            let good: Option<&Vec<Rational>> =
                candidates.into_iter().find(|weights| check_separation(inputs, targets, weights).is_ok());
            settled.layers[depth][unit] = match good {
                Some(weights) => weights.clone(),
                None => match separable(inputs, targets) {
                    Verdict::Separable(found) => found.exact,
                    _ => return Err(SearchError::Unconfirmed),
                },
            };
        }
    }
    if let Some(rounded) = rounded {
        let last = exact.layers.len() - 1;
        let before = std::mem::replace(&mut settled.layers[last], rounded.layers[last].clone());
        if settled.run(&data.points)?.1 != classes {
            settled.layers[last] = before;
        }
    }
    Ok(settled)
}

/// Units of a layer whose weights are shown.
const SHOWN_UNITS: usize = 40;

impl fmt::Display for Solution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> = std::iter::once(self.network.inputs())
            .chain(self.network.widths())
            .map(|width| width.to_string())
            .collect();
        writeln!(f, "problem   {}, network {}", self.problem, shape.join("-"))?;
        for (depth, layer) in self.network.layers.iter().enumerate() {
            let name = if depth + 1 == self.network.layers.len() { "output" } else { "hidden" };
            for (number, unit) in layer.iter().take(SHOWN_UNITS).enumerate() {
                let shown: Vec<String> = unit.iter().take(8).map(|w| format!("{w:.4}")).collect();
                let more = if unit.len() > 8 { format!(" … ({} weights)", unit.len()) } else { String::new() };
                writeln!(f, "  layer {} {name} {}: {}{more}", depth + 1, number + 1, shown.join(" "))?;
            }
            if layer.len() > SHOWN_UNITS {
                writeln!(f, "  layer {} {name}: {} more", depth + 1, layer.len() - SHOWN_UNITS)?;
            }
        }
        let score = |score: &Score| {
            let right = score.instances - score.errors;
            format!("{:.2} % ({right} of {})", 100.0 * score.accuracy, score.instances)
        };
        writeln!(f, "training  {}", score(&self.train))?;
        if let Some(test) = &self.test {
            writeln!(f, "test      {}", score(test))?;
        }
        if let Some((a, b)) = self.contradiction {
            writeln!(
                f,
                "note      instances {a} and {b} are equal but have different labels: no network gets both right"
            )?;
        }
        let gap = if self.loss == Loss::ZeroOne {
            format!("between {} and {} errors are possible", self.at_least, self.loss_value)
        } else {
            format!("a loss between {:.6} and {:.6} is possible", self.at_least, self.loss_value)
        };
        let trusted = self.at_least_on_trust.map_or(String::new(), |most| {
            format!(" ({most} at least, on trust, says the search that it went on from)")
        });
        let gap = gap + &trusted;
        let status = match (self.status, &self.bound.proof) {
            (Status::Optimal, Proof::Search) => "optimal, by a search that was complete".to_string(),
            (Status::Optimal, _) => "optimal, proved".to_string(),
            (Status::Feasible, _) => format!("feasible, not proved optimal; {gap}"),
            (Status::Stopped, _) => format!("stopped, not proved optimal; {gap}"),
        };
        writeln!(f, "status    {status}: {}", self.stop)?;
        let learner = self.learner.as_ref().map_or(String::new(), |learner| format!(" with {learner}"));
        write!(f, "search    {}{learner}, {} nodes, {:.3} s", self.search, self.nodes, self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::points::Points;
    use crate::problem::ProblemName;
    use crate::rng::Rng;

    fn solved(name: &str, config: &SolveConfig) -> Solution {
        let problem = Problem::generate(name.parse::<ProblemName>().unwrap(), 1).unwrap();
        solve(&problem, config, &AtomicBool::new(false), &|_| {}).unwrap()
    }

    #[test]
    fn xor_is_optimal_and_reported() {
        let config = SolveConfig { search: Some(SearchKind::Exhaustive), ..SolveConfig::default() };
        let solution = solved("xor", &config);
        assert_eq!(solution.status, Status::Optimal);
        let report = serde_json::to_value(&solution).unwrap();
        assert_eq!(report["status"], "optimal");
        assert_eq!(report["train"]["accuracy"], 1.0);
        assert!(report["test"].is_null() && report["nodes"].is_u64() && report["seconds"].is_f64());
        assert!(solution.to_string().contains("optimal, proved"));
    }

    #[test]
    fn weights_of_the_result_survive_f32() {
        let config = SolveConfig { hidden: vec![4, 2], ..SolveConfig::default() };
        let solution = solved("parity:4", &config);
        assert_eq!(solution.train.errors, 0);
        assert_eq!(solution.network.rounded(), solution.network);
    }

    #[test]
    fn contradictions_are_named_and_the_rest_is_still_solved() {
        let points = Points::from_rows(&[vec![0.0], vec![1.0], vec![1.0], vec![2.0]]).unwrap();
        let train = Labelled::new(points, vec![0, 1, 0, 0], vec!["a".into(), "b".into()]).unwrap();
        let problem = Problem::new("small", train, None).unwrap();
        let config = SolveConfig { search: Some(SearchKind::Exhaustive), ..SolveConfig::default() };
        let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
        assert_eq!((solution.train.errors, solution.status), (1, Status::Optimal));
        assert_eq!(solution.contradiction, Some((2, 3)));
        assert!(solution.to_string().contains("instances 2 and 3"));
    }

    /// Every way to search ends in time on a problem that it does not finish, with a network and a gap. How near to the
    /// budget is a matter of the machine: alone on it all of these end within a tenth.
    #[test]
    fn time_budgets_hold_and_a_gap_is_left() {
        let budget = Duration::from_millis(400);
        let data = |instances: usize, inputs: usize| {
            let mut rng = Rng::new(17);
            let points = Points::new(inputs, (0..instances * inputs).map(|_| rng.normal()).collect()).unwrap();
            let labels = (0..instances).map(|_| rng.below(2)).collect();
            Labelled::new(points, labels, vec!["a".into(), "b".into()]).unwrap()
        };
        let cases: [(&str, usize, usize, &[usize]); 12] = [
            ("anytime", 300, 12, &[1]),
            ("anytime", 1500, 3, &[1]),
            ("anytime", 600, 3, &[2]),
            ("anytime", 190, 2, &[3]),
            ("anytime", 200, 6, &[4, 2]),
            ("exhaustive", 60, 3, &[3]),
            ("exhaustive", 40, 2, &[4]),
            ("hill-climbing", 200, 4, &[4]),
            ("beam:3", 100, 4, &[3]),
            ("ftprop", 200, 4, &[3, 2]),
            ("settled", 400, 6, &[3]),
            ("madaline", 400, 6, &[3]),
        ];
        for (search, instances, inputs, hidden) in cases {
            let problem = Problem::new("data", data(instances, inputs), None).unwrap();
            let search = Some(search.parse::<SearchKind>().unwrap());
            let budget = Budget { time: Some(budget), ..Budget::default() };
            let config = SolveConfig { hidden: hidden.to_vec(), search, budget, threads: 2, ..SolveConfig::default() };
            let started = Instant::now();
            let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
            let took = started.elapsed().as_secs_f64() / 0.4;
            println!("{search:?} {instances} x {inputs} {hidden:?}: {took:.2} of the budget, {}", solution.stop);
            assert!(took < 3.0, "{search:?} {instances} x {inputs} {hidden:?}: {took} times the budget");
            assert_eq!(solution.stop, Stop::Time, "{search:?} {instances} x {inputs} {hidden:?}");
            assert!(!solution.proved && solution.at_least < solution.loss_value);
            assert!(solution.to_string().contains("errors are possible"), "{solution}");
        }
    }

    /// A layer that is wider than there are instances takes no more memory than its weights.
    #[test]
    fn wide_layers_are_learnt_in_little_memory() {
        let hidden = vec![5_000];
        let budget = Budget { memory: Some(16 << 20), ..Budget::default() };
        let solution = solved("xor", &SolveConfig { hidden, budget, ..SolveConfig::default() });
        assert_eq!(solution.train.errors, 0);
        assert!(solution.to_string().contains("layer 1 hidden: 4960 more"), "{solution}");
    }

    /// Where a listing takes too much memory, that is why there is no proof, whatever is tried after it.
    #[test]
    fn memory_that_is_used_up_is_said() {
        let mut rng = Rng::new(18);
        for (search, instances, hidden) in
            [("anytime", 80, 3), ("anytime", 80, 2), ("exhaustive", 80, 3), ("exhaustive", 40, 4)]
        {
            let points = Points::new(2, (0..2 * instances).map(|_| rng.normal()).collect()).unwrap();
            let labels = (0..instances).map(|_| rng.below(2)).collect();
            let data = Labelled::new(points, labels, vec!["a".into(), "b".into()]).unwrap();
            let problem = Problem::new("data", data, None).unwrap();
            let budget = Budget { memory: Some(20 << 10), ..Budget::default() };
            let search = Some(search.parse().unwrap());
            let config = SolveConfig { hidden: vec![hidden], search, budget, threads: 2, ..SolveConfig::default() };
            let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
            assert_eq!((solution.stop, solution.proved), (Stop::Memory, false), "{solution}");
            assert!(solution.to_string().contains("the memory is used up"), "{solution}");
        }
    }

    #[test]
    fn bad_settings_are_explained() {
        let problem = Problem::generate(ProblemName::Xor, 1).unwrap();
        let nothing = SolveConfig { budget: Budget { nodes: Some(0), ..Budget::default() }, ..SolveConfig::default() };
        let error = solve(&problem, &nothing, &AtomicBool::new(false), &|_| {}).unwrap_err();
        assert!(error.to_string().contains("budget is zero"));
        let flat = SolveConfig { hidden: vec![2, 0], ..SolveConfig::default() };
        assert!(solve(&problem, &flat, &AtomicBool::new(false), &|_| {}).is_err());
        let tiny = Labelled::from_csv("1e-400,0\n5e-324,1\n2e-400,2\n").unwrap();
        let tiny = Problem::new("tiny", tiny, None).unwrap();
        let said = solve(&tiny, &SolveConfig::default(), &AtomicBool::new(false), &|_| {}).unwrap_err().to_string();
        assert!(said.contains("too near to each other") && said.contains("multiply the inputs"), "{said}");
        assert_eq!(parse_hidden("8, 4").unwrap(), [8, 4]);
        assert!(parse_hidden("8,,4").is_err() && parse_hidden("0").is_err() && parse_hidden("").is_err());
    }
}
