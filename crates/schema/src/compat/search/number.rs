//! Numbers: an interval, a grid, grids to avoid, and listed values.

use num_bigint::BigInt;
use num_traits::{One, Pow, ToPrimitive, Zero};
use serde_json::{Number, Value};

use super::{Outcome, Search};
use crate::compat::exact::{self, Exact};
use crate::compat::term::{Kind, Lit, Scalar, Term};

/// Most grid points that are tried.
const POINTS_MAX: u32 = 3_000;

/// Grid points that are tried however long the numbers are.
const POINTS_MIN: u32 = 16;

/// Length of numbers up to which reckoning costs next to nothing, in bits.
const BITS_USUAL: u64 = 256;

/// Grid points tried per decimal place when there is no grid.
const POINTS_PER_PLACE: u32 = 60;

/// Decimal places tried when there is no grid.
const PLACES_MAX: u32 = 16;

/// Most zeros of a round number; no double has more.
const PLACES_ROUND_MAX: u32 = 308;

/// One end of an interval; the flag says that the end itself is outside.
type End = Option<(Exact, bool)>;

#[derive(Debug, Default)]
struct Numbers {
    low: End,
    high: End,
    grid: Option<Exact>,
    avoid: Vec<Exact>,
    excluded: Vec<Scalar>,
}

impl Search<'_> {
    pub(super) fn number(&self, facts: &[Lit], kind: Kind) -> Outcome {
        let mut numbers = Numbers::default();
        match kind {
            Kind::Integer => numbers.on_grid(&exact::one()),
            _ => numbers.avoid.push(exact::one()),
        }
        for lit in facts {
            numbers.add(self.pool.term(*lit), lit.negated());
        }
        if kind == Kind::Fraction && numbers.is_beyond_fractions() {
            return Outcome::Empty;
        }
        let (allowed, excluded) = self.listed(facts);
        numbers.excluded = excluded;
        match allowed {
            Some(allowed) => numbers.among(&allowed),
            None => numbers.any(),
        }
    }
}

impl Numbers {
    fn on_grid(&mut self, step: &Exact) {
        self.grid = Some(match &self.grid {
            Some(grid) => exact::lcm(grid, step),
            None => step.clone(),
        });
    }

    fn add(&mut self, term: &Term, negated: bool) {
        match (term, negated) {
            (Term::Least(bound, strict), false) => self.raise(bound, *strict),
            (Term::Least(bound, strict), true) => self.lower(bound, !*strict),
            (Term::Most(bound, strict), false) => self.lower(bound, *strict),
            (Term::Most(bound, strict), true) => self.raise(bound, !*strict),
            (Term::MultipleOf(step), false) => self.on_grid(step),
            (Term::MultipleOf(step), true) => self.avoid.push(step.clone()),
            _ => {}
        }
    }

    fn raise(&mut self, bound: &Exact, strict: bool) {
        let end = (bound.clone(), strict);
        self.low = Some(self.low.take().map_or(end.clone(), |low| low.max(end)));
    }

    fn lower(&mut self, bound: &Exact, strict: bool) {
        // Of two equal upper ends the strict one is the narrower.
        let narrower = match &self.high {
            Some((high, was)) => bound < high || (bound == high && strict && !*was),
            None => true,
        };
        if narrower {
            self.high = Some((bound.clone(), strict));
        }
    }

    /// Whether it is all so far from zero that a double is a whole number: others cannot be read.
    fn is_beyond_fractions(&self) -> bool {
        let far = Exact::from_integer(BigInt::one() << f64::MANTISSA_DIGITS);
        self.low.as_ref().is_some_and(|(low, _)| *low >= far)
            || self.high.as_ref().is_some_and(|(high, _)| *high <= -far)
    }

    fn fits(&self, value: &Exact) -> bool {
        let above = |(low, strict): &(Exact, bool)| value > low || (!strict && value == low);
        let below = |(high, strict): &(Exact, bool)| value < high || (!strict && value == high);
        self.low.as_ref().is_none_or(above)
            && self.high.as_ref().is_none_or(below)
            && self.grid.as_ref().is_none_or(|grid| exact::is_multiple(value, grid))
            && !self.avoid.iter().any(|step| exact::is_multiple(value, step))
            && self.excluded.binary_search(&Scalar::Number(value.clone())).is_err()
    }

    fn among(&self, allowed: &[Scalar]) -> Outcome {
        let mut outcome = Outcome::Empty;
        for scalar in allowed {
            let Scalar::Number(value) = scalar else {
                continue;
            };
            if self.fits(value) {
                outcome = outcome.or(written(value));
            }
        }
        outcome
    }

    fn any(&self) -> Outcome {
        if let (Some((low, _)), Some((high, _))) = (&self.low, &self.high) {
            if low > high {
                return Outcome::Empty;
            }
            if low == high {
                return if self.fits(low) { written(low) } else { Outcome::Empty };
            }
        }
        match &self.grid {
            Some(grid) => self.on_points(grid),
            None => self.between(),
        }
    }

    /// So many points, or fewer where numbers are so long that each of them costs more.
    fn affordable(&self, points: u32, grid: &Exact) -> u32 {
        let ends = [&self.low, &self.high].into_iter().flatten().map(|(end, _)| end);
        let longest = ends.chain(&self.avoid).chain([grid]).map(exact::bits).max();
        let times = (longest.unwrap_or(0) / BITS_USUAL).max(1);
        u32::try_from(u64::from(points) / (times * times)).unwrap_or(points).max(POINTS_MIN)
    }

