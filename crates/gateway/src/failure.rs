//! What went wrong in the bus, as a refusal to a client. Texts of the bus about what the client
//! sent are passed on; texts about disks and drivers are not.

use promethean::causality::CausalityError;
use promethean::changefeed::FeedsError;
use promethean::jobs::JobError;
use promethean::member::Refusal;
use promethean::projection::{PastError, ProjectionError, ViewError};
use promethean::store::{AppendError, ReadError, SaveError};
use promethean::{
    AckError, AsOfError, CutOverError, DeadLetterError, EvolutionError, GroupError, PolicyError,
    PublishError, RegisterError, RetireError,
};

use crate::filter::FilterError;
use crate::rejection::{Code, Rejection};

impl From<PublishError> for Rejection {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Append(error) => error.into(),
            PublishError::Define { source, .. } => source.into(),
            PublishError::UnknownTopic(_) => Self::new(Code::NotFound, error.to_string()),
            PublishError::System(_) => Self::new(Code::Forbidden, error.to_string()),
            PublishError::Refused(refusal) => {
                Self::new(Code::SchemaInvalid, refusal.to_string()).with("refused", &refusal.events)
            }
            PublishError::Schemas(_) | PublishError::Snapshots(_) => {
                Self::plain(Code::NotReady).after_ms(1_000)
            }
            other => Self::new(Code::InvalidEvent, other.to_string()),
        }
    }
}

impl From<AppendError> for Rejection {
    fn from(error: AppendError) -> Self {
        let code = match error {
            AppendError::Empty => Code::BadRequest,
            AppendError::TooLarge { .. } => Code::TooLarge,
            AppendError::UnknownTopic(_) | AppendError::UnknownLane(_) => Code::NotFound,
            AppendError::IdConflict { .. } => Code::IdConflict,
            AppendError::OffsetMismatch { .. } => Code::PreconditionFailed,
            AppendError::Unavailable(_) | AppendError::Busy(_) => {
                return Self::plain(Code::NotReady).after_ms(1_000);
            }
            AppendError::NoSpace => return Self::plain(Code::NoSpace),
            AppendError::StorageFailed(_) => return Self::plain(Code::StorageFailed),
            AppendError::Indeterminate(_) => return Self::indeterminate(),
            AppendError::Closed => return Self::plain(Code::GoingAway),
            _ => return Self::plain(Code::Internal),
        };
        Self::new(code, error.to_string())
    }
}

impl From<SaveError> for Rejection {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::Append(error) => error.into(),
            SaveError::TooManyTopics(_) => Self::plain(Code::Quota),
            SaveError::PartitionsFixed { .. } => Self::new(Code::Conflict, error.to_string()),
            SaveError::Changed { .. } => Self::plain(Code::PreconditionFailed),
            SaveError::UnknownGroup(_) => Self::plain(Code::NotFound),
            SaveError::Fenced(_) => Self::plain(Code::Fenced),
            _ => Self::plain(Code::Internal),
        }
    }
}

impl From<ReadError> for Rejection {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::UnknownLane => Self::plain(Code::NotFound),
            ReadError::BeyondEnd { .. } => Self::new(Code::BadRequest, error.to_string()),
            // A replica set that looks for a primary, a disk that does not answer: it may be over in
            // a moment, so that nobody has to give up for it.
            ReadError::Failed(cause) => {
                tracing::warn!(cause, "the store could not be read");
                Self::plain(Code::NotReady).after_ms(1_000)
            }
            other => {
                tracing::error!(error = %other, "what is stored could not be read");
                Self::plain(Code::Internal)
            }
        }
    }
}

