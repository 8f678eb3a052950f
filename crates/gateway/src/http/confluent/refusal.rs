use promethean::store::ReadError;
use promethean::{PolicyError, RegisterError, RetireError};
use serde::Serialize;

use crate::rejection::Rejection;

/// A refusal with a number: the first three digits are the HTTP status.
#[derive(Debug, Serialize)]
pub(super) struct Trouble {
    error_code: u32,
    message: String,
}

impl Trouble {
    pub(super) fn new(error_code: u32, message: impl Into<String>) -> Self {
        Self { error_code, message: message.into() }
    }

    pub(super) fn status(&self) -> u16 {
        let status = if self.error_code > 999 { self.error_code / 100 } else { self.error_code };
        u16::try_from(status).unwrap_or(500)
    }

    pub(super) fn no_subject(subject: &str) -> Self {
        Self::new(40401, format!("Subject '{subject}' not found."))
    }

    pub(super) fn no_version(version: &str) -> Self {
        Self::new(40402, format!("Version {version} not found."))
    }

    pub(super) fn no_schema() -> Self {
        Self::new(40403, "Schema not found")
    }

    pub(super) fn no_config(subject: &str) -> Self {
        let message =
            format!("Subject '{subject}' does not have subject-level compatibility configured");
        Self::new(40408, message)
    }

    pub(super) fn invalid_schema(why: &str) -> Self {
        Self::new(42201, format!("Invalid schema: {why}"))
    }

    pub(super) fn invalid_version(version: &str) -> Self {
        let what = "a version is a number from 1 to 2147483647, or \"latest\"";
        Self::new(
            42202,
            format!("The specified version '{version}' is not a valid version: {what}"),
        )
    }

    pub(super) fn invalid_level() -> Self {
        Self::new(
            42203,
            "Invalid compatibility level. Valid values are none, backward, forward, full, \
             backward_transitive, forward_transitive, and full_transitive",
        )
    }

    pub(super) fn invalid_mode() -> Self {
        Self::new(42204, "Invalid mode. Valid values are READWRITE")
    }

    pub(super) fn not_permitted(why: impl Into<String>) -> Self {
        Self::new(42205, why)
    }

    pub(super) fn invalid_subject(subject: &str) -> Self {
        Self::new(42208, format!("The specified subject '{subject}' is not a valid topic"))
    }
}

impl From<Rejection> for Trouble {
    fn from(refusal: Rejection) -> Self {
        Self::new(u32::from(refusal.code.status()) * 100 + 1, refusal.detail.into_owned())
    }
}

impl From<RegisterError> for Trouble {
    fn from(error: RegisterError) -> Self {
        match &error {
            RegisterError::Document(_) | RegisterError::TooLarge => {
                Self::invalid_schema(&error.to_string())
            }
            RegisterError::Refused(plan) => Self::new(
                409,
                format!(
                    "Schema being registered is incompatible with an earlier schema for subject \
                     \"{}\", details: {plan}",
                    plan.topic
                ),
            ),
            RegisterError::TooMany | RegisterError::System(_) => {
                Self::not_permitted(error.to_string())
            }
            _ => Rejection::from(error).into(),
        }
    }
}

impl From<PolicyError> for Trouble {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::Register(error) => error.into(),
            other => Self::not_permitted(other.to_string()),
        }
    }
}

impl From<RetireError> for Trouble {
    fn from(error: RetireError) -> Self {
        match &error {
            RetireError::Unknown { version, .. } => Self::no_version(&version.to_string()),
            RetireError::Register(_) | RetireError::Read(_) => Rejection::from(error).into(),
            _ => Self::not_permitted(error.to_string()),
        }
    }
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Self {
        Rejection::from(error).into()
    }
}
