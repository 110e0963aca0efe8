use std::collections::HashMap;
use std::env;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::ask::TARGET_PREFIX;
use crate::{Attempt, Error, State};

/// How a client gets its picks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Picks are from a list in memory, and lbd hears every few seconds how requests ended.
    #[default]
    Batch,
    /// Each request asks lbd for a pick. For processes that end after a few requests.
    Pick,
    /// Each request takes a lease: circuit breaking and least_request are exact.
    Lease,
}

/// Settings of a [`Client`](crate::Client).
#[derive(Clone)]
pub struct Config {
    /// Address of lbd: `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`. Default: environment `LBD`, else the first
    /// of `unix:/run/lbd.sock` and `unix:/run/lbd/lbd.sock` that is a socket, else `http://localhost:8080`.
    pub address: Option<String>,
    /// How the client gets its picks.
    pub mode: Mode,
    /// Token for lbd, with the roles pick and read. Default without `token_file`: environment `LBD_TOKEN`.
    pub token: Option<String>,
    /// File of the token, which is read again after lbd rejected it. Default without `token`: environment
    /// `LBD_TOKEN_FILE`.
    pub token_file: Option<PathBuf>,
    /// PEM file of the certificates that may sign that of lbd. Default: environment `LBD_CA`, else those of the system.
    pub ca: Option<PathBuf>,
    /// Name of this client in leases. Default: environment `LBD_OWNER`, else HOSTNAME/PID.
    pub owner: Option<String>,
    /// What requests to a host are for.
    pub hosts: HashMap<String, Host>,
    /// HOST:PORT for requests while lbd is unreachable and the last batch is older than `stale_for`.
    pub fallback: Option<String>,
    /// How long the last batch is used while lbd is unreachable. Default: 1 min.
    pub stale_for: Duration,
    /// Age at which a batch is replaced at the latest; 80 % of it at the earliest. Default: 10 s.
    pub max_age: Duration,
    /// Maximum time to connect to an endpoint, and for the TLS handshake with it. Default: 5 s.
    pub connect_timeout: Duration,
    /// Deadline of requests that set none. Default: none.
    pub timeout: Option<Duration>,
    /// Maximum number of retries of a request. Default: 2.
    pub retries: u32,
    /// Budget of retries of a cluster (gRFC A6). Default: 100.
    pub max_tokens: f64,
    /// TTL of the lease of a request without a deadline. Default: 30 s.
    pub ttl: Duration,
    /// Time between two reports of how requests ended. Default: 5 s.
    pub report_interval: Duration,
    /// Called with each try that has ended, before the next one begins, by the task of the request. What it does takes
    /// the time of a request. A panic is caught.
    pub on_attempt: Option<OnAttempt>,
    /// Called when the state of lbd has changed. A panic is caught.
    pub on_state: Option<OnState>,
}

/// The type of [`Config::on_attempt`].
pub type OnAttempt = Arc<dyn Fn(&Attempt) + Send + Sync>;
/// The type of [`Config::on_state`].
pub type OnState = Arc<dyn Fn(State) + Send + Sync>;

impl Default for Config {
    fn default() -> Self {
        Self {
            address: None,
            mode: Mode::Batch,
            token: None,
            token_file: None,
            ca: None,
            owner: None,
            hosts: HashMap::new(),
            fallback: None,
            stale_for: Duration::from_secs(60),
            max_age: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            timeout: None,
            retries: 2,
            max_tokens: 100.0,
            ttl: Duration::from_secs(30),
            report_interval: Duration::from_secs(5),
            on_attempt: None,
            on_state: None,
        }
    }
}

/// Shows no token.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("mode", &self.mode).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Config {
    /// Fills in what is from the environment, and returns how the address was found.
    pub(crate) fn complete(&mut self) -> Result<&'static str, Error> {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let found = if self.address.is_some() {
            "the setting address"
        } else if let Some(address) = set("LBD") {
            self.address = Some(address);
            "environment LBD"
        } else {
            self.address = Some(default_address());
            "default; set LBD"
        };
        if self.token.is_none() && self.token_file.is_none() {
            self.token = set("LBD_TOKEN");
            self.token_file = set("LBD_TOKEN_FILE").map(PathBuf::from);
        }
        self.ca = self.ca.take().or_else(|| set("LBD_CA").map(PathBuf::from));
        self.owner = Some(self.owner.take().or_else(|| set("LBD_OWNER")).unwrap_or_else(crate::util::process));
        for (name, host) in &self.hosts {
            host.check(name)?;
        }
        self.hosts = self.hosts.drain().map(|(name, host)| (name.to_ascii_lowercase(), host)).collect();
        if !(self.max_tokens >= 0.0 && self.max_tokens < 1e9) {
            return Err(Error::invalid("max_tokens is not a number of tokens"));
        }
        Ok(found)
    }
}

/// The socket of a daemon that runs on this machine, else the address that lbd listens on by default.
fn default_address() -> String {
    #[cfg(unix)]
    for path in ["/run/lbd.sock", "/run/lbd/lbd.sock"] {
        use std::os::unix::fs::FileTypeExt;
        if std::fs::metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            return format!("unix:{path}");
        }
    }
    "http://localhost:8080".into()
}

/// What requests to a host are for. A `&str` or `String` is the name of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// The cluster. Default: what is before `.lbd` in the host, unless `target` is set.
    pub cluster: Option<String>,
    /// A target instead, such as `shop` for `xds:///shop`: its routes choose the cluster by the path of the request, and
    /// by `headers`.
    pub target: Option<String>,
    /// The headers that the routes of the target match, or that their hash policies need. Others are not sent to lbd.
    pub headers: Vec<String>,
    /// Where the hash key of a request is, for a cluster with a hash policy such as ring_hash: `header:NAME` or
    /// `cookie:NAME`.
    pub hash: Option<String>,
}

impl<T: Into<String>> From<T> for Host {
    fn from(cluster: T) -> Self {
        Self { cluster: Some(cluster.into()), ..Self::default() }
    }
}

impl Host {
    fn check(&self, name: &str) -> Result<(), Error> {
        if self.cluster.is_some() && self.target.is_some() {
            return Err(Error::invalid(format!("host {name}: set either cluster or target, not both")));
        }
        match self.hash.as_deref().map(|hash| hash.split_once(':')) {
            None => Ok(()),
            Some(Some(("header" | "cookie", key))) if !key.is_empty() => Ok(()),
            Some(_) => {
                Err(Error::invalid(format!("host {name}: hash: {:?} is not header:NAME or cookie:NAME", self.hash)))
            }
        }
    }

    /// The cluster of requests to the host, or the target with its prefix.
    pub(crate) fn name(&self, host: &str) -> String {
        match (&self.target, &self.cluster) {
            (Some(target), _) => format!("{TARGET_PREFIX}{}", target.strip_prefix(TARGET_PREFIX).unwrap_or(target)),
            (None, Some(cluster)) => cluster.clone(),
            (None, None) => host.strip_suffix(".lbd").unwrap_or(host).into(),
        }
    }
}
