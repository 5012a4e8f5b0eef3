//! Events as a stream.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::Stream;
use tokio::sync::mpsc::{self, error::TrySendError};

use super::{Answer, Received, Refusal};

/// Events that were answered with 200, in the order in which they came. They are in this process only: what is in here
/// when it is killed is lost, so whoever must lose nothing takes [`receiver`](super::Builder::receiver).
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
                Answer::Unavailable(Refusal { reason: "receiver-gone", message: "nobody takes events any more" })
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
