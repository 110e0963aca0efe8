//! Sends five requests to the cluster orders:
//!
//! LBD=http://localhost:8080 cargo run --example orders

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use lbd_client::{Client, Config, Error, ErrorKind};

#[tokio::main]
async fn main() {
    let client = Client::new(Config { timeout: Some(Duration::from_secs(2)), ..Config::default() }).expect("settings");
    for _ in 0..5 {
        match order(&client).await {
            Ok(text) => println!("{text}"),
            Err(error) if matches!(error.kind(), ErrorKind::Dropped | ErrorKind::CircuitBroken) => {
                println!("too much load: {error}"); // a service answers 503 here
            }
            Err(error) => println!("{error}"),
        }
    }
    client.close().await; // sends the last report
}

async fn order(client: &Client) -> Result<String, Error> {
    let request = Request::get("http://orders.lbd/items/7").body(()).expect("request");
    let response = client.send(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok(format!("{status}: {}", String::from_utf8_lossy(&body)))
}
