//! Sends requests by reqwest to the endpoints that lbd picks: copy `send`.
//!
//! LBD=http://localhost:8080 cargo run --example reqwest
//!
//! It does what [`Client::send`] does, but for what reqwest does not have: a connect takes as long as `connect_timeout` of
//! reqwest, also while there is another endpoint; with https, a certificate is verified for the address of the endpoint;
//! and the request ends for lbd with its status and headers, not with its body. A program that gives `send` up counts as
//! one that cancels its request.

use lbd_client::{Ask, Client, Config, Outcome};
use reqwest::header::HOST;
use reqwest::{Request, Response};

/// Sends a request to the cluster that is before `.lbd` in its host. Set `timeout` of the request: each try gets it.
pub async fn send(
    lbd: &Client, http: &reqwest::Client, request: Request,
) -> Result<Response, Box<dyn std::error::Error + Send + Sync>> {
    let host = request.url().host_str().unwrap_or_default().to_owned();
    let Some(cluster) = host.strip_suffix(".lbd") else { return Ok(http.execute(request).await?) };
    let repeatable = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"].contains(&request.method().as_str());
    let mut pick = lbd.pick(cluster, &Ask { timeout: request.timeout().copied(), ..Ask::default() }).await?;
    let mut next = Some(request);
    while let Some(mut request) = next.take() {
        next = request.try_clone(); // None for a stream, which is sent once
        request.headers_mut().entry(HOST).or_insert(host.parse()?);
        let (ip, port) = pick.address().rsplit_once(':').ok_or("an address without a port")?;
        request.url_mut().set_host(Some(ip))?;
        request.url_mut().set_port(Some(port.parse()?)).map_err(|()| "a URL without a port")?;
        let result = http.execute(request).await;
        let again = match &result {
            Ok(response) if [502, 503, 504].contains(&response.status().as_u16()) => {
                next.is_some() && repeatable && pick.next(Outcome::Error).await
            }
            Ok(response) if response.status().is_server_error() => {
                pick.answered(Outcome::Error);
                false
            }
            Ok(_) => {
                pick.answered(Outcome::Success);
                false
            }
            // There was no connection, so nothing was sent.
            Err(error) if error.is_connect() => {
                pick.answered(Outcome::Unreachable);
                next.is_some() && pick.next(Outcome::Unreachable).await
            }
            Err(error) if error.is_timeout() || !error.is_request() => {
                pick.answered(if error.is_timeout() { Outcome::Error } else { Outcome::Cancelled });
                false
            }
            Err(_) => {
                pick.answered(Outcome::Error);
                next.is_some() && repeatable && pick.next(Outcome::Error).await
            }
        };
        if !again {
            pick.end(if result.is_ok() { Outcome::Error } else { Outcome::Cancelled }); // unless it is answered
            return Ok(result?);
        }
    }
    Err("no try".into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let lbd = Client::new(Config::default())?;
    let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?;
    let response = send(&lbd, &http, http.get("http://orders.lbd/").build()?).await;
    println!("{:?}", response.map(|response| response.status()));
    lbd.close().await;
    Ok(())
}
