//! Tidegate keeps a Kyma landscape in the state that git describes.
//!
//! This is the architecture document: a bird's eye view, the code map, and what holds everywhere. How to use the
//! program stands in the README.
//!
//! # Bird's eye view
//!
//! Deciding is a function, acting is a thin shell.
//!
//! ```text
//!  git ── fetch ─▶ Snapshot ── read, check ─▶ Definitions ── stamp, apply ─▶ KCP
//!                                                                             │
//!  KCP ── watch ─▶ Landscape ── plan ─▶ RuntimePlan ── render ─▶ objects ── between ─▶ Changes ── enact ─▶ outcomes
//!                                            templates ──┘       inventory, live ──┘                  │          │
//!                                                                              KCP, runtimes ◀───────┘   status ◀┘
//! ```
//!
//! A commit becomes a [`snapshot`]; its YAML becomes [`definition`]s, checked against the CRDs' [`schema`]s and against
//! each other. What is good is applied to the control plane (KCP) as custom resources that bear our mark; what is broken
//! is withheld together with what refers to it, and while anything is broken nothing is pruned. Controllers then
//! reconcile all custom resources in KCP, wherever they came from: the [`landscape`] is indexed, the [`plan`] says which
//! version of which module a runtime gets, [`render`] turns the plan into objects through [`template`]s, [`changes`]
//! says what to apply and what to prune, and [`cluster`] does it. [`status`] says how it went.
//!
//! The same functions serve the daemon, `tidegate render` and `tidegate validate`: what a command line without any
//! cluster prints is what the daemon applies, except for values that only a cluster knows; those are placeholders.
//!
//! # Code map
//!
//! In layer order: a module uses only modules above it, and adapters never use each other. `tests/it/tidy.rs` holds the
//! table and fails on the first import outside it.
//!
//! | Layer | Modules |
//! | --- | --- |
//! | vocabulary | [`api`] custom resources as types; [`name`], [`revision`], [`object`], [`diagnostic`], [`period`], [`yaml`] |
//! | core, pure | [`schema`] what CRDs accept; [`snapshot`] files of a revision; [`definition`] what users write, checked; [`landscape`] all of it, indexed; [`plan`] what it means; [`template`] and [`render`] plan to objects; [`inventory`], [`changes`], [`health`], [`conditions`], [`retry`]; [`status`] what Kymas and Manifests say; [`overview`] what is wrong, on one screen; [`intake`] what a source means for what stands in KCP; [`counterpart`] what is written to the Kyma in a runtime; [`diff`] how two renderings differ |
//! | ground | [`ambient`] the time of day and chance; [`config`] the options of the daemon; [`tls`], [`metrics`], [`telemetry`]; [`renderer`] and [`confine`] foreign templates in processes of their own |
//! | adapters | [`git`] mirrors and work trees; [`cluster`] API servers; [`pki`] certificates |
//! | simulator | [`sim`] a Kubernetes API in memory, for the demo, tests and fleets |
//! | test bed | [`testbed`] real API servers on this machine, for tests, demo and benchmark |
//! | loop | [`queue`] why and when; [`watch`] from a change in a runtime to a trigger; [`controller`] one pass a subject; [`http`] metrics and health; [`runtime`] the wiring; [`cli`] the commands |
//!
//! # What holds everywhere
//!
//! * The core reads no clock, environment, randomness or file; `now` and settings are arguments. A test holds it to that.
//! * User mistakes are diagnostics, not errors: a function that can meet one takes `&mut Diagnostics` first.
//! * Nothing is deleted on an incomplete view, nor what does not bear our mark. Only a complete desired set can yield a
//!   prune. Every delete names the UID of the object that was decided about; where its metadata decided, as for all that is
//!   pruned, it names the resourceVersion as well, and what has changed since is looked at again.
//! * An object of a module stands in its Manifest's inventory before it can exist: a process that is killed at any `await`
//!   leaves nothing unrecorded. What every runtime has is in no inventory: it has fixed names or is found by its mark. A
//!   default custom resource is named by its Manifest.
//! * A pass over an unchanged world sends nothing. What was applied is known by a digest in the status, so a new process
//!   writes nothing either.
//! * One field manager, `tidegate`, for every write; one audit record for every write, with what is behind it.
//! * What is told (status, Events, logs) says where something is wrong and never quotes the text around it: that may be
//!   a secret.
//! * A trigger says why, never what: the loop looks at the world.
//!
//! # Where we left the first design
//!
//! * A Manifest is no subject of its own in the queue. One pass over a runtime applies its Manifests, then the objects of
//!   those that are due, then writes the status of the Kyma once: fewer status writes, and of two modules that bring one
//!   object it is clear which has it. Each Manifest keeps its own back-off.
//! * Once it is there, the Kyma in a runtime is written by merge patch, not by server-side apply: `spec.modules` is a map to
//!   the API server, in which an apply cannot remove what a user added, and whoever hands the list back to the runtime must
//!   not remove it.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

pub mod cli;
pub mod config;
pub mod confine;
pub mod controller;
pub mod daemon;
pub mod gateway;
pub mod http;
pub mod metrics;
pub mod queue;
pub mod renderer;
pub mod runtime;
pub mod source;
pub mod stores;
pub mod watcher;
