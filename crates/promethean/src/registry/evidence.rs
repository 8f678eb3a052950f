//! What speaks for and against a new version, without looking at the store: comparison with its
//! predecessors, and trials of casters on values that the schemas allow.

use std::sync::Arc;

use promethean_schema::{CompareError, CompareOptions, Document, Verdict, compare};
use serde_json::Value;

use super::hop::{CastFunction, Hop, ReadyHop};
use super::plan::{Compared, Objection, Plan, Tried};
use super::subject::{MissingHop, Path, Subject, Version, path, walk};
use super::trial::values;
use crate::decode::places;
use crate::limits::OBJECTIONS_MAX;

/// Versions that casters are tried from and to, the latest first.
const TRIED_VERSIONS_MAX: usize = 100;

/// The function of this name, if the program has provided it.
pub(super) type ProvidedFunctions = dyn Fn(&str) -> Option<CastFunction> + Send + Sync;

/// A version that is not registered yet.
pub(super) struct Candidate {
    pub(super) subject: Arc<Subject>,
    pub(super) number: u32,
    pub(super) document: Document,
    pub(super) up: Option<Hop>,
    pub(super) down: Option<Hop>,
    pub(super) functions: Arc<ProvidedFunctions>,
}

/// A version that was looked at from all sides, and what was seen.
pub(super) struct Examined {
    pub(super) subject: Arc<Subject>,
    pub(super) version: Version,
    pub(super) plan: Plan,
}

/// Why a version could not even be looked at.
pub(super) enum ExamineError {
    BadHop(String),
    NothingBefore,
    Compare(CompareError),
}

impl From<CompareError> for ExamineError {
    fn from(error: CompareError) -> Self {
        Self::Compare(error)
    }
}

impl Examined {
    /// The hops between versions, the new one among them.
    pub(super) fn path(&self, from: u32, to: u32) -> Result<Path<'_>, MissingHop> {
        path(from, to, |number| self.version(number))
    }

    pub(super) fn version(&self, number: u32) -> Option<&Version> {
        if number == self.version.number {
            return Some(&self.version);
        }
        self.subject.versions.get(&number).map(|version| &**version)
    }

    fn object(&mut self, objection: Objection) {
        if self.plan.objections.len() < OBJECTIONS_MAX {
            self.plan.objections.push(objection);
        }
    }
}

impl Candidate {
    pub(super) fn plan(&self) -> Plan {
        Plan {
            topic: self.subject.topic.clone(),
            version: self.number,
            exists: false,
            compat: self.subject.policy.compat,
            compared: Vec::new(),
            tried: Tried::default(),
            readers: Vec::new(),
            up: None,
            down: None,
            objections: Vec::new(),
        }
    }

    /// Looks at the candidate from all sides. Takes its time: not for a thread that others wait
    /// for.
    pub(super) fn examine(mut self) -> Result<Examined, ExamineError> {
        let mut plan = self.plan();
        if let Some(latest) = self.subject.latest().cloned() {
            self.settle_hops(&latest, &mut plan)?;
        } else if self.up.is_some() || self.down.is_some() {
            return Err(ExamineError::NothingBefore);
        }
        (plan.up, plan.down) = (self.up.clone(), self.down.clone());
        let (number, before) = (self.number, self.number.saturating_sub(1));
        let ready = |hop: Option<Hop>, way| {
            hop.map(|hop| ReadyHop::new(hop, way)).transpose().map_err(ExamineError::BadHop)
        };
        let version = Version {
            number,
            up: ready(self.up, (before, number))?,
            down: ready(self.down, (number, before))?,
            document: self.document,
            entry: 0,
        };
        let mut examined = Examined { subject: self.subject, version, plan };
        if examined.plan.compat.is_transitive() {
            examined.compare_earlier()?;
        }
        examined.try_casters(&|name| (self.functions)(name));
        Ok(examined)
    }

