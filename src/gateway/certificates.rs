//! The certificate of a runtime in KCP: requested, updated, renewed and removed.
//!
//! ```text
//! pass over a runtime ── ensure ─▶ CertificateState::Issued ── load ─▶ Leaf ─▶ the Secret in the runtime
//!                                            pass ended well ── trusts ─▶ the gateway may change its certificate
//! pass over a deletion ── remove ─▶ certificate and Secret are gone
//! ```
//!
//! The state of certificates comes from watches. So a pass over a runtime whose certificate is in its desired state
//! sends no request. Tidegate never requests a new certificate before the bundle that both sides trust contains its CA.
//!
//! Two Kymas of one name, in two namespaces, would have the same certificate. The second one gets none, and its status
//! reports that.
//!
//! `decide` says what to do next, `enact` does it with one request, and this module joins them.

mod decide;
mod enact;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, MutexGuard, OnceLock},
    time::Duration,
};

use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use tokio::time::Instant;

use tidegate_cluster::{Cause, Cluster, Error, Kind};
use tidegate_core::{
    api::{Kyma, names},
    name::Key,
    object::{Digest, Object, ObjectId},
    plan::{
        certificate::{self, Backend, Certificate, CertificateState, Issued, Refused, Rules},
        reporting::ListenerSettings,
    },
    render,
    template::Templates,
};
use tidegate_process::lock::Mutex;

use self::{
    decide::{
        BackendStep, IssuersSeen, Known, Remains, RemovalStep, Removed, RequestStep, Requested, SignStep, Written,
        is_superseded,
    },
    enact::Signing,
};
use crate::{
    controller::{self, Queue, Subject},
    gateway::pki,
    queue::Trigger,
    renderer::CurrentTemplates,
    stores::{
        Stores,
        secret::{LeafSecret, key},
    },
};

pub(crate) use self::decide::validity;

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
    pub templates: CurrentTemplates<'a>,
    /// Wakes the gateway when a runtime trusts a new CA bundle.
    pub queue: &'a Queue,
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
    /// Certificates that Tidegate signed, and when, until the watch shows them.
    signed: HashMap<Key, (Written, Instant)>,
}

/// The parts of a certificate that its runtime needs.
pub struct Leaf {
    /// The certificate, in PEM.
    pub certificate: Vec<u8>,
    /// Its key, in PEM.
    pub key: Vec<u8>,
}

/// What [`ensure`] would do now.
pub(crate) enum Foreseen {
    /// Nothing: this certificate is as desired.
    Current(Issued),
    /// It would apply this object of an issuer.
    Applies(Kind, Box<Object>),
    /// It would change or create this object, and have the certificate issued. Whether the object exists.
    Changes(ObjectId, bool),
    /// This cannot be found out, for this reason.
    Unknown(String),
}

/// How often Tidegate asks the control plane which issuer it has, until it answers.
const BACKEND_RETRY: Duration = Duration::from_secs(2);

/// Ensures that a runtime has its desired certificate, and returns its state.
///
/// After [`CertificateState::Pending`], Tidegate wakes the runtime when this may have changed. Fails if a request to
/// the control plane fails.
pub async fn ensure(
    context: CertificatesContext<'_>,
    cause: &Cause,
    kyma: &Kyma,
    now: Timestamp,
) -> Result<CertificateState, Error> {
    let certificates = context.certificates;
    let certificate = match wanted(context, kyma) {
        Ok(certificate) => certificate,
        Err(refused) => return Ok(CertificateState::Refused(refused.to_string())),
    };
    let Some(backend) = certificates.backend.get().copied() else {
        return Ok(CertificateState::Pending("the certificate issuer is not known yet".to_owned()));
    };
    let Some((gvk, plural)) = pki::object::kind(backend) else {
        return signed(context, cause, &certificate, now).await;
    };
    let (asked_for, rules) = (certificate.clone(), certificates.rules.clone());
    let render = move |templates: &Templates| render::certificate(templates, backend, &asked_for, &rules);
    match context.templates.for_object(&kyma.metadata, render).await {
        Some(Ok(desired)) => {
            let kind = Kind::new(gvk, plural, true);
            requested(context, cause, (backend, &kind), &certificate, &desired, now).await
        }
        Some(Err(error)) => Ok(CertificateState::Refused(error.to_string())),
        None => Ok(CertificateState::Pending("this issuer has no Certificate object".to_owned())),
    }
}

