use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::Sleep;

use crate::util::{BoxError, lock};
use crate::{Choice, Error, ErrorKind, Pick};

/// The body of a request: bytes, which can be sent again, or a stream, which can be as long as nothing of it was read.
///
/// A clone is the same stream.
#[derive(Clone, Debug)]
pub struct Body(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Bytes(Bytes),
    Stream(Arc<Mutex<Stream>>),
}

#[derive(Debug)]
struct Stream {
    body: UnsyncBoxBody<Bytes, BoxError>,
    read: bool,
    failed: bool,
}

impl Body {
    /// A body that is made while it is sent.
    pub fn stream<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let body = body.map_err(Into::into).boxed_unsync();
        Self(Kind::Stream(Arc::new(Mutex::new(Stream { body, read: false, failed: false }))))
    }

    /// Whether it can be sent again.
    pub(crate) fn is_repeatable(&self) -> bool {
        match &self.0 {
            Kind::Bytes(_) => true,
            Kind::Stream(stream) => !lock(stream).read,
        }
    }

    /// Whether it is why a request has failed.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(&self.0, Kind::Stream(stream) if lock(stream).failed)
    }
}

impl Default for Body {
    fn default() -> Self {
        Self(Kind::Bytes(Bytes::new()))
    }
}

impl From<()> for Body {
    fn from((): ()) -> Self {
        Self::default()
    }
}

macro_rules! from {
    ($($bytes:ty),*) => {
        $(impl From<$bytes> for Body {
            fn from(bytes: $bytes) -> Self {
                Self(Kind::Bytes(bytes.into()))
            }
        })*
    };
}

from!(Bytes, Vec<u8>, String, &'static [u8], &'static str);

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Stream(stream) => {
                let mut stream = lock(stream);
                stream.read = true;
                let frame = ready!(Pin::new(&mut stream.body).poll_frame(cx));
                stream.failed |= matches!(frame, Some(Err(_)));
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Bytes(bytes) => bytes.is_empty(),
            Kind::Stream(stream) => lock(stream).body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(stream) => lock(stream).body.size_hint(),
        }
    }
}

/// The body of a response. The request is in flight until it is read to its end or dropped.
#[derive(Debug)]
pub struct ResponseBody<B> {
    body: B,
    pick: Option<Pick>,
    choice: Option<Choice>,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B> ResponseBody<B> {
    pub(crate) fn new(body: B, pick: Option<Pick>, deadline: Option<Instant>) -> Self {
        let choice = pick.as_ref().map(Pick::choice);
        Self {
            body,
            pick,
            choice,
            deadline: deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline.into()))),
        }
    }

    /// What lbd has chosen for the last try; None if the request was not for lbd.
    pub fn choice(&self) -> Option<&Choice> {
        self.choice.as_ref()
    }
}

impl<B> HttpBody for ResponseBody<B>
where
    B: HttpBody + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, Error>>> {
        let failed = |choice: &Option<Choice>, kind, detail, source| match choice {
            Some(choice) => Error::of_try(kind, choice.clone(), detail, source),
            None => Error::new(kind, "", "the body of the response has ended early"),
        };
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(Ok(frame))),
            Poll::Ready(Some(Err(error))) => Some(Err(failed(
                &self.choice,
                ErrorKind::Connection,
                "the response ended within its body:",
                Some(error.into()),
            ))),
            Poll::Ready(None) => None,
            Poll::Pending => {
                if let Some(deadline) = &mut self.deadline {
                    ready!(deadline.as_mut().poll(cx));
                    Some(Err(failed(&self.choice, ErrorKind::Timeout, "the body of the response is late:", None)))
                } else {
                    return Poll::Pending;
                }
            }
        };
        self.pick = None;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
