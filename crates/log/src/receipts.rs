use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::batch::Receipt;

/// The receipts of one append, in the order of its events. Most appends are of one event: its receipt
/// takes no memory of its own.
#[derive(Clone)]
pub struct Receipts(Kept);

#[derive(Clone)]
enum Kept {
    One(Receipt),
    Many(Arc<Vec<Receipt>>),
}

impl Receipts {
    /// All of them, without a copy.
    pub(crate) const fn whole(receipts: Arc<Vec<Receipt>>) -> Self {
        Self(Kept::Many(receipts))
    }
}

impl From<&[Receipt]> for Receipts {
    fn from(receipts: &[Receipt]) -> Self {
        match receipts {
            [one] => Self(Kept::One(*one)),
            many => Self(Kept::Many(Arc::new(many.to_vec()))),
        }
    }
}

impl Deref for Receipts {
    type Target = [Receipt];

    fn deref(&self) -> &[Receipt] {
        match &self.0 {
            Kept::One(one) => std::slice::from_ref(one),
            Kept::Many(many) => many,
        }
    }
}

impl PartialEq for Receipts {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Receipts {}

impl fmt::Debug for Receipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
