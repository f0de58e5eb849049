//! Who a server is, and how a client knows it.
//!
//! signal: the server's certificate · model: TLS 1.3 (RFC 8446) proves that the server has the certificate's key; the key is the
//! right one if its pin is, or if an authority of Mozilla's list has certified it for the host's name · action: the
//! configurations of both ends.
//!
//! Data connections and probes stay outside TLS: they are the load, and have tags of their own.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use sha2::{Digest, Sha256};

use crate::wire::keys::{hex, unhex};
use crate::wire::{ALPN, QUIC_ALPN};

/// Bytes of a pin. Another key with the same 80 bits takes 2^80 key pairs, some thousand years of a million cores; and 20 digits
/// can still be typed.
const PIN: usize = 10;

/// The beginning of the SHA-256 of a public key (`SubjectPublicKeyInfo`, as RFC 7469 has it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin([u8; PIN]);

impl Pin {
    fn of(certificate: &CertificateDer<'_>) -> Result<Pin, Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        let mut pin = [0; PIN];
        pin.copy_from_slice(&Sha256::digest(key.as_ref())[..PIN]);
        Ok(Pin(pin))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// A word that is no pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pin has {} hexadecimal digits", 2 * PIN)]
pub struct NoPin;

impl FromStr for Pin {
    type Err = NoPin;

    fn from_str(text: &str) -> Result<Pin, NoPin> {
        unhex(text).map(Pin).ok_or(NoPin)
    }
}

/// HTTP/2, of RFC 9113.
pub const HTTP2: &[u8] = b"h2";
/// HTTP/1.1, of RFC 7301.
const HTTP1: &[u8] = b"http/1.1";

/// Why a server has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file that has none.
    #[error("{}: {}", .0.display(), match .1 {
        pem::Error::Io(e) => e.kind().to_string(),
        _ => "no certificate or key in PEM".to_owned(),
    })]
    File(PathBuf, pem::Error),
    /// One that TLS cannot use.
    #[error("the certificate: {0}")]
    Unfit(#[from] Error),
    /// None could be made.
    #[error("no certificate could be made: {0}")]
    NotMade(#[from] rcgen::Error),
}

/// A server's certificate and key.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The server's end of TLS.
    pub config: Arc<ServerConfig>,
    /// What a client needs to know the key; `None`: a public authority has certified it.
    pub pin: Option<Pin>,
}

impl Identity {
    /// A new one, of this server alone.
    pub fn new() -> Result<Identity, IdentityError> {
        let made = rcgen::generate_simple_self_signed(["unbloat-measure".to_owned()])?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Identity::of(vec![made.cert.der().clone()], key.into())
    }

    /// From files in PEM: the certificate with those between it and its authority, and its key.
    pub fn read(certificate: &Path, key: &Path) -> Result<Identity, IdentityError> {
        let unread = |file: &Path| {
            let file = file.to_owned();
            move |e| IdentityError::File(file, e)
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(unread(certificate))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(unread(key))?;
        Identity::of(chain, key)
    }

    /// The same certificate for HTTP.
    pub fn http(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        Arc::new(config)
    }

    fn of(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Identity, IdentityError> {
        let pin = match chain.split_first() {
            Some((own, between)) if !is_certified(&*authorities()?, own, between) => {
                Some(Pin::of(own)?)
            }
            _ => None,
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Nothing is resumed.
        config.send_tls13_tickets = 0;
        Ok(Identity { config: Arc::new(config), pin })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn authorities() -> Result<Arc<WebPkiServerVerifier>, Error> {
    verifier(RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()))
}

fn verifier(roots: RootCertStore) -> Result<Arc<WebPkiServerVerifier>, Error> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|e| Error::General(e.to_string()))
}

/// Whether an authority has signed a certificate, for whatever name.
fn is_certified(
    authorities: &dyn ServerCertVerifier,
    own: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
) -> bool {
    let any = ServerName::from(IpAddr::from([127, 0, 0, 1]));
    let judged = authorities.verify_server_cert(own, between, &any, &[], UnixTime::now());
    // The name is looked at last.
    matches!(
        judged,
        Ok(_)
            | Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            ))
    )
}

