//! ECMA-262 expressions, as far as JSON Schema uses them.

use super::PatternProblem;
use super::class::{self, Class};

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
    Look { behind: bool, negative: bool, node: Box<Ast> },
}

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) ast: Ast,
    /// Whether the engine is known to read all of it as we do.
    pub(crate) plain: bool,
}

/// Nesting of groups that is followed; deeper ones are refused before they exhaust the stack.
const DEPTH_MAX: usize = 64;

/// Parses a pattern.
pub(crate) fn parse(pattern: &str) -> Result<Parsed, PatternProblem> {
    let rest = pattern.chars().collect();
    let mut parser = Parser { rest, at: 0, depth: 0, fold: false, dot_is_any: false, plain: true };
    let ast = parser.alternation()?;
    if parser.peek().is_some() {
        return Err(PatternProblem::Syntax);
    }
    Ok(Parsed { ast, plain: parser.plain })
}

struct Parser {
    rest: Vec<char>,
    at: usize,
    depth: usize,
    /// Letters match their other case, too.
    fold: bool,
    /// `.` matches line terminators, too.
    dot_is_any: bool,
    plain: bool,
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
            Some('{') => match self.counted() {
                Some(counts) => counts,
                None => return Ok(atom),
            },
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

    /// `{n}`, `{n,}`, `{n,m}`, up to the closing brace; anything else is a brace and what follows.
    fn counted(&mut self) -> Option<(u32, Option<u32>)> {
        let start = self.at;
        let counts = self.counts();
        if counts.is_none() {
            self.at = start;
        }
        counts
    }

    fn counts(&mut self) -> Option<(u32, Option<u32>)> {
        self.at += 1;
        let min = self.decimal()?;
        let max = if !self.eat(',') {
            Some(min)
        } else if self.peek() == Some('}') {
            None
        } else {
            Some(self.decimal()?)
        };
        (self.peek() == Some('}')).then_some((min, max))
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
            '.' => {
                self.plain = false;
                Ok(Ast::Class(self.dot()))
            }
            '(' => self.group(),
            '[' => self.bracket().map(Ast::Class),
            '\\' => self.escape(),
            '*' | '+' | '?' => Err(PatternProblem::Syntax),
            '{' => {
                // Annex B of ECMA-262: a brace that is no quantifier stands for itself.
                self.at -= 1;
                if self.counted().is_some() {
                    return Err(PatternProblem::Syntax);
                }
                self.at += 1;
                self.plain = false;
                Ok(Ast::Class(Class::single('{')))
            }
            c => {
                // As does one that closes nothing.
                self.plain &= !matches!(c, ']' | '}');
                Ok(Ast::Class(self.cased(Class::single(c))))
            }
        }
    }

    /// `.`: no line terminator.
    fn dot(&self) -> Class {
        let terminators = vec![(10, 10), (13, 13), (0x2028, 0x2029)];
        if self.dot_is_any { Class::any() } else { Class::new(terminators).negate() }
    }

    fn cased(&self, class: Class) -> Class {
        if self.fold { class.folded() } else { class }
    }

    fn group(&mut self) -> Result<Ast, PatternProblem> {
        let looks = [("?=", (false, false)), ("?!", (false, true))];
        let looks = looks.into_iter().chain([("?<=", (true, false)), ("?<!", (true, true))]);
        let look = looks.into_iter().find(|(sign, _)| self.eat_all(sign)).map(|(_, look)| look);
        let outer = (self.fold, self.dot_is_any);
        if look.is_some() {
            // The engine does not translate the classes of such patterns.
            self.plain = false;
        } else if self.eat_all("?<") || self.eat_all("?P<") {
            while self.next().ok_or(PatternProblem::Syntax)? != '>' {}
        } else if !self.eat_all("?:") && self.eat('?') {
            self.flags()?;
            if self.eat(')') {
                // Flags that hold for the rest of the group around them.
                return Ok(Ast::Empty);
            }
            if !self.eat(':') {
                return Err(PatternProblem::Syntax);
            }
        }
        let inner = self.alternation()?;
        if !self.eat(')') {
            return Err(PatternProblem::Syntax);
        }
        (self.fold, self.dot_is_any) = outer;
        Ok(match look {
            Some((behind, negative)) => Ast::Look { behind, negative, node: Box::new(inner) },
            // A group of one assertion must not take a quantifier for the assertion's own.
            None => Ast::Concat(vec![inner]),
        })
    }

    /// `i` and `s`, on or off. Others change what `^` and `$` mean, or how a pattern is written.
    fn flags(&mut self) -> Result<(), PatternProblem> {
        // What has another case is ours to say, also of a class.
        self.plain = false;
        let mut on = true;
        while let Some(c) = self.peek().filter(|c| !matches!(c, ':' | ')')) {
            self.at += 1;
            match c {
                '-' => on = false,
                'i' => self.fold = on,
                's' => self.dot_is_any = on,
                _ => return Err(PatternProblem::Syntax),
            }
        }
        Ok(())
    }

    /// `\b`: a word on one side only; `\B`: on both or none.
    fn boundary(&mut self, negated: bool) -> Ast {
        self.plain = false;
        let look = |behind: bool, negative: bool| Ast::Look {
            behind,
            negative,
            node: Box::new(Ast::Class(class::word())),
        };
        let side = |before: bool| {
            let after = if negated { before } else { !before };
            Ast::Concat(vec![look(true, !before), look(false, !after)])
        };
        Ast::Alternate(vec![side(true), side(false)])
    }

    fn escape(&mut self) -> Result<Ast, PatternProblem> {
        match self.peek() {
            Some(sign @ ('b' | 'B')) => {
                self.at += 1;
                Ok(self.boundary(sign == 'B'))
            }
            Some('1'..='9' | 'k') => Err(PatternProblem::Backreference),
            _ => {
                let class = self.escaped_class()?;
                Ok(Ast::Class(if single(&class).is_some() { self.cased(class) } else { class }))
            }
        }
    }

    /// The escapes that mean the same inside and outside brackets.
    fn escaped_class(&mut self) -> Result<Class, PatternProblem> {
        let c = self.next().ok_or(PatternProblem::Syntax)?;
        Ok(match c {
            'd' => class::digits(),
            'D' => class::digits().negate(),
            'w' => self.cased(class::word()),
            'W' => self.cased(class::word()).negate(),
            's' => class::space(),
            'S' => class::space().negate(),
            'p' | 'P' => return self.property(c == 'P'),
            't' => Class::single('\t'),
            'n' => Class::single('\n'),
            'r' => Class::single('\r'),
            'v' => Class::single('\u{0B}'),
            'f' => Class::single('\u{0C}'),
            '0' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => {
                self.plain = false;
                Class::single('\0')
            }
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
        let class = class::property(&name).ok_or(PatternProblem::Syntax)?;
        let class = self.cased(class);
        Ok(if negated { class.negate() } else { class })
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
            self.plain = false;
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
                    self.plain = false;
                    ranges.extend_from_slice(low.ranges());
                    ranges.push(('-' as u32, '-' as u32));
                    ranges.extend_from_slice(high.ranges());
                }
            }
        }
        self.plain &= !ranges.is_empty();
        let class = self.cased(Class::new(ranges));
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
