//! One pass over a Watcher: its VirtualService in KCP, its finalizer, its status.
//!
//! The webhook in the runtimes follows with the next pass over each (see [`crate::daemon`]). Without a Gateway that its
//! selector matches a Watcher waits: the Gateway's arrival wakes it. So does whoever edits or deletes its VirtualService.
//!
//! Of two Watchers with one manager whose events are to go to different services, the older one has the path, and the
//! other says so: two routes for one path would leave it to chance who is told.
//!
//! Where agents send to a listener of this process ([`watch::ListenerSettings::address`]), its own Watchers need no route, and
//! no Istio.
//!
//! A VirtualService of that name that somebody else made is left alone, and the status says whose it is: applied by
//! force, its routes would be lost, and the rest of it with the Watcher.

pub mod inbox;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use kube::core::SelectorExt as _;
use serde_json::json;

use crate::controller::{Context, Failure, Pass, finalizers, status_body};
use tidegate_cluster::{Cause, Deleted, Error, Kind, OnConflict, Propagation, Target};
use tidegate_core::{
    api::{
        Watcher,
        names::{self, annotation, finalizer},
        shared::{State, Time},
        watcher::WatcherStatus,
    },
    changes::covers,
    conditions, landscape,
    name::Key,
    object::{Digest, Gvk, Object},
    plan::{selector, watch},
    render, status,
    template::Templates,
};
use tidegate_process::{ambient, retry::Class};

use crate::queue::{Finish, Trigger, Triggers};

/// What this process remembers of all Watchers: the digest of the VirtualService that stands.
#[derive(Debug, Default)]
pub struct Memories(Mutex<HashMap<Key, Digest>>);

/// How often the VirtualService is looked at, beside what its watch says: few are there.
const LOOK: Duration = Duration::from_secs(300);

/// Type of the condition that says whether the VirtualService stands.
const CONDITION: &str = "VirtualService";

/// Group and version of Istio's kinds.
const ISTIO: (&str, &str) = ("networking.istio.io", "v1beta1");
const GATEWAY: &str = "Gateway";

/// Brings the VirtualService of a Watcher to what it should be.
pub async fn reconcile(context: &Context, key: &Key, triggers: Triggers) -> Pass {
    let landscape = context.stores.landscape();
    let Some(watcher) = landscape.watchers.get(key) else {
        context.watchers.forget(key);
        return Ok(Finish::Gone);
    };
    let round = Round { context, key, watcher, cause: &crate::controller::cause(triggers), now: ambient::now() };
    let result = if watcher.metadata.deletion_timestamp.is_some() {
        round.remove().await
    } else {
        context.templates_read(&watcher.metadata)?;
        round.bring(looks(triggers, watcher)).await
    };
    result.map_err(|error| Failure::new(error.class(), error.reason(), error))
}

fn looks(triggers: Triggers, watcher: &Watcher) -> bool {
    let handled = watcher
        .status
        .as_ref()
        .and_then(|status| conditions::message(&status.conditions, conditions::RECONCILE_REQUESTED));
    let requested = landscape::annotation(&watcher.metadata, annotation::RECONCILE_REQUESTED_AT);
    (requested.is_some() && requested != handled)
        || triggers.iter().any(|trigger| matches!(trigger, Trigger::Drift | Trigger::Resync | Trigger::Requested))
}

/// One pass over a Watcher.
struct Round<'a> {
    context: &'a Context,
    key: &'a Key,
    watcher: &'a Arc<Watcher>,
    cause: &'a Cause,
    now: Timestamp,
}

/// What a pass came to.
enum Outcome {
    /// The VirtualService stands.
    Done(Digest),
    /// It cannot be made: one sentence.
    Not(String),
    /// What it is for is not installed: one sentence.
    Absent(String),
    /// It must not be: one sentence.
    Rival(String),
    /// None is needed.
    Direct,
}

// === impl Round ===