/// How a client judges a server's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A public authority has certified it for the host's name.
    Authorities,
    /// It has this pin.
    Pin(Pin),
    /// Not at all: for servers of others with a key of their own, which no pin is known of.
    Any,
}

/// The client's end of the control connection: the server's key has this pin; without one an authority has certified it.
pub fn client(pin: Option<Pin>) -> Result<Arc<ClientConfig>, Error> {
    let mut config = trusting(pin.map_or(Trust::Authorities, Trust::Pin))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// The client's end of a load by QUIC, which trusts the same key and resumes nothing.
pub fn load_client(pin: Option<Pin>) -> Result<ClientConfig, Error> {
    let mut config = trusting(pin.map_or(Trust::Authorities, Trust::Pin))?;
    config.alpn_protocols = vec![QUIC_ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// The client's end of HTTP/2, which resumes nothing.
pub fn http_client(trust: Trust) -> Result<ClientConfig, Error> {
    let mut config = trusting(trust)?;
    config.alpn_protocols = vec![HTTP2.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// The client's end of HTTP/1.1, which WebSocket begins with.
pub fn http1_client(trust: Trust) -> Result<ClientConfig, Error> {
    let mut config = trusting(trust)?;
    config.alpn_protocols = vec![HTTP1.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn trusting(trust: Trust) -> Result<ClientConfig, Error> {
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Authorities => authorities()?,
        Trust::Pin(pin) => Arc::new(Pinned { pin: Some(pin), provider: provider() }),
        Trust::Any => Arc::new(Pinned { pin: None, provider: provider() }),
    };
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(config)
}

/// Takes the key with one pin, or any one, whatever its certificate says.
#[derive(Debug)]
struct Pinned {
    pin: Option<Pin>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.pin {
            Some(pin) if Pin::of(own)? != pin => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, own, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, own, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, generate_simple_self_signed,
    };

    use super::*;

    #[test]
    fn a_pin_is_typed_as_it_is_printed() {
        let pin = Identity::new().unwrap().pin.unwrap();
        assert_eq!(pin.to_string().parse(), Ok(pin));
        assert_eq!(pin.to_string().to_uppercase().parse(), Ok(pin));
        assert_eq!(pin.to_string()[1..].parse::<Pin>(), Err(NoPin));
        assert_ne!(Identity::new().unwrap().pin, Some(pin), "another key");
    }

    #[test]
    fn a_pin_is_that_of_openssl() {
        // openssl x509 -in FILE -pubkey -noout | openssl pkey -pubin -outform der | openssl sha256
        let made = CertificateDer::from_pem_slice(include_bytes!("../tests/data/own.crt")).unwrap();
        assert_eq!(Pin::of(&made).unwrap().to_string(), "b4cfcb730fd464bc7742");
    }

    #[test]
    fn an_authority_certifies_a_key_for_its_own_name_only() {
        let issuer_key = KeyPair::generate().unwrap();
        let mut issuer = CertificateParams::default();
        issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = issuer.self_signed(&issuer_key).unwrap();
        let issuer = Issuer::new(issuer, issuer_key);
        let params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        let own = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let known = verifier(roots).unwrap();
        let under = |name: &'static str| {
            let name = ServerName::try_from(name).unwrap();
            known.verify_server_cert(own.der(), &[], &name, &[], UnixTime::now()).is_ok()
        };
        assert!(under("a.example"));
        assert!(!under("b.example"));
        assert!(is_certified(&*known, own.der(), &[]));
        assert!(!is_certified(&*authorities().unwrap(), own.der(), &[]));
        let stranger = generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        assert!(!is_certified(&*known, stranger.cert.der(), &[]));
    }
}
