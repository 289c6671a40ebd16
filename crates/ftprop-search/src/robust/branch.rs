//! Deciding about one instance: branch and bound over the signs of first-layer units.
//!
//! Units whose sign the box leaves open are decided one after the other. A branch ends where no other class can win any
//! more, or where its units exclude each other. Such a conflict often names few of them; it is kept, and ends every
//! branch that has it, or decides the last unit that is missing to it.

use super::attack::{around, attack};
use super::bound::{Conflict, Exact, Side, Verdict, float};
use super::halfspaces::{HalfSpaces, Meeting, Point};
use super::network::Layer;

/// A tree of branches, each node before what is below it: first where the unit says +1, then where it says −1.
pub(super) type Tree = Vec<Node>;

/// One node of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Node {
    /// A unit of the first layer, which says either +1 or −1.
    Split(usize),
    /// Here units exclude each other: the number of the conflict.
    Conflict(usize),
    /// Here no other class can win.
    Bound,
}

/// What excludes every other class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Proof {
    pub(super) conflicts: Vec<Conflict>,
    pub(super) tree: Tree,
}

impl Proof {
    /// How many branches the tree has, if it proves that no input of the box has another class than `own`.
    pub(super) fn check(&self, exact: &Exact<'_>, own: usize) -> Option<usize> {
        if !self.conflicts.iter().all(|conflict| exact.excludes(conflict)) {
            return None;
        }
        let mut sides = exact.fixed().to_vec();
        // Units on the way to the node that comes next, and whether their second side is being looked at.
        let mut path: Vec<(usize, bool)> = vec![];
        let mut branches = 0;
        for (at, node) in self.tree.iter().enumerate() {
            let closed = match *node {
                Node::Split(unit) if sides.get(unit) == Some(&Side::Free) => {
                    sides[unit] = Side::Plus;
                    path.push((unit, false));
                    continue;
                }
                Node::Split(_) => false,
                Node::Conflict(number) => {
                    self.conflicts.get(number).is_some_and(|all| all.iter().all(|&(unit, e)| sides[unit] == side_of(e)))
                }
                Node::Bound => exact.verdict(&sides, own) == Verdict::Closed,
            };
            if !closed {
                return None;
            }
            branches += 1;
            while let Some(&(unit, true)) = path.last() {
                sides[unit] = Side::Free;
                path.pop();
            }
            let Some((unit, second)) = path.last_mut() else {
                return (at + 1 == self.tree.len()).then_some(branches);
            };
            *second = true;
            sides[*unit] = Side::Minus;
        }
        None
    }
}

fn side_of(multiplier: i64) -> Side {
    if multiplier > 0 { Side::Plus } else { Side::Minus }
}

/// Why a search ended without a proof.
pub(super) enum Halt {
    /// An input whose class is another was confirmed.
    Found,
    /// Out of time, or asked to stop.
    Stopped,
    /// The proof takes more memory than it may.
    Full,
    /// A branch in which floats can neither find an input nor exclude one.
    Stuck,
}

/// Looks for an input whose class is another.
pub(super) struct Search<'a> {
    exact: &'a Exact<'a>,
    own: usize,
    spaces: HalfSpaces,
    /// The layers above the first, as floats.
    above: Vec<Layer<f64>>,
    /// First-layer units that the box leaves open.
    free: Vec<usize>,
    /// Of those, the sides decided on the way to the present branch.
    decided: Vec<Side>,
    /// Of all first-layer units.
    sides: Vec<Side>,
    conflicts: Vec<Known>,
    /// Confirms an input exactly.
    confirm: &'a mut dyn FnMut(&[f64]) -> bool,
    stop: &'a dyn Fn() -> bool,
    /// Nodes of the tree that may be kept.
    room: usize,
    /// Branches looked at.
    pub(super) nodes: u64,
}

/// A conflict among free units, by their place in `free`.
struct Known {
    exact: Conflict,
    terms: Vec<(usize, Side)>,
}

/// A branch: a point in it, if one is known, and multipliers to begin with.
#[derive(Clone)]
struct Branch {
    point: Option<Point>,
    prices: Vec<f64>,
}

/// Attempts to find an input for each class before branching.
const ATTEMPTS: usize = 6;
/// Steps for a new branch, and where everything is decided.
const STEPS: (usize, usize) = (60, 20_000);
/// Bits of the multipliers in a conflict, tried in turn.
const BITS: [i32; 3] = [12, 26, 50];

