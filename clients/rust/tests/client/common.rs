//! A real lbd, and real upstreams on loopback.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lbd_client::{Client, Config};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};

/// For what is expected to happen soon.
const DEADLINE: Duration = Duration::from_secs(120);

/// lbd on a unix socket, until it is dropped.
pub struct Daemon {
    directory: PathBuf,
    process: Child,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Daemon {
    pub async fn start() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let name = format!("lbd-rust-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let binary =
            std::env::var("LBD_BIN").unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../bin/lbd").into());
        let process = Command::new(binary)
            .arg("serve")
            .arg(format!("--listen=unix:{},anonymous=all", directory.join("lbd.sock").display()))
            .arg(format!("--data={}", directory.join("data").display()))
            .arg("--connect=none")
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let daemon = Self { directory, process };
        until(async || daemon.call("GET", "/v1/daemon", "").await.is_some()).await;
        daemon
    }

    pub fn address(&self) -> String {
        format!("unix:{}", self.directory.join("lbd.sock").display())
    }

    /// A client with changed settings.
    pub fn client(&self, config: Config) -> Client {
        Client::new(Config { address: Some(self.address()), ..config }).unwrap()
    }

    /// The body of lbd's answer; None if it rejects or is not there.
    pub async fn call(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.directory.join("lbd.sock")).await.ok()?;
        let length = body.len();
        let request = format!("{method} {path} HTTP/1.0\r\nHost: lbd\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, content) = answer.split_once("\r\n\r\n")?;
        head.split(' ').nth(1)?.starts_with('2').then(|| content.into())
    }

    /// Sends a signal to lbd.
    pub fn signal(&self, name: &str) {
        let killed = Command::new("kill").args(["-s", name, &self.process.id().to_string()]).status();
        assert!(killed.unwrap().success());
    }

    /// Makes a target whose routes all choose a cluster.
    pub async fn route(&self, target: &str, cluster: &str) {
        let body = serde_json::json!({"resources": [{
            "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
            "name": target,
            "api_listener": {"api_listener": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "route_config": {"virtual_hosts": [{"name": target, "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": cluster}}]}]},
            }},
        }]});
        self.call("POST", "/v1/snapshot", &body.to_string()).await.expect("route");
    }

    /// Makes the upstreams the endpoints of the cluster orders.
    pub async fn push(&self, addresses: &[&str]) {
        self.push_to("orders", addresses).await;
    }

    pub async fn push_to(&self, cluster: &str, addresses: &[&str]) {
        let endpoints = addresses.iter().map(|address| {
            let (host, port) = address.rsplit_once(':').unwrap();
            format!(r#"{{"endpoint":{{"address":{{"socket_address":{{"address":"{host}","port_value":{port}}}}}}}}}"#)
        });
        let endpoints = endpoints.collect::<Vec<_>>().join(",");
        let body = format!(r#"{{"endpoints":[{{"lb_endpoints":[{endpoints}]}}]}}"#);
        self.call("PUT", &format!("/v1/clusters/{cluster}/endpoints"), &body).await.expect("push");
    }

    /// Requests that lbd counts as in flight.
    pub async fn in_flight(&self) -> u64 {
        let state = self.call("GET", "/v1/clusters/orders?endpoints=false", "").await.expect("state");
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        state["circuit_breaker"]["in_flight"].as_u64().unwrap_or(0)
    }

    /// The sum of the metrics whose line has all parts.
    pub async fn metric(&self, parts: &[&str]) -> f64 {
        let metrics = self.call("GET", "/metrics", "").await.expect("metrics");
        let lines = metrics.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

/// Waits until a condition is true.
pub async fn until(condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition().await {
        assert!(Instant::now() < end, "not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What an upstream does with a request, once its head and body have arrived.
#[derive(Clone, Copy)]
pub enum Answer {
    /// Its address is the body.
    Address,
    /// The first half of a body.
    Half,
    /// Nothing.
    Hang,
    /// It ends the connection.
    Close,
    Status(u16),
}

/// An HTTP server that answers requests one by one, and returns its address.
pub async fn upstream(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let body = address.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, answer, body.clone()));
        }
    });
    address
}

pub async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: Answer, address: String) {
    while read(&mut stream).await {
        let text = match answer {
            Answer::Address => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{address}", address.len()),
            Answer::Half => "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf".into(),
            Answer::Hang => String::new(),
            Answer::Close => return,
            Answer::Status(status) => format!("HTTP/1.1 {status} Status\r\nContent-Length: 0\r\n\r\n"),
        };
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads a request with a body that ends with "end", or without one.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut request = Vec::new();
    loop {
        let mut part = [0; 4096];
        match stream.read(&mut part).await {
            Ok(n) if n > 0 => request.extend_from_slice(&part[..n]),
            _ => return false,
        }
        let text = String::from_utf8_lossy(&request);
        let has_body = text.starts_with("POST") || text.starts_with("PUT");
        if text.contains("\r\n\r\n") && (!has_body || text.contains("end")) {
            return true;
        }
    }
}

/// An address where nothing listens.
pub async fn refused() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}
