//! ECMA-262 expressions, as far as JSON Schema uses them.

use super::PatternProblem;
use super::class::{self, Class};

/// How a place that specifications and engines read differently is read.
///
/// A verdict must hold under both: the schema's author means ECMA-262, the bus runs the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Flavor {
    /// `.` matches no line terminator.
    Ecma,
    /// `.` matches everything but `\n`.
    Engine,
}

/// A parsed expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ast {
    Empty,
    Class(Class),
    Concat(Vec<Ast>),
    Alternate(Vec<Ast>),
    Repeat { node: Box<Ast>, min: u32, max: Option<u32> },
    Start,
    End,
    Look { negative: bool, node: Box<Ast> },
}

/// Nesting of groups that is followed; deeper ones are refused before they exhaust the stack.
const DEPTH_MAX: usize = 64;

/// Parses a pattern.
pub(crate) fn parse(pattern: &str, flavor: Flavor) -> Result<Ast, PatternProblem> {
    let mut parser = Parser { rest: pattern.chars().collect(), at: 0, flavor, depth: 0 };
    let ast = parser.alternation()?;
    if parser.peek().is_some() {
        return Err(PatternProblem::Syntax);
    }
    Ok(ast)
}

struct Parser {
    rest: Vec<char>,
    at: usize,
    flavor: Flavor,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn eat(&mut self, c: char) -> bool {
        let hit = self.peek() == Some(c);
        if hit {
            self.at += 1;
        }
        hit
    }

    fn eat_all(&mut self, text: &str) -> bool {
        let hit = text.chars().enumerate().all(|(i, c)| self.rest.get(self.at + i) == Some(&c));
        if hit {
            self.at += text.chars().count();
        }
        hit
    }

