//! Tidegate's pure core: what git declares, what it means, and what must change.
//!
//! Functions take values and return values. They read no clock, environment, randomness or file,
//! and never wait: `now` and settings are arguments. So the daemon, the command line, the
//! simulation and the tests use the same engine, and two runs with the same inputs give the same
//! bytes.
//!
//! The table is in layer order: a module only uses modules of earlier rows, or earlier ones in its
//! own row.
//!
//! | Layer | Modules |
//! | --- | --- |
//! | vocabulary | [`api`] custom resources as types; [`name`], [`revision`], [`budget`], [`diagnostic`], [`object`], [`yaml`]; [`evidence`] of signatures; [`component`] modules in OCI registries; [`content`] what identifies objects of modules; [`version_range`] which version a tag stands for; [`words`] numbers and lists in sentences |
//! | definitions | [`schema`] what CRDs accept; [`kubernetes`] what Kubernetes itself accepts; [`secret`] Secrets whose kind is misspelt; [`snapshot`] files of a revision; [`definition`] what users write, checked; [`landscape`] all of it, indexed |
//! | plan | [`maintenance`] when a runtime may get an upgrade that requires downtime; [`plan`] which version of which module a runtime gets; [`counterpart`] what is written to the Kyma in a runtime; [`template`] and [`render`] plan to objects |
//! | changes | [`inventory`], [`changes`], [`immutable`], [`health`], [`conditions`]; [`status`] what Kymas and Manifests report; [`intake`] what a source means for the objects in KCP; [`push`] what git hosts deliver; [`overview`] what is wrong, on one screen; [`adopt`] whether a landscape of another controller can be taken over; [`export`] live objects as definitions for git |

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]
#![cfg_attr(test, allow(clippy::disallowed_types, reason = "a test measures how long a check takes"))]

pub mod adopt;
pub mod api;
pub mod budget;
pub mod changes;
pub mod component;
pub mod conditions;
pub mod content;
pub mod counterpart;
pub mod definition;
pub mod diagnostic;
pub mod evidence;
pub mod export;
pub mod health;
pub mod immutable;
pub mod intake;
pub mod inventory;
pub mod kubernetes;
pub mod landscape;
pub mod maintenance;
pub mod name;
pub mod object;
pub mod overview;
pub mod plan;
pub mod push;
pub mod render;
pub mod revision;
pub mod schema;
pub mod secret;
pub mod snapshot;
pub mod status;
pub mod template;
pub mod version_range;
pub mod words;
pub mod yaml;
