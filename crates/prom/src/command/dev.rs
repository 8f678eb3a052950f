//! `prom dev`: a server for one's own machine, open to whoever sits at it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use promethean::{Bus, BusOptions};
use promethean_gateway::{Access, PORT, Settings};

use super::Status;
use super::serve;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Where everything is kept [default: nowhere, it is gone when the server stops].
    #[arg(long, value_name = "DIR", env = "PROM_DATA_DIR")]
    data: Option<PathBuf>,
    /// Port of this machine to listen on; 0 for any that is free.
    #[arg(long, default_value_t = PORT)]
    port: u16,
}

pub(crate) fn run(dev: &Dev, output: &Output) -> anyhow::Result<Status> {
    let mut settings = Settings::local(Access::Anonymous);
    settings.listen = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), dev.port)];
    let Some(data) = &dev.data else {
        output.progress("kept in memory only; --data DIR keeps it");
        return serve::start(output, settings, Bus::memory, None);
    };
    serve::private_directory(data)?;
    let store = serve::open(data, output)?;
    serve::start(output, settings, || Bus::with_store(store, BusOptions::default()), None)
}
