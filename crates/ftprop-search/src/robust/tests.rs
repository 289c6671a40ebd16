use serde_json::Value;

use super::*;
use crate::rng::Rng;

fn config() -> RobustConfig {
    RobustConfig { time: Duration::from_secs(20), memory: 1 << 28, threads: 1 }
}

/// Weights that are small whole numbers, so that ties and sums of zero happen.
fn network(rng: &mut Rng, widths: &[usize]) -> ExactNetwork {
    let layer = |pair: &[usize], rng: &mut Rng| {
        let unit = |rng: &mut Rng| (0..=pair[0]).map(|_| Rational::from(rng.below(9) as i64 - 4)).collect();
        (0..pair[1]).map(|_| unit(rng)).collect()
    };
    ExactNetwork { layers: widths.windows(2).map(|pair| layer(pair, rng)).collect() }
}

fn eighths(rng: &mut Rng, count: usize) -> Vec<Rational> {
    (0..count).map(|_| Rational::new((rng.below(17) as i64 - 8).into(), 8u32.into())).collect()
}

fn ball(radius: &str) -> Ball {
    Ball { radius: Ball::radius(radius).unwrap(), inputs: None, range: None }
}

fn asked(network: &ExactNetwork, row: &[Rational], ball: &Ball) -> (Question, Around) {
    let floats = row.iter().map(Rational::approximate);
    let question = Question::new(network, ball, row.iter().map(Rational::denominator), floats).unwrap();
    let around = question.around(row).unwrap();
    (question, around)
}

fn decided((question, around): &(Question, Around)) -> Decision {
    question.decide(around, &config(), &AtomicBool::new(false))
}

/// The class of every input of a grid in the ball: what a proof must not contradict.
fn grid_changes((question, around): &(Question, Around), own: usize) -> bool {
    let Region { low, high } = &around.region;
    let steps = 8u32;
    let mut at = vec![0u32; low.len()];
    loop {
        let value =
            |(i, k): (usize, &u32)| Rational::new(&low[i] * steps + (&high[i] - &low[i]) * *k, &question.scale * steps);
        let input: Vec<Rational> = at.iter().enumerate().map(value).collect();
        if question.class_within(around, &input).expect("the grid lies in the box") != own {
            return true;
        }
        let Some(next) = at.iter().position(|&k| k < steps) else { return false };
        at[..next].fill(0);
        at[next] += 1;
    }
}

#[test]
fn answers_agree_with_a_grid_and_prove_themselves() {
    let mut rng = Rng::new(3);
    let (mut robust, mut changes, mut undecided) = (0, 0, 0);
    for case in 0..240 {
        let inputs = 1 + case % 3;
        let widths =
            [vec![inputs, 6, 3], vec![inputs, 5, 4, 3], vec![inputs, 4, 1], vec![inputs, 3]][case / 3 % 4].clone();
        let network = network(&mut rng, &widths);
        let row = eighths(&mut rng, inputs);
        let mut ball = ball(["1/8", "1/3", "1"][case / 12 % 3]);
        ball.inputs = (case % 7 == 0).then(|| vec![0]);
        ball.range = (case % 5 == 0).then(|| (Rational::from(-1), Rational::from(1)));
        let asked = asked(&network, &row, &ball);
        let (question, around) = &asked;
        let decision = decided(&asked);
        match &decision.answer {
            Robustness::Robust => {
                assert!(!grid_changes(&asked, decision.class), "case {case}");
                assert!(question.check(around, decision.class, decision.proof.as_ref().unwrap()).is_some());
                robust += 1;
            }
            Robustness::Changes { input, class } => {
                assert_ne!(*class, decision.class);
                assert_eq!(question.class_within(around, input), Some(*class), "case {case}");
                changes += 1;
            }
            // Units that meet in a boundary and nowhere else, which weights of few digits bring about.
            Robustness::Undecided { .. } => undecided += 1,
        }
    }
    assert!(robust > 50 && changes > 50 && undecided < 12, "{robust} {changes} {undecided}");
}

#[test]
fn numbers_that_need_more_than_128_bits_are_decided_alike() {
    let mut rng = Rng::new(5);
    let large = Rational::new(BigInt::one(), BigUint::one() << 200u32);
    for _ in 0..30 {
        let plain = network(&mut rng, &[2, 5, 4, 3]);
        let mut long = plain.clone();
        // Far too little to change anything, and no longer held by 128 bits.
        long.layers[0].iter_mut().for_each(|unit| unit[0] = unit[0].clone() + large.clone());
        let row = eighths(&mut rng, 2);
        let decide = |network: &ExactNetwork| {
            let asked = asked(network, &row, &ball("1/7"));
            (asked.0.small.is_some(), decided(&asked))
        };
        let ((small, first), (also_small, second)) = (decide(&plain), decide(&long));
        assert!(small && !also_small);
        let kind = |decision: &Decision| std::mem::discriminant(&decision.answer);
        assert_eq!((first.class, kind(&first)), (second.class, kind(&second)));
    }
}