/// What [`ensure`] would do, as far as the stores show. Sends nothing.
pub(crate) async fn foresee(context: CertificatesContext<'_>, kyma: &Kyma, now: Timestamp) -> Foreseen {
    let certificates = context.certificates;
    let certificate = match wanted(context, kyma) {
        Ok(certificate) => certificate,
        Err(refused) => return Foreseen::Unknown(refused.to_string()),
    };
    let Some(backend) = certificates.backend() else {
        return Foreseen::Unknown("the certificate issuer is not known yet".to_owned());
    };
    let known = known(context, &certificate);
    let Some((gvk, plural)) = pki::object::kind(backend) else {
        let secret = Kind::namespaced::<Secret>().id(&certificate.key);
        let exists = known.secret.is_some();
        return match certificates.signer(&certificate.kyma) {
            Some(root) => match decide::sign(&known, root.certificate(), None, now) {
                SignStep::Issue { .. } => Foreseen::Changes(secret, exists),
                SignStep::End(state) => foreseen(state),
            },
            None if !exists => Foreseen::Changes(secret, false),
            None => Foreseen::Unknown("the CA that signs it is not known yet".to_owned()),
        };
    };
    let (asked_for, rules) = (certificate.clone(), certificates.rules.clone());
    let render = move |templates: &Templates| render::certificate(templates, backend, &asked_for, &rules);
    let desired = match context.templates.for_object(&kyma.metadata, render).await {
        Some(Ok(desired)) => decide::as_adopted(&desired, known.live.as_deref()),
        Some(Err(error)) => return Foreseen::Unknown(error.to_string()),
        None => return Foreseen::Unknown("this issuer has no Certificate object".to_owned()),
    };
    let kind = Kind::new(gvk, plural, true);
    match decide::request(&known, backend, desired.field("spec"), &Requested::Nothing, now) {
        RequestStep::Apply => Foreseen::Applies(kind, Box::new(desired)),
        RequestStep::Read | RequestStep::Renew(_) => Foreseen::Changes(kind.id(&certificate.key), true),
        RequestStep::End(state) => foreseen(state),
    }
}

