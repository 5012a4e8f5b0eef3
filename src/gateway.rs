//! The gateway's serving certificate and the CAs that it trusts: one Secret, moved step by step through a change of the
//! CA.
//!
//! [`tidegate_core::plan::certificate`] decides the steps. This module reads the Secrets, creates and replaces the
//! built-in CA, and writes the gateway's Secret, unless another client has changed it meanwhile. If cert-manager or
//! Gardener issues certificates, the gateway serves with the CA's own certificate, as in Lifecycle Manager. If Tidegate
//! signs, the gateway gets a separate certificate, and the CA's key stays in its own Secret.
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

/// The parts of the daemon that passes over the gateway's Secret use.
#[derive(Clone, Copy)]
pub struct GatewayContext<'a> {
    /// The control plane. It refuses writes while this process does not lead.
    pub kcp: &'a Cluster,
    /// The objects in the control plane.
    pub stores: &'a Stores,
    /// Where this pass wakes the runtimes that wait for the CA.
    pub queue: &'a Queue,
    /// Certificates and their issuer.
    pub certificates: &'a Certificates,
}

/// Moves the gateway's Secret to its desired state.
///
/// # Errors
///
/// Errors of the control plane, a wait for the issuer or the CA, and a Secret that cannot be used.
pub async fn reconcile(context: GatewayContext<'_>, key: &Key, triggers: Triggers) -> Pass {
    let Some(backend) = context.certificates.backend() else {
        return Err(Failure::new(Class::Waiting, "NoIssuer", "the certificate issuer is not known yet"));
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

/// What a pass over the gateway's Secret would write: the Secrets, each with whether it exists. Writes nothing. A CA
/// that could sign is noted in this process, so that certificates can be foreseen.
///
/// # Errors
///
/// Fails with one sentence if that cannot be found out.
pub(crate) async fn foresee(
    context: GatewayContext<'_>,
    key: &Key,
    now: Timestamp,
) -> Result<Vec<(Key, bool)>, String> {
    let backend = context.certificates.backend().ok_or("the certificate issuer is not known yet")?;
    let cause = controller::cause(Triggers::default());
    let pass = GatewayPass { context, key, backend, cause: &cause };
    let mut observed = Observed::default();
    loop {
        let (acts, is_end) = match decide(&pass.known(), &observed, now).map_err(|problem| problem.message)? {
            Next::Do(acts) => (acts, false),
            Next::End(acts, _) => (acts, true),
        };
        for act in acts {
            match act {
                // Its bundle gets the new CA.
                Act::MakeAuthority { key: authority, replaces, .. } => {
                    let has_gateway = context.stores.gateway_secret().is_some();
                    return Ok(vec![(authority, replaces.is_some()), (key.clone(), has_gateway)]);
                }
                Act::Write(content) => return Ok(vec![(key.clone(), content.replaces.is_some())]),
                Act::ReadAuthority(_) | Act::ReadGateway | Act::CountBehind(_) | Act::Sign(_) => {
                    observed = pass.enact(observed, act).await.map_err(|stop| match stop {
                        Stop::Problem(problem) => problem.message,
                        Stop::Request(error) => error.to_string(),
                    })?;
                }
            }
        }
        if is_end {
            return Ok(Vec::new());
        }
    }
}

/// The certificate of a CA in PEM.
pub(crate) fn pem_of(authority: &Authority) -> String {
    pki::write_bundle(&Bundle::new(vec![authority.clone()]))
}

/// Runtimes whose certificate should have been replaced by now, by name.
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

/// Whether the gateway's serving certificate expires soon; `None` if there is no readable certificate.
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
    /// Decides and acts until nothing is left to do.
    async fn run(&self, now: Timestamp) -> Result<Switch, Stop> {
        let mut observed = Observed::default();
        loop {
            let next = decide(&self.known(), &observed, now).map_err(Stop::Problem)?;
            let (acts, end) = match next {
                Next::Do(acts) => (acts, None),
                Next::End(acts, switch) => (acts, Some(switch)),
            };
            for act in acts {
                observed = self.enact(observed, act).await?;
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
        // Without an address there are no agents. The pass over the runtime reports that.
        let host = resolved.map(|address| address.host().trim_matches(['[', ']']).to_owned());
        Known {
            key: self.key,
            rules: &certificates.rules,
            backend: self.backend,
            hosts: host.into_iter().collect(),
            signs_with: certificates.signs_with(),
        }
    }

    /// Enacts one act and records its result.
    async fn enact(&self, observed: Observed, act: Act) -> Result<Observed, Stop> {
        let (kcp, cause) = (self.context.kcp, self.cause);
        Ok(match act {
            Act::ReadAuthority(key) => {
                observed.found_authority(enact::read(kcp, &key, AuthoritySecret::from_secret).await?)
            }
            Act::MakeAuthority { key, replaces, validity } => {
                enact::make_authority(kcp, cause, &key, replaces.as_deref(), validity).await?;
                observed.made_authority()
            }
            Act::ReadGateway => observed.found_gateway(enact::read(kcp, self.key, GatewaySecret::from_secret).await?),
            Act::CountBehind(bundle) => observed.counted(self.behind(bundle)),
            Act::Sign(root) => {
                self.context.certificates.sign_with(root, self.context.queue);
                observed
            }
            Act::Write(content) => {
                enact::write(kcp, cause, self.key, &content).await?;
                observed
            }
        })
    }

    /// The number of reachable runtimes that are not known to trust a bundle.
    fn behind(&self, bundle: Option<Digest>) -> usize {
        let stores = self.context.stores;
        let kymas = stores.kymas();
        let kymas = kymas.iter().filter(|kyma| kyma.metadata.deletion_timestamp.is_none());
        let keys = kymas.map(|kyma| landscape::key(&kyma.metadata));
        let reached: Vec<Key> = keys.filter(|kyma| matches!(stores.access(kyma), Access::One { .. })).collect();
        self.context.certificates.behind(&reached, bundle)
    }
}
