mod server;

mod plain;

mod negotiated;
mod operating;
mod pages;

mod access;
mod audit;
mod bad_tokens;
mod entrances;
mod guarded;
mod issuer;
mod tickets;

mod connections;
mod limits;
mod rates;

mod documented;
mod resources;
mod schemas;

mod following;

mod views;

mod replays;

mod goodbyes;
mod stopping;

mod storage;
