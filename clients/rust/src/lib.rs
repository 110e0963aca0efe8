//! A client of lbd, a load balancing daemon: it sends HTTP requests to the endpoints that lbd picks, with weights,
//! failover, drops, circuit breaking and outlier detection as gRPC's xDS client has them.
#![doc = include_str!("../README.md")]

mod api;
mod aside;
mod ask;
mod batch;
mod body;
mod client;
mod cluster;
mod config;
mod connection;
mod counts;
mod error;
mod hooks;
mod leases;
mod pick;
mod report;
mod service;
#[cfg(test)]
mod tests;
mod util;

pub use ask::{Ask, Choice, Locality};
pub use body::{Body, ResponseBody};
pub use client::Client;
pub use config::{Config, Host, Mode, OnAttempt, OnState};
pub use connection::{Connections, Received, SendError};
pub use error::{Error, ErrorKind};
pub use hooks::{Attempt, State};
pub use pick::{Outcome, Pick};
pub use service::{Layer, Service};
