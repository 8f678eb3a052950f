//! A network that can be cut: what connects to it is passed on to a server.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

pub(super) struct Relay {
    pub(super) at: SocketAddr,
    open: Arc<Mutex<Vec<AbortHandle>>>,
    accepting: AbortHandle,
}

impl Relay {
    pub(super) async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (open, server) = (Arc::new(Mutex::new(Vec::new())), server.to_owned());
        let passing = Arc::clone(&open);
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((mut near, _)) = listener.accept().await else { return };
                let server = server.clone();
                let pass = tokio::spawn(async move {
                    // A server that is not there is a connection that ends at once.
                    let Ok(mut far) = TcpStream::connect(&server).await else { return };
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                });
                passing.lock().unwrap().push(pass.abort_handle());
            }
        });
        Self { at, open, accepting: accepting.abort_handle() }
    }

    pub(super) fn url(&self) -> String {
        format!("ws://{}", self.at)
    }

    /// Cuts every connection.
    pub(super) fn cut(&self) {
        self.open.lock().unwrap().drain(..).for_each(|pass| pass.abort());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}
