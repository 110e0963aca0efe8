//! Drives the client as the conformance tests say (clients/conformance/README.md).

use std::collections::{BTreeMap, HashMap};
use std::error::Error as StdError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, Request};
use http_body_util::BodyExt;
use hyper_util::client::legacy;
use lbd_client::{Ask, Attempt, Body, Choice, Client, Config, Error, ErrorKind, Host, Layer, Mode, Service, State};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tower_layer::Layer as _;
use tower_service::Service as _;

/// It is mapped to the cluster of the test, whose name may not be valid in a URL.
const HOST: &str = "upstream.test";

#[derive(Deserialize, Clone, Default)]
#[serde(default)]
struct Command {
    r#do: String,
    lbd: String,
    token: Option<String>,
    token_file: Option<String>,
    cluster: String,
    mode: String,
    adapter: Option<String>,
    options: HashMap<String, Value>,
    url: Option<String>,
    method: Option<String>,
    path: Option<String>,
    timeout: Option<f64>,
    body: Option<String>,
    idempotent: bool,
    n: u64,
    threads: u64,
    rate: f64,
    headers: HashMap<String, String>,
    key: Option<String>,
    keys: u64,
}

type HyperClient = legacy::Client<legacy::connect::HttpConnector, Body>;

#[derive(Clone)]
enum Adapter {
    Core(Client),
    Tower(Service<HyperClient>),
}

struct Opened {
    client: Client,
    adapter: Adapter,
    plain: HyperClient,
    hash: Option<String>,
    choice: bool,
    seen: Arc<Mutex<Seen>>,
}

/// What the hooks got.
#[derive(Default)]
struct Seen {
    attempts: Vec<Value>,
    states: Vec<&'static str>,
}

/// How a request ended: a status and body, or an error and its message.
struct Ended {
    result: Result<(u16, String), (&'static str, String)>,
    choice: Option<Choice>,
}

#[tokio::main]
async fn main() {
    let opened: Arc<Mutex<Option<Arc<Opened>>>> = Arc::default();
    let terminated = opened.clone();
    tokio::spawn(async move {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("signal");
        terminate.recv().await;
        close(&terminated).await;
        std::process::exit(0);
    });
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let mut output = tokio::io::stdout();
    while let Some(line) = input.next_line().await.expect("input") {
        let command: Command = serde_json::from_str(&line).expect("command");
        let current = opened.lock().unwrap().clone();
        let answer = match (&*command.r#do, current) {
            ("open", _) => {
                close(&opened).await;
                match open(&command) {
                    Ok(client) => {
                        *opened.lock().unwrap() = Some(Arc::new(client));
                        json!({"ok": true})
                    }
                    Err(reason) => json!({"unsupported": reason}),
                }
            }
            ("close", _) => {
                close(&opened).await;
                json!({"ok": true})
            }
            ("request", Some(client)) => {
                let ended = send(&client, &command).await;
                let mut answer = match ended.result {
                    Ok((status, body)) => json!({"status": status, "body": body}),
                    Err((error, message)) => json!({"error": error, "message": message}),
                };
                if let Some(choice) = ended.choice.filter(|_| client.choice) {
                    answer["choice"] = json!({
                        "cluster": choice.cluster(), "address": choice.address(), "zone": choice.locality().zone,
                        "priority": choice.priority(), "attempt": choice.attempt(),
                    });
                }
                answer
            }
            ("load", Some(client)) => load(client, command.clone()).await,
            ("events", Some(client)) => {
                let seen = std::mem::take(&mut *client.seen.lock().unwrap_or_else(|seen| seen.into_inner()));
                json!({"attempts": seen.attempts, "states": seen.states})
            }
            ("fork", _) => json!({"unsupported": "a process with the threads of tokio does not fork"}),
            _ => json!({"unsupported": "no such command, or no client is open"}),
        };
        output.write_all(format!("{answer}\n").as_bytes()).await.expect("output");
        output.flush().await.expect("output");
        if command.r#do == "close" {
            return;
        }
    }
    close(&opened).await;
}

async fn close(opened: &Mutex<Option<Arc<Opened>>>) {
    let client = opened.lock().unwrap().take();
    if let Some(opened) = client {
        opened.client.close().await;
    }
}

