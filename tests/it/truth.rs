//! What `diff`, `validate` and `status` say is what happens: their words beside what the daemon then does.

mod brakes;
mod deaf;
mod equal;
mod handover;
mod headlines;
mod kube;
mod outage;
mod refuse;
mod secrets;
mod status;
mod stays;
mod told;
mod waits;
