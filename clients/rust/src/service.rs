use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};

use crate::ask::TARGET_PREFIX;
use crate::config::Host;
use crate::connection::{Connections, Received, SendError, TryOptions};
use crate::util::{BoxError, chain, within};
use crate::{Ask, Body, Choice, Client, Error, ErrorKind, Outcome, Pick, ResponseBody};

/// Says whether an error of a service means that nothing of the request was sent.
type NotSent = fn(&(dyn StdError + Send + Sync + 'static)) -> bool;

/// Makes a [`Service`] of a service that sends requests to the address in their URI.
#[derive(Clone, Debug)]
pub struct Layer {
    client: Client,
    not_sent: NotSent,
}

impl Layer {
    /// A layer for a client.
    pub fn new(client: Client) -> Self {
        Self { client, not_sent: |_| false }
    }

    /// Sets what says whether an error of the inner service means that nothing of the request was sent, because there was
    /// no connection. Without it, only refused connections are known as such: other errors of connects are of an unknown
    /// end, and only idempotent requests are sent again.
    pub fn not_sent(self, not_sent: NotSent) -> Self {
        Self { not_sent, ..self }
    }
}

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Service<S>;

    fn layer(&self, inner: S) -> Service<S> {
        Service { client: self.client.clone(), not_sent: self.not_sent, inner }
    }
}

/// A `tower` service that sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks. Others are not touched.
///
/// If there is no connection to an endpoint, any request is sent to another one. A request of which something was sent is
/// retried at another endpoint if it is idempotent, its body can be sent again, and the connection failed before the
/// status line, or the status is 502, 503 or 504.
///
/// The inner service sees the address of the endpoint in the URI, and the host of the cluster in the header `Host`. With
/// https, [`Connections`] verifies the certificate of the endpoint for the host of the cluster.
#[derive(Clone, Debug)]
pub struct Service<S = Connections> {
    client: Client,
    not_sent: NotSent,
    inner: S,
}

impl Client {
    /// Sends a request, as [`Service`] does.
    pub async fn send<B: Into<Body>>(&self, request: Request<B>) -> Result<Response<ResponseBody<Received>>, Error> {
        let (head, body) = request.into_parts();
        self.service().send(Request::from_parts(head, body.into())).await
    }

    /// A `tower` service that sends requests with the connections of the client.
    pub fn service(&self) -> Service {
        Service { client: self.clone(), not_sent: |_| false, inner: self.connections() }
    }
}

impl<S, B, R> tower_service::Service<Request<B>> for Service<S>
where
    S: tower_service::Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Into<Body>,
    R: Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    /// The inner service becomes ready for each try.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        let (request, service) = (Request::from_parts(head, body.into()), self.clone());
        Box::pin(service.send(request))
    }
}

/// How a try has failed.
enum End {
    NotSent {
        late: bool,
    },
    Unknown,
    /// This machine or the request is to blame.
    Cancelled,
}

