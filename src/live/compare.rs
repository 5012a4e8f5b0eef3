//! Compares one live object with its desired form.
//!
//! With [`Method::Reads`], the result of an apply is computed from the live object and the owners of its fields, as
//! server-side apply does it: without defaults for new fields and without admission. Otherwise the API server answers a
//! dry run. Most objects need no dry run: a live object that already contains all desired fields, and no other field of
//! Tidegate, does not change. A dry run's answer is reused for other runtimes if the same object is desired over an
//! equal one, by an API server of the same version. The result then includes any changes by webhooks of the first
//! runtime.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_cluster::{Cluster, ClusterName, DryRun, Error, FieldConflict, OnConflict};
use tidegate_core::{
    api::names::{FIELD_MANAGER, annotation},
    changes::covers,
    definition::Definitions,
    diagnostic::FilePosition,
    immutable::{self, Context, Immutable},
    name::Key,
    object::{Digest, Gvk, Object},
    render,
    template::Template,
};
use tidegate_diff::{
    clean,
    gather::ObjectDifference,
    live::{applied_by, drops, overlaid, secret_after, stripped},
    mask::Masker,
    model::{Action, Conflict, Effect, Side},
    names::Names,
};
use tidegate_process::lock::Mutex;
use tokio::sync::OnceCell;

use super::{Method, managers};

/// The desired form of one object.
#[derive(Clone)]
pub(crate) struct Wish {
    pub(crate) gvk: Gvk,
    pub(crate) object: Object,
    pub(crate) places: Vec<FilePosition>,
    pub(crate) maker: Option<&'static str>,
}

/// The difference between a live object and its desired form. Its values are masked, and its names are neutral.
#[derive(Debug)]
pub(crate) struct Differs {
    pub(crate) action: Action,
    pub(crate) old: Option<Arc<Value>>,
    pub(crate) new: Option<Arc<Value>>,
    pub(crate) conflicts: Vec<Conflict>,
    /// Why the API server refuses the change, as a clause; only for [`Action::Refuse`].
    pub(crate) refusal: Option<String>,
}

/// The answer to a question, once it is known.
type Answer = Arc<OnceCell<Option<Arc<Differs>>>>;

/// The data that all comparisons of a run share.
pub(crate) struct Shared {
    method: Method,
    /// Whether the agent in runtimes is compared as well.
    has_agent: bool,
    masker: Mutex<Masker>,
    answers: Mutex<HashMap<Digest, Answer>>,
    /// Versions of the API servers.
    versions: Mutex<HashMap<ClusterName, Arc<OnceCell<String>>>>,
}

/// One cluster that is compared.
pub(crate) struct Comparer<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) cluster: &'a Cluster,
    pub(crate) side: Side,
    pub(crate) names: Arc<Names>,
    /// The runtimes that differences concern.
    pub(crate) runtimes: Vec<Key>,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(masker: Masker, method: Method, has_agent: bool) -> Shared {
        Shared { method, has_agent, masker: Mutex::new(masker), answers: Mutex::default(), versions: Mutex::default() }
    }

    /// Whether the comparison is that of an observer.
    pub(crate) fn only_reads(&self) -> bool {
        self.method == Method::Reads
    }

    /// A text from another program, without any known secret value.
    pub(crate) fn scrub(&self, text: &str) -> String {
        self.masker.lock().scrub(text)
    }

    /// Adds the Secrets of the revision to the masked values.
    pub(crate) fn meet(&self, definitions: &Definitions) {
        let mut masker = self.masker.lock();
        clean::meet(&mut masker, &[definitions]);
    }

    /// A masker for all values so far.
    pub(crate) fn met(&self) -> Masker {
        self.masker.lock().clone()
    }

    /// Masks an object. Its namespace is no secret, although the API server writes it into Secrets with tokens.
    fn mask(&self, value: &mut Value) -> bool {
        let mut masker = self.masker.lock();
        if let Some(namespace) = value.pointer("/metadata/namespace").and_then(Value::as_str) {
            masker.is_name(namespace);
        }
        masker.mask(value)
    }

    /// The version of an API server, requested once.
    async fn version(&self, cluster: &Cluster) -> Result<String, Error> {
        let cell = {
            let mut versions = self.versions.lock();
            Arc::clone(versions.entry(cluster.name().clone()).or_default())
        };
        cell.get_or_try_init(async || cluster.version().await).await.cloned()
    }

    fn answer(&self, question: Digest) -> Answer {
        let mut answers = self.answers.lock();
        Arc::clone(answers.entry(question).or_default())
    }
}