/// A state for which nothing is written.
fn foreseen(state: CertificateState) -> Foreseen {
    match state {
        CertificateState::Issued(issued) => Foreseen::Current(issued),
        CertificateState::Pending(why) | CertificateState::Refused(why) => Foreseen::Unknown(why),
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

/// Whether the certificate of a runtime or its Secret exists, as the stores show.
pub fn exists(context: CertificatesContext<'_>, kyma: &Key) -> bool {
    let certificates = context.certificates;
    let key = certificate::key_of(kyma, &certificates.rules);
    certificates.is_wanted
        && context.namespaces.contains(kyma.namespace())
        && (context.stores.certificate(key.name()).is_some() || context.stores.certificate_secret(key.name()).is_some())
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
    let kind = certificates.backend().and_then(pki::object::kind).map(|(gvk, plural)| Kind::new(gvk, plural, true));
    let remains = Remains {
        kyma,
        name: key.name(),
        has_object: kind.is_some(),
        live: context.stores.certificate(key.name()),
        secret: context.stores.certificate_secret(key.name()),
    };
    let (kcp, secrets) = (context.kcp, Kind::namespaced::<Secret>());
    // Only an issuer with objects has a certificate to delete.
    let objects = kind.as_ref().unwrap_or(&secrets);
    let mut last = Removed::Nothing;
    loop {
        last = match decide::remove(&remains, &last) {
            RemovalStep::DeleteCertificate(uid) => {
                Removed::Certificate(enact::delete(kcp, cause, objects, &key, &uid).await?)
            }
            RemovalStep::ReadSecret => Removed::SecretRead(enact::read_secret(kcp, &key).await?),
            RemovalStep::DeleteSecret(uid) => Removed::Secret(enact::delete(kcp, cause, &secrets, &key, &uid).await?),
            RemovalStep::End(is_gone) => return Ok(is_gone),
        };
    }
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

/// Requests a certificate from an issuer with objects. Fails if a request to the control plane fails.
async fn requested(
    context: CertificatesContext<'_>,
    cause: &Cause,
    (backend, kind): (Backend, &Kind),
    certificate: &Certificate,
    desired: &Object,
    now: Timestamp,
) -> Result<CertificateState, Error> {
    let known = known(context, certificate);
    let desired = &decide::as_adopted(desired, known.live.as_deref());
    let mut last = Requested::Nothing;
    loop {
        last = match decide::request(&known, backend, desired.field("spec"), &last, now) {
            RequestStep::Apply => enact::apply(context.kcp, cause, kind, desired).await?,
            RequestStep::Read => enact::read(context.kcp, backend, kind, &certificate.key).await?,
            RequestStep::Renew(renewal) => enact::renew(context.kcp, cause, kind, &certificate.key, &renewal).await?,
            RequestStep::End(standing) => return Ok(standing),
        };
    }
}

/// Signs a certificate if necessary. Fails if a request to the control plane fails.
async fn signed(
    context: CertificatesContext<'_>,
    cause: &Cause,
    certificate: &Certificate,
    now: Timestamp,
) -> Result<CertificateState, Error> {
    let (certificates, known) = (context.certificates, known(context, certificate));
    let Some(root) = certificates.signer(&certificate.kyma) else { return Ok(decide::unsigned(&known)) };
    let written = certificates.written(&certificate.kyma, known.secret.as_deref());
    let signing = match decide::sign(&known, root.certificate(), written.as_ref(), now) {
        SignStep::Issue { inputs, validity, issued_at } => {
            Signing { certificate, root: &root, inputs, validity, issued_at }
        }
        SignStep::End(standing) => return Ok(standing),
    };
    match enact::sign(&signing) {
        Ok(leaf) => {
            let written = enact::write(context.kcp, cause, &signing, leaf).await?;
            let issued = written.issued.clone();
            certificates.state().signed.insert(certificate.kyma.clone(), (written, Instant::now()));
            Ok(CertificateState::Issued(issued))
        }
        Err(error) => Ok(CertificateState::Refused(controller::chain(&error))),
    }
}

/// The data at the start of a pass.
fn known<'a>(context: CertificatesContext<'a>, certificate: &'a Certificate) -> Known<'a> {
    let bundle = context.stores.gateway_secret();
    Known {
        certificate,
        rules: &context.certificates.rules,
        live: context.stores.certificate(certificate.key.name()),
        secret: context.stores.certificate_secret(certificate.key.name()),
        bundled_at: certificate::parse_bundled_at(bundle.and_then(|secret| secret.bundled_at.clone()).as_deref()),
        problem: context.certificates.problem(),
    }
}

// === impl CertificatesContext ===

impl CertificatesContext<'_> {
    /// The configuration.
    pub(crate) fn rules(&self) -> &Rules {
        &self.certificates.rules
    }

    /// Records the bundle that a runtime trusts, in its Secret and in its webhook configuration.
    pub(crate) fn trusts(&self, kyma: &Key, bundle: Digest) {
        self.certificates.trusts(kyma, bundle, self.queue);
    }
}

// === impl Certificates ===

impl Certificates {
    /// Certificates with this configuration. The issuer and the CA are not known yet.
    pub fn new(rules: Rules, is_wanted: bool, listener: ListenerSettings) -> Certificates {
        Certificates { rules, is_wanted, listener, backend: OnceLock::new(), state: Mutex::default() }
    }

    /// Certificates with the default configuration, for a daemon that needs none.
    #[cfg(feature = "internals")]
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

    /// Determines the issuer, and keeps it for the lifetime of this process. `denied` is called each time that a right
    /// is missing for that.
    pub(crate) async fn find_backend(&self, kcp: &Cluster, denied: impl Fn(&str)) -> Backend {
        let mut said: Option<String> = None;
        loop {
            match self.ask_for_backend(kcp).await {
                Ok(backend) => {
                    tracing::info!(issuer = backend.name(), "found the certificate issuer");
                    return *self.backend.get_or_init(|| backend);
                }
                Err(error) => {
                    let is_forbidden = matches!(error, Error::Forbidden { .. });
                    let error = crate::controller::chain(&error);
                    if is_forbidden {
                        denied(&error);
                    }
                    if said.as_ref() != Some(&error) {
                        tracing::warn!(error, "cannot determine the certificate issuer");
                        said = Some(error);
                    }
                    tokio::time::sleep(BACKEND_RETRY).await;
                }
            }
        }
    }

    async fn ask_for_backend(&self, kcp: &Cluster) -> Result<Backend, Error> {
        let mut observed = IssuersSeen::default();
        loop {
            match decide::backend(self.rules.backend, &observed) {
                BackendStep::ReadAuthority => {
                    let authority = Key::new(&self.rules.namespace, names::AUTHORITY_SECRET);
                    let metadata = kcp.get_metadata(&Kind::namespaced::<Secret>(), &authority).await?;
                    observed.authority =
                        Some(metadata.and_then(|mut it| it.annotations.remove(names::annotation::PKI)));
                }
                BackendStep::Discover(backend, gvk) => {
                    observed.served.insert(backend, kcp.kind(&gvk).await?.is_some());
                }
                BackendStep::Use(backend) => return Ok(backend),
            }
        }
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

    /// The CA, if the bundle already contains it. Without a CA, the runtime waits for it.
    fn signer(&self, kyma: &Key) -> Option<Arc<pki::Root>> {
        let mut state = self.state();
        if state.root.is_none() {
            state.waiting.insert(kyma.clone());
        }
        state.root.clone()
    }

    /// A certificate that Tidegate signed and the watch does not show yet.
    fn written(&self, kyma: &Key, shown: Option<&LeafSecret>) -> Option<Written> {
        let mut state = self.state();
        let (written, at) = state.signed.get(kyma)?;
        if is_superseded(written, shown, at.elapsed()) {
            state.signed.remove(kyma);
            return None;
        }
        Some(written.clone())
    }

    fn forget(&self, kyma: &Key) {
        let mut state = self.state();
        state.trusts.remove(kyma);
        state.waiting.remove(kyma);
        state.signed.remove(kyma);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
