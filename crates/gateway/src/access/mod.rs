//! Who may do what. A credential becomes a [`Principal`] with a [`Policy`]; every route and frame
//! names its [`Action`] and asks [`authorize`]. What nothing allows is denied, and what something
//! denies is denied whatever else allows it.
//!
//! Nothing here reads a clock, a file or the network: the time is a parameter, and key sets are
//! handed in by whoever fetched them.

mod action;

mod pattern;

mod scope;

mod policy;

mod principal;

mod token;

mod claims;

mod jwt;

mod key_set;

mod authenticator;

pub use action::{Action, Area, Resource};
pub use authenticator::{AuthFailure, Authenticator};
pub use jwt::{JwtError, JwtSettings, JwtVerifier, VerifyKeys};
pub use key_set::{KeySet, KeySetError, SigningAlgorithm};
pub use pattern::{GroupGlob, covers, overlap};
pub use policy::{Effect, Policy, PolicyError, Right, Rule, RuleTemplate};
pub use principal::{Principal, authorize};
pub use scope::ScopeError;
pub(crate) use token::hex;
pub use token::{MintedToken, StoredToken, TokenTable, TokenTableError};