    fn alternation(&mut self) -> Result<Ast, PatternProblem> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(PatternProblem::TooLarge);
        }
        let mut branches = vec![self.sequence()?];
        while self.eat('|') {
            branches.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(match branches.len() {
            1 => branches.pop().unwrap_or(Ast::Empty),
            _ => Ast::Alternate(branches),
        })
    }

    fn sequence(&mut self) -> Result<Ast, PatternProblem> {
        let mut items = Vec::new();
        while let Some(c) = self.peek() {
            if c == '|' || c == ')' {
                break;
            }
            let atom = self.atom()?;
            items.push(self.quantified(atom)?);
        }
        Ok(match items.len() {
            0 => Ast::Empty,
            1 => items.pop().unwrap_or(Ast::Empty),
            _ => Ast::Concat(items),
        })
    }

    fn quantified(&mut self, atom: Ast) -> Result<Ast, PatternProblem> {
        let (min, max) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => self.counted()?,
            _ => return Ok(atom),
        };
        // A counted quantifier leaves us on its closing brace, the others on their one letter.
        self.at += 1;
        // Laziness changes which match is found, not whether one is.
        self.eat('?');
        let assertion = matches!(atom, Ast::Start | Ast::End | Ast::Look { .. });
        if assertion || max.is_some_and(|max| max < min) {
            return Err(PatternProblem::Syntax);
        }
        Ok(Ast::Repeat { node: Box::new(atom), min, max })
    }

    /// `{n}`, `{n,}`, `{n,m}`; anything else in braces is refused, as with the `u` flag.
    fn counted(&mut self) -> Result<(u32, Option<u32>), PatternProblem> {
        self.at += 1;
        let min = self.decimal().ok_or(PatternProblem::Syntax)?;
        let max = if !self.eat(',') {
            Some(min)
        } else if self.peek() == Some('}') {
            None
        } else {
            Some(self.decimal().ok_or(PatternProblem::Syntax)?)
        };
        if self.peek() == Some('}') { Ok((min, max)) } else { Err(PatternProblem::Syntax) }
    }

    fn decimal(&mut self) -> Option<u32> {
        let start = self.at;
        let mut value: u32 = 0;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            value = value.checked_mul(10)?.checked_add(digit)?;
            self.at += 1;
        }
        (self.at > start).then_some(value)
    }

    fn atom(&mut self) -> Result<Ast, PatternProblem> {
        let Some(c) = self.next() else {
            return Ok(Ast::Empty);
        };
        match c {
            '^' => Ok(Ast::Start),
            '$' => Ok(Ast::End),
            '.' => Ok(Ast::Class(self.dot())),
            '(' => self.group(),
            '[' => self.bracket().map(Ast::Class),
            '\\' => self.escape(),
            '*' | '+' | '?' | '{' => Err(PatternProblem::Syntax),
            c => Ok(Ast::Class(Class::single(c))),
        }
    }

    fn dot(&self) -> Class {
        match self.flavor {
            Flavor::Ecma => Class::new(vec![(10, 10), (13, 13), (0x2028, 0x2029)]).negate(),
            Flavor::Engine => Class::new(vec![(10, 10)]).negate(),
        }
    }

    fn group(&mut self) -> Result<Ast, PatternProblem> {
        let look = if self.eat_all("?=") {
            Some(false)
        } else if self.eat_all("?!") {
            Some(true)
        } else if self.eat_all("?<=") || self.eat_all("?<!") {
            return Err(PatternProblem::Lookbehind);
        } else {
            if self.eat_all("?<") {
                while self.next().ok_or(PatternProblem::Syntax)? != '>' {}
            } else if !self.eat_all("?:") && self.peek() == Some('?') {
                return Err(PatternProblem::Syntax);
            }
            None
        };
        let inner = self.alternation()?;
        if !self.eat(')') {
            return Err(PatternProblem::Syntax);
        }
        Ok(match look {
            Some(negative) => Ast::Look { negative, node: Box::new(inner) },
            // A group of one assertion must not take a quantifier for the assertion's own.
            None => Ast::Concat(vec![inner]),
        })
    }

    fn escape(&mut self) -> Result<Ast, PatternProblem> {
        match self.peek() {
            Some('b' | 'B') => Err(PatternProblem::WordBoundary),
            Some('1'..='9' | 'k') => Err(PatternProblem::Backreference),
            _ => self.escaped_class().map(Ast::Class),
        }
    }

    /// The escapes that mean the same inside and outside brackets.
    fn escaped_class(&mut self) -> Result<Class, PatternProblem> {
        let c = self.next().ok_or(PatternProblem::Syntax)?;
        Ok(match c {
            'd' => class::digits(),
            'D' => class::digits().negate(),
            'w' => class::word(),
            'W' => class::word().negate(),
            's' => class::space(),
            'S' => class::space().negate(),
            'p' | 'P' => return self.property(c == 'P'),
            't' => Class::single('\t'),
            'n' => Class::single('\n'),
            'r' => Class::single('\r'),
            'v' => Class::single('\u{0B}'),
            'f' => Class::single('\u{0C}'),
            '0' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => Class::single('\0'),
            'c' => {
                let letter = self.next().filter(char::is_ascii_alphabetic);
                let code = letter.ok_or(PatternProblem::Syntax)? as u32 % 32;
                Class::new(vec![(code, code)])
            }
            'x' => self.hex(2)?,
            'u' => self.unicode()?,
            c if c.is_ascii_alphanumeric() => return Err(PatternProblem::Syntax),
            c => Class::single(c),
        })
    }

    fn property(&mut self, negated: bool) -> Result<Class, PatternProblem> {
        if !self.eat('{') {
            return Err(PatternProblem::Syntax);
        }
        let mut name = String::new();
        loop {
            match self.next().ok_or(PatternProblem::Syntax)? {
                '}' => break,
                c if c.is_ascii_alphanumeric() || c == '_' || c == '=' => name.push(c),
                _ => return Err(PatternProblem::Syntax),
            }
        }
        class::property(&name, negated).ok_or(PatternProblem::Syntax)
    }

    fn hex_value(&mut self, digits: usize) -> Option<u32> {
        let mut value = 0;
        for _ in 0..digits {
            value = value * 16 + self.next()?.to_digit(16)?;
        }
        Some(value)
    }

    fn hex(&mut self, digits: usize) -> Result<Class, PatternProblem> {
        let code = self.hex_value(digits).ok_or(PatternProblem::Syntax)?;
        Ok(Class::new(vec![(code, code)]))
    }

    fn unicode(&mut self) -> Result<Class, PatternProblem> {
        if self.eat('{') {
            let mut value: u32 = 0;
            while !self.eat('}') {
                let digit =
                    self.next().and_then(|c| c.to_digit(16)).ok_or(PatternProblem::Syntax)?;
                value = value
                    .checked_mul(16)
                    .and_then(|v| v.checked_add(digit))
                    .ok_or(PatternProblem::Syntax)?;
            }
            let c = char::from_u32(value).ok_or(PatternProblem::Syntax)?;
            return Ok(Class::single(c));
        }
        let high = self.hex_value(4).ok_or(PatternProblem::Syntax)?;
        if (0xD800..0xDC00).contains(&high) && self.eat_all("\\u") {
            let low = self.hex_value(4).ok_or(PatternProblem::Syntax)?;
            if !(0xDC00..0xE000).contains(&low) {
                return Err(PatternProblem::Syntax);
            }
            let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
            return Ok(Class::new(vec![(code, code)]));
        }
        let c = char::from_u32(high).ok_or(PatternProblem::Syntax)?;
        Ok(Class::single(c))
    }

    fn bracket(&mut self) -> Result<Class, PatternProblem> {
        let negated = self.eat('^');
        let mut ranges = Vec::new();
        loop {
            if self.eat(']') {
                break;
            }
            let low = self.bracket_atom()?;
            let dash =
                self.peek() == Some('-') && self.rest.get(self.at + 1).is_some_and(|&c| c != ']');
            if !dash {
                ranges.extend_from_slice(low.ranges());
                continue;
            }
            self.at += 1;
            let high = self.bracket_atom()?;
            match (single(&low), single(&high)) {
                (Some(low), Some(high)) if low <= high => ranges.push((low, high)),
                (Some(_), Some(_)) => return Err(PatternProblem::Syntax),
                // A class is no end of a range: the dash is a dash, as in Annex B.
                _ => {
                    ranges.extend_from_slice(low.ranges());
                    ranges.push(('-' as u32, '-' as u32));
                    ranges.extend_from_slice(high.ranges());
                }
            }
        }
        let class = Class::new(ranges);
        Ok(if negated { class.negate() } else { class })
    }

    fn bracket_atom(&mut self) -> Result<Class, PatternProblem> {
        match self.next().ok_or(PatternProblem::Syntax)? {
            '\\' if self.eat('b') => Ok(Class::single('\u{08}')),
            '\\' => self.escaped_class(),
            c => Ok(Class::single(c)),
        }
    }
}

fn single(class: &Class) -> Option<u32> {
    match class.ranges() {
        &[(low, high)] if low == high => Some(low),
        _ => None,
    }
}
