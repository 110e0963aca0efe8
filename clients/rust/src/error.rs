use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Choice;
use crate::util::BoxError;

/// What kind of [`Error`] it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The drop policy of the cluster rejected the request. Do not retry it: the operator wants less load.
    Dropped,
    /// The circuit breaker of the cluster is full. Do not retry at once.
    CircuitBroken,
    /// lbd has no endpoint, or is unreachable and the last batch is too old.
    Unavailable,
    /// lbd does not know the cluster, or the target.
    UnknownCluster,
    /// lbd rejected the token, or does not permit picks from this cluster.
    PermissionDenied,
    /// The deadline of the request passed.
    Timeout,
    /// The endpoint cannot be reached, or ended the connection.
    Connection,
    /// A setting or the request is not valid, or its body failed.
    Invalid,
}

/// Why there is no response, or why a client cannot be made.
#[derive(Clone)]
pub struct Error {
    pub(crate) inner: Arc<Detail>,
    choice: Option<Choice>,
}

pub(crate) struct Detail {
    kind: ErrorKind,
    cluster: String,
    code: String,
    category: String,
    detail: String,
    retry_after: Duration,
    source: Option<BoxError>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, cluster: &str, detail: impl Into<String>) -> Self {
        Self::from(Detail {
            kind,
            cluster: cluster.into(),
            code: String::new(),
            category: String::new(),
            detail: detail.into(),
            retry_after: Duration::ZERO,
            source: None,
        })
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, "", detail)
    }

    pub(crate) fn unavailable(cluster: &str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, cluster, detail)
    }

    pub(crate) fn unreachable(cluster: &str, cause: impl fmt::Display) -> Self {
        Self::unavailable(cluster, format!("lbd is unreachable: {cause}"))
    }

    pub(crate) fn late(cluster: &str) -> Self {
        Self::new(ErrorKind::Timeout, cluster, "lbd did not answer before the deadline of the request")
    }

    pub(crate) fn closed(cluster: &str) -> Self {
        Self::unavailable(cluster, "the client is closed")
    }

    pub(crate) fn too_long(cluster: &str) -> Self {
        let detail = "the name of the cluster has more than 512 bytes, or path, headers and hash key more than 24 KiB";
        let problem = Problem { code: "invalid_argument".into(), detail: detail.into(), ..Problem::default() };
        problem.error(&cluster.chars().take(100).collect::<String>(), 0, Duration::ZERO)
    }

    /// The error of a try, with its cause.
    pub(crate) fn of_try(kind: ErrorKind, choice: Choice, detail: &str, source: Option<BoxError>) -> Self {
        let (cluster, detail) = (choice.cluster().into(), format!("{detail} {}", choice.address()));
        let (code, category) = Default::default();
        let inner = Detail { kind, cluster, code, category, detail, retry_after: Duration::ZERO, source };
        Self { choice: Some(choice), ..Self::from(inner) }
    }

    /// The error of a request that is not for lbd, or of its body.
    pub(crate) fn caused(kind: ErrorKind, detail: &str, source: BoxError) -> Self {
        let (cluster, code, category) = Default::default();
        Self::from(Detail {
            kind,
            cluster,
            code,
            category,
            detail: detail.into(),
            retry_after: Duration::ZERO,
            source: Some(source),
        })
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The cluster of the request, or `xds:///TARGET`.
    pub fn cluster(&self) -> &str {
        &self.inner.cluster
    }

    /// The code of lbd's answer, such as `no_ready_endpoint`; empty if lbd did not answer.
    pub fn code(&self) -> &str {
        &self.inner.code
    }

    /// Whether lbd rejects the name of the cluster, or the token: the same call would not help soon.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.kind(), ErrorKind::UnknownCluster | ErrorKind::PermissionDenied)
            || self.code() == "invalid_argument"
    }

    /// Whether this may be because of what another request asks.
    pub(crate) fn is_of_another(&self, to_target: bool) -> bool {
        self.code() == "no_route" || self.code() == "invalid_argument" && to_target
    }

    /// The drop category of [`ErrorKind::Dropped`].
    pub fn category(&self) -> &str {
        &self.inner.category
    }

    /// The time that lbd asks to wait, or 0.
    pub fn retry_after(&self) -> Duration {
        self.inner.retry_after
    }

    /// What lbd has chosen for the last try; None if there was no try.
    pub fn choice(&self) -> Option<&Choice> {
        self.choice.as_ref()
    }
}

impl From<Detail> for Error {
    fn from(detail: Detail) -> Self {
        Self { inner: Arc::new(detail), choice: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Detail { cluster, detail, code, .. } = &*self.inner;
        f.write_str("lbd: ")?;
        if !cluster.is_empty() {
            write!(f, "cluster {cluster}: ")?;
        }
        f.write_str(detail)?;
        if !code.is_empty() {
            write!(f, " ({code})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind())
            .field("message", &self.to_string())
            .field("source", &self.source())
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_ref().map(|source| &**source as _)
    }
}

/// The body of an answer that rejects (RFC 9457).
#[derive(serde::Deserialize, Default)]
#[serde(default)]
pub(crate) struct Problem {
    pub code: String,
    pub title: String,
    pub detail: String,
    pub category: String,
}

impl Problem {
    pub(crate) fn error(self, cluster: &str, status: u16, retry_after: Duration) -> Error {
        let kind = match &*self.code {
            "dropped" => ErrorKind::Dropped,
            "circuit_broken" => ErrorKind::CircuitBroken,
            "unknown_cluster" | "unknown_target" => ErrorKind::UnknownCluster,
            _ if status == 401 || status == 403 => ErrorKind::PermissionDenied,
            _ => ErrorKind::Unavailable,
        };
        let detail = match () {
            () if !self.category.is_empty() => format!("drop category {} dropped the request", self.category),
            () if !self.detail.is_empty() => self.detail,
            () if !self.title.is_empty() => self.title,
            () => format!("lbd answered with status {status}"),
        };
        let code = if self.code.is_empty() { status.to_string() } else { self.code };
        Error::from(Detail {
            kind,
            cluster: cluster.into(),
            code,
            category: self.category,
            detail,
            retry_after,
            source: None,
        })
    }
}