impl<'a> Search<'a> {
    pub(super) fn new(
        exact: &'a Exact<'a>,
        own: usize,
        confirm: &'a mut dyn FnMut(&[f64]) -> bool,
        stop: &'a dyn Fn() -> bool,
        room: usize,
    ) -> Self {
        let sides = exact.fixed().to_vec();
        let free: Vec<usize> = (0..sides.len()).filter(|&unit| sides[unit] == Side::Free).collect();
        let floats = |layer: &Layer<_>| Layer {
            inputs: layer.inputs,
            weights: layer.weights.iter().map(float).collect(),
            biases: layer.biases.iter().map(float).collect(),
        };
        Search {
            exact,
            own,
            spaces: HalfSpaces::new(exact.network(), exact.region(), &free),
            above: exact.network().0.iter().skip(1).map(floats).collect(),
            decided: vec![Side::Free; free.len()],
            free,
            sides,
            conflicts: vec![],
            confirm,
            stop,
            room,
            nodes: 0,
        }
    }

    /// A proof that no input of the box has another class.
    pub(super) fn prove(&mut self) -> Result<Proof, Halt> {
        let mut tree = vec![];
        if let Verdict::Open { classes, .. } = self.exact.verdict(&self.sides, self.own) {
            let others: Vec<usize> = (0..classes.len()).filter(|&class| classes[class]).collect();
            let float = around(self.exact.network(), self.exact.region());
            if attack(&float, self.own, &others, ATTEMPTS, self.stop, self.confirm) {
                return Err(Halt::Found);
            }
        }
        let centre = self.spaces.point(vec![0.0; self.spaces.inputs]);
        let root = Branch { point: Some(centre), prices: vec![0.0; self.free.len()] };
        self.branch(root, None, &mut tree)?;
        Ok(Proof { conflicts: self.conflicts.drain(..).map(|known| known.exact).collect(), tree })
    }

    fn decide(&mut self, unit: usize, side: Side) {
        self.decided[unit] = side;
        self.sides[self.free[unit]] = side;
    }

    /// Closes the branch of the decided units, of which `newest` came last.
    fn branch(&mut self, mut branch: Branch, newest: Option<usize>, tree: &mut Tree) -> Result<(), Halt> {
        if (self.stop)() {
            return Err(Halt::Stopped);
        }
        if tree.len() > self.room {
            return Err(Halt::Full);
        }
        self.nodes += 1;
        let (classes, spreads) = match self.exact.verdict(&self.sides, self.own) {
            Verdict::Closed => {
                tree.push(Node::Bound);
                return Ok(());
            }
            Verdict::Open { classes, spreads } => (classes, spreads),
        };
        if let Some(unit) = newest
            && branch.point.is_none()
        {
            let last = !self.decided.contains(&Side::Free);
            let steps = if last { STEPS.1 } else { STEPS.0 };
            match self.spaces.meet(&self.decided, unit, &mut branch.prices, steps, self.stop) {
                Meeting::At(point) => {
                    if (self.confirm)(&point.input) {
                        return Err(Halt::Found);
                    }
                    branch.point = Some(point);
                }
                Meeting::Nowhere(prices) => {
                    if let Some(number) = self.learn(prices) {
                        tree.push(Node::Conflict(number));
                        return Ok(());
                    }
                }
                Meeting::Unclear => {}
            }
        }
        // A unit that a conflict decides: its one side ends at once.
        if let Some((unit, side, number)) = self.forced() {
            let ended = vec![Node::Conflict(number)];
            let other = opposite(side);
            self.decide(unit, other);
            let point = branch.point.filter(|point| agrees(point.sums[unit], other));
            let mut rest = vec![];
            let done = self.branch(Branch { point, ..branch }, Some(unit), &mut rest);
            self.decide(unit, Side::Free);
            done?;
            let (plus, minus) = if other == Side::Plus { (rest, ended) } else { (ended, rest) };
            join(tree, self.free[unit], plus, minus);
            return Ok(());
        }
        let Some(unit) = self.choose(&classes, &spreads) else {
            return Err(if (self.stop)() { Halt::Stopped } else { Halt::Stuck });
        };
        let first = branch
            .point
            .as_ref()
            .map_or(Side::Plus, |point| if point.sums[unit] > 0.0 { Side::Plus } else { Side::Minus });
        let mut parts = [vec![], vec![]];
        for (side, part) in [first, opposite(first)].into_iter().zip(&mut parts) {
            self.decide(unit, side);
            let done = match self.contradicted(unit) {
                Some(number) => {
                    part.push(Node::Conflict(number));
                    Ok(())
                }
                None => {
                    let point = branch.point.as_ref().filter(|point| agrees(point.sums[unit], side)).cloned();
                    self.branch(Branch { point, prices: branch.prices.clone() }, Some(unit), part)
                }
            };
            self.decide(unit, Side::Free);
            done?;
        }
        let [a, b] = parts;
        let (plus, minus) = if first == Side::Plus { (a, b) } else { (b, a) };
        join(tree, self.free[unit], plus, minus);
        Ok(())
    }

