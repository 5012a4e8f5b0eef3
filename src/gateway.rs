//! What the gateway serves with, and whom it trusts: one Secret, brought step by step through a change of the authority.
//!
//! The steps are decided in [`tidegate_core::plan::certificate`]. Here the Secrets are read, the built-in authority is made and
//! replaced, and the gateway's Secret is written, on condition that nobody else wrote it meanwhile. Where cert-manager or
//! Gardener issue, the gateway serves with the authority's own certificate, as Lifecycle Manager has it; where we sign, it
//! gets one of its own, and the authority's key stays where it is.
//!
//! An authority that exists is gone on with, whoever made it. Its successor takes its place only once it is itself in
//! the bundle: what it signed stays good until its end.

pub mod certificates;
pub mod pki;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use k8s_openapi::{
    ByteString,
    api::core::v1::Secret,
    jiff::{SignedDuration, Timestamp},
};
use serde_json::{Map, Value, json};

use self::pki::{Issue, Root};
use crate::{
    controller::{Context, Failure, Pass, chain},
    stores::{
        Access,
        secret::{GatewaySecret, key},
    },
};
use tidegate_cluster::{Cause, Error, Kind};
use tidegate_core::{
    api::names::{self, annotation, label},
    landscape,
    name::Key,
    object::Digest,
    plan::certificate::{
        self, Authority, Backend, Bundle, GatewayPlan, Held, Observed, Rules, Served, Switch, Validity,
    },
};
use tidegate_process::{ambient, retry::Class};

use crate::queue::{Finish, Trigger, Triggers};

/// How often the Secrets are looked at unasked.
const LOOK: Duration = Duration::from_secs(300);
/// An authority of ours lasts for so many lives of a runtime's certificate. It is replaced one before its end, so that it
/// outlives everything that it signed.
const LIVES: u32 = 6;
/// Clocks of runtimes may be behind by so much.
const BACKDATED: Duration = Duration::from_secs(3600);

/// Brings the gateway's Secret to what it should be.
pub async fn reconcile(context: &Context, key: &Key, triggers: Triggers) -> Pass {
    let Some(backend) = context.certificates.backend() else {
        return Err(Failure::new(Class::Waiting, "NoIssuer", "it is not known yet who issues certificates"));
    };
    let rules = &context.certificates.rules;
    let cause = crate::controller::cause(triggers);
    let round = Round { context, key, rules, backend, cause: &cause, now: ambient::now() };
    match round.bring().await {
        Ok(switch) => {
            context.certificates.tell(None, matches!(switch, Switch::Behind(_)));
            Ok(Finish::After(round.next(switch), Trigger::Resync))
        }
        Err(Stop::Problem(reason, problem)) => {
            context.certificates.tell(Some(problem.clone()), false);
            Err(Failure::new(Class::Stalled, reason, problem))
        }
        Err(Stop::Request(error)) => Err(Failure::new(error.class(), error.reason(), error)),
    }
}

/// The certificate of an authority in PEM.
pub(crate) fn pem_of(authority: &Authority) -> String {
    pki::write_bundle(&Bundle::new(vec![authority.clone()]))
}

/// Runtimes whose certificate should have been issued anew by now, by name.
pub fn overdue(context: &Context, now: Timestamp) -> Vec<String> {
    let certificates = &context.certificates;
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
pub fn is_close_to_expiry(context: &Context, now: Timestamp) -> Option<bool> {
    let secret = context.stores.gateway_secret()?;
    let served = pki::read_first(&secret.certificate).ok()?;
    Some(certificate::ends_soon(&served.validity, context.certificates.rules.expiry_window, now))
}

/// One pass over the Secret.
struct Round<'a> {
    context: &'a Context,
    key: &'a Key,
    rules: &'a Rules,
    backend: Backend,
    cause: &'a Cause,
    now: Timestamp,
}

