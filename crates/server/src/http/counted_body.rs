//! A body whose bytes are counted as they pass.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// A body that tells `count` how large each piece of it is.
pub(super) struct CountedBody<B, C> {
    body: B,
    count: C,
}

impl<B, C> CountedBody<B, C> {
    pub(super) const fn new(body: B, count: C) -> Self {
        Self { body, count }
    }
}

impl<B, C> Body for CountedBody<B, C>
where
    B: Body<Data = Bytes> + Unpin,
    C: FnMut(usize) + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            (self.count)(data.len());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
