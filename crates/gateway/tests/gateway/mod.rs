mod server;

mod plain;

mod negotiated;

mod access;

mod limits;

mod resources;

mod following;

mod stopping;