/// Why a pass ended early.
enum Stop {
    /// Only somebody else can help: a reason, and one sentence.
    Problem(&'static str, String),
    /// A request failed.
    Request(Error),
}

/// The authority as its Secret holds it.
struct Found {
    resource_version: String,
    certificate: Vec<u8>,
    key: Vec<u8>,
    authority: Authority,
}

/// The gateway's Secret as it stands.
struct Standing {
    secret: GatewaySecret,
    held: Held,
}

// === impl Round ===

impl Round<'_> {
    async fn bring(&self) -> Result<Switch, Stop> {
        let found = self.authority().await?;
        let standing = self.standing(&found.authority).await?;
        let (found, standing) = match self.succeed(&found, standing.as_ref()).await? {
            None => (found, standing),
            Some(successor) => {
                let standing = self.standing(&successor.authority).await?;
                (successor, standing)
            }
        };
        let root = match self.backend {
            Backend::Builtin => Some(self.signer(&found)?),
            Backend::CertManager | Backend::Gardener => None,
        };
        let observed = Observed { behind: self.behind(standing.as_ref(), &found.authority) };
        let held = standing.as_ref().map(|standing| &standing.held);
        let plan = certificate::gateway(held, &found.authority, observed, self.rules, self.now)
            .map_err(|refusal| self.refused(refusal))?;
        // From here on the former authority signs no more, and the present one not before the bundle has it. A runtime that
        // is woken by the new bundle waits in between.
        let certificates = &self.context.certificates;
        if !certificates.signs_with(&found.authority) {
            certificates.sign_with(None, &self.context.queue);
        }
        if plan.is_new || plan.switch == Switch::Now {
            self.write(standing.as_ref(), &plan, &found, root.as_deref()).await?;
            tracing::info!(
                authorities = plan.bundle.authorities().len(),
                served = plan.switch == Switch::Now,
                "the gateway's Secret is written"
            );
        }
        certificates.sign_with(root, &self.context.queue);
        Ok(plan.switch)
    }

    /// When to look again.
    fn next(&self, switch: Switch) -> Duration {
        match switch {
            // A second more, since moments are written without fractions.
            Switch::At(at) => {
                let wait = Duration::try_from(at.duration_since(self.now)).unwrap_or_default();
                LOOK.min(wait + Duration::from_secs(1))
            }
            Switch::Stays | Switch::Now | Switch::Behind(_) => LOOK,
        }
    }

    // --- the authority ---

    /// The authority; made where there is none and we are to be it.
    async fn authority(&self) -> Result<Found, Stop> {
        let key = Key::new(&self.rules.namespace, names::AUTHORITY_SECRET);
        if let Some(secret) = self.read(&key).await? {
            return found(secret).map_err(|error| self.unreadable(&key, &error));
        }
        match self.backend {
            Backend::Builtin => self.make(&key, None).await,
            Backend::CertManager | Backend::Gardener => Err(Stop::Problem(
                "NoAuthority",
                format!(
                    "there is no Secret {key} with the certificate authority: {} is to issue it, see overlays/\
                     istio-cert-manager, or run with --pki=builtin",
                    self.backend.name()
                ),
            )),
        }
    }

    /// Makes the successor of an authority of ours that nears its end.
    async fn succeed(&self, found: &Found, standing: Option<&Standing>) -> Result<Option<Found>, Stop> {
        let is_bundled = standing.is_some_and(|standing| standing.held.bundle.contains(&found.authority));
        let is_due = certificate::ends_soon(&found.authority.validity, self.life() + self.rules.switch_grace, self.now);
        let has_ended = found.authority.validity.not_after <= self.now;
        if self.backend != Backend::Builtin || !is_due || !(is_bundled || has_ended) {
            return Ok(None);
        }
        let key = Key::new(&self.rules.namespace, names::AUTHORITY_SECRET);
        self.make(&key, Some(&found.resource_version)).await.map(Some)
    }

    /// What the lives of an authority are counted in: a runtime's certificate must fit in, and a change as well.
    fn life(&self) -> Duration {
        self.rules.duration.max(self.rules.switch_grace)
    }

    /// Makes an authority, in the place of one that is at `resource_version`.
    async fn make(&self, key: &Key, resource_version: Option<&str>) -> Result<Found, Stop> {
        let validity = self.validity(certificate::later(self.now, self.life() * LIVES));
        let unmade = |error: pki::Error| Stop::Problem("NoAuthority", chain(&error));
        let made = Root::generate("klm-watcher-selfsigned-ca", validity).map_err(unmade)?;
        let data = data([
            (key::CERTIFICATE, made.certificate.as_bytes()),
            (key::KEY, made.key.as_bytes()),
            (key::BUNDLE, made.certificate.as_bytes()),
        ]);
        let labels = json!({ label::MANAGED_BY: names::MANAGED_BY_KCP });
        let annotations = json!({ annotation::PKI: Backend::Builtin.name() });
        self.put(key, resource_version, "kubernetes.io/tls", &labels, &annotations, &data).await?;
        tracing::info!(secret = %key, until = %validity.not_after, "a certificate authority is made");
        let secret = self.read(key).await?;
        let secret = secret.ok_or_else(|| Stop::Problem("NoAuthority", format!("Secret {key} is gone again")))?;
        found(secret).map_err(|error| self.unreadable(key, &error))
    }

