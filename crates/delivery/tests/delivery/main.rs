//! Groups from outside: what each pitfall of the notes looks like now, and how fast it goes.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests stop where they are wrong"
)]

mod driver;

mod acks;

mod attempts;

mod dead_letters;

mod handing_over;

mod nonsense;

mod order;

mod owners;

mod saves;

mod spans;