// === impl Differs ===

impl Differs {
    /// The same, if the API server refuses the change.
    fn refused(self, immutable: &Immutable) -> Differs {
        match immutable.is_recreated() {
            true => Differs { action: Action::Recreate, ..self },
            false => Differs { action: Action::Refuse, refusal: Some(immutable.sentence()), ..self },
        }
    }
}

// === impl Comparer ===

impl<'a> Comparer<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        cluster: &'a Cluster,
        side: Side,
        names: Arc<Names>,
        runtimes: Vec<Key>,
    ) -> Comparer<'a> {
        Comparer { shared, cluster, side, names, runtimes }
    }

    /// The change of an existing object, if there is one. Fails if the API server does not answer a dry run.
    pub(crate) async fn existing(&self, wish: &Wish, live: &Object) -> Result<Option<Arc<Differs>>, Error> {
        if is_secret(&wish.gvk) {
            return Ok(self.secret(wish, live).map(Arc::new));
        }
        let mut wish = wish.clone();
        let is_webhook =
            &*wish.gvk.kind == "ValidatingWebhookConfiguration" && wish.maker == Some(Template::Webhook.name());
        if is_webhook && !self.shared.has_agent {
            render::as_installed(&mut wish.object, live.value());
        }
        let wish = &wish;
        let desired = wish.object.value();
        if self.shared.only_reads() {
            return self.computed(wish, live).await;
        }
        if covers(desired, live.value()) && !drops(desired, live.value(), FIELD_MANAGER) {
            return Ok(None);
        }
        if self.shared.mask(&mut desired.clone()) {
            // An object that contains a Secret is not sent either.
            return Ok(self.changed(&stripped(live.value()), &overlaid(live.value(), desired), Vec::new()));
        }
        let question = self.question(wish, live).await?;
        let answer = self.shared.answer(question);
        answer.get_or_try_init(async || self.try_out(wish, live).await).await.cloned()
    }

    /// Whether Tidegate has never applied an object, so that it would take over the fields that it sets.
    pub(crate) fn would_take_over(live: &Object) -> bool {
        !is_secret(&live.gvk()) && !managers(live).iter().any(|manager| manager == FIELD_MANAGER)
    }

    /// An object that would be created.
    pub(crate) fn created(&self, wish: &Wish) -> Differs {
        Differs {
            action: Action::Create,
            old: None,
            new: Some(self.shown(wish.object.value().clone())),
            conflicts: Vec::new(),
            refusal: None,
        }
    }

    /// An object that would be deleted.
    pub(crate) fn gone(&self, live: &Object) -> Differs {
        Differs {
            action: Action::Delete,
            old: Some(self.shown(stripped(live.value()))),
            new: None,
            conflicts: Vec::new(),
            refusal: None,
        }
    }

    /// An existing object with another owner: nothing would be sent. Fails if the API server does not answer a dry run.
    pub(crate) async fn stranger(&self, wish: &Wish, live: &Object, managers: &[String]) -> Result<Differs, Error> {
        let would = self.existing(wish, live).await?;
        let mut conflicts: Vec<Conflict> =
            managers.iter().map(|manager| Conflict { field: String::new(), manager: manager.clone() }).collect();
        conflicts.extend(would.iter().flat_map(|would| would.conflicts.iter().cloned()));
        let old = self.shown(stripped(live.value()));
        let new = would.and_then(|would| would.new.clone()).unwrap_or_else(|| Arc::clone(&old));
        Ok(Differs { action: Action::Conflict, old: Some(old), new: Some(new), conflicts, refusal: None })
    }

    /// An object that another module deletes before it is created again.
    pub(crate) fn moved(&self, wish: &Wish, live: &Object) -> Differs {
        let new = overlaid(live.value(), wish.object.value());
        Differs { action: Action::Recreate, ..self.differs(&stripped(live.value()), &new, Vec::new()) }
    }

    /// An object that another Manifest contains as well and owns.
    pub(crate) fn brought(&self, wish: &Wish, other: &Object, manifest: &str) -> Differs {
        let conflicts = vec![Conflict { field: String::new(), manager: manifest.to_owned() }];
        Differs { action: Action::Conflict, ..self.differs(other.value(), wish.object.value(), conflicts) }
    }

    /// The entry of a report.
    pub(crate) fn found(&self, wish: &Wish, differs: &Differs, effect: Effect) -> ObjectDifference {
        ObjectDifference {
            target: self.side,
            id: wish.object.id(),
            gvk: wish.gvk.clone(),
            action: differs.action,
            effect,
            runtimes: self.runtimes.clone(),
            old: differs.old.clone(),
            new: differs.new.clone(),
            places: wish.places.clone(),
            maker: wish.maker,
            conflicts: differs.conflicts.clone(),
            refusal: differs.refusal.clone(),
            is_former: false,
            names: Arc::clone(&self.names),
        }
    }

    /// The entry of a report for a deleted object.
    pub(crate) fn found_gone(&self, live: &Object, effect: Effect) -> ObjectDifference {
        let wish = Wish { gvk: live.gvk(), object: live.clone(), places: Vec::new(), maker: None };
        self.found(&wish, &self.gone(live), effect)
    }

    /// The change as it is computed here: the daemon takes over the fields that Lifecycle Manager applied, and applies.
    async fn computed(&self, wish: &Wish, live: &Object) -> Result<Option<Arc<Differs>>, Error> {
        let desired = wish.object.value();
        let managers = tidegate_cluster::managers_before(self.cluster.name(), &wish.object.id().kind);
        let (old, new) = (stripped(live.value()), applied_by(live.value(), desired, managers));
        if old == new {
            return Ok(None);
        }
        let differs = self.differs(&old, &new, Vec::new());
        let context = match (self.cluster.name(), self.cluster.kind(&wish.gvk).await?) {
            (ClusterName::Runtime(_), Some(kind)) => {
                let definition = self.cluster.definition_of(&kind).await?;
                definition.map(|one| Context::of_definition(&wish.gvk, one.value())).unwrap_or_default()
            }
            // The daemon's own kinds have no immutable fields.
            (ClusterName::Kcp | ClusterName::Placed(_) | ClusterName::Workspace { .. }, _)
            | (ClusterName::Runtime(_), None) => Context::default(),
        };
        let immutable = immutable::over_live(&wish.gvk, live.value(), desired, &context);
        Ok(Some(Arc::new(immutable.iter().fold(differs, Differs::refused))))
    }

    fn secret(&self, wish: &Wish, live: &Object) -> Option<Differs> {
        let managers = tidegate_cluster::managers_before(self.cluster.name(), &wish.object.id().kind);
        let (mut old, mut new) = secret_after(wish.object.value(), live.value(), managers);
        self.shared.mask(&mut old);
        self.shared.mask(&mut new);
        let refused = immutable::over_live(&wish.gvk, live.value(), wish.object.value(), &Context::default());
        (old != new).then(|| {
            let differs = self.differs(&old, &new, Vec::new());
            refused.iter().fold(differs, Differs::refused)
        })
    }

    /// A difference that is computed here, without a dry run.
    pub(crate) fn merged(&self, old: &Value, new: &Value) -> Option<Arc<Differs>> {
        self.changed(old, new, Vec::new())
    }

    fn changed(&self, old: &Value, new: &Value, conflicts: Vec<Conflict>) -> Option<Arc<Differs>> {
        let differs = self.differs(old, new, conflicts);
        (differs.old != differs.new).then(|| Arc::new(differs))
    }

    fn differs(&self, old: &Value, new: &Value, conflicts: Vec<Conflict>) -> Differs {
        let (old, new) = (self.shown(old.clone()), self.shown(new.clone()));
        Differs { action: Action::Change, old: Some(old), new: Some(new), conflicts, refusal: None }
    }

    fn shown(&self, mut value: Value) -> Arc<Value> {
        self.shared.mask(&mut value);
        // The first repeats the differences of all other fields, the second follows with the next change.
        if let Some(annotations) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            annotations.shift_remove(annotation::DIGEST);
            annotations.shift_remove(annotation::PATH);
        }
        Arc::new(self.names.neutral(&value))
    }

    /// A key that is equal only if the answer must be equal.
    async fn question(&self, wish: &Wish, live: &Object) -> Result<Digest, Error> {
        let version = self.shared.version(self.cluster).await?;
        let mut claims = live.value().pointer("/metadata/managedFields").cloned().unwrap_or_default();
        for claim in claims.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            claim.shift_remove("time");
        }
        let question = json!([self.side as u8, version, wish.object.value(), stripped(live.value()), claims]);
        // Compared as text, because names are also in keys of `managedFields`.
        Ok(Digest::of_bytes(self.names.neutral_text(&question.to_string()).as_bytes()))
    }

    async fn try_out(&self, wish: &Wish, live: &Object) -> Result<Option<Arc<Differs>>, Error> {
        let id = wish.object.id();
        let old = stripped(live.value());
        let Some(kind) = self.cluster.kind(&wish.gvk).await? else { return Ok(Some(Arc::new(self.created(wish)))) };
        let body = Bytes::from(wish.object.value().to_string());
        let mut answer = self.cluster.dry_run(&kind, &id, body.clone(), OnConflict::Report).await;
        let mut conflicts = Vec::new();
        if let Ok(DryRun::Conflict(causes)) = answer {
            conflicts = causes.into_iter().map(conflict).collect();
            answer = self.cluster.dry_run(&kind, &id, body, OnConflict::Force).await;
        }
        match answer {
            Ok(DryRun::Applied(object)) => Ok(self.changed(&old, &stripped(object.value()), conflicts)),
            // No API server answers a forced apply with a conflict. A Secret never gets here.
            Ok(DryRun::Conflict(_) | DryRun::Withheld) => {
                Ok(self.changed(&old, &overlaid(live.value(), wish.object.value()), conflicts))
            }
            // It was deleted during the comparison.
            Ok(DryRun::Absent) => Ok(Some(Arc::new(self.created(wish)))),
            Err(Error::Invalid { target, message }) => {
                let new = overlaid(live.value(), wish.object.value());
                let differs = self.differs(&old, &new, conflicts);
                let definition = self.cluster.definition_of(&kind).await?;
                let context = definition.map(|one| Context::of_definition(&wish.gvk, one.value())).unwrap_or_default();
                let differs = match immutable::over_live(&wish.gvk, live.value(), wish.object.value(), &context) {
                    Some(immutable) => differs.refused(&immutable),
                    // A field that the API server knows to be immutable, and Tidegate does not.
                    None if is_immutable(&message) => {
                        Differs { action: Action::Refuse, refusal: Some(self.shared.scrub(&message)), ..differs }
                    }
                    None => return Err(Error::Invalid { target, message }),
                };
                Ok(Some(Arc::new(differs)))
            }
            Err(error) => Err(error),
        }
    }
}

fn conflict(cause: FieldConflict) -> Conflict {
    Conflict { field: cause.field, manager: cause.manager }
}

fn is_secret(gvk: &Gvk) -> bool {
    gvk.group.is_empty() && &*gvk.kind == "Secret"
}

/// Whether an API server rejects an object because one of its fields is immutable. The API has no separate reason for
/// this.
fn is_immutable(message: &str) -> bool {
    const SAYINGS: [&str; 8] = [
        "field is immutable",
        "may not change fields other than",
        "missing from spec.versions",
        "is immutable after creation",
        "immutable when `immutable` is set",
        "updates to statefulset spec",
        "may not change once set",
        "updates to driverName are forbidden",
    ];
    SAYINGS.iter().any(|saying| message.contains(saying))
}