fn open(command: &Command) -> Result<Opened, String> {
    let mut config = Config {
        address: Some(command.lbd.clone()),
        mode: match &*command.mode {
            "batch" => Mode::Batch,
            "pick" => Mode::Pick,
            "lease" => Mode::Lease,
            mode => return Err(format!("no mode {mode}")),
        },
        token: command.token.clone(),
        token_file: command.token_file.as_ref().map(Into::into),
        ..Config::default()
    };
    let mut host = Host::from(command.cluster.clone());
    let (mut hash, mut choice, seen) = (None, false, Arc::new(Mutex::new(Seen::default())));
    for (option, value) in &command.options {
        let number = || value.as_f64().ok_or_else(|| format!("option {option}: {value} is not a number"));
        let duration = || number().map(Duration::from_secs_f64);
        let text = || value.as_str().unwrap_or_default().to_owned();
        match &**option {
            "stale_for" => config.stale_for = duration()?,
            "report_interval" => config.report_interval = duration()?,
            "max_age" => config.max_age = duration()?,
            "connect_timeout" => config.connect_timeout = duration()?,
            "ttl" => config.ttl = duration()?,
            "retries" => config.retries = number()? as u32,
            "max_tokens" => config.max_tokens = number()?,
            "fallback" => config.fallback = Some(text()),
            "target" => host = Host { target: Some(text()), cluster: None, ..host },
            "headers" => {
                host.headers = value.as_array().into_iter().flatten().filter_map(|v| Some(v.as_str()?.into())).collect()
            }
            "hash" => {
                hash = Some(text());
                host.hash = hash.clone().filter(|hash| hash != "code");
            }
            "choice" => choice = true,
            "hooks" => hook(&mut config, &seen, value == "fail"),
            _ => return Err(format!("no option {option}")),
        }
    }
    config.hosts.insert(HOST.into(), host);
    let connect_timeout = config.connect_timeout;
    let client = Client::new(config).map_err(|error| error.to_string())?;
    let mut connector = legacy::connect::HttpConnector::new();
    connector.set_connect_timeout(Some(connect_timeout));
    connector.set_nodelay(true);
    let plain = legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build(connector);
    let adapter = match command.adapter.as_deref().unwrap_or("core") {
        "core" => Adapter::Core(client.clone()),
        "tower" => {
            let layer = Layer::new(client.clone())
                .not_sent(|error| error.downcast_ref::<legacy::Error>().is_some_and(|error| error.is_connect()));
            Adapter::Tower(layer.layer(plain.clone()))
        }
        _ => return Err("no such adapter".into()),
    };
    Ok(Opened { client, adapter, plain, hash, choice, seen })
}

/// Makes the client call hooks, which fail if they should.
fn hook(config: &mut Config, seen: &Arc<Mutex<Seen>>, fails: bool) {
    let attempts = seen.clone();
    config.on_attempt = Some(Arc::new(move |attempt: &Attempt| {
        attempts.lock().unwrap().attempts.push(json!({
            "cluster": attempt.choice.cluster(), "address": attempt.choice.address(), "number": attempt.choice.attempt(),
            "outcome": attempt.outcome.to_string(), "seconds": attempt.duration.as_secs_f64(),
        }));
        assert!(!fails, "a hook of the test");
    }));
    let states = seen.clone();
    config.on_state = Some(Arc::new(move |state| {
        states.lock().unwrap().states.push(match state {
            State::Unreachable => "unreachable",
            State::Stale => "stale",
            State::Recovered => "recovered",
        });
    }));
}

