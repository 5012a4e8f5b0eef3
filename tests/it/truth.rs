//! What `diff`, `validate` and `status` say is what happens: their words beside what the daemon then does.

mod refuse;
mod status;