    /// Points of the grid within the interval, those near zero first.
    fn on_points(&self, grid: &Exact) -> Outcome {
        if self.avoid.iter().any(|step| exact::is_multiple(grid, step)) {
            return Outcome::Empty;
        }
        let budget = self.affordable(POINTS_MAX, grid)
            + u32::try_from(self.excluded.len()).unwrap_or(u32::MAX / 2);
        let mut points = Points::new(self, grid, budget);
        let mut doubt = Outcome::Empty;
        for point in points.by_ref() {
            let value = Exact::from_integer(point) * grid;
            if !self.fits(&value) {
                continue;
            }
            doubt = doubt.or(written(&value));
            if matches!(doubt, Outcome::Found(_)) {
                return doubt;
            }
        }
        if points.is_complete() {
            return doubt;
        }
        match self.round(grid).or_else(|| self.next_to_an_end()) {
            Some(number) => Outcome::found(Value::Number(number)),
            None => Outcome::unknown("multipleOf with a sparse grid"),
        }
    }

    /// A point of the grid with one digit and zeros: far from zero, few others can be written.
    fn round(&self, grid: &Exact) -> Option<Number> {
        let ten = BigInt::from(10);
        let mut power = BigInt::one();
        for _ in 0..=PLACES_ROUND_MAX {
            for digit in 1..=9 {
                let value = Exact::from_integer(&power * BigInt::from(digit)) * grid;
                let both = [value.clone(), -value];
                let found = both.iter().filter(|v| self.fits(v)).find_map(exact::to_number);
                if found.is_some() {
                    return found;
                }
            }
            power *= &ten;
        }
        None
    }

    /// A number right beside an end of the interval, where only numbers that can be written count.
    fn next_to_an_end(&self) -> Option<Number> {
        let ends = [(&self.low, true), (&self.high, false)];
        for (end, up) in ends.into_iter().filter_map(|(end, up)| Some((&end.as_ref()?.0, up))) {
            let mut float = end.to_f64()?;
            for _ in 0..POINTS_MIN {
                let written = Number::from_f64(float)?;
                if exact::from_number(&written).is_some_and(|value| self.fits(&value)) {
                    return Some(written);
                }
                float = if up { float.next_up() } else { float.next_down() };
            }
        }
        None
    }

    /// Some number of an interval that is more than a point: short decimals first.
    fn between(&self) -> Outcome {
        for places in 0..=PLACES_MAX {
            let step = Exact::new(BigInt::one(), BigInt::from(10).pow(places));
            let budget = POINTS_PER_PLACE + u32::try_from(self.excluded.len()).unwrap_or(0);
            for point in Points::new(self, &step, budget) {
                let value = Exact::from_integer(point) * &step;
                if self.fits(&value)
                    && let found @ Outcome::Found(_) = written(&value)
                {
                    return found;
                }
            }
        }
        match self.next_to_an_end() {
            Some(number) => Outcome::found(Value::Number(number)),
            None => Outcome::unknown("a range of numbers too narrow for a decimal"),
        }
    }
}

fn written(value: &Exact) -> Outcome {
    match exact::to_number(value) {
        Some(number) => Outcome::found(Value::Number(number)),
        None => Outcome::unknown("a number that JSON cannot write exactly"),
    }
}

/// The multiples of a step in an interval, walked outwards from the one nearest to zero.
struct Points {
    up: Option<BigInt>,
    down: Option<BigInt>,
    last: Option<BigInt>,
    first: Option<BigInt>,
    left: u32,
    turn: bool,
}

impl Points {
    fn new(numbers: &Numbers, step: &Exact, budget: u32) -> Self {
        let first = numbers.low.as_ref().map(|(low, _)| (low / step).ceil().to_integer());
        let last = numbers.high.as_ref().map(|(high, _)| (high / step).floor().to_integer());
        let mut start = BigInt::zero();
        if let Some(first) = first.as_ref().filter(|first| **first > start) {
            start = first.clone();
        } else if let Some(last) = last.as_ref().filter(|last| **last < start) {
            start = last.clone();
        }
        let down = Some(&start - BigInt::one());
        Self { up: Some(start), down, last, first, left: budget, turn: true }
    }

    fn is_complete(&self) -> bool {
        self.up.is_none() && self.down.is_none()
    }

    fn step_up(&mut self) -> Option<BigInt> {
        let point = self.up.take()?;
        if self.last.as_ref().is_some_and(|last| point > *last) {
            return None;
        }
        self.up = Some(&point + BigInt::one());
        Some(point)
    }

    fn step_down(&mut self) -> Option<BigInt> {
        let point = self.down.take()?;
        if self.first.as_ref().is_some_and(|first| point < *first) {
            return None;
        }
        self.down = Some(&point - BigInt::one());
        Some(point)
    }
}

impl Iterator for Points {
    type Item = BigInt;

    fn next(&mut self) -> Option<BigInt> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        self.turn = !self.turn;
        if self.turn {
            self.step_down().or_else(|| self.step_up())
        } else {
            self.step_up().or_else(|| self.step_down())
        }
    }
}
