//! What becomes of events and groups when MongoDB, or the way to it, fails. One round of each is part of
//! `scripts/test`; `scripts/faults ROUNDS` runs the full counts.

pub(crate) mod set;

mod alone;

mod pulse;

mod kept;

mod failovers;

mod commands;

mod making;

mod answers;

mod cuts;

mod late;

mod polling;