    /// Compares with the latest version, and takes what is proven to need no change as a hop.
    fn settle_hops(&mut self, latest: &Version, plan: &mut Plan) -> Result<(), ExamineError> {
        let options = self.subject.policy.compare_options();
        let mode = plan.compat;
        for backward in [true, false] {
            let verdict = judge(&self.document, latest, backward, &options, plan)?;
            let (hop, wanted) = match backward {
                true => (&mut self.up, mode.is_backward()),
                false => (&mut self.down, mode.is_forward()),
            };
            if hop.is_none() && verdict.is_compatible() {
                *hop = Some(Hop::Same);
            }
            // A caster answers for what the schemas do not.
            let answered = hop.as_ref().is_some_and(|hop| *hop != Hop::Same);
            if wanted && !answered {
                plan.objections.extend(objection(verdict, latest.number, backward));
            }
        }
        if self.up.is_none() {
            let (from, to) = (latest.number, self.number);
            plan.objections.push(Objection::MissingUpcaster { from, to });
        }
        Ok(())
    }
}

impl Examined {
    /// Compares with all versions before the latest.
    fn compare_earlier(&mut self) -> Result<(), ExamineError> {
        let options = self.subject.policy.compare_options();
        let subject = Arc::clone(&self.subject);
        for earlier in subject.versions.values().rev().skip(1) {
            for backward in [true, false] {
                let (from, to, wanted) = match backward {
                    true => (earlier.number, self.version.number, self.plan.compat.is_backward()),
                    false => (self.version.number, earlier.number, self.plan.compat.is_forward()),
                };
                let same = |path: Path<'_>| path.iter().all(|hop| hop.is_same());
                if !wanted || self.path(from, to).is_ok_and(|path| !same(path)) {
                    continue;
                }
                let document = self.version.document.clone();
                let verdict = judge(&document, earlier, backward, &options, &mut self.plan)?;
                if let Some(objection) = objection(verdict, earlier.number, backward) {
                    self.object(objection);
                }
            }
        }
        Ok(())
    }

    /// Tries casters on values: from every version to the new one, and back as far as they go.
    fn try_casters(&mut self, functions: &dyn Fn(&str) -> Option<CastFunction>) {
        let subject = Arc::clone(&self.subject);
        for earlier in subject.versions.values().rev().take(TRIED_VERSIONS_MAX) {
            for (from, to) in
                [(earlier.number, self.version.number), (self.version.number, earlier.number)]
            {
                if let Some(objection) = self.try_way(from, to, functions) {
                    self.object(objection);
                }
            }
        }
    }

    fn try_way(
        &mut self,
        from: u32,
        to: u32,
        functions: &dyn Fn(&str) -> Option<CastFunction>,
    ) -> Option<Objection> {
        let path = path(from, to, |number| self.version(number)).ok()?;
        let (source, target) = (self.version(from)?, self.version(to)?);
        if path.iter().all(|hop| hop.is_same()) {
            return None;
        }
        let values = values(&source.document, self.subject.policy.strict);
        let failed = values.iter().find_map(|value| {
            let made = walk(&path, value.clone(), functions);
            let reason = made.and_then(|made| fits(target, &made)).err()?;
            Some(Objection::CastFails { from, to, value: value.clone(), reason })
        });
        self.plan.tried.drawn += values.len();
        failed
    }
}

fn fits(version: &Version, value: &Value) -> Result<(), String> {
    let rules = version.document.validator();
    if rules.is_valid(value) {
        return Ok(());
    }
    let number = version.number;
    Err(format!("{value} does not match version {number}{}", places(&rules.mismatches(value))))
}

fn judge(
    new: &Document,
    earlier: &Version,
    backward: bool,
    options: &CompareOptions,
    plan: &mut Plan,
) -> Result<Verdict, CompareError> {
    let (reader, writer) =
        if backward { (new, &earlier.document) } else { (&earlier.document, new) };
    let verdict = compare(reader, writer, options)?;
    let notes = match &verdict {
        Verdict::Compatible { notes } => notes.clone(),
        _ => Vec::new(),
    };
    let compatible = verdict.is_compatible();
    plan.compared.push(Compared { version: earlier.number, backward, compatible, notes });
    Ok(verdict)
}

fn objection(verdict: Verdict, version: u32, backward: bool) -> Option<Objection> {
    match verdict {
        Verdict::Compatible { .. } => None,
        Verdict::Incompatible { findings } => {
            Some(Objection::Incompatible { version, backward, findings })
        }
        Verdict::Undecided { construct, pointer } => {
            Some(Objection::Undecided { version, backward, construct, pointer })
        }
    }
}