impl<S, R> Service<S>
where
    S: tower_service::Service<Request<Body>, Response = Response<R>>,
    S::Error: Into<BoxError>,
{
    async fn send(mut self, mut request: Request<Body>) -> Result<Response<ResponseBody<R>>, Error> {
        let inner = self.client.inner().clone();
        let ask = request.extensions_mut().remove::<Ask>();
        let timeout = ask.as_ref().and_then(|ask| ask.timeout).or(inner.config.timeout);
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let Some((host, name)) = request.uri().host().and_then(|host| inner.host(host)) else {
            let response = within(deadline, try_once(&mut self.inner, request)).await;
            let response = response.ok_or_else(|| Error::new(ErrorKind::Timeout, "", "no response in time"))?;
            let response = response.map_err(|error| Error::caused(ErrorKind::Connection, "no response", error))?;
            return Ok(response.map(|body| ResponseBody::new(body, None, deadline)));
        };
        let query = if host.is_some_and(|host| host.hash.is_some()) || ask.is_some() || name.starts_with(TARGET_PREFIX)
        {
            host.unwrap_or(&Host::default()).query(&name, Some(&request), ask.as_ref())
        } else {
            String::new()
        };
        let idempotent = ask.is_some_and(|ask| ask.idempotent) || is_idempotent(&request);
        let mut pick = Pick::new(&self.client, &name, query, deadline, Some(&request)).await?;
        let original = request.uri().clone();
        set_host(&mut request)?;
        let (head, body) = request.into_parts();
        loop {
            let mut next = Request::from_parts(head.clone(), body.clone());
            let connecting = Arc::new(AtomicBool::new(false));
            *next.uri_mut() = endpoint(&original, pick.address())?;
            next.extensions_mut().insert(TryOptions {
                host: original.host().unwrap_or_default().to_ascii_lowercase(),
                connect_timeout: pick.connect_timeout(),
                connects: pick.connects(),
                connecting: connecting.clone(),
            });
            match within(deadline, try_once(&mut self.inner, next)).await {
                None => {
                    if connecting.load(Ordering::Relaxed) {
                        pick.uncount();
                    } else {
                        pick.ends(Outcome::Error);
                    }
                    pick.failed(true);
                    return Err(Error::of_try(ErrorKind::Timeout, pick.choice(), "no response in time from", None));
                }
                Some(Ok(response)) => {
                    let status = response.status();
                    pick.status = Some(status);
                    if is_overload(status) {
                        pick.answer();
                        pick.ends(Outcome::Error);
                        if body.is_repeatable() && pick.again(idempotent, false).await {
                            continue;
                        }
                    } else if status.is_server_error() {
                        pick.answer();
                        pick.budget_succeeded();
                        pick.ends(Outcome::Error);
                    } else {
                        pick.answered(Outcome::Success);
                    }
                    return Ok(response.map(|body| ResponseBody::new(body, Some(pick), deadline)));
                }
                Some(Err(error)) => {
                    let end = if body.has_failed() { End::Cancelled } else { self.end_of(&*error) };
                    let failed = |choice: Choice| match end {
                        End::Cancelled if body.has_failed() => {
                            Error::of_try(ErrorKind::Invalid, choice, "the body of the request failed:", Some(error))
                        }
                        _ => Error::of_try(ErrorKind::Connection, choice, "no response from", Some(error)),
                    };
                    match end {
                        End::Cancelled => pick.ends(Outcome::Cancelled),
                        End::NotSent { late } => {
                            if late {
                                pick.missed_hurry();
                            }
                            pick.ends(Outcome::Unreachable);
                        }
                        End::Unknown => {
                            pick.ends(Outcome::Error);
                            pick.failed(true);
                        }
                    }
                    let choice = pick.choice();
                    if matches!(end, End::Cancelled) || !body.is_repeatable() || !pick.again(idempotent, true).await {
                        return Err(failed(choice));
                    }
                }
            }
        }
    }

    fn end_of(&self, error: &(dyn StdError + Send + Sync + 'static)) -> End {
        let mut connection = false;
        let mut not_sent = (self.not_sent)(error).then_some(End::NotSent { late: false });
        for cause in chain(error) {
            if let Some(error) = cause.downcast_ref::<SendError>() {
                connection = true;
                if error.not_sent {
                    not_sent = Some(End::NotSent { late: error.late });
                }
            } else if let Some(error) = cause.downcast_ref::<io::Error>() {
                connection = true;
                if is_shortage(error) {
                    return End::Cancelled;
                }
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    not_sent.get_or_insert(End::NotSent { late: false });
                }
            } else if let Some(error) = cause.downcast_ref::<hyper::Error>() {
                connection |= !error.is_user();
            }
        }
        not_sent.unwrap_or(if connection { End::Unknown } else { End::Cancelled })
    }
}

/// Sends a request with a service that is made ready for it.
async fn try_once<S>(service: &mut S, request: Request<Body>) -> Result<S::Response, BoxError>
where
    S: tower_service::Service<Request<Body>>,
    S::Error: Into<BoxError>,
{
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    service.call(request).await.map_err(Into::into)
}

/// Errors of this machine: no endpoint is to blame.
fn is_shortage(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, OutOfMemory, PermissionDenied};
    const ENFILE_EMFILE_ENOBUFS: [i32; 4] = [23, 24, 55, 105]; // ENOBUFS of BSD and Linux
    matches!(error.kind(), AddrNotAvailable | OutOfMemory | PermissionDenied)
        || error.raw_os_error().is_some_and(|code| ENFILE_EMFILE_ENOBUFS.contains(&code))
}

/// Whether a status says that another endpoint may do better.
fn is_overload(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

fn is_idempotent(request: &Request<Body>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
        || request.headers().contains_key("idempotency-key")
}

/// Sets the header Host to the host of the cluster, unless the program has set it.
fn set_host(request: &mut Request<Body>) -> Result<(), Error> {
    if !request.headers().contains_key(HOST) {
        let authority = request.uri().authority().map_or("", Authority::as_str);
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let value =
            HeaderValue::from_str(host).map_err(|error| Error::caused(ErrorKind::Invalid, "the host", error.into()))?;
        request.headers_mut().insert(HOST, value);
    }
    Ok(())
}

/// The URI of the request at an endpoint.
fn endpoint(original: &Uri, address: &str) -> Result<Uri, Error> {
    let mut parts = original.clone().into_parts();
    let invalid = |error: http::Error| Error::caused(ErrorKind::Invalid, "the address of the endpoint", error.into());
    parts.authority = Some(address.parse::<Authority>().map_err(|error| invalid(error.into()))?);
    parts.path_and_query.get_or_insert_with(|| http::uri::PathAndQuery::from_static("/"));
    parts.scheme.get_or_insert(http::uri::Scheme::HTTP);
    Uri::from_parts(parts).map_err(|error| invalid(error.into()))
}
