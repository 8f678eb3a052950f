//! What the snapshot API is made of, without a server: validators and conditional requests,
//! filters on declared fields, pages.

mod conditional;

mod filter;

mod list;

mod page_token;

mod validator;

pub use conditional::{Access, Conditions, Outcome};
pub use filter::{Comparison, Filter, QueryError, Value};
pub use list::{DocumentPage, ListQuery, Sort};
pub use page_token::{PageToken, PageTokenError};
pub use validator::Validator;
