//! The certificate of a runtime in KCP: asked for, kept in step, renewed, and removed.
//!
//! ```text
//! pass over a runtime ── ensure ─▶ Standing::Issued ── load ─▶ Leaf ─▶ the Secret in the runtime
//!                                            pass ended well ── trusts ─▶ the gateway may change its certificate
//! pass over a deletion ── remove ─▶ certificate and Secret are gone
//! ```
//!
//! What stands is known from watches, so that a pass over a runtime whose certificate is as it should be makes no
//! request. A certificate is never asked for anew before the authority that it would be of is in the bundle that both
//! sides trust.
//!
//! Two Kymas of one name, in two namespaces, would have one certificate: the second one has none, and says so.

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

/// What the daemon knows of certificates beside what stands in KCP.
pub struct Certificates {
    /// What is configured.
    pub rules: Rules,
    /// Whether runtimes get an agent, which alone needs a certificate.
    pub is_wanted: bool,
    /// Where agents send their events: the names that the gateway's certificate bears.
    pub listener: ListenerSettings,
    backend: OnceLock<Backend>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The authority, where we sign.
    root: Option<Arc<pki::Root>>,
    /// Why there are no certificates: one sentence.
    problem: Option<String>,
    /// Runtimes that wait for the authority.
    waiting: BTreeSet<Key>,
    /// Digest of the bundle that each runtime is known to trust.
    trusts: HashMap<Key, Digest>,
    /// Whether the gateway waits for runtimes.
    is_awaited: bool,
    /// What we issued, until the watch shows it.
    issued: HashMap<Key, Written>,
}

/// A certificate that we issued, and for what.
#[derive(Clone)]
struct Written {
    issued: Issued,
    inputs: Digest,
    at: Instant,
}

/// What a runtime needs of its certificate.
pub struct Leaf {
    /// The certificate, in PEM.
    pub certificate: Vec<u8>,
    /// Its key, in PEM.
    pub key: Vec<u8>,
    /// As [`Issued::version`], of just this content.
    pub version: String,
}

/// A certificate that could not be issued is asked for anew only after a while: the answer to each try is a change, and
/// would be answered with the next try at once.
const FAILED_PAUSE: Duration = Duration::from_secs(300);
/// A watch that does not show what we wrote this long ago is believed.
const LAG_MAX: Duration = Duration::from_secs(2);
/// How often the control plane is asked who issues, until it says so.
const BACKEND_RETRY: Duration = Duration::from_secs(2);

/// Sees to it that a runtime has the certificate that it should have, and says how that stands.
///
/// Whoever gets [`Standing::Pending`] is woken once it may be otherwise.
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
        return Ok(Standing::Pending("it is not known yet who issues certificates".to_owned()));
    };
    match backend {
        Backend::CertManager | Backend::Gardener => {
            let library = controller::library(context.library);
            let (asked_for, rules) = (certificate.clone(), certificates.rules.clone());
            let render = move |templates: &Templates| render::certificate(templates, backend, &asked_for, &rules);
            match context.renderer.with(library.for_object(&kyma.metadata), render).await {
                Some(Ok(desired)) => asked(context, cause, backend, &certificate, &desired, now).await,
                Some(Err(error)) => Ok(Standing::Refused(error.to_string())),
                None => Ok(Standing::Pending("there is no object to ask for it by".to_owned())),
            }
        }
        Backend::Builtin => builtin::ensure(context, cause, &certificate, now).await,
    }
}

/// Reads a certificate that is issued; `None` if it is gone again, or not whole.
pub async fn load(context: CertificatesContext<'_>, issued: &Issued) -> Result<Option<Leaf>, Error> {
    let secret: Option<Secret> = context.kcp.get_as(&Kind::namespaced::<Secret>(), &issued.secret).await?;
    Ok(secret.and_then(|secret| {
        let (uid, version) = (secret.metadata.uid?, secret.metadata.resource_version?);
        let mut data = secret.data?;
        let mut take = |key| data.remove(key).map(|bytes| bytes.0).filter(|bytes| !bytes.is_empty());
        Some(Leaf {
            certificate: take(key::CERTIFICATE)?,
            key: take(key::KEY)?,
            version: self::version(&uid, &version),
        })
    }))
}

/// Removes the certificate of a runtime and its Secret, if they are there. Returns whether both are gone.
///
/// Both may go while the Kyma is still there; it must not be [`ensure`]d after.
pub async fn remove(context: CertificatesContext<'_>, cause: &Cause, kyma: &Key) -> Result<bool, Error> {
    let certificates = context.certificates;
    certificates.forget(kyma);
    // Somebody else's namespace, or the certificate of another Kyma of that name.
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
    // The certificate first: whoever issues it would make the Secret again.
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
    // What came of it since the watch last spoke is found by its name.
    let kind = Kind::namespaced::<Secret>();
    let Some(found) = context.kcp.get_metadata(&kind, &key).await? else { return Ok(true) };
    if found.label(names::label::PURPOSE) != Some(names::CERTIFICATE_PURPOSE) {
        return Ok(true);
    }
    let deleted = context.kcp.delete_if(cause, &kind, &found.id, &found.uid, None, Propagation::Background).await?;
    Ok(deleted == Deleted::Gone)
}

