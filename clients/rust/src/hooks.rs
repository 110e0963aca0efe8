//! What a program sees of its client.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use http::{Method, StatusCode, Uri};

use crate::client::Inner;
use crate::util::lock;
use crate::{Choice, Error, Outcome};

/// A try of a request that has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// What lbd has chosen; its [`attempt`](Choice::attempt) is the number of the try.
    pub choice: Choice,
    /// How the try ended, as lbd hears it.
    pub outcome: Outcome,
    /// The time until status and headers were there, or the try had failed.
    pub duration: Duration,
    /// Method and URI of the request; None for [`Client::pick`](crate::Client::pick).
    pub request: Option<(Method, Uri)>,
    /// The status of the response; None if there is none.
    pub status: Option<StatusCode>,
}

/// How calls to lbd end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A call to lbd has failed. In [`Mode::Batch`](crate::Mode::Batch), requests go on with the last batch.
    Unreachable,
    /// lbd is unreachable, and the last batch is too old: requests fail, or go to the fallback.
    Stale,
    /// lbd has answered again.
    Recovered,
}

impl Inner {
    /// Whether somebody wants to know of attempts.
    pub(crate) fn watches_attempts(&self) -> bool {
        #[cfg(feature = "tracing")]
        if tracing::enabled!(tracing::Level::DEBUG) {
            return true;
        }
        self.config.on_attempt.is_some()
    }

    pub(crate) fn attempted(&self, attempt: &Attempt) {
        #[cfg(feature = "tracing")]
        tracing::debug!(
            cluster = attempt.choice.cluster(), address = attempt.choice.address(), attempt = attempt.choice.attempt(),
            outcome = ?attempt.outcome, duration = ?attempt.duration, "lbd: a try has ended"
        );
        if let Some(hook) = &self.config.on_attempt {
            self.catch(|| hook(attempt));
        }
    }

    /// Tells of changes of the state, by how a call to lbd has ended.
    pub(crate) fn reached(&self, error: Option<&Error>) {
        let away = matches!(*lock(&self.state), Some(State::Unreachable | State::Stale));
        match error.filter(|error| error.code().is_empty()) {
            None if away => self.changed(State::Recovered, None),
            Some(error) if !away => self.changed(State::Unreachable, Some(error)),
            _ => {}
        }
    }

    /// Tells of a state, unless it is the old one.
    pub(crate) fn changed(&self, state: State, error: Option<&Error>) {
        if lock(&self.state).replace(state) == Some(state) || self.is_closed() {
            return;
        }
        #[cfg(feature = "tracing")]
        match error {
            None => tracing::info!("lbd: lbd answers again"),
            Some(error) => tracing::warn!(?state, %error, "lbd: lbd does not answer"),
        }
        _ = error;
        if let Some(hook) = &self.config.on_state {
            self.catch(|| hook(state));
        }
    }

    /// Keeps a hook that panics from breaking a request.
    fn catch(&self, hook: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(hook)).is_err() {
            #[cfg(feature = "tracing")]
            tracing::error!("lbd: a hook has panicked");
        }
    }
}
