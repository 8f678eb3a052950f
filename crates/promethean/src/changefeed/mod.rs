//! Changefeeds: what is declared of them, and how far they have come. Their work is done where their
//! source is, which is `promethean-mongo` for collections of MongoDB.
//!
//! A feed has two records in the store of its bus. One says what is wanted, and is written by people
//! and manifests. The other says what was reached, and is written by the instance that runs it, on
//! condition of the one before: two instances cannot both save.

mod definition;

mod origin;

mod position;

mod record;

pub use definition::{Definition, DefinitionError, Feed};
pub use origin::Origin;
pub use position::ClusterTime;
pub use record::{Feeds, FeedsError, Gap, Listed, Phase, Recovery, Status, Versioned, Wanted};