impl Round<'_> {
    async fn bring(&self, look: bool) -> Result<Finish, Error> {
        self.take_charge().await?;
        if let Some(message) = self.rival() {
            self.remove_route().await?;
            self.context.watchers.forget(self.key);
            self.write_status(&Outcome::Rival(message)).await?;
            return Ok(Finish::Failed(Class::Stalled));
        }
        if self.is_direct() {
            if self.has_applied() {
                self.remove_route().await?;
                self.context.watchers.forget(self.key);
            }
            self.write_status(&Outcome::Direct).await?;
            return Ok(Finish::Done);
        }
        let outcome = match self.desired().await {
            Ok(object) => {
                let digest = object.digest();
                if look || !self.stands(&digest) { self.apply(&object, look).await? } else { Outcome::Done(digest) }
            }
            Err(message) => match self.absent(GATEWAY).await? {
                Some(absent) if self.gateways().is_empty() => absent,
                Some(_) | None => Outcome::Not(message),
            },
        };
        self.write_status(&outcome).await?;
        Ok(match outcome {
            Outcome::Done(digest) => {
                self.context.watchers.put(self.key, digest);
                Finish::After(LOOK, Trigger::Resync)
            }
            Outcome::Direct => Finish::Done,
            // A Gateway, or another edit of the Watcher, wakes it.
            Outcome::Not(_) | Outcome::Rival(_) => Finish::Failed(Class::Stalled),
            // Nothing does when its kind is served.
            Outcome::Absent(_) => Finish::Failed(Class::Waiting),
        })
    }

    /// What is said if one of Istio's kinds is not served.
    async fn absent(&self, kind: &str) -> Result<Option<Outcome>, Error> {
        let served = self.context.kcp.kind(&Gvk::new(ISTIO.0, ISTIO.1, kind)).await?.is_some();
        Ok((!served).then(|| {
            Outcome::Absent(format!(
                "the control plane serves no {kind}s: install Istio's CRDs, or have runtimes send to this Tidegate \
                 (--listener-address)"
            ))
        }))
    }

    /// Why another Watcher has the path, if one has.
    fn rival(&self) -> Option<String> {
        let landscape = self.context.stores.landscape();
        let rival = watch::rival(self.watcher, landscape.watchers.values().map(|watcher| &**watcher))?;
        Some(format!(
            "Watcher {rival} has the same manager and leads its events to another service; give this one another manager, or \
             delete one of the two"
        ))
    }

    /// What is said where its manager has other Watchers.
    fn companions(&self) -> Option<String> {
        let landscape = self.context.stores.landscape();
        let others = watch::companions(self.watcher, landscape.watchers.values().map(|watcher| &**watcher));
        let others: Vec<String> = others.iter().map(|key| format!("Watcher {key}")).collect();
        (!others.is_empty()).then(|| {
            format!(
                "the events of this Watcher and of {} take one path, since their manager is the same",
                others.join(", ")
            )
        })
    }

    /// Whether its events reach this process without a route: agents send to a listener's own address, and no Gateway is
    /// asked for one.
    fn is_direct(&self) -> bool {
        self.context.certificates.listener.address.is_some()
            && watch::watch(self.watcher).is_ok_and(|watch| watch.manager == names::MANAGED_BY_KCP)
            && self.gateways().is_empty()
    }

    /// The Gateways that its selector matches.
    fn gateways(&self) -> Vec<watch::Gateway> {
        let Some(selector) = selector::parse(&self.watcher.spec.gateway.selector) else { return Vec::new() };
        let all = self.context.stores.gateways();
        let matched = all.iter().filter(|entry| selector.matches(&entry.labels));
        matched.map(|entry| entry.gateway.clone()).collect()
    }

    /// The VirtualService as it should be, or why it cannot be.
    async fn desired(&self) -> Result<Object, String> {
        let watch = watch::watch(self.watcher).map_err(|error| error.to_string())?;
        let port = watch.port().map_err(|error| error.to_string())?;
        let gateways = watch::Gateways::of(self.key, self.gateways()).map_err(|error| error.to_string())?;
        let uid = self.watcher.metadata.uid.clone().unwrap_or_default();
        let library = self.context.library();
        let render = move |templates: &Templates| render::virtual_service(templates, &watch, port, &gateways, &uid);
        let rendered = self.context.renderer.with(library.of(&self.watcher.metadata), render).await;
        rendered.map_err(|error| error.to_string())
    }

    /// Whether just this VirtualService was applied, by this process or, as the status records, by an earlier one.
    fn stands(&self, digest: &Digest) -> bool {
        let recorded = self
            .watcher
            .status
            .as_ref()
            .and_then(|status| conditions::message(&status.conditions, conditions::APPLIED));
        self.context.watchers.get(self.key).as_ref() == Some(digest) || recorded == Some(digest.to_string().as_str())
    }

    /// Whether a VirtualService was applied for this Watcher, in whatever form.
    fn has_applied(&self) -> bool {
        let status = self.watcher.status.as_ref();
        let recorded = status.and_then(|status| conditions::message(&status.conditions, conditions::APPLIED));
        recorded.is_some() || self.context.watchers.get(self.key).is_some()
    }

    /// Why a VirtualService that is there cannot be applied over: nothing of it says that it was made for a Watcher.
    fn foreign(&self, live: &serde_json::Value) -> Option<String> {
        let managers = watch::strangers(self.watcher, live)?;
        Some(watch::foreign(self.key, &managers))
    }

    async fn apply(&self, object: &Object, look: bool) -> Result<Outcome, Error> {
        let digest = object.digest();
        let kcp = &self.context.kcp;
        let Some(kind) = kcp.kind(&object.gvk()).await? else {
            let absent = self.absent(&object.gvk().kind).await?;
            return Ok(absent
                .unwrap_or_else(|| Outcome::Not("the control plane has only just got VirtualServices".to_owned())));
        };
        // What we have not applied yet may be somebody else's, and so may what we find after a while.
        let live = if look || !self.has_applied() { kcp.get(&kind, self.key).await? } else { None };
        if let Some(live) = &live {
            if let Some(message) = self.foreign(live.value()) {
                return Ok(Outcome::Not(message));
            }
            if look && covers(object.value(), live.value()) {
                return Ok(Outcome::Done(digest));
            }
        }
        let body = Bytes::from(object.value().to_string());
        match kcp.apply(self.cause, &kind, &object.id(), body, OnConflict::Force).await {
            Ok(_) => Ok(Outcome::Done(digest)),
            Err(error @ (Error::Invalid { .. } | Error::UndeclaredField { .. } | Error::Forbidden { .. })) => {
                Ok(Outcome::Not(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the VirtualService, if it was made for this very Watcher.
    async fn remove_route(&self) -> Result<(), Error> {
        let kcp = &self.context.kcp;
        let gvk = Gvk::new(ISTIO.0, ISTIO.1, "VirtualService");
        if let Some(kind) = kcp.kind(&gvk).await?
            && let Some(live) = kcp.get(&kind, self.key).await?
        {
            let uid = self.watcher.metadata.uid.as_deref().unwrap_or_default();
            let owners = live.value().pointer("/metadata/ownerReferences").and_then(serde_json::Value::as_array);
            // Only the one that was made for this very Watcher.
            if owners.into_iter().flatten().any(|owner| owner["uid"] == uid) {
                let text = |field: &str| live.value()["metadata"][field].as_str().unwrap_or_default();
                let (uid, version) = (text("uid"), text("resourceVersion"));
                let id = live.id();
                match kcp.delete_if(self.cause, &kind, &id, uid, Some(version), Propagation::Background).await? {
                    Deleted::Gone | Deleted::Terminating => {}
                    // Whose it is now, the next look shows.
                    Deleted::Changed => return Err(Error::Changed { target: Target::Object(id) }),
                }
            }
        }
        Ok(())
    }

    /// Deletes the VirtualService, then drops the finalizer.
    async fn remove(&self) -> Result<Finish, Error> {
        let metadata = &self.watcher.metadata;
        if !metadata.finalizers.iter().flatten().any(|name| name == finalizer::WATCHER) {
            return Ok(Finish::Gone);
        }
        self.remove_route().await?;
        let kind = Kind::namespaced::<Watcher>();
        finalizers::release(&self.context.kcp, self.cause, &kind, metadata, &[finalizer::WATCHER]).await?;
        self.context.watchers.forget(self.key);
        Ok(Finish::Gone)
    }

    /// Sees to it that the Watcher bears our finalizer before anything exists that it must outlive.
    async fn take_charge(&self) -> Result<(), Error> {
        let mut finalizers = self.watcher.metadata.finalizers.clone().unwrap_or_default();
        if finalizers.iter().any(|name| name == finalizer::WATCHER) {
            return Ok(());
        }
        finalizers.push(finalizer::WATCHER.to_owned());
        self.patch_metadata(
            &json!({ "finalizers": finalizers, "resourceVersion": self.watcher.metadata.resource_version }),
        )
        .await
    }

    async fn patch_metadata(&self, metadata: &serde_json::Value) -> Result<(), Error> {
        let kind = Kind::namespaced::<Watcher>();
        let body = Bytes::from(json!({ "metadata": metadata }).to_string());
        match self.context.kcp.merge_patch(self.cause, &kind, &kind.id(self.key), None, body).await {
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn write_status(&self, outcome: &Outcome) -> Result<(), Error> {
        let before = self.watcher.status.clone().unwrap_or_default();
        let generation = self.watcher.metadata.generation;
        let now = Time(status::seconds(self.now));
        let mut all = before.conditions.clone();
        let (state, message) = match outcome {
            Outcome::Done(_) => (State::Ready, "VirtualService is configured".to_owned()),
            Outcome::Direct => (
                State::Ready,
                "VirtualService is not needed: runtimes send events straight to the listener of this Tidegate"
                    .to_owned(),
            ),
            // Lifecycle Manager's words, which tools compare.
            Outcome::Not(_) | Outcome::Absent(_) | Outcome::Rival(_) => {
                (State::Error, "VirtualService is not configured".to_owned())
            }
        };
        let why = match outcome {
            Outcome::Not(why) | Outcome::Absent(why) | Outcome::Rival(why) => Some(why),
            Outcome::Done(_) | Outcome::Direct => None,
        };
        if why.is_none() {
            conditions::remove(&mut all, conditions::ROUTE);
        }
        if let Outcome::Rival(_) | Outcome::Direct = outcome {
            // What an earlier pass applied does not stand any more.
            conditions::remove(&mut all, conditions::APPLIED);
        }
        let companions = self.companions();
        if companions.is_none() {
            conditions::remove(&mut all, conditions::SHARED_MANAGER);
        }
        let mut set = |type_: &str, holds: bool, reason: &str, message: &str| {
            conditions::set(&mut all, type_, holds.into(), reason, message, generation, &now);
        };
        set(CONDITION, state == State::Ready, conditions::kyma::REASON, &message);
        if let Outcome::Done(digest) = outcome {
            set(conditions::APPLIED, true, conditions::APPLIED_REASON, &digest.to_string());
        }
        if let Some(why) = why {
            set(conditions::ROUTE, false, conditions::ROUTE_REASON, why);
        }
        if let Some(message) = &companions {
            set(conditions::SHARED_MANAGER, true, conditions::SHARED_MANAGER_REASON, message);
        }
        if let Some(requested) = landscape::annotation(&self.watcher.metadata, annotation::RECONCILE_REQUESTED_AT) {
            set(conditions::RECONCILE_REQUESTED, true, conditions::RECONCILE_REQUESTED_REASON, requested);
        }
        let next = WatcherStatus { state, conditions: all, observed_generation: generation };
        if next == before {
            return Ok(());
        }
        let kind = Kind::namespaced::<Watcher>();
        let body = status_body("Watcher", self.key, &next);
        self.context.kcp.apply_status(self.cause, &kind, &kind.id(self.key), body).await.map(drop)
    }
}

// === impl Memories ===

impl Memories {
    fn get(&self, key: &Key) -> Option<Digest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    fn put(&self, key: &Key, digest: Digest) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), digest);
    }

    fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
