//! Why a command failed, for people and for programs, and with which code it exits.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::command::Status;
use crate::times::{TimeError, TimelessId};

/// A failure with its exit code and what to do next. Under `--json` it is a problem document
/// (RFC 9457); those of a server are passed on as they came.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) code: String,
    pub(crate) title: String,
    pub(crate) detail: String,
    pub(crate) hint: Option<String>,
    pub(crate) retry_ms: Option<u64>,
}

/// What a server answers when it refuses.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    title: String,
    status: u16,
    code: String,
    detail: String,
    #[serde(default)]
    retry_ms: Option<u64>,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'a str,
    code: &'a str,
    detail: String,
    exit: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl Failure {
    pub(crate) fn new(status: Status, detail: impl Into<String>) -> Self {
        let (code, title) = status.words();
        Self {
            status,
            code: code.to_owned(),
            title: title.to_owned(),
            detail: detail.into(),
            hint: None,
            retry_ms: None,
        }
    }

    /// What was asked for cannot be done that way.
    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        Self::new(Status::Usage, detail)
    }

    /// A file that was named cannot be read.
    pub(crate) fn unread(file: &Path, error: &io::Error) -> Self {
        Self::usage(format!("cannot read {}: {error}", file.display()))
    }

    /// Says what to do next.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A refusal of a server.
    pub(crate) fn of(problem: Problem) -> Self {
        let Problem { title, status, code, detail, retry_ms } = problem;
        let hint = match code.as_str() {
            "unauthorized" => Some("give a token with --token-file or PROM_TOKEN_FILE"),
            "forbidden" => Some("see what a token allows with: prom auth explain"),
            "token_expired" => Some("make a new one with: prom token mint"),
            _ => None,
        };
        let status = match status {
            400 => Status::Usage,
            401 | 403 => Status::Denied,
            404 => Status::NotFound,
            409 | 412 => Status::Conflict,
            429 => Status::Limited,
            408 | 503 | 504 => Status::Unreachable,
            _ => Status::Failed,
        };
        Self { status, code, title, detail, hint: hint.map(str::to_owned), retry_ms }
    }

    /// The document that programs read.
    pub(crate) fn document(error: &anyhow::Error) -> String {
        let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
        let plain = Self::new(status(error), "");
        let known = error.downcast_ref::<Self>().unwrap_or(&plain);
        let shown = Shown {
            kind: format!("https://promethean.dev/problems/{}", known.code.replace('_', "-")),
            title: &known.title,
            code: &known.code,
            detail: chain.join(": "),
            exit: known.status.code(),
            hint: known.hint.as_deref(),
        };
        // Plain texts always have a JSON form.
        serde_json::to_string(&shown).unwrap_or_default()
    }
}

/// How an error ends the program; `None` if nobody reads any more, which is no failure.
pub(crate) fn status_of(error: &anyhow::Error) -> Option<Status> {
    let is_closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(is_closed) {
        return None;
    }
    Some(status(error))
}

/// A time that was typed wrong is the user's to mend, wherever it was noticed.
fn status(error: &anyhow::Error) -> Status {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.status;
    }
    let is_time =
        error.downcast_ref::<TimeError>().is_some() || error.downcast_ref::<TimelessId>().is_some();
    if is_time { Status::Usage } else { Status::Failed }
}
