//! The certificate of a runtime in KCP: requested, updated, renewed and removed.
//!
//! ```text
//! pass over a runtime ── ensure ─▶ Standing::Issued ── load ─▶ Leaf ─▶ the Secret in the runtime
//!                                            pass ended well ── trusts ─▶ the gateway may change its certificate
//! pass over a deletion ── remove ─▶ certificate and Secret are gone
//! ```
//!
//! The state of certificates comes from watches. So a pass over a runtime whose certificate is in its desired state
//! sends no request. Tidegate never requests a new certificate before the bundle that both sides trust contains its CA.
//!
//! Two Kymas of one name, in two namespaces, would have the same certificate. The second one gets none, and its status
//! reports that.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, MutexGuard, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    controller::{self, Queue, Subject},
    renderer::Renderer,
    stores::{Stores, secret::key},
};
use tidegate_cluster::{Cause, Cluster, Deleted, Error, Kind, OnConflict, Propagation};
use tidegate_core::{
    api::{Kyma, names},
    changes::covers,
    name::Key,
    object::{Digest, Gvk},
    plan::{
        certificate::{self, Backend, Certificate, Issued, Refused, Rules, Standing},
        reporting::ListenerSettings,
    },
    render,
    template::{Library, Templates},
};
use tidegate_process::lock::{Mutex, RwLock};

use crate::{gateway::pki, queue::Trigger};

mod builtin;

pub(crate) use builtin::validity;

/// What the certificates of runtimes use of the daemon.
#[derive(Clone, Copy)]
pub struct CertificatesContext<'a> {
    /// The control plane. It refuses writes while this process does not lead.
    pub kcp: &'a Cluster,
    /// The objects in the control plane, as watches show them.
    pub stores: &'a Stores,
    /// The namespaces of Kymas.
    pub namespaces: &'a BTreeSet<String>,
    /// The templates.
    pub library: &'a RwLock<Arc<Library>>,
    /// Renders overrides of templates.
    pub renderer: &'a Renderer,
    /// The certificates and their issuer.
    pub certificates: &'a Certificates,
}

/// The certificates of this process: configuration, CA, and what the watches do not show.
pub struct Certificates {
    /// The configuration.
    pub rules: Rules,
    /// Whether runtimes get an agent. Nothing else needs a certificate.
    pub is_wanted: bool,
    /// Where agents send their events: the names in the gateway's certificate.
    pub listener: ListenerSettings,
    backend: OnceLock<Backend>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The CA, if Tidegate signs.
    root: Option<Arc<pki::Root>>,
    /// Why there are no certificates: one sentence.
    problem: Option<String>,
    /// Runtimes that wait for the CA.
    waiting: BTreeSet<Key>,
    /// Digest of the bundle that each runtime is known to trust.
    trusts: HashMap<Key, Digest>,
    /// Whether the gateway waits for runtimes before it changes its certificate.
    is_awaited: bool,
    /// Certificates that Tidegate issued, until the watch shows them.
    issued: HashMap<Key, Written>,
}

/// A certificate that Tidegate issued, and its inputs.
#[derive(Clone)]
struct Written {
    issued: Issued,
    inputs: Digest,
    at: Instant,
}

/// The parts of a certificate that its runtime needs.
pub struct Leaf {
    /// The certificate, in PEM.
    pub certificate: Vec<u8>,
    /// Its key, in PEM.
    pub key: Vec<u8>,
}

/// Pause after a failed issue. The answer to each request is a change, which would otherwise trigger the next request
/// at once.
const FAILED_PAUSE: Duration = Duration::from_secs(300);
/// After this time, the watch's state is used even if it does not show Tidegate's own write.
const LAG_MAX: Duration = Duration::from_secs(2);
/// How often Tidegate asks the control plane which issuer it has, until it answers.
const BACKEND_RETRY: Duration = Duration::from_secs(2);

