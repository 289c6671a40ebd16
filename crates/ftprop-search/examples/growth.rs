//! How the time to prove an optimum grows with instances, inputs and hidden units, as a table in CSV.
//!
//!     cargo run --release -p ftprop-search --example growth > growth.csv
//!
//! Random normal points with random labels of two classes; the optimum of the zero-one loss is proved by exhaustive
//! search on one thread. Each line is the median of three problems, in seconds of one core; the next larger size is
//! left out where one took longer than the limit.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ftprop_search::{
    Budget, Control, Exhaustive, Labelled, LinearProgram, Loss, Points, Rng, Search, SearchError, Setup, dichotomies,
};

const LIMIT: Duration = Duration::from_secs(20);

fn problem(instances: usize, inputs: usize, seed: u64) -> Result<Labelled, SearchError> {
    let mut rng = Rng::new(seed);
    let points = Points::new(inputs, (0..instances * inputs).map(|_| rng.normal()).collect())?;
    let labels = (0..instances).map(|instance| (instance + rng.below(2)) % 2).collect();
    Labelled::new(points, labels, vec!["0".into(), "1".into()])
}

/// How long this thread has had a core so far, where Linux says so.
fn core_seconds() -> Option<f64> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split_whitespace().next()?.parse::<f64>().ok().map(|nanoseconds| nanoseconds / 1e9)
}

/// Seconds of one core: what other programs took meanwhile does not count. The system counts in ticks, so short times
/// are those of the clock.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let (start, before) = (Instant::now(), core_seconds());
    let result = work();
    let elapsed = start.elapsed().as_secs_f64();
    let on_core = core_seconds().zip(before).map(|(after, before)| after - before);
    (result, if elapsed < 0.05 { elapsed } else { on_core.unwrap_or(elapsed) })
}

/// Dichotomies, nodes, errors and seconds; none if it took too long.
fn measure(instances: usize, inputs: usize, hidden: usize, seed: u64) -> Result<Option<[f64; 4]>, SearchError> {
    let data = problem(instances, inputs, seed)?;
    let interrupt = AtomicBool::new(false);
    let budget = Budget { time: Some(LIMIT), ..Budget::default() };
    let learner = LinearProgram::default();
    let setup = Setup {
        data: &data,
        hidden: &[hidden],
        loss: Loss::ZeroOne,
        learner: &learner,
        seed: 1,
        threads: 1,
        known: None,
        picture: None,
    };
    let control = Control::new(budget, &interrupt, &|_| {});
    let (found, seconds) = timed(|| Exhaustive.run(&setup, &control));
    let found = found?;
    let again = Control::new(budget, &interrupt, &|_| {});
    let listed = dichotomies(&data.points, 1, &again)?.map_or(0, |listed| listed.len());
    Ok(found.proved().then_some([listed as f64, control.nodes() as f64, found.loss, seconds]))
}

fn main() -> Result<(), SearchError> {
    println!("instances,inputs,hidden,dichotomies,nodes,errors,seconds");
    for (inputs, hidden) in [(2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2)] {
        for instances in [8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 160, 200] {
            let mut runs = vec![];
            for seed in 1..=3 {
                match measure(instances, inputs, hidden, seed)? {
                    Some(run) => runs.push(run),
                    None => break,
                }
            }
            if runs.len() < 3 {
                break;
            }
            runs.sort_by(|a, b| a[3].total_cmp(&b[3]));
            let [listed, nodes, errors, seconds] = runs[1];
            println!("{instances},{inputs},{hidden},{listed},{nodes},{errors},{seconds:.4}");
        }
    }
    Ok(())
}
