//! Tidegate keeps a Kyma landscape in the state that git describes.
//!
//! This is the architecture document: an overview, the code map, and the rules that hold everywhere.
//! The README says how to use the program, `docs/development.md` how to change it.
//!
//! # Overview
//!
//! Deciding is a function, acting is a thin shell.
//!
//! ```text
//!  git ── fetch ─▶ Snapshot ── read, check ─▶ Definitions ── stamp, apply ─▶ KCP
//!                                                                             │
//!  KCP ── watch ─▶ Landscape ── plan ─▶ RuntimePlan ── render ─▶ objects ── between ─▶ prunes  ── enact ─▶ outcomes
//!                                            templates ──┘       inventory, live ──┘                  │          │
//!                                                                              KCP, runtimes ◀───────┘   status ◀┘
//! ```
//!
//! A commit becomes a [`snapshot`]. Its YAML becomes [`definition`]s, which Tidegate checks against the
//! CRDs' [`schema`]s and against each other. Tidegate applies valid definitions to the control plane (KCP)
//! as custom resources with its ownership label. It holds back a broken definition and everything that
//! refers to it. While anything is broken, it prunes nothing. The controllers then reconcile all custom
//! resources in KCP, whatever their origin. The [`landscape`] indexes them. The [`plan`] says which version
//! of which module a runtime gets. [`render`] turns the plan into objects through [`template`]s, [`changes`]
//! says what to prune, and [`tidegate_cluster`] sends the requests. [`status`] reports the result.
//!
//! The same functions serve the daemon, `tidegate render`, `tidegate validate` and `tidegate diff`. A command
//! without a cluster prints what the daemon applies, with placeholders for values that only a cluster knows.
//!
//! # The flow, folder by folder
//!
//! | Step | Code |
//! | --- | --- |
//! | fetch a repository into a mirror | [`tidegate_git`]; beside the passes, a few at a time for each server: `source` |
//! | read and check its definitions, decide what to apply, hold back and prune in KCP | [`definition`], [`intake`] |
//! | verify the signatures of a revision and of what changed guarded paths | [`tidegate_signature`] |
//! | one pass over a GitSource | `source` |
//! | what git hosts deliver, and which sources it wakes | [`tidegate_core::push`], `source`, `http` |
//! | find modules in OCI registries beside the passes, keep them on disk | `components` |
//! | read the policy of maintenance windows, again when its file changes | `maintenance` |
//! | watch KCP, keep what the controllers need | `stores` |
//! | decide what to reconcile next, and why | `queue` |
//! | count which runtimes have which version of a module, so that a pass looks at no other runtime | [`tidegate_core::plan::rollout`] |
//! | one pass over a Kyma, its Manifests and its runtime | `runtime` |
//! | which runtimes get a new version of a module next | [`tidegate_core::plan::rollout`] |
//! | one pass over the ModuleReleaseMeta of a mandatory module | `release` |
//! | one pass over a Watcher; events that runtimes report | `watcher` |
//! | certificates of the gateway and of runtimes | `gateway` |
//! | one pass over a resource of a kcp landscape | [`tidegate_core::plan::setup`], `setup` |
//! | its pods in other clusters | `setup::place` |
//! | what its pods trust while a CA or a key is replaced | `setup::overlap` |
//! | its permissions inside kcp | `setup::inside` |
//! | its certificates without cert-manager | `setup::builtin` |
//! | what kcp-operator made of it, taken over | `setup::adopt` |
//! | overrides of templates, rendered in processes with limits | `renderer`, `confine` |
//! | git objects, unpacked in processes with limits | [`tidegate_git::Engine`], `confine` |
//! | blobs of registries, unpacked in processes with limits | [`tidegate_oci::Unpacker`], `confine` |
//! | what these passes share: failures, Events, finalizers | `controller` |
//! | what has to be done before a landscape of Lifecycle Manager is taken over, and how it is given back | [`tidegate_core::adopt`], [`cli`] |
//! | compare a landscape as it would be with what lives, for `diff --live` and for observing | `live` |
//! | the passes of a process that only observes | `observe` |
//! | options, health and metrics | `config`, `http`, `metrics` |
//! | start and stop all of it in order | `daemon` |
//! | the command line | [`cli`] |
//!
//! The folder of a subject has the same parts everywhere. `state` is what is known between passes, `decide` what to do
//! and what follows from the answers, `enact` the requests. The file beside the folder is the pass that joins them.
//!
//! # Crates
//!
//! The layers are crates, so the compiler enforces them. A crate uses only crates above it in this table, and
//! the adapters never use each other.
//!
//! | Crate | Contents |
//! | --- | --- |
//! | [`tidegate_process`] | clock, randomness, TLS provider, retry delays, logs, terminal output, exit codes: small enough for the agent |
//! | [`tidegate_core`] | everything that decides: pure, without tokio, client or I/O |
//! | [`tidegate_diff`] | how two renderings differ, and the report in every output format |
//! | [`tidegate_signature`] | who signed a commit or tag: pure, beside the core because of its cryptography |
//! | [`tidegate_git`], [`tidegate_cluster`], [`tidegate_oci`] | adapters: repositories, API servers, registries |
//! | [`tidegate_events`] | the event protocol, the identity of a sender, the listener; other operators can embed it |
//! | [`tidegate_agent`] | the agent in runtime clusters, as a library and as a program |
//! | `tidegate` | this crate: the daemon and the command line |
//! | `kube-sim` | a Kubernetes API in memory; any operator's tests can use it |
//! | `tidegate-landscape` | writes landscapes of any size, for tests and measurements |
//! | `tidegate-testbed` | real API servers on this machine |
//! | `tidegate-bench` | `tidegate demo` and `tidegate sim`, behind the default feature `lab` |
//!
//! What the crates cannot express is a test in `tests/it/tidy.rs`: the core names no environment, file or thread,
//! and no build pulls in what its layer must not have.
//!
//! # What holds everywhere
//!
//! * User mistakes are diagnostics, not errors. A function that can meet one takes `&mut Diagnostics` first.
//! * Tidegate deletes nothing on an incomplete view, and nothing without its ownership label. Only a
//!   [`CompleteModule`] can yield a prune of a module's objects, and it exists only if all of them could be read. Every
//!   delete names the UID of the object. A prune also names its resourceVersion; if the object has changed since,
//!   Tidegate reads it again.
//! * A module's object is in its Manifest's inventory before it can exist. A process that is killed at any `await`
//!   leaves no unrecorded object. Objects that every runtime has are in no inventory: they have fixed names or Tidegate
//!   finds them by their label. The Manifest names the default custom resource.
//! * A process that observes sends nothing but `GET` requests. Its clusters refuse everything else.
//! * A pass over an unchanged world sends nothing. The status keeps a digest of what was applied, so a new
//!   process writes nothing either.
//! * Every write uses the field manager `tidegate` and leaves one audit record that names its cause.
//! * Status, Events and logs say where a problem is. They never quote the text around it, which may be a secret.
//!   One exception: the conditions of a GitSource quote what its git server says of an error, cleaned of credentials.
//! * The daemon unpacks nothing that a git server or a registry sends, and renders no template of a repository.
//!   Processes with limits do, and an exceeded limit is one sentence about its source or module.
//! * A trigger says why, never what: the controllers always read the current state.
//! * Waiting holds no worker: a pass over a source requests a fetch and ends, and one over a runtime that is not ready,
//!   or cannot be reached, says when to try again. What one server does delays only what needs that server.
//! * A check of a revision ends. It has what its fetch leaves of `spec.timeout`; the core asks a
//!   [`budget`](tidegate_core::budget) instead of a clock. An incomplete result is discarded.
//!
//! # Differences from the first design
//!
//! * A Manifest is not a subject in the queue. One pass over a runtime applies its Manifests, then the objects of those
//!   that are due, then writes the Kyma's status once. This saves status writes, and it settles which of two modules
//!   owns an object that both contain. Each Manifest keeps its own back-off.
//! * After its creation, Tidegate changes the Kyma in a runtime by merge patch, not by server-side apply.
//!   `spec.modules` is a map list, and an apply cannot remove the entries of other field managers.
//! * The policy of a rollout is annotations of the ModuleReleaseMeta, not a kind of its own. It is in git beside
//!   the versions that it is about, and Lifecycle Manager ignores it. The state of a rollout is what the Manifests say.
//! * `tidegate-process` is a crate that the design does not list. The agent and the listener need these parts
//!   too, and must not pull in the core.
//!
//! [`snapshot`]: tidegate_core::snapshot
//! [`definition`]: tidegate_core::definition
//! [`schema`]: tidegate_core::schema
//! [`landscape`]: tidegate_core::landscape
//! [`plan`]: tidegate_core::plan
//! [`render`]: tidegate_core::render
//! [`template`]: tidegate_core::template
//! [`changes`]: tidegate_core::changes
//! [`CompleteModule`]: tidegate_core::render::CompleteModule
//! [`status`]: tidegate_core::status
//! [`intake`]: tidegate_core::intake

// `pub` is what a module offers the others. What tests of other crates see is the list in `internals`.
#![allow(unreachable_pub, reason = "only `cli` is public")]
#![cfg_attr(
    feature = "internals",
    allow(clippy::missing_errors_doc, reason = "a private function says `Fails if` in its first paragraph")
)]
#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

pub mod cli;
mod components;
mod config;
mod confine;
mod controller;
mod daemon;
mod gateway;
mod http;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod live;
mod maintenance;
mod metrics;
mod observe;
mod queue;
mod release;
mod renderer;
mod runtime;
mod setup;
mod source;
mod stores;
mod watcher;
