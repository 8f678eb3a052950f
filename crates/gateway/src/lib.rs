//! The network edge of Promethean: WebSocket and HTTP on one port, with access and limits.
//!
//! [`Server::bind`] takes a bus and [`Settings`], and refuses addresses that others can reach
//! unless credentials and TLS are set up. Everything that comes in is bounded in size and time,
//! everything that is done is asked for by [`access::authorize`], and everything that is refused
//! has a code of [`rejection::Code`].
//!
//! Modules are listed in the order in which an event meets them.

mod settings;

mod shelf;

mod listener;

mod indoor;

mod tls;

mod framing;

mod progress;

mod session;

mod command;

mod http;

mod edge;

pub mod access;

mod issuer;

pub mod audit;

mod token_store;

mod tickets;

pub mod quota;

pub mod intake;

pub mod times;

pub mod filter;

mod undecided;

mod tail;

mod tenure;

mod attendance;

mod failure;

pub mod rejection;

mod metrics;

mod clock;

mod seldom;

pub mod limits;

pub use audit::AuditSettings;
pub use http::is_administration;
pub use indoor::Indoor;
pub use issuer::{FetchError, KeySource, KeySourceError};
pub use listener::{Server, ServerHandle, StartError};
pub use settings::{
    Access, Bounds, DeliveryRates, PORT, Rates, Settings, SettingsError, TlsFiles, Waived,
};
pub use shelf::{CACHE_CONTROL, Shelf};
pub use tls::TlsError;
pub use token_store::{TokenStore, TokenStoreError};
