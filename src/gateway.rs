//! What the gateway serves with, and whom it trusts: one Secret, brought step by step through a change of the authority.
//!
//! The steps are decided in [`tidegate_core::plan::certificate`]. Here the Secrets are read, the built-in authority is made and
//! replaced, and the gateway's Secret is written, on condition that it has not changed meanwhile. Where cert-manager or
//! Gardener issue, the gateway serves with the authority's own certificate, as Lifecycle Manager has it; where we sign, it
//! gets one of its own, and the authority's key stays where it is.
//!
//! An existing CA is kept, no matter who created it. Its successor replaces it only after the bundle contains the
//! successor. Certificates of the old CA stay valid until they expire.

pub mod certificates;
mod decide;
mod enact;
pub mod pki;
mod state;

use k8s_openapi::jiff::Timestamp;
use tidegate_cluster::{Cause, Cluster};
use tidegate_core::{
    landscape,
    name::Key,
    object::Digest,
    plan::certificate::{self, Authority, Backend, Bundle, Switch},
};
use tidegate_process::{ambient, retry::Class};

use self::{
    certificates::Certificates,
    decide::{Act, Next, decide},
    enact::Stop,
    state::{AuthoritySecret, Known, Observed},
};
use crate::{
    controller::{self, Failure, Pass, Queue},
    queue::{Finish, Trigger, Triggers},
    stores::{Access, Stores, secret::GatewaySecret},
};

/// What passes over the gateway's Secret use of the daemon.
#[derive(Clone, Copy)]
pub struct GatewayContext<'a> {
    /// The control plane. Writes through it are refused while we do not lead.
    pub kcp: &'a Cluster,
    /// What stands in the control plane.
    pub stores: &'a Stores,
    /// Where runtimes are woken that wait for the authority.
    pub queue: &'a Queue,
    /// Certificates, and whoever issues them.
    pub certificates: &'a Certificates,
}

/// Brings the gateway's Secret to what it should be.
///
/// # Errors
///
/// What the control plane answers; that nobody issues certificates yet, or that a Secret cannot be used.
pub async fn reconcile(context: GatewayContext<'_>, key: &Key, triggers: Triggers) -> Pass {
    let Some(backend) = context.certificates.backend() else {
        return Err(Failure::new(Class::Waiting, "NoIssuer", "it is not known yet who issues certificates"));
    };
    let now = ambient::now();
    let pass = GatewayPass { context, key, backend, cause: &controller::cause(triggers) };
    match pass.run(now).await {
        Ok(switch) => {
            context.certificates.tell(None, matches!(switch, Switch::Behind(_)));
            Ok(Finish::After(decide::next_look(switch, now), Trigger::Resync))
        }
        Err(Stop::Problem(problem)) => {
            context.certificates.tell(Some(problem.message.clone()), false);
            Err(Failure::new(Class::Stalled, problem.reason, problem.message))
        }
        Err(Stop::Request(error)) => Err(Failure::new(error.class(), error.reason(), error)),
    }
}

/// The certificate of an authority in PEM.
pub(crate) fn pem_of(authority: &Authority) -> String {
    pki::write_bundle(&Bundle::new(vec![authority.clone()]))
}

/// Runtimes whose certificate should have been issued anew by now, by name.
pub fn overdue(context: GatewayContext<'_>, now: Timestamp) -> Vec<String> {
    let certificates = context.certificates;
    if !certificates.is_wanted {
        return Vec::new();
    }
    let secret = context.stores.gateway_secret();
    let bundled_at = certificate::parse_bundled_at(secret.and_then(|secret| secret.bundled_at.clone()).as_deref());
    let is_overdue = |name: &str| {
        let live = context.stores.certificate(name).map(|live| live.validity);
        let signed =
            || context.stores.certificate_secret(name).map(|secret| crate::gateway::certificates::validity(&secret));
        let Some(validity) = live.or_else(signed) else { return false };
        bundled_at.is_none_or(|bundled_at| {
            certificate::is_overdue(validity.as_ref(), bundled_at, certificates.rules.renew_buffer, now)
        })
    };
    let kymas = context.stores.kymas();
    let keys = kymas.iter().map(|kyma| landscape::key(&kyma.metadata));
    keys.filter(|kyma| is_overdue(certificate::key_of(kyma, &certificates.rules).name()))
        .map(|kyma| kyma.name().to_owned())
        .collect()
}

