//! The audit log: who administrated what, and who was refused. Records stand in a topic of the
//! system's, `$audit`, and each names the hash of the one before it, so that one which was changed or
//! taken out shows.
//!
//! What holds:
//!
//! - **Nothing is done before it is noted.** An administrative act is begun by a record that is
//!   durable; if that cannot be written, the act is refused. It is answered after a second record,
//!   of how it ended, is durable, too; if that cannot be written, the answer says so. A record
//!   that says `begun` without another of the same request is an act whose end nobody knows.
//! - **A chain has one order.** Its records are numbered from 1 without holes, and the id of a
//!   record is made of chain and number: the store adds no second one. Whoever finds its number
//!   taken reads the newest record and goes on behind it. So there is no lock beyond this process,
//!   and two who use the same chain by mistake do not fork it.
//! - **A chain knows how far it is** also after retention has removed all of it: its number and
//!   hash are kept as an entry as well, after each record. By it, records missing at the end show.
//! - **Refusals are summed up**: one record a minute, of a bounded number of lines, however many
//!   there are. They may be lost with the process, for that minute.
//! - **No secret**: a record holds names, numbers and addresses; never a credential, body or payload.

mod record;

mod journal;

mod refusals;

mod verifier;

pub(crate) use journal::{AUDIT_TOPIC, Audit, HEADS, Head};
pub use journal::{AuditSettings, Retention};
pub(crate) use record::{About, Outcome, Record};
pub use verifier::{ChainHead, Fault, Kept, Verdict, Verifier};