#[test]
fn ties_go_to_the_first_class_and_zero_is_minus() {
    // The outputs are h and −h: class 0 for h = 1. At x = 0 the unit says −1, and nothing above 0 is in the ball.
    let unit = |w: i64, b: i64| vec![Rational::from(w), Rational::from(b)];
    let network = ExactNetwork { layers: vec![vec![unit(1, 0)], vec![unit(1, 0), unit(-1, 0)]] };
    let decide = |x: &str, radius: &str| {
        let row = [x.parse::<Rational>().unwrap()];
        decided(&asked(&network, &row, &ball(radius)))
    };
    assert_eq!(decide("-1/2", "1/2").answer, Robustness::Robust, "the boundary itself says −1");
    assert!(matches!(decide("1/2", "1/2").answer, Robustness::Changes { class: 1, .. }));
    assert!(matches!(decide("-1/2", "2/3").answer, Robustness::Changes { class: 0, .. }));
    // Equal outputs everywhere: the first class wins, whatever happens.
    let tie = ExactNetwork { layers: vec![vec![unit(1, 0)], vec![unit(1, 0), unit(1, 0)]] };
    assert_eq!(decided(&asked(&tie, &[Rational::from(1)], &ball("5"))).answer, Robustness::Robust);
}

#[test]
fn radii_are_read_as_they_are_written() {
    assert_eq!(Ball::radius("8/255").unwrap().to_string(), "8/255");
    assert_eq!(Ball::radius("0.10").unwrap().to_string(), "1/10");
    assert_eq!(Ball::radius("2/4").unwrap().to_string(), "1/2");
    for bad in ["", "0", "-1", "1/0", "a", "1/2/3", "nan"] {
        assert!(Ball::radius(bad).is_err(), "{bad}");
    }
}

/// Every text and number of a certificate, by its path.
fn places(value: &Value, path: &mut Vec<String>, all: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            path.push(key.clone());
            places(value, path, all);
            path.pop();
        }),
        Value::Array(list) => list.iter().enumerate().for_each(|(at, value)| {
            path.push(at.to_string());
            places(value, path, all);
            path.pop();
        }),
        _ => all.push(path.clone()),
    }
}

fn forged(value: &Value, rng: &mut Rng) -> Value {
    let mut all = vec![];
    places(value, &mut vec![], &mut all);
    let mut forged = value.clone();
    let pointer = format!("/{}", all[rng.below(all.len())].join("/"));
    let place = forged.pointer_mut(&pointer).unwrap();
    *place = match place.clone() {
        Value::String(text) if text.contains(' ') => {
            let mut words: Vec<&str> = text.split(' ').collect();
            let at = rng.below(words.len());
            match rng.below(4) {
                0 => words[at] = "b",
                1 => words[at] = ["0", "1", "2", "c0", "c1"][rng.below(5)],
                2 => drop(words.remove(at)),
                _ => words.truncate(at.max(1)),
            }
            words.join(" ").into()
        }
        Value::String(text) => match rng.below(4) {
            0 => (text + "0").into(),
            1 => format!("-{text}").into(),
            2 => ["b", "1", "0", "robust", "undecided", "1/2"][rng.below(6)].into(),
            _ => text.get(1..).unwrap_or("").into(),
        },
        Value::Number(number) => (number.as_i64().unwrap_or(0) + [-1, 1, 3, -7][rng.below(4)]).into(),
        other => other,
    };
    forged
}

/// Whether every claim of a certificate is true, decided anew.
fn is_true(certificate: &Value) -> bool {
    let read = |value: &Value| serde_json::from_value::<Vec<Rational>>(value.clone()).unwrap();
    let network = ExactNetwork { layers: serde_json::from_value(certificate["network"].clone()).unwrap() };
    let ball = &certificate["ball"];
    let inputs: Option<Vec<usize>> = serde_json::from_value(ball["inputs"].clone()).unwrap();
    let ball = Ball {
        radius: serde_json::from_value(ball["radius"].clone()).unwrap(),
        inputs: inputs.map(|inputs| inputs.iter().map(|input| input - 1).collect()),
        range: serde_json::from_value(ball["range"].clone()).unwrap(),
    };
    certificate["instances"].as_array().unwrap().iter().all(|claim| {
        let asked = asked(&network, &read(&claim["input"]), &ball);
        let decision = decided(&asked);
        let answer = match claim["answer"]["kind"].as_str().unwrap() {
            "robust" => !matches!(decision.answer, Robustness::Changes { .. }) && !grid_changes(&asked, decision.class),
            "changes" => decision.answer != Robustness::Robust,
            _ => true,
        };
        decision.class as u64 == claim["class"].as_u64().unwrap() && answer
    })
}

