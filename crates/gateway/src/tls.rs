use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, crypto::aws_lc_rs};

use crate::settings::TlsFiles;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that is not there or not PEM.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// Others on this machine can read the key.
    #[error("{0} can be read by others; chmod 600 it")]
    Readable(String),
    /// Certificate and key do not fit, or are not good.
    #[error("certificate and key are refused")]
    Refused(#[from] rustls::Error),
}

/// Certificate and key, which can be exchanged while connections are open.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    current: Mutex<Arc<ServerConfig>>,
}

impl Tls {
    pub(crate) fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let current = Mutex::new(Arc::new(read(&files)?));
        Ok(Self { files, current })
    }

    /// Reads the files again. New connections get them; if they are no good, the old ones.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let fresh = Arc::new(read(&self.files)?);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let bad =
        |path: &Path, reason: String| TlsError::File { path: path.display().to_string(), reason };
    let bytes = |path: &Path| fs::read(path).map_err(|error| bad(path, error.to_string()));
    let chain = CertificateDer::pem_slice_iter(&bytes(&files.certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad(&files.certificate, error.to_string()))?;
    if is_readable_by_others(&files.key).map_err(|error| bad(&files.key, error.to_string()))? {
        return Err(TlsError::Readable(files.key.display().to_string()));
    }
    let key = PrivateKeyDer::from_pem_slice(&bytes(&files.key)?)
        .map_err(|error| bad(&files.key, error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(unix)]
fn is_readable_by_others(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::metadata(path)?.permissions().mode() & 0o007 != 0)
}

#[cfg(not(unix))]
fn is_readable_by_others(path: &Path) -> io::Result<bool> {
    fs::metadata(path).map(|_| false)
}
