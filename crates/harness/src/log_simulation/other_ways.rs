//! A damaged log by all other ways than reading it from the start: backward, by seq, by time, by key.
//! And whether it goes on: takes events, is cleaned, closes, and has them when it is opened again.

use super::damage::Findings;
use super::model::{Batch, LaneKey, Strength};
use super::session::Session;
use super::subject::{Answer, Found, Refusal, Subject};
use super::violation::{Broken, Violation};

/// Whether what was found is what was stored there.
fn is_right(session: &Session, (key, event): &Found) -> bool {
    let stored = session.model().lane_keys().any(|known| known == *key);
    let stored = stored.then(|| session.model().lane(*key).get(event.offset as usize)).flatten();
    stored.is_some_and(|stored| stored.draft.digest == event.digest)
}

fn all_right(session: &Session, found: &[Found], what: &str) -> Result<(), Violation> {
    match found.iter().find(|found| !is_right(session, found)) {
        Some(wrong) => Violation::err(Broken::Changed, format!("{what}: {wrong:?}")),
        None => Ok(()),
    }
}

/// Reads by all other ways, and compares.
pub(super) fn examine(
    session: &Session,
    subject: &Subject,
    findings: &mut Findings,
) -> Result<(), Violation> {
    for key in session.model().lane_keys() {
        backward(session, subject, key, findings)?;
        by_time(session, subject, key, findings)?;
    }
    by_seq(session, subject, findings)?;
    for topic in 0..session.destinations.len() {
        match subject.keys(topic, "") {
            Ok(found) => all_right(session, &found, "keys")?,
            Err(_) => findings.told = true,
        }
    }
    Ok(())
}

fn backward(
    session: &Session,
    subject: &Subject,
    key: LaneKey,
    findings: &mut Findings,
) -> Result<(), Violation> {
    let Some((_, next)) = subject.bounds(key) else { return Ok(()) };
    match subject.page_before(key, next, 100_000) {
        Ok(found) => {
            all_right(session, &found, "backward")?;
            let kept = session.model().lane(key).iter().filter(|event| !event.removed).count();
            if found.len() < kept {
                findings.miss(|| format!("{key:?}: {} of {kept} backward", found.len()));
            }
        }
        Err(_) => findings.told = true,
    }
    Ok(())
}

/// Where a lane stands at the time of each of some events.
fn by_time(
    session: &Session,
    subject: &Subject,
    key: LaneKey,
    findings: &mut Findings,
) -> Result<(), Violation> {
    let lane = session.model().lane(key);
    for time in lane.iter().step_by(9).filter_map(|event| event.appended_ms) {
        let early = |at: &usize| lane[*at].appended_ms.is_some_and(|ms| ms < time);
        let first = (0..lane.len()).find(|at| !early(at)).unwrap_or(lane.len()) as u64;
        let kept = (0..lane.len()).find(|at| !early(at) && !lane[*at].removed);
        let last = kept.unwrap_or(lane.len()) as u64;
        match subject.offset_at(key, time) {
            Ok(found) if (first..=last).contains(&found) => {}
            Ok(found) => findings.miss(|| format!("{key:?} at {time}: {found}, not {first}")),
            Err(_) => findings.told = true,
        }
    }
    Ok(())
}

fn by_seq(session: &Session, subject: &Subject, findings: &mut Findings) -> Result<(), Violation> {
    let topics: Vec<usize> =
        (0..session.destinations.len()).filter(|&topic| subject.knows(topic)).collect();
    let order = session.model().order();
    for from in [0, order.len() as u64 / 2] {
        let Ok(found) = subject.read_merged(&topics, from, 1000) else {
            findings.told = true;
            continue;
        };
        all_right(session, &found, "by seq")?;
        let seqs = found.iter().map(|(_, event)| event.seq);
        if !seqs.clone().is_sorted_by(|one, next| one < next) || seqs.clone().any(|seq| seq < from)
        {
            let detail = format!("by seq from {from}: {:?}", Vec::from_iter(seqs));
            return Violation::err(Broken::Changed, detail);
        }
        let expected = order.iter().filter(|&&(key, offset)| {
            let event = &session.model().lane(key)[offset as usize];
            !event.removed && event.seq.is_some_and(|seq| seq >= from)
        });
        let expected = expected.count();
        if found.len() < expected {
            findings.miss(|| format!("by seq from {from}: {} of {expected}", found.len()));
        }
    }
    Ok(())
}

/// Publishes into the damaged log, has it cleaned and closed, and looks for the events afterwards.
pub(super) fn go_on(session: &Session, subject: Subject) -> Result<(), Violation> {
    let mut source = session.source.clone();
    let known = session.destinations.iter().filter(|to| subject.knows(to.number));
    let drafts: Vec<_> = known.map(|to| source.next(to, session.latest_ms)).collect();
    if drafts.is_empty() {
        return Ok(());
    }
    let batch = Batch { drafts, strength: Strength::Synced, expect: Vec::new() };
    let ticket = subject.append(&batch);
    subject.commit_waiting();
    let receipts = match subject.appended(&ticket) {
        Answer::Yes(receipts) => receipts,
        // Whether an id is there cannot be told where it may be damaged.
        Answer::No(Refusal::LookupFailed) => return Ok(()),
        other => {
            let detail = format!("a damaged log that opens takes no events: {other:?}");
            return Violation::err(Broken::Failed, detail);
        }
    };
    // What is damaged keeps it from nothing but being cleaned itself.
    drop(subject.clean());
    drop(subject.maintain());
    subject.close();
    drop(subject);
    session.disk().kill();
    let Ok((subject, _)) = Subject::open(session) else {
        return Violation::err(Broken::Failed, "it does not open any more once it has gone on");
    };
    for (draft, (place, _)) in batch.drafts.iter().zip(&receipts.places) {
        let found = subject.find(draft.topic, &draft.event.id);
        let at = found.ok().flatten().map(|(key, event)| (key, event.offset, event.digest));
        if at != Some((place.lane, place.offset, draft.digest)) {
            let detail = format!("acknowledged at {place:?}, then at {at:?}");
            return Violation::err(Broken::Lost, detail);
        }
    }
    Ok(())
}
