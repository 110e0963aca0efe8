//! Connections with HTTP/1.1, to lbd and to endpoints.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Body;
use crate::aside::Connects;
use crate::util::{BoxError, lock};

/// Idle connections to one address, at most.
const MAX_IDLE: usize = 100;
const IDLE_TIME: Duration = Duration::from_secs(90);

/// Sends requests to the address in their URI, with HTTP/1.1, and keeps connections open: the default of
/// [`Service`](crate::Service).
#[derive(Clone)]
pub struct Connections(Arc<Pool>);

struct Pool {
    connect_timeout: Duration,
    idle: Mutex<HashMap<Target, Vec<Idle>>>,
    #[cfg(feature = "tls")]
    tls: Result<tokio_rustls::TlsConnector, String>,
}

struct Idle {
    sender: SendRequest<Body>,
    since: Instant,
}

/// Where a connection leads: HOST:PORT, or the path of a unix socket.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub address: String,
    pub is_unix: bool,
    /// The name in the certificate; None without TLS.
    pub tls: Option<String>,
}

/// What [`Connections`] has to know of a try, in the extensions of its request.
#[derive(Clone)]
pub(crate) struct TryOptions {
    /// The host of the URI of the program, which is that of the certificate.
    pub host: String,
    pub connect_timeout: Duration,
    pub connects: Arc<Connects>,
    /// Whether there is no connection yet that would be made for the try.
    pub connecting: Arc<AtomicBool>,
}

/// Why [`Connections`] has no response.
#[derive(Debug)]
pub struct SendError {
    source: BoxError,
    /// Nothing of the request was sent: there was no connection.
    pub(crate) not_sent: bool,
    /// The connect took too long.
    pub(crate) late: bool,
    /// The connection was used before: its peer may have closed it just now.
    pub(crate) reused: bool,
}

impl SendError {
    fn new(source: impl Into<BoxError>, not_sent: bool) -> Self {
        Self { source: source.into(), not_sent, late: false, reused: false }
    }

    fn connect(source: impl Into<BoxError>) -> Self {
        Self::new(source, true)
    }

    fn connect_timeout() -> Self {
        Self { late: true, ..Self::connect(io::Error::new(io::ErrorKind::TimedOut, "the connect took too long")) }
    }

    /// Whether nothing of the request was sent, because there was no connection.
    pub fn is_not_sent(&self) -> bool {
        self.not_sent
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.not_sent { "connect" } else { "connection" })
    }
}

impl StdError for SendError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

impl Connections {
    /// `tls` verifies the certificates of peers, or says why it cannot.
    pub(crate) fn new(connect_timeout: Duration, ca: Option<&std::path::Path>) -> Result<Self, String> {
        #[cfg(not(feature = "tls"))]
        let _ = ca;
        Ok(Self(Arc::new(Pool {
            connect_timeout,
            idle: Mutex::default(),
            #[cfg(feature = "tls")]
            tls: tls(ca)?,
        })))
    }

    pub(crate) async fn send(
        &self, target: &Target, mut request: Request<Body>, limit: Duration, options: Option<&TryOptions>,
    ) -> Result<Response<Received>, SendError> {
        let connecting = |is| options.iter().for_each(|options| options.connecting.store(is, Ordering::Relaxed));
        loop {
            let (mut sender, reused) = match self.idle(target) {
                Some(sender) => (sender, true),
                None => {
                    connecting(true);
                    (self.connect(target, limit, options.map(|options| &*options.connects)).await?, false)
                }
            };
            connecting(false);
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                    return Ok(response.map(|body| {
                        let back = (!upgraded).then(|| (sender, target.clone(), Arc::downgrade(&self.0)));
                        let mut received = Received { body, back };
                        if received.body.is_end_stream() {
                            received.give_back();
                        }
                        received
                    }));
                }
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) if reused => request = unsent, // the connection had ended
                    unsent => {
                        return Err(SendError { reused, ..SendError::new(failed.into_error(), unsent.is_some()) });
                    }
                },
            }
        }
    }

    fn idle(&self, target: &Target) -> Option<SendRequest<Body>> {
        let mut idle = lock(&self.0.idle);
        let senders = idle.get_mut(target)?;
        while let Some(last) = senders.pop() {
            if last.sender.is_ready() && last.since.elapsed() < IDLE_TIME {
                return Some(last.sender);
            }
        }
        None
    }

    async fn connect(
        &self, target: &Target, limit: Duration, connects: Option<&Connects>,
    ) -> Result<SendRequest<Body>, SendError> {
        #[cfg(unix)]
        if target.is_unix {
            let stream = timeout(limit, tokio::net::UnixStream::connect(&target.address)).await;
            return start(stream.map_err(|_| SendError::connect_timeout())?.map_err(SendError::connect)?).await;
        }
        let began = Instant::now();
        let stream = timeout(limit, TcpStream::connect(&target.address)).await;
        let stream = stream.map_err(|_| SendError::connect_timeout())?.map_err(SendError::connect)?;
        if let Some(connects) = connects {
            connects.add(began.elapsed());
        }
        stream.set_nodelay(true).map_err(SendError::connect)?;
        let Some(name) = &target.tls else { return start(stream).await };
        #[cfg(feature = "tls")]
        {
            let connector = self.0.tls.as_ref().map_err(|reason| SendError::connect(reason.as_str()))?;
            let name = name.trim_matches(['[', ']']).to_owned();
            let name = tokio_rustls::rustls::pki_types::ServerName::try_from(name).map_err(SendError::connect)?;
            let handshake = timeout(self.0.connect_timeout, connector.connect(name, stream)).await;
            start(
                handshake
                    .map_err(|_| SendError::connect("the TLS handshake took too long"))?
                    .map_err(SendError::connect)?,
            )
            .await
        }
        #[cfg(not(feature = "tls"))]
        Err(SendError::connect(format!("https://{name} needs the feature tls")))
    }

    pub(crate) fn close(&self) {
        lock(&self.0.idle).clear();
    }
}