/// Whether the certificate that the gateway serves is near its end; `None` if there is none that can be read.
pub fn is_close_to_expiry(context: GatewayContext<'_>, now: Timestamp) -> Option<bool> {
    let secret = context.stores.gateway_secret()?;
    let served = pki::read_first(&secret.certificate).ok()?;
    Some(certificate::ends_soon(&served.validity, context.certificates.rules.expiry_window, now))
}

/// One pass over the Secret.
struct GatewayPass<'a> {
    context: GatewayContext<'a>,
    key: &'a Key,
    backend: Backend,
    cause: &'a Cause,
}

// === impl GatewayPass ===

impl GatewayPass<'_> {
    /// Decides and acts, until nothing is left to do.
    async fn run(&self, now: Timestamp) -> Result<Switch, Stop> {
        let mut observed = Observed::default();
        loop {
            let next = decide(&self.known(), &observed, now).map_err(Stop::Problem)?;
            let (acts, end) = match next {
                Next::Do(acts) => (acts, None),
                Next::End(acts, switch) => (acts, Some(switch)),
            };
            for act in acts {
                self.enact(&mut observed, act).await?;
            }
            if let Some(switch) = end {
                return Ok(switch);
            }
        }
    }

    fn known(&self) -> Known<'_> {
        let certificates = self.context.certificates;
        let gateways = self.context.stores.gateways();
        let resolved = certificates.listener.resolve(gateways.iter().map(|entry| &entry.gateway));
        // Without an address there are no agents; that is told where they would be installed.
        let host = resolved.map(|address| address.host().trim_matches(['[', ']']).to_owned());
        Known {
            key: self.key,
            rules: &certificates.rules,
            backend: self.backend,
            hosts: host.into_iter().collect(),
            signs_with: certificates.signs_with(),
        }
    }

    /// Does one thing, and takes down what came of it.
    async fn enact(&self, observed: &mut Observed, act: Act) -> Result<(), Stop> {
        let (kcp, cause) = (self.context.kcp, self.cause);
        match act {
            Act::ReadAuthority(key) => {
                observed.authority = enact::read(kcp, &key, AuthoritySecret::from_secret).await?
            }
            Act::MakeAuthority { key, replaces, validity } => {
                enact::make_authority(kcp, cause, &key, replaces.as_deref(), validity).await?;
                *observed = Observed { is_made: true, ..Observed::default() };
            }
            Act::ReadGateway => observed.gateway = enact::read(kcp, self.key, GatewaySecret::from_secret).await?,
            Act::CountBehind(bundle) => observed.behind = Some(self.behind(bundle)),
            Act::Sign(root) => self.context.certificates.sign_with(root, self.context.queue),
            Act::Write(content) => enact::write(kcp, cause, self.key, &content).await?,
        }
        Ok(())
    }

    /// Runtimes that can be reached and are not known to trust a bundle.
    fn behind(&self, bundle: Option<Digest>) -> usize {
        let stores = self.context.stores;
        let kymas = stores.kymas();
        let kymas = kymas.iter().filter(|kyma| kyma.metadata.deletion_timestamp.is_none());
        let keys = kymas.map(|kyma| landscape::key(&kyma.metadata));
        let reached: Vec<Key> = keys.filter(|kyma| matches!(stores.access(kyma), Access::One { .. })).collect();
        self.context.certificates.behind(&reached, bundle)
    }
}
