//! `prom schema validate SCHEMA PAYLOAD...`

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use promethean_schema::{Formats, Mismatch, Validator};
use serde::Serialize;
use serde_json::Value;

use super::bad_input::{PAYLOAD_FILE_BYTES_MAX, bad, read_schema, read_text};
use crate::command::Status;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// The schema.
    #[arg(value_name = "SCHEMA")]
    schema: PathBuf,
    /// Files with one payload each; `-` for standard input.
    #[arg(value_name = "PAYLOAD", required = true)]
    payloads: Vec<PathBuf>,
    /// Every line of a file is a payload.
    #[arg(long)]
    lines: bool,
    /// `format` is a condition, not a note.
    #[arg(long)]
    assert_formats: bool,
}

#[derive(Serialize)]
struct Validated {
    valid: bool,
    payloads: Vec<Payload>,
}

#[derive(Serialize)]
struct Payload {
    /// The file, and the line where every line is one.
    payload: String,
    valid: bool,
    mismatches: Vec<Mismatch>,
}

pub(super) fn run(validate: &Validate, output: &Output) -> anyhow::Result<Status> {
    let document = read_schema(&validate.schema)?;
    let asserting = validate
        .assert_formats
        .then(|| Validator::compile(document.value(), document.dialect(), Formats::Assert))
        .transpose()
        .map_err(bad)?;
    let rules = asserting.as_ref().unwrap_or_else(|| document.validator());
    let mut payloads = Vec::new();
    for file in &validate.payloads {
        for (payload, value) in read(file, validate.lines)? {
            let mismatches = rules.mismatches(&value);
            payloads.push(Payload { payload, valid: mismatches.is_empty(), mismatches });
        }
    }
    let validated = Validated { valid: payloads.iter().all(|payload| payload.valid), payloads };
    output.result(&validated, text)?;
    Ok(if validated.valid { Status::Done } else { Status::FoundProblems })
}

/// The payloads of a file, with their names.
fn read(file: &Path, lines: bool) -> anyhow::Result<Vec<(String, Value)>> {
    let text = read_text(file, PAYLOAD_FILE_BYTES_MAX)?;
    let name = file.display().to_string();
    let parse = |text: &str, name: String| {
        let value = serde_json::from_str(text).with_context(|| format!("{name} is not JSON"));
        value.map(|value| (name, value)).map_err(bad)
    };
    if !lines {
        return Ok(vec![parse(&text, name)?]);
    }
    let full = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    full.map(|(index, line)| parse(line, format!("{name}:{}", index + 1))).collect()
}

fn text(validated: &Validated) -> String {
    let mut out = String::new();
    for payload in &validated.payloads {
        for Mismatch { pointer, expected, got, schema_pointer, .. } in &payload.mismatches {
            let place = if pointer.is_empty() { "the payload" } else { pointer };
            out.push_str(&format!(
                "{}: {place} {expected}\n  got      {got}\n  schema   {schema_pointer}\n",
                payload.payload
            ));
        }
    }
    let wrong = validated.payloads.iter().filter(|payload| !payload.valid).count();
    out.push_str(&format!("{} payloads, {wrong} do not match\n", validated.payloads.len()));
    out
}