async fn start(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<SendRequest<Body>, SendError> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(SendError::connect)?;
    tokio::spawn(connection.with_upgrades());
    Ok(sender)
}

#[cfg(feature = "tls")]
fn tls(ca: Option<&std::path::Path>) -> Result<Result<tokio_rustls::TlsConnector, String>, String> {
    use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        let failed = |error: &dyn fmt::Display| format!("certificates of lbd: {}: {error}", path.display());
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))? {
            let certificate = certificate.map_err(|error| failed(&error))?;
            roots.add(certificate).map_err(|error| failed(&error))?;
        }
        if roots.is_empty() {
            return Err(failed(&"no PEM certificate"));
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let config =
        ClientConfig::builder_with_provider(ring::default_provider().into()).with_safe_default_protocol_versions();
    Ok(config
        .map(|config| Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into())
        .map_err(|error| error.to_string()))
}

impl Pool {
    fn put(&self, target: Target, sender: SendRequest<Body>) {
        let mut idle = lock(&self.idle);
        if idle.len() >= MAX_IDLE && !idle.contains_key(&target) {
            idle.retain(|_, senders| {
                senders.retain(|sender| !sender.sender.is_closed() && sender.since.elapsed() < IDLE_TIME);
                !senders.is_empty()
            });
        }
        let senders = idle.entry(target).or_default();
        if senders.len() < MAX_IDLE {
            senders.push(Idle { sender, since: Instant::now() });
        }
    }
}

/// The body of a response of [`Connections`]. At its end, the connection may have the next request.
#[derive(Debug)]
pub struct Received {
    body: Incoming,
    back: Option<(SendRequest<Body>, Target, Weak<Pool>)>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connections")
    }
}

impl Received {
    fn give_back(&mut self) {
        let Some((mut sender, target, pool)) = self.back.take() else { return };
        if sender.is_ready() {
            if let Some(pool) = pool.upgrade() {
                pool.put(target, sender);
            }
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let (Ok(()), Some(pool)) = (sender.ready().await, pool.upgrade()) {
                    pool.put(target, sender);
                }
            });
        }
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(None) => self.give_back(),
            Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => self.give_back(),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// HOST:PORT of a URI.
pub(crate) fn authority(uri: &Uri) -> Option<String> {
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    Some(format!("{}:{}", uri.host()?, uri.port_u16().unwrap_or(default)))
}

impl tower_service::Service<Request<Body>> for Connections {
    type Response = Response<Received>;
    type Error = SendError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Received>, SendError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let connections = self.clone();
        Box::pin(async move {
            let options = request.extensions_mut().remove::<TryOptions>();
            let uri = request.uri();
            let (Some(address), Some(host)) = (authority(uri), uri.host()) else {
                return Err(SendError::new("the URI has no host", false));
            };
            let secure = uri.scheme_str() == Some("https");
            let name = options.as_ref().map_or(host, |options| &options.host);
            let target = Target { address, is_unix: false, tls: secure.then(|| name.to_owned()) };
            if !request.headers().contains_key(HOST) {
                let authority = uri.authority().map_or(host, |authority| authority.as_str());
                let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
                let value = HeaderValue::from_str(authority).map_err(|error| SendError::new(error, false))?;
                request.headers_mut().insert(HOST, value);
            }
            let path = request.uri().path_and_query().map_or_else(|| "/".parse(), |path| path.as_str().parse());
            *request.uri_mut() = path.map_err(|error| SendError::new(error, false))?;
            let limit = options.as_ref().map_or(connections.0.connect_timeout, |options| options.connect_timeout);
            connections.send(&target, request, limit, options.as_ref()).await
        })
    }
}