    /// Keeps a conflict, if whole numbers confirm it.
    fn learn(&mut self, prices: Vec<f64>) -> Option<usize> {
        let sparse = self.spaces.sparse(prices);
        let exact = BITS.into_iter().find_map(|bits| {
            let whole = self.spaces.whole(&sparse, bits);
            let terms = whole.iter().zip(&self.free).filter(|(e, _)| **e != 0);
            let conflict: Conflict = terms.map(|(&e, &unit)| (unit, e)).collect();
            self.exact.excludes(&conflict).then_some((conflict, whole))
        });
        let (exact, whole) = exact?;
        let terms = whole.iter().enumerate().filter(|(_, e)| **e != 0).map(|(place, &e)| (place, side_of(e))).collect();
        self.conflicts.push(Known { exact, terms });
        Some(self.conflicts.len() - 1)
    }

    /// A conflict that the decided units have, the newest among them.
    fn contradicted(&self, newest: usize) -> Option<usize> {
        let has = |known: &Known| {
            known.terms.iter().any(|&(unit, _)| unit == newest)
                && known.terms.iter().all(|&(unit, side)| self.decided[unit] == side)
        };
        self.conflicts.iter().rposition(has)
    }

    /// A free unit, the side that a conflict forbids it, and that conflict.
    fn forced(&self) -> Option<(usize, Side, usize)> {
        self.conflicts.iter().enumerate().rev().find_map(|(number, known)| {
            let mut missing = None;
            for &(unit, side) in &known.terms {
                if self.decided[unit] == Side::Free && missing.is_none() {
                    missing = Some((unit, side));
                } else if self.decided[unit] != side {
                    return None;
                }
            }
            missing.map(|(unit, side)| (unit, side, number))
        })
    }

    /// The free unit on which most depends: what the leads of open classes depend on, layer by layer.
    fn choose(&self, classes: &[bool], spreads: &[Vec<Option<f64>>]) -> Option<usize> {
        let (outputs, between) = self.above.split_last()?;
        let mut weights = vec![0.0f64; outputs.inputs];
        for class in (0..classes.len()).filter(|&class| classes[class]) {
            let lead = outputs.row(class).iter().zip(outputs.row(self.own)).map(|(k, c)| (k - c).abs());
            weights.iter_mut().zip(lead).for_each(|(w, l)| *w = w.max(l));
        }
        for (layer, spreads) in between.iter().zip(spreads).rev() {
            let mut below = vec![0.0; layer.inputs];
            for (unit, spread) in spreads.iter().enumerate() {
                if let Some(spread) = spread {
                    let by = weights[unit] / spread.max(f64::MIN_POSITIVE);
                    below.iter_mut().zip(layer.row(unit)).for_each(|(b, w)| *b += by * w.abs());
                }
            }
            weights = below;
        }
        let score = |&unit: &usize| weights[self.free[unit]] * (0.2 + self.spaces.centre(unit).abs());
        let open = (0..self.free.len()).filter(|&unit| self.decided[unit] == Side::Free);
        open.max_by(|a, b| score(a).total_cmp(&score(b)))
    }
}

fn opposite(side: Side) -> Side {
    if side == Side::Plus { Side::Minus } else { Side::Plus }
}

fn agrees(sum: f64, side: Side) -> bool {
    if side == Side::Plus { sum > 1e-9 } else { sum < -1e-9 }
}

fn join(tree: &mut Tree, unit: usize, plus: Tree, minus: Tree) {
    tree.push(Node::Split(unit));
    tree.extend(plus);
    tree.extend(minus);
}