#[test]
fn no_forged_certificate_is_accepted_unless_it_is_true() {
    let (accepted, refused) = forge_all(8);
    assert!(accepted > 30 && refused > 200, "{accepted} {refused}");
}

#[test]
#[ignore = "minutes: cargo test --release -p ftprop-search ten_thousand -- --ignored"]
fn ten_thousand_forged_certificates_are_refused_unless_they_are_true() {
    let (accepted, refused) = forge_all(105);
    assert!(accepted + refused > 10_000);
    println!("robustness: {refused} refused, {accepted} say something else that is true");
}

/// Forges 100 certificates of each of so many networks; returns how many were accepted, and true, and how many not.
fn forge_all(networks: usize) -> (usize, usize) {
    let mut rng = Rng::new(11);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..networks {
        let network = network(&mut rng, &[3, 6, 4, 3]);
        let rows: Vec<f64> = (0..9).map(|_| (rng.below(17) as f64 - 8.0) / 8.0).collect();
        let points = Points::new(3, rows).unwrap();
        let ball = Ball { range: Some((Rational::from(-1), Rational::from(1))), ..ball("1/4") };
        let stop = AtomicBool::new(false);
        let decisions = robustness(&network, &points, &ball, &config(), &stop, &|_, _| {}).unwrap();
        let certificate = RobustCertificate::new(&network, &points, &[0, 1, 2], &ball, &decisions).unwrap();
        let good = RobustCertificate::from_json(&certificate.to_json()).unwrap();
        let meant = Meant { network: &network, data: &points, range: &ball.range };
        assert!(good.verify(Some(&meant)).unwrap().complete);
        assert_eq!(good.verify(None).unwrap().trusted.len(), 3, "network, range and instances are on trust");
        let value = serde_json::to_value(&certificate).unwrap();
        for _ in 0..100 {
            let forged = forged(&value, &mut rng);
            let Ok(read) = RobustCertificate::from_json(&forged.to_string()) else {
                refused += 1;
                continue;
            };
            if forged == value {
                continue;
            }
            assert!(read.verify(None).is_err(), "the checksum alone refuses it");
            match read.sealed().verify(None) {
                Ok(_) => {
                    assert!(is_true(&forged), "{forged}");
                    accepted += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    (accepted, refused)
}

/// A ball of nothing, a range that is not the model's, no instances or one of them again and again: all of that would
/// sound like more than it is.
#[test]
fn what_a_proof_is_about_is_compared_and_said() {
    let unit = |w: i64, v: i64, b: i64| vec![Rational::from(w), Rational::from(v), Rational::from(b)];
    let network = ExactNetwork { layers: vec![vec![unit(1, 0, 0), unit(0, 0, 0)]] };
    let points = Points::from_rows(&[vec![3.0, 0.0], vec![-3.0, 0.0]]).unwrap();
    let meant = Meant { network: &network, data: &points, range: &None };
    let certificate = |ball: &Ball| {
        let stop = AtomicBool::new(false);
        let decisions = robustness(&network, &points, ball, &config(), &stop, &|_, _| {}).unwrap();
        RobustCertificate::new(&network, &points, &[0, 1], ball, &decisions).unwrap()
    };
    // Only the first input matters.
    let part = certificate(&Ball { inputs: Some(vec![1]), ..ball("1000") });
    let said = part.verify(Some(&meant)).unwrap();
    assert!(
        said.complete && said.to_string().contains("2 instances keep their class within 1000 (input 2 of 2)"),
        "{said}"
    );
    let value = serde_json::to_value(&part).unwrap();
    let refusal = |pointer: &str, new: Value| {
        let mut forged = value.clone();
        *forged.pointer_mut(pointer).unwrap() = new;
        let read = RobustCertificate::from_json(&forged.to_string()).unwrap().sealed();
        read.verify(Some(&meant)).unwrap_err().to_string()
    };
    assert!(refusal("/ball/inputs", Value::Array(vec![])).contains("no input may move"));
    assert!(
        refusal("/ball/range", serde_json::json!(["-3", "3"])).contains("lie between -3 and 3, and the model's are")
    );
    assert!(refusal("/instances", Value::Array(vec![])).contains("about no instances"));
    let twice = Value::Array(vec![value["instances"][0].clone(); 2]);
    assert!(refusal("/instances", twice).contains("instance 1 twice"));
    let moving = |inputs: &[usize]| Ball { inputs: Some(inputs.to_vec()), ..ball("1") }.moving(9).unwrap();
    assert_eq!((moving(&[0]), moving(&[5, 3, 0, 4, 3])), ("input 1 of 9".into(), "inputs 1,4-6 of 9".into()));
}
