use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::rejection::{Code, Rejection};

/// How many WebSockets and streams each subject has open.
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    open: Mutex<HashMap<Arc<str>, usize>>,
}

/// One of them, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Presence {
    attendance: Arc<Attendance>,
    subject: Arc<str>,
}

impl Attendance {
    pub(crate) fn enter(
        self: &Arc<Self>,
        subject: &str,
        max: usize,
    ) -> Result<Presence, Rejection> {
        let subject: Arc<str> = subject.into();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let here = open.entry(Arc::clone(&subject)).or_default();
        if *here >= max {
            let detail = format!("{max} connections of one subject at a time");
            return Err(Rejection::new(Code::Limit, detail).after_ms(1_000));
        }
        *here += 1;
        drop(open);
        Ok(Presence { attendance: Arc::clone(self), subject })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut open = self.attendance.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = open.get_mut(&self.subject) {
            *here -= 1;
            if *here == 0 {
                open.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_only_so_many() {
        let attendance = Arc::new(Attendance::default());
        let one = attendance.enter("ann", 2).unwrap();
        let _two = attendance.enter("ann", 2).unwrap();
        assert_eq!(attendance.enter("ann", 2).unwrap_err().code, Code::Limit);
        let _other = attendance.enter("bob", 2).unwrap();
        drop(one);
        let _again = attendance.enter("ann", 2).unwrap();
        drop((_two, _other, _again));
        assert!(attendance.open.lock().unwrap().is_empty(), "nothing is left behind");
    }
}
