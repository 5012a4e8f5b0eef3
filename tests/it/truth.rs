//! What `diff`, `validate` and `status` say is what happens: their words beside what the daemon then does.

mod brakes;
mod deaf;
mod kube;
mod refuse;
mod secrets;
mod status;