/// The certificate that a runtime shall have.
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

/// With an object by which somebody else is asked.
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
    let stands = live.as_ref().is_some_and(|live| {
        let spec: Value = serde_json::from_str(&live.spec).unwrap_or_default();
        let is_marked = live.kyma.as_deref() == Some(certificate.kyma.to_string().as_str());
        is_marked && desired.field("spec").is_some_and(|desired| covers(desired, &spec))
    });
    if !stands {
        let body = Bytes::from(desired.value().to_string());
        match context.kcp.apply(cause, &kind, &desired.id(), body, OnConflict::Force).await {
            Ok(_) => {}
            Err(error @ (Error::Invalid { .. } | Error::UndeclaredField { .. } | Error::Forbidden { .. })) => {
                return Ok(Standing::Refused(format!("certificate {} cannot be asked for: {error}", certificate.key)));
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
            // Without an authority, what its issuer says is a consequence.
            let said = || live.as_ref().and_then(|live| live.problem.clone());
            let because = context.certificates.problem().or_else(said);
            let because = because.map(|because| format!(": {because}")).unwrap_or_default();
            Standing::Pending(format!("{} has not issued certificate {} yet{because}", backend.name(), certificate.key))
        }
    })
}

/// Whether a certificate may be asked for anew now: not while it is on its way, nor right after it failed.
fn may_ask(live: &pki::object::Live, now: Timestamp) -> bool {
    let failed = live.failed_at.is_some_and(|failed| now < certificate::later(failed, FAILED_PAUSE));
    !live.is_issuing && !live.is_deleting && !failed
}

/// Asks for a certificate anew, as it stands by now.
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
        // It changed meanwhile, and the change wakes the runtime.
        Ok(_) | Err(Error::Changed { .. } | Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// When the newest authority was added to the bundle.
fn bundled_at(context: CertificatesContext<'_>) -> Option<Timestamp> {
    certificate::parse_bundled_at(context.stores.gateway_secret()?.bundled_at.as_deref())
}

fn version(uid: &str, resource_version: &str) -> String {
    format!("{uid}/{resource_version}")
}

// === impl Certificates ===

impl Certificates {
    /// By these rules. Nothing is known yet.
    pub fn new(rules: Rules, is_wanted: bool, listener: ListenerSettings) -> Certificates {
        Certificates { rules, is_wanted, listener, backend: OnceLock::new(), state: Mutex::default() }
    }

    /// By default rules, where nobody wants any.
    pub fn unwanted() -> Certificates {
        let gateway = Key::new(names::KCP_NAMESPACE, names::GATEWAY);
        Certificates::new(Rules::default(), false, ListenerSettings { gateway, port_overwrite: None, address: None })
    }

    /// Who issues, once that is known.
    pub fn backend(&self) -> Option<Backend> {
        self.backend.get().copied()
    }

    /// Why there are no certificates, if there are none: one sentence.
    pub fn problem(&self) -> Option<String> {
        self.state().problem.clone()
    }

    /// Takes note of the bundle that a runtime trusts, in its Secret and in its webhook configuration.
    pub fn trusts(&self, kyma: &Key, bundle: Digest, queue: &Queue) {
        let mut state = self.state();
        if state.trusts.insert(kyma.clone(), bundle) != Some(bundle) && state.is_awaited {
            let gateway = Key::new(&self.rules.namespace, names::GATEWAY_SECRET);
            queue.push(Subject::Gateway(gateway), Trigger::Changed);
        }
    }

    /// Finds out who issues, and keeps to it for as long as this process lives.
    pub(crate) async fn find_backend(&self, kcp: &Cluster) -> Backend {
        loop {
            match self.ask_for_backend(kcp).await {
                Ok(backend) => {
                    tracing::info!(issuer = backend.name(), "certificates have an issuer");
                    return *self.backend.get_or_init(|| backend);
                }
                Err(error) => {
                    let error = crate::controller::chain(&error);
                    tracing::warn!(error, "it cannot be found out who issues certificates");
                    tokio::time::sleep(BACKEND_RETRY).await;
                }
            }
        }
    }

    async fn ask_for_backend(&self, kcp: &Cluster) -> Result<Backend, Error> {
        if let Some(backend) = self.rules.backend {
            return Ok(backend);
        }
        // Where we have begun, we go on: cert-manager may have come for other purposes.
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

    /// How many of these runtimes are not known to trust a bundle.
    pub(crate) fn behind<'a>(&self, kymas: impl IntoIterator<Item = &'a Key>, bundle: Option<Digest>) -> usize {
        let state = self.state();
        kymas.into_iter().filter(|kyma| bundle.is_none() || state.trusts.get(*kyma) != bundle.as_ref()).count()
    }

    /// Takes note of why there are no certificates, and of whether the gateway waits for runtimes.
    pub(crate) fn tell(&self, problem: Option<String>, is_awaited: bool) {
        let mut state = self.state();
        state.problem = problem;
        state.is_awaited = is_awaited;
    }

    /// The certificate of the authority that we sign with, in DER.
    pub(crate) fn signs_with(&self) -> Option<Arc<[u8]>> {
        self.state().root.as_ref().map(|root| Arc::clone(&root.certificate().der))
    }

    /// Takes the authority that we sign with, and wakes whoever waits for it.
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