/// Ensures that a runtime has its desired certificate, and returns its state.
///
/// After [`Standing::Pending`], Tidegate wakes the runtime when this may have changed. Fails if a request to the
/// control plane fails.
pub async fn ensure(
    context: CertificatesContext<'_>,
    cause: &Cause,
    kyma: &Kyma,
    now: Timestamp,
) -> Result<Standing, Error> {
    let certificates = context.certificates;
    let certificate = match wanted(context, kyma) {
        Ok(certificate) => certificate,
        Err(refused) => return Ok(Standing::Refused(refused.to_string())),
    };
    let Some(backend) = certificates.backend.get().copied() else {
        return Ok(Standing::Pending("the certificate issuer is not known yet".to_owned()));
    };
    match backend {
        Backend::CertManager | Backend::Gardener => {
            let library = controller::library(context.library);
            let (asked_for, rules) = (certificate.clone(), certificates.rules.clone());
            let render = move |templates: &Templates| render::certificate(templates, backend, &asked_for, &rules);
            match context.renderer.with(library.for_object(&kyma.metadata), render).await {
                Some(Ok(desired)) => asked(context, cause, backend, &certificate, &desired, now).await,
                Some(Err(error)) => Ok(Standing::Refused(error.to_string())),
                None => Ok(Standing::Pending("this issuer has no Certificate object".to_owned())),
            }
        }
        Backend::Builtin => builtin::ensure(context, cause, &certificate, now).await,
    }
}

/// Reads an issued certificate; `None` if it was deleted meanwhile or is incomplete. Fails if the control plane does
/// not return it.
pub async fn load(context: CertificatesContext<'_>, issued: &Issued) -> Result<Option<Leaf>, Error> {
    let secret: Option<Secret> = context.kcp.get_as(&Kind::namespaced::<Secret>(), &issued.secret).await?;
    Ok(secret.and_then(|secret| {
        let mut data = secret.data?;
        let mut take = |key| data.remove(key).map(|bytes| bytes.0).filter(|bytes| !bytes.is_empty());
        Some(Leaf { certificate: take(key::CERTIFICATE)?, key: take(key::KEY)? })
    }))
}

/// Removes the certificate of a runtime and its Secret, if they exist. Returns whether both are gone. Fails if a
/// request to the control plane fails.
///
/// Both may be removed while the Kyma still exists. Do not call [`ensure`] for it afterwards.
pub async fn remove(context: CertificatesContext<'_>, cause: &Cause, kyma: &Key) -> Result<bool, Error> {
    let certificates = context.certificates;
    certificates.forget(kyma);
    // Such a certificate belongs to another namespace's owner, or to another Kyma of that name.
    if !certificates.is_wanted || !context.namespaces.contains(kyma.namespace()) {
        return Ok(true);
    }
    let key = certificate::key_of(kyma, &certificates.rules);
    let is_of = |says: Option<&str>| certificate::kyma_of(key.name(), says).as_ref() == Some(kyma);
    let (live, secret) = (context.stores.certificate(key.name()), context.stores.certificate_secret(key.name()));
    let says = live.as_ref().and_then(|live| live.kyma.as_deref());
    let says = secret.as_ref().and_then(|secret| secret.kyma.as_deref()).or(says);
    if (live.is_none() && secret.is_none()) || !is_of(says) {
        return Ok(true);
    }
    // The certificate is deleted first: its issuer would create the Secret again.
    if let Some(live) = live
        && let Some((gvk, plural)) = certificates.backend.get().copied().and_then(pki::object::kind)
    {
        let kind = Kind::new(gvk, plural, true);
        let deleted =
            context.kcp.delete_if(cause, &kind, &kind.id(&key), &live.uid, None, Propagation::Background).await?;
        if deleted == Deleted::Terminating {
            return Ok(false);
        }
    }
    // The Secret may have changed since the last watch event, so it is read by name.
    let kind = Kind::namespaced::<Secret>();
    let Some(found) = context.kcp.get_metadata(&kind, &key).await? else { return Ok(true) };
    if found.label(names::label::PURPOSE) != Some(names::CERTIFICATE_PURPOSE) {
        return Ok(true);
    }
    let deleted = context.kcp.delete_if(cause, &kind, &found.id, &found.uid, None, Propagation::Background).await?;
    Ok(deleted == Deleted::Gone)
}

/// The desired certificate of a runtime.
fn wanted(context: CertificatesContext<'_>, kyma: &Kyma) -> Result<Certificate, Refused> {
    let certificate = certificate::certificate(kyma, &context.certificates.rules)?;
    let own = &certificate.kyma;
    let before = context.namespaces.iter().take_while(|namespace| namespace.as_str() < own.namespace());
    let mut rivals = before.map(|namespace| Key::new(namespace, own.name()));
    match rivals.find(|rival| context.stores.kyma(rival).is_some()) {
        Some(rival) => Err(Refused::SameName(rival)),
        None => Ok(certificate),
    }
}

