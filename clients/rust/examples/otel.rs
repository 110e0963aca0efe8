//! Makes spans of the tries of requests, with the semantic conventions of OpenTelemetry for HTTP: copy `on_attempt`.
//!
//! LBD=http://localhost:8080 cargo run --example otel

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use http::Request;
use lbd_client::{Attempt, Client, Config, OnAttempt};
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span, SpanKind, Status, Tracer, TracerProvider};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};

/// Each try becomes a span, which is a child of the current one. It has ended by then, so headers do not name it.
pub fn on_attempt<P>(provider: &P) -> OnAttempt
where
    P: TracerProvider,
    P::Tracer: Send + Sync + 'static,
{
    let tracer = provider.tracer("lbd-client");
    Arc::new(move |attempt| {
        let Some((method, _)) = &attempt.request else { return };
        let end = SystemTime::now();
        let begin = end.checked_sub(attempt.duration).unwrap_or(end);
        let span = tracer.span_builder(method.to_string()).with_kind(SpanKind::Client).with_start_time(begin);
        let mut span = span.with_attributes(attributes(attempt)).start(&tracer);
        if attempt.status.is_none_or(|status| status.as_u16() >= 400) {
            span.set_status(Status::error(""));
        }
        span.end_with_timestamp(end);
    })
}

fn attributes(attempt: &Attempt) -> Vec<KeyValue> {
    let choice = &attempt.choice;
    let mut all = vec![KeyValue::new("lbd.cluster", choice.cluster().to_owned())];
    if let Some((method, uri)) = &attempt.request {
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        all.push(KeyValue::new("http.request.method", method.to_string()));
        all.push(KeyValue::new("server.address", uri.host().unwrap_or_default().to_owned()));
        all.push(KeyValue::new("server.port", i64::from(uri.port_u16().unwrap_or(default))));
    }
    if let Some((host, port)) = choice.address().rsplit_once(':') {
        all.push(KeyValue::new("network.peer.address", host.trim_matches(['[', ']']).to_owned()));
        all.extend(port.parse().ok().map(|port: i64| KeyValue::new("network.peer.port", port)));
    }
    if choice.attempt() > 1 {
        all.push(KeyValue::new("http.request.resend_count", i64::from(choice.attempt() - 1)));
    }
    if let Some(status) = attempt.status {
        all.push(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
    }
    match attempt.status {
        Some(status) if status.as_u16() < 400 => {}
        Some(status) => all.push(KeyValue::new("error.type", status.as_u16().to_string())),
        None => all.push(KeyValue::new("error.type", attempt.outcome.to_string())),
    }
    all
}

/// Keeps all spans. Take the exporter of your collector.
#[derive(Clone, Debug, Default)]
pub struct InMemory(pub Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for InMemory {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let exporter = InMemory::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let client = Client::new(Config { on_attempt: Some(on_attempt(&provider)), ..Config::default() })?;
    let request = Request::get("http://orders.lbd/").body(())?;
    let result = client.send(request).await;
    println!("{:?}", result.map(|response| response.status()));
    println!("{:#?}", exporter.0.lock().unwrap());
    client.close().await;
    Ok(())
}