impl From<GroupError> for Rejection {
    fn from(error: GroupError) -> Self {
        let code = match &error {
            GroupError::Name(_)
            | GroupError::Pattern(_)
            | GroupError::Settings(_)
            | GroupError::BeyondEnd { .. } => Code::BadRequest,
            GroupError::Unknown(_)
            | GroupError::NotRead { .. }
            | GroupError::UnknownTopic(_)
            | GroupError::UnknownEvent(_) => Code::NotFound,
            GroupError::TooMany(_) => Code::Quota,
            GroupError::OtherSettings { .. }
            | GroupError::InUse { .. }
            | GroupError::InUseElsewhere { .. } => Code::Conflict,
            GroupError::Refused(refusal) => return (*refusal).into(),
            GroupError::Read(error) => return error.clone().into(),
            GroupError::Save(error) => return error.clone().into(),
            GroupError::Failed(_) => return Self::plain(Code::ReadOnly),
            _ => return Self::plain(Code::Internal),
        };
        Self::new(code, error.to_string())
    }
}

impl From<DeadLetterError> for Rejection {
    fn from(error: DeadLetterError) -> Self {
        match error {
            DeadLetterError::Unknown(_) => Self::plain(Code::NotFound),
            DeadLetterError::NotWaiting { .. } => Self::new(Code::Conflict, error.to_string()),
            DeadLetterError::Group(error) => error.into(),
            DeadLetterError::Publish(error) => error.into(),
            DeadLetterError::Read(error) => error.into(),
            DeadLetterError::Save(error) => error.into(),
            _ => Self::plain(Code::Internal),
        }
    }
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        let (code, detail) = match refusal {
            Refusal::AlreadyDone => (Code::Conflict, "the event is done already"),
            Refusal::StaleToken => (Code::StaleToken, "the event was delivered again since"),
            Refusal::LeaseLost => (Code::StaleToken, "the lease ran out, or belongs to another"),
            Refusal::Fenced => (Code::Fenced, "the group was moved since"),
            Refusal::LeaseAtMaximum => (Code::Conflict, "the lease has its greatest length"),
            Refusal::BeyondTail => (Code::BadRequest, "the position lies beyond the last event"),
            Refusal::ReleasedTooOften => (Code::Conflict, "it has been released too often"),
            _ => (Code::UnknownId, "no such delivery is out"),
        };
        Self::new(code, detail)
    }
}

impl From<AckError> for Rejection {
    fn from(error: AckError) -> Self {
        match error {
            AckError::AlreadyDone => Refusal::AlreadyDone.into(),
            AckError::LeaseLost => Refusal::LeaseLost.into(),
            AckError::Fenced => Refusal::Fenced.into(),
            AckError::LeaseAtMaximum => Refusal::LeaseAtMaximum.into(),
            AckError::Unknown => Refusal::Unknown.into(),
            _ => Self::plain(Code::ReadOnly),
        }
    }
}

impl From<FilterError> for Rejection {
    fn from(error: FilterError) -> Self {
        Self::new(Code::InvalidFilter, error.to_string())
    }
}

impl From<RegisterError> for Rejection {
    fn from(error: RegisterError) -> Self {
        let code = match &error {
            RegisterError::System(_) => return Self::plain(Code::Forbidden),
            RegisterError::Topic(_)
            | RegisterError::Document(_)
            | RegisterError::BadHop(_)
            | RegisterError::NothingBefore => Code::BadRequest,
            RegisterError::TooLarge => Code::TooLarge,
            RegisterError::TooMany => Code::Quota,
            RegisterError::OtherCasters(_) | RegisterError::OtherVersion { .. } => Code::Conflict,
            RegisterError::Refused(plan) => {
                return Self::new(Code::Incompatible, error.to_string()).with("plan", plan);
            }
            RegisterError::Contended => {
                return Self::new(Code::NotReady, error.to_string()).after_ms(100);
            }
            RegisterError::Read(error) => return error.clone().into(),
            RegisterError::Save(error) => return error.clone().into(),
            _ => return Self::plain(Code::Internal),
        };
        Self::new(code, error.to_string())
    }
}

impl From<PolicyError> for Rejection {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::Register(error) => error.into(),
            other => Self::new(Code::Conflict, other.to_string()),
        }
    }
}

