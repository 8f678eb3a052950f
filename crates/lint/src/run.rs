//! One run: list, read on several threads, resolve, judge.
//!
//! Files in which no call of interest can stand are parsed only when an import or a wrapper leads
//! to them, which for most projects is most of the time saved.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::catalogue::{Catalogue, SchemaDirectoryError};
use crate::facts::{Facts, Failure};
use crate::files::{self, Listed};
use crate::finding::{Draft, Finding, Fingerprints};
use crate::language::Reader;
use crate::limits::{SOURCE_BYTES_MAX, STACK_BYTES};
use crate::report::{Report, Site};
use crate::resolve::Resolver;
use crate::rules::{Context, RULES, Reach};
use crate::settings::{Checked, Settings, SettingsError};
use crate::sites::{self, Sites};
use crate::source::SourceFile;

/// What to lint.
#[derive(Debug)]
pub struct Request<'a> {
    /// The root of the repository: paths of findings are relative to it.
    pub root: &'a Path,
    /// The `[lint]` table.
    pub settings: &'a Settings,
    /// The topics that exist.
    pub catalogue: &'a Catalogue,
    /// Files and directories from the root, instead of those of the settings. Rules that need to
    /// see all of the code (unused topics and versions) are then left out. Default `None`.
    pub paths: Option<&'a [PathBuf]>,
}

/// Why a run could not be made. What is wrong with single files is a finding instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LintError {
    /// The settings are not usable.
    #[error("the lint settings are not usable")]
    Settings(#[from] SettingsError),
    /// A directory of schemas could not be read.
    #[error(transparent)]
    Schemas(#[from] SchemaDirectoryError),
    /// No thread could be started.
    #[error("cannot start a thread to read with")]
    Thread(#[source] std::io::Error),
}

/// Reads the code and judges it.
pub fn lint(request: &Request<'_>) -> Result<Report, LintError> {
    let settings = Checked::new(request.settings)?;
    let catalogue = request.catalogue.with_versions(request.root)?;
    let configured: Vec<PathBuf> = request.settings.paths.iter().map(PathBuf::from).collect();
    let everything = [PathBuf::new()];
    let paths = match request.paths {
        Some(paths) => paths,
        None if configured.is_empty() => &everything,
        None => &configured,
    };
    let walked = files::walk(request.root, paths, request.settings)?;
    let mut sources = read_all(&walked.files, &settings)?;
    for (path, what) in walked.failures {
        sources.push(unread(path, what));
    }
    sources.push(manifest(&catalogue));
    let sites = find_sites(&sources, &settings)?;
    let findings = judge(request, &settings, &catalogue, (&sources, &sites));
    let sites = sites.topics.iter().filter_map(|site| Site::new(site, sources.get(site.file)?));
    Ok(Report { findings, sites: sites.collect(), files: walked.files.len(), known: 0 })
}

/// On a thread of its own: files are parsed there too, when an import leads to them.
fn find_sites(sources: &[SourceFile], settings: &Checked<'_>) -> Result<Sites, LintError> {
    let work = || sites::find(&Resolver::new(sources, settings));
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
        let worker = builder.spawn_scoped(scope, work).map_err(LintError::Thread)?;
        worker.join().map_or_else(|panic| std::panic::resume_unwind(panic), Ok)
    })
}

/// Runs every rule that is not off. Findings are ordered by place.
fn judge(
    request: &Request<'_>,
    settings: &Checked<'_>,
    catalogue: &Catalogue,
    (files, sites): (&[SourceFile], &Sites),
) -> Vec<Finding> {
    let context = Context { settings, catalogue, files, sites };
    let mut findings = Vec::new();
    let mut fingerprints = Fingerprints::default();
    for rule in RULES {
        let Some(severity) = settings.level(rule.name).severity() else {
            continue;
        };
        if rule.reach == Reach::WholeProject && request.paths.is_some() {
            continue;
        }
        let mut drafts: Vec<Draft> = (rule.check)(&context);
        drafts.sort_by_key(|draft| (draft.file, draft.span.start));
        for draft in drafts {
            if let Some(file) = files.get(draft.file) {
                findings.push(draft.finished(rule, severity, file, &mut fingerprints));
            }
        }
    }
    findings.sort_by(|left: &Finding, right| {
        let place = |of: &Finding| (of.path.clone(), of.line, of.column, of.rule);
        place(left).cmp(&place(right))
    });
    findings
}

/// The manifest stands last, so that findings about topics have a place.
fn manifest(catalogue: &Catalogue) -> SourceFile {
    let given = catalogue.manifest.clone().unwrap_or_default();
    let path = if given.path.is_empty() { "prom.toml".to_owned() } else { given.path };
    SourceFile::new(path, given.text, None)
}

fn unread(path: String, what: String) -> SourceFile {
    let failures = vec![Failure { span: 0..0, what }];
    let facts = Facts { failures, ..Facts::default() };
    SourceFile::new(path, String::new(), None).with_facts(facts)
}

/// Reads all files, on as many threads as there are processors, and gives them in order.
fn read_all(files: &[Listed], settings: &Checked<'_>) -> Result<Vec<SourceFile>, LintError> {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut reader = Reader::default();
        let mut done = Vec::new();
        while let Some((index, file)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            files.get(index).map(|file| (index, file))
        } {
            done.push((index, read(file, &mut reader, settings)));
        }
        done
    };
    let mut all = Vec::with_capacity(files.len());
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..threads.min(files.len()) {
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            workers.push(builder.spawn_scoped(scope, work).map_err(LintError::Thread)?);
        }
        for worker in workers {
            match worker.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<(), LintError>(())
    })?;
    all.sort_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, source)| source).collect())
}

fn read(file: &Listed, reader: &mut Reader, settings: &Checked<'_>) -> SourceFile {
    let size = std::fs::metadata(&file.full).map_or(0, |found| found.len());
    if size > SOURCE_BYTES_MAX {
        let what = format!("has {size} bytes; files above {SOURCE_BYTES_MAX} are not read");
        return unread(file.path.clone(), what);
    }
    let bytes = match std::fs::read(&file.full) {
        Ok(bytes) => bytes,
        Err(error) => return unread(file.path.clone(), format!("cannot be read: {error}")),
    };
    let Ok(text) = String::from_utf8(bytes) else {
        return unread(file.path.clone(), "is not UTF-8".to_owned());
    };
    let source = SourceFile::new(file.path.clone(), text, Some(file.language));
    if settings.may_call(&source.text) {
        source.facts(reader, settings);
    }
    source
}