async fn send(opened: &Opened, command: &Command) -> Ended {
    let timeout = command.timeout.filter(|timeout| *timeout > 0.0).map(Duration::from_secs_f64);
    let other = |error: &dyn StdError| Ended { result: Err(("other", error.to_string())), choice: None };
    let request = match request(opened, command, timeout) {
        Ok(request) => request,
        Err(error) => return other(&error),
    };
    if command.url.is_some() {
        let response = async {
            let response = opened.plain.clone().call(request).await.map_err(|error| error.to_string())?;
            let status = response.status().as_u16();
            let content = response.into_body().collect().await.map_err(|error| error.to_string())?;
            Ok((status, String::from_utf8_lossy(&content.to_bytes()).into_owned()))
        };
        return Ended { result: response.await.map_err(|message| ("connection", message)), choice: None };
    }
    let mut choice = None;
    let sent = async || -> Result<(u16, String), Error> {
        let (status, content) = match &opened.adapter {
            Adapter::Core(client) => {
                let response = client.send(request).await?;
                choice = response.body().choice().cloned();
                (response.status(), response.into_body().collect().await?)
            }
            Adapter::Tower(service) => {
                let response = service.clone().call(request).await?;
                choice = response.body().choice().cloned();
                (response.status(), response.into_body().collect().await?)
            }
        };
        Ok((status.as_u16(), String::from_utf8_lossy(&content.to_bytes()).into_owned()))
    };
    let result = sent().await.map_err(|error| {
        choice = error.choice().cloned();
        let name = match error.kind() {
            ErrorKind::Dropped => "dropped",
            ErrorKind::CircuitBroken => "circuit_broken",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::UnknownCluster => "unknown_cluster",
            ErrorKind::PermissionDenied => "permission_denied",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Connection => "connection",
            _ => "other",
        };
        (name, error.to_string())
    });
    Ended { result, choice }
}

fn request(opened: &Opened, command: &Command, timeout: Option<Duration>) -> Result<Request<Body>, http::Error> {
    let path = command.path.as_deref().unwrap_or("/").trim_start_matches('/');
    let url = command.url.clone().unwrap_or_else(|| format!("http://{HOST}/{path}"));
    let mut request = Request::builder().uri(url).method(command.method.as_deref().unwrap_or("GET"));
    if command.idempotent {
        request = request.header("Idempotency-Key", "1");
    }
    for (name, value) in &command.headers {
        request = request.header(name, value);
    }
    let mut ask = Ask { timeout, ..Ask::default() };
    match (opened.hash.as_deref().map(|hash| hash.split_once(':')), &command.key) {
        (Some(Some(("header", name))), Some(key)) => {
            request = request.header(HeaderName::try_from(name)?, HeaderValue::try_from(key)?);
        }
        (Some(Some((_, name))), Some(key)) => request = request.header("Cookie", format!("{name}={key}")),
        (Some(None), key) => ask.hash.clone_from(key),
        _ => {}
    }
    request.extension(ask).body(command.body.clone().map_or_else(Body::default, Body::from))
}

async fn load(opened: Arc<Opened>, command: Command) -> Value {
    let (command, next, began) = (Arc::new(command), Arc::new(AtomicU64::new(1)), Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..command.threads.max(1) {
        let (opened, command, next) = (opened.clone(), command.clone(), next.clone());
        tasks.spawn(async move {
            let mut ended = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i > command.n {
                    return ended;
                }
                let mut due = began;
                if command.rate > 0.0 {
                    due += Duration::from_secs_f64(i as f64 / command.rate);
                    tokio::time::sleep_until(due.into()).await;
                }
                let mut one = (*command).clone();
                if command.keys > 0 {
                    one.key = Some(format!("{}-{}", command.key.as_deref().unwrap_or_default(), i % command.keys));
                }
                let result = send(&opened, &one).await.result;
                ended.push((result.map(|(status, _)| status).map_err(|(name, _)| name), due, due.elapsed()));
            }
        });
    }
    let (mut statuses, mut errors, mut took) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::<u64, Vec<f64>>::new());
    for (result, due, duration) in tasks.join_all().await.into_iter().flatten() {
        match result {
            Ok(status) => *statuses.entry(status.to_string()).or_insert(0) += 1,
            Err(name) => *errors.entry(name).or_insert(0) += 1,
        }
        if command.rate > 0.0 {
            took.entry((due - began).as_secs()).or_default().push(duration.as_secs_f64());
        }
    }
    let p99: Vec<f64> = took
        .into_values()
        .map(|mut took| {
            took.sort_by(f64::total_cmp);
            took[took.len() * 99 / 100]
        })
        .collect();
    json!({"statuses": statuses, "errors": errors, "seconds": began.elapsed().as_secs_f64(), "p99": p99})
}