/// Requests a certificate from another issuer, through an object.
async fn asked(
    context: CertificatesContext<'_>,
    cause: &Cause,
    backend: Backend,
    certificate: &Certificate,
    desired: &tidegate_core::object::Object,
    now: Timestamp,
) -> Result<Standing, Error> {
    let (gvk, plural) = pki::object::kind(backend).unwrap_or_else(|| (Gvk::new("", "", ""), ""));
    let kind = Kind::new(gvk, plural, true);
    let live = context.stores.certificate(certificate.key.name());
    let is_current = live.as_ref().is_some_and(|live| {
        let spec: Value = serde_json::from_str(&live.spec).unwrap_or_default();
        let is_marked = live.kyma.as_deref() == Some(certificate.kyma.to_string().as_str());
        is_marked && desired.field("spec").is_some_and(|desired| covers(desired, &spec))
    });
    if !is_current {
        let body = Bytes::from(desired.value().to_string());
        match context.kcp.apply(cause, &kind, &desired.id(), body, OnConflict::Force).await {
            Ok(_) => {}
            Err(error @ (Error::Invalid { .. } | Error::UndeclaredField { .. } | Error::Forbidden { .. })) => {
                return Ok(Standing::Refused(format!("cannot request certificate {}: {error}", certificate.key)));
            }
            Err(error) => return Err(error),
        }
    }
    let bundled_at = bundled_at(context);
    let validity = live.as_ref().and_then(|live| live.validity);
    if let Some(live) = &live
        && let Some(bundled_at) = bundled_at
        && certificate::must_renew(validity.as_ref(), bundled_at)
        && may_ask(live, now)
    {
        renew(context, cause, backend, &kind, &certificate.key, bundled_at, now).await?;
    }
    Ok(match context.stores.certificate_secret(certificate.key.name()) {
        Some(secret) if !secret.is_deleting => Standing::Issued(Issued {
            secret: certificate.key.clone(),
            version: version(&secret.uid, &secret.resource_version),
            validity,
        }),
        _ => {
            // Without a CA, the issuer's problem is a consequence, so the CA's problem is reported.
            let said = || live.as_ref().and_then(|live| live.problem.clone());
            let because = context.certificates.problem().or_else(said);
            let because = because.map(|because| format!(": {because}")).unwrap_or_default();
            Standing::Pending(format!("{} has not issued certificate {} yet{because}", backend.name(), certificate.key))
        }
    })
}

/// Whether to request a new certificate now: not during an issue, and not soon after a failure.
fn may_ask(live: &pki::object::Live, now: Timestamp) -> bool {
    let failed = live.failed_at.is_some_and(|failed| now < certificate::later(failed, FAILED_PAUSE));
    !live.is_issuing && !live.is_deleting && !failed
}