impl From<RetireError> for Rejection {
    fn from(error: RetireError) -> Self {
        match error {
            RetireError::Unknown { .. } => Self::new(Code::NotFound, error.to_string()),
            RetireError::Register(error) => error.into(),
            RetireError::Read(error) => error.into(),
            other => Self::new(Code::Conflict, other.to_string()),
        }
    }
}

impl From<EvolutionError> for Rejection {
    fn from(error: EvolutionError) -> Self {
        match error {
            EvolutionError::Register(error) => error.into(),
            EvolutionError::Policy(error) => error.into(),
            other => Self::new(Code::Conflict, other.to_string()),
        }
    }
}

impl From<CutOverError> for Rejection {
    fn from(error: CutOverError) -> Self {
        match error {
            CutOverError::Evolution(error) => error.into(),
            CutOverError::Read(error) => error.into(),
            CutOverError::Publish { source, .. } => (*source).into(),
            other => Self::new(Code::Conflict, other.to_string()),
        }
    }
}

impl From<ViewError> for Rejection {
    fn from(error: ViewError) -> Self {
        let code = match &error {
            ViewError::UnknownView(_) | ViewError::NotRead(_) => Code::BadRequest,
            ViewError::Running(_) | ViewError::Taken { .. } | ViewError::Rebuilding(_) => {
                Code::Conflict
            }
            ViewError::Behind(_) => {
                return Self::new(Code::NotReady, error.to_string()).after_ms(1_000);
            }
            ViewError::Stopped(_) => Code::NotReady,
            ViewError::Projection(ProjectionError::NoTopic(_)) => Code::BadRequest,
            ViewError::Projection(ProjectionError::Read(error)) => return error.clone().into(),
            _ => {
                tracing::warn!(%error, "a view could not be read");
                return Self::plain(Code::Internal);
            }
        };
        Self::new(code, error.to_string())
    }
}

impl From<PastError> for Rejection {
    fn from(error: PastError) -> Self {
        match error {
            PastError::View(error) => error.into(),
            PastError::AsOf(AsOfError::Read(error)) => error.into(),
            PastError::AsOf(AsOfError::TooManyEvents) | PastError::TooLong { .. } => {
                Self::new(Code::TooLarge, error.to_string())
            }
            PastError::Version(_) => Self::new(Code::NotFound, error.to_string()),
            other => Self::new(Code::BadRequest, other.to_string()),
        }
    }
}

impl From<CausalityError> for Rejection {
    fn from(error: CausalityError) -> Self {
        match error {
            CausalityError::Read(error) => error.into(),
            other => {
                tracing::warn!(error = %other, "causes could not be looked up");
                Self::plain(Code::Internal)
            }
        }
    }
}

impl From<FeedsError> for Rejection {
    fn from(error: FeedsError) -> Self {
        match error {
            FeedsError::Unknown(_) => Self::new(Code::NotFound, error.to_string()),
            FeedsError::Name(_) | FeedsError::Definition(_) => {
                Self::new(Code::BadRequest, error.to_string())
            }
            FeedsError::Lost(_) | FeedsError::NotLost(_) | FeedsError::NothingToSkip(_) => {
                Self::new(Code::Conflict, error.to_string())
            }
            FeedsError::Read(error) => error.into(),
            FeedsError::Save(error) => error.into(),
            _ => Self::plain(Code::Internal),
        }
    }
}

impl From<JobError> for Rejection {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Spec(_) => Self::new(Code::BadRequest, error.to_string()),
            JobError::Unknown(_) => Self::new(Code::NotFound, error.to_string()),
            JobError::Over(_) | JobError::Elsewhere | JobError::TopicReplaced(_) => {
                Self::new(Code::Conflict, error.to_string())
            }
            JobError::Read(error) => error.into(),
            JobError::Save(error) => error.into(),
            JobError::Publish(error) => error.into(),
            _ => Self::plain(Code::Internal),
        }
    }
}
