//! Finds a network for the exclusive or by searching for targets, writes a certificate that no better one exists, and
//! proves it again in exact arithmetic.
//!
//!     cargo run --release -p ftprop --example proof

use ftprop::search::{Certificate, Labelled, Problem, SearchKind, SolveConfig, Status, solve};
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let problem = Problem::generate("xor".parse()?, 1)?;
    let config = SolveConfig { hidden: vec![2], search: Some(SearchKind::Exhaustive), ..SolveConfig::default() };
    let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {})?;
    println!("{solution}");
    assert_eq!((solution.status, solution.train.errors), (Status::Optimal, 0));

    let certificate = Certificate::of_solution(&problem.train, &solution)?;
    println!("{}", certificate.verify(&problem.train)?);

    // It is a proof about these instances and no others.
    let other = Labelled::new(problem.train.points.clone(), vec![0, 0, 0, 1], problem.train.classes.clone())?;
    assert!(certificate.verify(&other).is_err(), "a proof about xor passed for and");
    Ok(())
}
