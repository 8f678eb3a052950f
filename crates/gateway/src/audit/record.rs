use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::access::hex;
use crate::limits::{AUDIT_ABOUT_BYTES_MAX, AUDIT_RESOURCE_BYTES_MAX, SUBJECT_BYTES_MAX};

/// How an act stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// It is allowed, and about to be done.
    Begun,
    Done,
    /// Nothing was done, or not all of it.
    Refused,
}

/// What a record says, but for its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Epoch milliseconds, by the clock of the hub.
    pub(crate) at: u64,
    /// The request, as the logs and the client know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
    /// Who it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    /// From which address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<String>,
    /// What kind of act it was.
    pub(crate) action: String,
    /// Method and address of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource: Option<String>,
    pub(crate) outcome: Outcome,
    /// As it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// More of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) about: Option<Value>,
}

/// A record in its place. These bytes are hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Placed {
    /// The form of the record: 1.
    pub(super) v: u32,
    pub(super) chain: String,
    /// From 1 on.
    pub(super) n: u64,
    /// The hash of the record before; none for the first one.
    pub(super) prev: Option<String>,
    #[serde(flatten)]
    pub(super) record: Record,
}

pub(super) const FORM: u32 = 1;

/// The hash by which the next record knows this one.
pub(super) fn hash(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// A subject, within its bound: those of static tokens have none.
pub(super) fn short(subject: &str) -> String {
    cut(subject, SUBJECT_BYTES_MAX).to_owned()
}

/// So many bytes of a text, or a little less.
fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// What an answer lets the audit log know of what was done. Never a secret.
#[derive(Debug, Clone)]
pub(crate) struct About(pub(crate) Value);

impl Record {
    /// Cut to what a record may hold: whoever is audited does not choose how much is kept.
    pub(super) fn bounded(mut self) -> Self {
        if let Some(resource) = &mut self.resource
            && resource.len() > AUDIT_RESOURCE_BYTES_MAX
        {
            *resource = format!("{}…", cut(resource, AUDIT_RESOURCE_BYTES_MAX));
        }
        self.subject = self.subject.as_deref().map(short);
        if self.about.as_ref().is_some_and(|about| about.to_string().len() > AUDIT_ABOUT_BYTES_MAX)
        {
            self.about = Some(serde_json::json!({ "cut": true }));
        }
        self
    }
}

#[cfg(test)]
impl Record {
    pub(super) fn of(action: &str) -> Self {
        Self {
            at: 1,
            request: None,
            subject: Some("ann".to_owned()),
            peer: None,
            action: action.to_owned(),
            resource: None,
            outcome: Outcome::Done,
            status: None,
            code: None,
            about: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_bounded() {
        let resource = format!("DELETE /topics/{}", "é".repeat(5_000));
        let about = Some(Value::String("x".repeat(AUDIT_ABOUT_BYTES_MAX)));
        let record = Record { resource: Some(resource), about, ..Record::of("a") }.bounded();
        assert!(record.resource.unwrap().len() <= AUDIT_RESOURCE_BYTES_MAX + '…'.len_utf8());
        assert_eq!(record.about, Some(serde_json::json!({ "cut": true })));
    }
}
