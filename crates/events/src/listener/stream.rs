//! Events as a stream.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::Stream;
use tokio::sync::mpsc::{self, error::TrySendError};

use super::{Answer, Received, Refusal};

/// The events that were answered with 200, in order of arrival. They are held in memory only: a crash loses the events
/// in the stream. If you must not lose any, use [`receiver`](super::Builder::receiver).
#[derive(Debug)]
pub struct Events(mpsc::Receiver<Received>);

pub(super) struct Sender(mpsc::Sender<Received>);

pub(super) fn channel(capacity: usize) -> (Sender, Events) {
    let (sender, events) = mpsc::channel(capacity.max(1));
    (Sender(sender), Events(events))
}

impl Sender {
    pub(super) fn take(&self, received: Received) -> Answer {
        match self.0.try_send(received) {
            Ok(()) => Answer::Taken,
            Err(TrySendError::Full(_)) => {
                Answer::Unavailable(Refusal { reason: "receiver-full", message: "too many events wait" })
            }
            Err(TrySendError::Closed(_)) => {
                Answer::Unavailable(Refusal { reason: "receiver-gone", message: "the receiver is closed" })
            }
        }
    }
}

impl Stream for Events {
    type Item = Received;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Received>> {
        self.0.poll_recv(context)
    }
}