    fn signer(&self, found: &Found) -> Result<Arc<Root>, Stop> {
        let key = Key::new(&self.rules.namespace, names::AUTHORITY_SECRET);
        Root::read(&found.certificate, &found.key).map(Arc::new).map_err(|error| self.unreadable(&key, &error))
    }

    // --- the gateway's Secret ---

    async fn standing(&self, authority: &Authority) -> Result<Option<Standing>, Stop> {
        let Some(secret) = self.read(self.key).await? else { return Ok(None) };
        let secret = GatewaySecret::of(secret);
        let bundle = match secret.bundle.as_deref().map(pki::read_bundle) {
            None | Some(Err(pki::Error::Empty)) => Bundle::default(),
            Some(Ok(bundle)) => bundle,
            Some(Err(error)) => {
                let problem = format!("`{}` of Secret {} cannot be read: {}", key::BUNDLE, self.key, chain(&error));
                return Err(Stop::Problem("BadBundle", format!("{problem}; mend it, or delete the Secret")));
            }
        };
        let bundled_at = certificate::parse_bundled_at(secret.bundled_at.as_deref());
        let served = self.served(&secret, authority);
        Ok(Some(Standing { secret, held: Held { bundle, bundled_at, served } }))
    }

    fn served(&self, secret: &GatewaySecret, authority: &Authority) -> Served {
        match pki::read_first(&secret.certificate) {
            Ok(served) => {
                let (is_current, is_fit) = match self.backend {
                    // An authority that was issued anew with its old key is another one all the same: whoever compares
                    // what is served with the bundle would not find it there.
                    Backend::CertManager | Backend::Gardener => (served.der == authority.der, true),
                    Backend::Builtin => (pki::is_of(&served, authority), pki::is_server_of(&served, &self.hosts())),
                };
                Served { is_current, is_fit, validity: served.validity }
            }
            // Nobody can be served with it: it may be replaced as one that has ended.
            Err(_) => {
                let validity = Validity { not_before: Timestamp::UNIX_EPOCH, not_after: Timestamp::UNIX_EPOCH };
                Served { is_current: false, is_fit: false, validity }
            }
        }
    }

    /// By which names agents reach the listener.
    fn hosts(&self) -> Vec<String> {
        let gateways = self.context.stores.gateways();
        let resolved = self.context.certificates.listener.resolve(gateways.iter().map(|entry| &entry.gateway));
        // Without an address there are no agents; that is told where they would be installed.
        resolved.map(|address| vec![address.host().trim_matches(['[', ']']).to_owned()]).unwrap_or_default()
    }

    /// Runtimes that are not known to trust the authority.
    fn behind(&self, standing: Option<&Standing>, authority: &Authority) -> usize {
        let bundle = standing.filter(|standing| standing.held.bundle.contains(authority));
        let bundle = bundle.and_then(|standing| standing.secret.bundle.as_deref()).map(Digest::of_bytes);
        let kymas = self.context.stores.kymas();
        let counts = |kyma: &Key| matches!(self.context.stores.access(kyma), Access::One { .. });
        let kymas: Vec<Key> = kymas
            .iter()
            .filter(|kyma| kyma.metadata.deletion_timestamp.is_none())
            .map(|kyma| landscape::key(&kyma.metadata))
            .filter(counts)
            .collect();
        self.context.certificates.behind(&kymas, bundle)
    }

    async fn write(
        &self,
        standing: Option<&Standing>,
        plan: &GatewayPlan,
        found: &Found,
        root: Option<&Root>,
    ) -> Result<(), Stop> {
        let bundle = pki::write_bundle(&plan.bundle);
        let mut data = data([(key::BUNDLE, bundle.as_bytes())]);
        if plan.switch == Switch::Now {
            data.extend(self.credentials(found, root)?);
        }
        let bundled_at = Timestamp::from_second(plan.bundled_at.as_second()).unwrap_or(plan.bundled_at);
        let annotations = json!({ annotation::BUNDLED_AT: bundled_at.to_string() });
        let resource_version = standing.map(|standing| standing.secret.resource_version.as_str());
        self.put(self.key, resource_version, "Opaque", &json!({}), &annotations, &data).await
    }