/// Requests a new certificate for the current object.
async fn renew(
    context: CertificatesContext<'_>,
    cause: &Cause,
    backend: Backend,
    kind: &Kind,
    key: &Key,
    bundled_at: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(object) = context.kcp.get(kind, key).await? else { return Ok(()) };
    let live = pki::object::read(backend, object.value());
    if !certificate::must_renew(live.validity.as_ref(), bundled_at) || !may_ask(&live, now) {
        return Ok(());
    }
    let conditions = object.value().pointer("/status/conditions").and_then(Value::as_array);
    let renewal = pki::object::renewal(backend, &live, conditions.map_or(&[], Vec::as_slice), now);
    let body = Bytes::from(renewal.patch.to_string());
    match context.kcp.merge_patch(cause, kind, &kind.id(key), renewal.subresource, body).await {
        // The object changed meanwhile, and that change triggers a pass over the runtime.
        Ok(_) | Err(Error::Changed { .. } | Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// When the newest CA was added to the bundle.
fn bundled_at(context: CertificatesContext<'_>) -> Option<Timestamp> {
    certificate::parse_bundled_at(context.stores.gateway_secret()?.bundled_at.as_deref())
}

fn version(uid: &str, resource_version: &str) -> String {
    format!("{uid}/{resource_version}")
}

// === impl Certificates ===

impl Certificates {
    /// Certificates with this configuration. The issuer and the CA are not known yet.
    pub fn new(rules: Rules, is_wanted: bool, listener: ListenerSettings) -> Certificates {
        Certificates { rules, is_wanted, listener, backend: OnceLock::new(), state: Mutex::default() }
    }

    /// Certificates with the default configuration, for a daemon that needs none.
    pub fn unwanted() -> Certificates {
        let gateway = Key::new(names::KCP_NAMESPACE, names::GATEWAY);
        Certificates::new(Rules::default(), false, ListenerSettings { gateway, port_overwrite: None, address: None })
    }

    /// The issuer, once it is known.
    pub fn backend(&self) -> Option<Backend> {
        self.backend.get().copied()
    }

    /// Why there are no certificates, if there are none: one sentence.
    pub fn problem(&self) -> Option<String> {
        self.state().problem.clone()
    }

    /// Records the bundle that a runtime trusts, in its Secret and in its webhook configuration.
    pub fn trusts(&self, kyma: &Key, bundle: Digest, queue: &Queue) {
        let mut state = self.state();
        if state.trusts.insert(kyma.clone(), bundle) != Some(bundle) && state.is_awaited {
            let gateway = Key::new(&self.rules.namespace, names::GATEWAY_SECRET);
            queue.push(Subject::Gateway(gateway), Trigger::Changed);
        }
    }

    /// Determines the issuer, and keeps it for the lifetime of this process.
    pub(crate) async fn find_backend(&self, kcp: &Cluster) -> Backend {
        loop {
            match self.ask_for_backend(kcp).await {
                Ok(backend) => {
                    tracing::info!(issuer = backend.name(), "found the certificate issuer");
                    return *self.backend.get_or_init(|| backend);
                }
                Err(error) => {
                    let error = crate::controller::chain(&error);
                    tracing::warn!(error, "cannot determine the certificate issuer");
                    tokio::time::sleep(BACKEND_RETRY).await;
                }
            }
        }
    }

    async fn ask_for_backend(&self, kcp: &Cluster) -> Result<Backend, Error> {
        if let Some(backend) = self.rules.backend {
            return Ok(backend);
        }
        // An issuer that is in use stays in use: cert-manager may have been installed for other purposes.
        let authority = Key::new(&self.rules.namespace, names::AUTHORITY_SECRET);
        let metadata = kcp.get_metadata(&Kind::namespaced::<Secret>(), &authority).await?;
        let mark = metadata.as_ref().and_then(|metadata| metadata.annotations.get(names::annotation::PKI));
        if mark.map(String::as_str) == Some(Backend::Builtin.name()) {
            return Ok(Backend::Builtin);
        }
        for backend in [Backend::CertManager, Backend::Gardener] {
            if let Some((gvk, _)) = pki::object::kind(backend)
                && kcp.kind(&gvk).await?.is_some()
            {
                return Ok(backend);
            }
        }
        Ok(Backend::Builtin)
    }

    /// The number of these runtimes that are not known to trust a bundle.
    pub(crate) fn behind<'a>(&self, kymas: impl IntoIterator<Item = &'a Key>, bundle: Option<Digest>) -> usize {
        let state = self.state();
        kymas.into_iter().filter(|kyma| bundle.is_none() || state.trusts.get(*kyma) != bundle.as_ref()).count()
    }

    /// Records why there are no certificates, and whether the gateway waits for runtimes.
    pub(crate) fn tell(&self, problem: Option<String>, is_awaited: bool) {
        let mut state = self.state();
        state.problem = problem;
        state.is_awaited = is_awaited;
    }

    /// The certificate of the CA that Tidegate signs with, in DER.
    pub(crate) fn signs_with(&self) -> Option<Arc<[u8]>> {
        self.state().root.as_ref().map(|root| Arc::clone(&root.certificate().der))
    }

    /// Sets the CA that Tidegate signs with, and wakes the runtimes that wait for it.
    pub(crate) fn sign_with(&self, root: Option<Arc<pki::Root>>, queue: &Queue) {
        let waiting = {
            let mut state = self.state();
            let may_sign = root.is_some();
            state.root = root;
            if may_sign { std::mem::take(&mut state.waiting) } else { BTreeSet::new() }
        };
        for kyma in waiting {
            queue.push(Subject::Runtime(kyma), Trigger::Changed);
        }
    }

    fn forget(&self, kyma: &Key) {
        let mut state = self.state();
        state.trusts.remove(kyma);
        state.waiting.remove(kyma);
        state.issued.remove(kyma);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
