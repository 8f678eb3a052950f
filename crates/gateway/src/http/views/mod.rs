//! Views: what they hold, what they held, and how they stand. Who may read all topics of a view may
//! read the view.

mod moment;

mod representation;

mod snap;

mod watch;

mod list;

mod past;

mod comparison;

mod standing;

use promethean::projection::{Projection, ViewError, Views};

use super::call::Call;
use super::endpoint::Endpoint;
use crate::access::Action;
use crate::rejection::{Code, Rejection};

pub(super) use standing::{FailedView, failed, figures};

pub(super) fn endpoints() -> Vec<Endpoint> {
    let mut all = vec![standing::LIST, standing::SHOW, standing::REBUILD, standing::VERIFY];
    all.extend([standing::WARM, standing::RESUME, snap::SNAP, snap::DEFAULT, list::ENDPOINT]);
    all.extend([past::AT, past::ALL, past::HISTORY, comparison::DIFF, comparison::WHY]);
    all
}

/// A view that the caller may read, and the projection that keeps it.
pub(super) struct Named {
    pub(super) view: String,
    pub(super) projection: Projection,
}

fn views(call: &Call) -> Result<&Views, Rejection> {
    let none = "this server has no views; declare them in prom.toml as [views.NAME]";
    call.edge.settings.shelf.views.as_ref().ok_or(Rejection::new(Code::BadRequest, none))
}

/// Whether the caller may read everything that a projection reads.
fn may_read(call: &Call, projection: &Projection) -> bool {
    projection.topics().iter().all(|topic| call.authorize(Action::Read, topic, None).is_ok())
}

/// The view of the address.
fn named(call: &Call) -> Result<Named, Rejection> {
    let view: String = call.param("view")?;
    called(call, view)
}

fn called(call: &Call, view: String) -> Result<Named, Rejection> {
    let views = views(call)?;
    let projection = match views.keeper(&view) {
        Ok(projection) => projection,
        Err(ViewError::UnknownView(name)) => {
            let known: Vec<String> = views
                .keepers()
                .iter()
                .filter(|projection| may_read(call, projection))
                .flat_map(|projection| projection.views().iter().map(|view| view.name.clone()))
                .collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let detail = format!("there is no view {name:?}; there are: {known}");
            return Err(Rejection::new(Code::BadRequest, detail));
        }
        Err(error) => return Err(error.into()),
    };
    for topic in projection.topics() {
        call.authorize(Action::Read, topic, None)?;
    }
    Ok(Named { view, projection })
}
