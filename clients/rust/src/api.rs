//! Calls to lbd.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;

use crate::connection::{Connections, Target, authority};
use crate::error::Problem;
use crate::util::{causes, lock};
use crate::{Body, Config, Error};

/// Time for calls that do not wait.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for a call beyond its wait.
pub(crate) const WAIT_GRACE: Duration = Duration::from_secs(1);
/// Size of an answer of lbd, at most.
const MAX_ANSWER: usize = 16 << 20;

pub(crate) struct Api {
    /// Address of lbd, and how it was found.
    at: String,
    target: Target,
    host: HeaderValue,
    connections: Connections,
    token: Mutex<String>,
    token_file: Option<PathBuf>,
}

/// A call to lbd.
pub(crate) struct Call<'a> {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub body: Option<Vec<u8>>,
    pub cluster: &'a str,
    pub timeout: Duration,
    /// Makes a repetition of a POST safe: a value for Idempotency-Key, or "" if it is safe in any case.
    pub key: Option<String>,
}

impl<'a> Call<'a> {
    pub(crate) fn get(path: impl Into<String>, query: String, cluster: &'a str, timeout: Duration) -> Self {
        Self { method: Method::GET, path: path.into(), query, body: None, cluster, timeout, key: None }
    }

    pub(crate) fn post(path: impl Into<String>, body: &impl serde::Serialize) -> Call<'static> {
        let body = serde_json::to_vec(body).ok();
        let (path, query) = (path.into(), String::new());
        Call { method: Method::POST, path, query, body, cluster: "", timeout: CALL_TIMEOUT, key: None }
    }
}

impl Api {
    pub(crate) fn new(config: &Config, found: &str) -> Result<Self, Error> {
        let address = config.address.as_deref().unwrap_or_default();
        let (target, host) = parse(address).ok_or_else(|| {
            let shown = address.rfind('@').map_or(address.into(), |i| format!("…{}", &address[i..]));
            Error::invalid(format!("address of lbd: {shown:?} is not unix:PATH, http://HOST:PORT or https://HOST:PORT"))
        })?;
        let api = Self {
            at: format!("{address} ({found})"),
            target,
            host,
            connections: Connections::new(CALL_TIMEOUT, config.ca.as_deref()).map_err(Error::invalid)?,
            token: Mutex::new(config.token.clone().unwrap_or_default()),
            token_file: config.token_file.clone().filter(|_| config.token.is_none()),
        };
        api.read_token("");
        Ok(api)
    }

    /// Reads the token file. Returns whether it has another token than the one that lbd rejected.
    fn read_token(&self, rejected: &str) -> bool {
        let Some(content) = self.token_file.as_ref().and_then(|path| std::fs::read_to_string(path).ok()) else {
            return false; // lbd rejects the calls, and the file is read again
        };
        let token = content.trim();
        token.clone_into(&mut lock(&self.token));
        token != rejected
    }

    /// Decodes the answer to a call. An error without a code means that lbd is unreachable, or that the answer is not
    /// complete and valid. The text of an error has no query.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, Error> {
        let failed = |cause: &dyn Display| {
            Error::unreachable(call.cluster, format!("{} {} at {}: {cause}", call.method, call.path, self.at))
        };
        let answer = tokio::time::timeout(call.timeout, async {
            let token = lock(&self.token).clone();
            let answer = self.exchange(call, &token).await?;
            if answer.0 == StatusCode::UNAUTHORIZED && self.read_token(&token) {
                let token = lock(&self.token).clone();
                return self.exchange(call, &token).await;
            }
            Ok(answer)
        });
        let answer = answer.await.unwrap_or_else(|_| Err(format!("no answer within {:?}", call.timeout)));
        let (status, headers, content) = answer.map_err(|cause| failed(&cause))?;
        if status == StatusCode::OK || status == StatusCode::CREATED {
            return serde_json::from_slice(&content).map_err(|error| failed(&error));
        }
        let problem: Problem = serde_json::from_slice(&content).unwrap_or_default();
        if !problem.code.is_empty() || matches!(status.as_u16(), 401 | 403 | 429) {
            let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u16>().ok());
            let retry_after = Duration::from_secs(seconds.unwrap_or(0).into());
            return Err(problem.error(call.cluster, status.as_u16(), retry_after));
        }
        Err(failed(&format!("status {} without a code of lbd", status.as_u16())))
    }

    /// The status, the headers and the complete body of an answer, or why there is none.
    async fn exchange(&self, call: &Call<'_>, token: &str) -> Result<(StatusCode, HeaderMap, Vec<u8>), String> {
        loop {
            let request = self.request(call, token).map_err(|error| error.to_string())?;
            match self.connections.send(&self.target, request, CALL_TIMEOUT, None).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let content = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| causes(&*error))?;
                    return Ok((head.status, head.headers, content.to_bytes().into()));
                }
                // lbd may have closed the connection when the call was sent.
                Err(error) if error.reused && (call.method == Method::GET || call.key.is_some()) => {}
                Err(error) => return Err(causes(&error)),
            }
        }
    }

    fn request(&self, call: &Call<'_>, token: &str) -> Result<Request<Body>, http::Error> {
        let and = if call.query.is_empty() { "" } else { "?" };
        let mut request = Request::builder()
            .method(&call.method)
            .uri(format!("{}{and}{}", call.path, call.query))
            .header(HOST, &self.host)
            .header(USER_AGENT, "lbd-client-rust");
        if !token.is_empty() {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        if let Some(key) = call.key.as_ref().filter(|key| !key.is_empty()) {
            request = request.header("Idempotency-Key", key);
        }
        match &call.body {
            Some(body) => request.header(CONTENT_TYPE, "application/json").body(body.clone().into()),
            None => request.body(Body::default()),
        }
    }

    pub(crate) fn close(&self) {
        self.connections.close();
    }
}

fn parse(address: &str) -> Option<(Target, HeaderValue)> {
    if let Some(path) = address.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        let target = Target { address: path.into(), is_unix: true, tls: None };
        return (!path.is_empty()).then(|| (target, HeaderValue::from_static("localhost")));
    }
    let uri: Uri = address.parse().ok()?;
    let (scheme, name) = (uri.scheme_str()?, uri.authority()?.as_str());
    let host = uri.host().filter(|host| !host.is_empty())?;
    if !matches!(scheme, "http" | "https")
        || name.contains('@')
        || !uri.path().trim_matches('/').is_empty()
        || uri.query().is_some()
    {
        return None;
    }
    let tls = (scheme == "https").then(|| host.to_owned());
    Some((Target { address: authority(&uri)?, is_unix: false, tls }, HeaderValue::from_str(name).ok()?))
}