    /// What the gateway is to serve with.
    fn credentials(&self, found: &Found, root: Option<&Root>) -> Result<Map<String, Value>, Stop> {
        let Some(root) = root else {
            return Ok(data([(key::CERTIFICATE, &found.certificate), (key::KEY, &found.key)]));
        };
        let names = self.hosts();
        let common_name = names.first().map_or(names::GATEWAY_SECRET, String::as_str);
        // It lasts as long as its authority, which is replaced long before that.
        let validity = self.validity(found.authority.validity.not_after);
        let issue = Issue { common_name, names: &names, validity, is_server: true };
        let leaf = root.issue(issue).map_err(|error| Stop::Problem("NoCertificate", chain(&error)))?;
        Ok(data([(key::CERTIFICATE, leaf.certificate.as_bytes()), (key::KEY, leaf.key.as_bytes())]))
    }

    fn validity(&self, not_after: Timestamp) -> Validity {
        let backdated = SignedDuration::try_from(BACKDATED).unwrap_or_default();
        Validity { not_before: self.now.checked_sub(backdated).unwrap_or(self.now), not_after }
    }

    // --- requests ---

    async fn read(&self, key: &Key) -> Result<Option<Secret>, Stop> {
        self.context.kcp.get_as(&Kind::namespaced::<Secret>(), key).await.map_err(Stop::Request)
    }

    /// Creates a Secret, or changes the one that is at `resource_version`.
    async fn put(
        &self,
        key: &Key,
        resource_version: Option<&str>,
        type_: &str,
        labels: &Value,
        annotations: &Value,
        data: &Map<String, Value>,
    ) -> Result<(), Stop> {
        let kind = Kind::namespaced::<Secret>();
        let mut metadata = json!({
            "name": key.name(), "namespace": key.namespace(), "labels": labels, "annotations": annotations,
        });
        let kcp = &self.context.kcp;
        let written = match resource_version {
            Some(resource_version) => {
                metadata["resourceVersion"] = resource_version.into();
                let body = json!({ "metadata": metadata, "data": data });
                kcp.merge_patch(self.cause, &kind, &kind.id(key), None, body.to_string().into()).await
            }
            None => {
                let body = json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_, "data": data,
                });
                kcp.create(self.cause, &kind, &kind.id(key), Bytes::from(body.to_string())).await
            }
        };
        match written {
            Ok(_) => Ok(()),
            Err(Error::NotFound { .. }) => Err(Stop::Problem(
                "NoNamespace",
                format!("there is no namespace {} for Secret {}: create it", key.namespace(), key.name()),
            )),
            Err(error) => Err(Stop::Request(error)),
        }
    }

    // --- what is said ---

    fn refused(&self, refusal: certificate::Refusal) -> Stop {
        let secret = match refusal {
            certificate::Refusal::Expired => Key::new(&self.rules.namespace, names::AUTHORITY_SECRET),
            certificate::Refusal::NoMoment => self.key.clone(),
        };
        Stop::Problem("BadGatewaySecret", format!("Secret {secret}: {refusal}"))
    }

    #[expect(clippy::unused_self, reason = "said beside its kin")]
    fn unreadable(&self, key: &Key, error: &pki::Error) -> Stop {
        Stop::Problem(
            "BadAuthority",
            format!("the certificate authority in Secret {key} cannot be used: {}", chain(error)),
        )
    }
}

fn found(secret: Secret) -> Result<Found, pki::Error> {
    let mut data: BTreeMap<String, ByteString> = secret.data.unwrap_or_default();
    let mut take = |key| data.remove(key).map(|bytes| bytes.0).unwrap_or_default();
    let (certificate, key) = (take(key::CERTIFICATE), take(key::KEY));
    let authority = pki::read_first(&certificate)?;
    let resource_version = secret.metadata.resource_version.unwrap_or_default();
    Ok(Found { resource_version, certificate, key, authority })
}

fn data<const N: usize>(entries: [(&str, &[u8]); N]) -> Map<String, Value> {
    let encoded = |bytes: &[u8]| serde_json::to_value(ByteString(bytes.to_vec())).unwrap_or_default();
    entries.into_iter().map(|(key, bytes)| (key.to_owned(), encoded(bytes))).collect()
}
