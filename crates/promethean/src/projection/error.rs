use promethean_event::Topic;

use super::database::DatabaseError;
use super::definition::DefinitionError;
use crate::error::PublishError;
use crate::store::{AppendError, ReadError, SaveError};

/// Why a projection does not go on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// The database of views.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Something could not be appended.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The views are further than the log: they were kept with another one.
    #[error("the views have read more of {0} than there is; build them anew")]
    Ahead(Topic),
    /// The topic was removed and made anew.
    #[error("topic {0} is gone, or another one than the views were made from; build them anew")]
    TopicReplaced(Topic),
    /// A topic is not there.
    #[error("there is no topic {0}")]
    NoTopic(Topic),
    /// The code stopped without saying why.
    #[error("the projection was broken off")]
    BrokenOff,
    /// The bus was closed.
    #[error("the bus is closed")]
    Closed,
}

impl ProjectionError {
    /// Whether trying again may help.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Database(error) => error.is_transient(),
            Self::Read(ReadError::Failed(_)) => true,
            Self::Publish(
                PublishError::Append(error)
                | PublishError::Define { source: SaveError::Append(error), .. },
            ) => matches!(
                error,
                AppendError::Unavailable(_)
                    | AppendError::Busy(_)
                    | AppendError::NoSpace
                    | AppendError::Indeterminate(_)
            ),
            _ => false,
        }
    }
}

/// Why something about views did not happen.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The projection is not good.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// The projection runs already.
    #[error("projection {0} is running; stop it first")]
    Running(String),
    /// The view belongs to another projection.
    #[error("view {view} belongs to projection {owner}")]
    Taken {
        /// The view.
        view: String,
        /// Whose it is.
        owner: String,
    },
    /// No such view.
    #[error("there is no view {0}")]
    UnknownView(String),
    /// The views are being built anew already.
    #[error("the views of {0} are being built anew already")]
    Rebuilding(String),
    /// The view has not come so far in time.
    #[error("the view has not come to {0} yet")]
    Behind(super::position::Position),
    /// The view is not made of this.
    #[error("the view does not read {0}; see which topics and partitions it reads")]
    NotRead(super::position::Position),
    /// The projection writes by itself.
    #[error(
        "projection {0} writes collections of its own, which only its code can build anew or check; \
         to begin anew, stop it, empty them, forget it, and start it again"
    )]
    Foreign(String),
    /// The projection was stopped.
    #[error("projection {0} was stopped")]
    Stopped(String),
    /// The projection does not go on.
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    /// The database of views.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<ReadError> for ViewError {
    fn from(error: ReadError) -> Self {
        Self::Projection(error.into())
    }
}
