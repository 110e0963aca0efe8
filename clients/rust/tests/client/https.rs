//! Endpoints with TLS.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use http::Request;
use http_body_util::BodyExt;
use lbd_client::Config;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::common::{Answer, Daemon, serve};

/// The directory of the certificates.
const DIRECTORY: &str = "LBD_TEST_CERTIFICATES";

/// The certificates that the client trusts are those of the environment of its process.
#[test]
fn https() {
    let directory = std::env::temp_dir().join(format!("lbd-rust-tls-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let mut trusted = String::new();
    for name in ["orders.lbd", "other.lbd"] {
        let file = |kind: &str| directory.join(format!("{name}.{kind}"));
        let lines =
            ["[req]", "distinguished_name=dn", "x509_extensions=v3", "prompt=no", "[dn]", &format!("CN={name}")];
        let more = ["[v3]", "basicConstraints=critical,CA:FALSE", &format!("subjectAltName=DNS:{name}")];
        std::fs::write(file("cnf"), [&lines[..], &more].concat().join("\n")).unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-config"])
            .args([file("cnf"), "-keyout".into(), file("key"), "-out".into(), file("pem")])
            .output();
        assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
        trusted += &std::fs::read_to_string(file("pem")).unwrap();
    }
    std::fs::write(directory.join("trusted"), trusted).unwrap();
    let tested = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "https::endpoints", "--ignored"])
        .env("SSL_CERT_FILE", directory.join("trusted"))
        .env(DIRECTORY, &directory)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&tested.stdout);
    assert!(output.contains("1 passed"), "{output}");
    std::fs::remove_dir_all(directory).unwrap();
}

/// An endpoint whose certificate is for another name gets no request.
#[tokio::test]
#[ignore = "https runs it in a process of its own"]
async fn endpoints() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let (good, other) = (upstream(&directory, "orders.lbd").await, upstream(&directory, "other.lbd").await);
    let lbd = Daemon::start().await;
    lbd.push(&[&other, &good]).await;
    let client = lbd.client(Config::default());
    let mut attempts = 0;
    for _ in 0..8 {
        let request = Request::post("https://Orders.lbd/").body("the end").unwrap();
        let response = client.send(request).await.unwrap();
        attempts = response.body().choice().unwrap().attempt().max(attempts);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), good);
    }
    assert_eq!(attempts, 2);
}

async fn upstream(directory: &Path, name: &str) -> String {
    let certificate = CertificateDer::from_pem_file(directory.join(format!("{name}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(directory.join(format!("{name}.key"))).unwrap();
    let config = ServerConfig::builder_with_provider(default_provider().into()).with_safe_default_protocol_versions();
    let config = config.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let body = address.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (accepted, body) = (acceptor.accept(stream), body.clone());
            tokio::spawn(async move {
                if let Ok(stream) = accepted.await {
                    serve(stream, Answer::Address, body).await;
                }
            });
        }
    });
    address
}
