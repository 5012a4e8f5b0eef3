// SPDX-License-Identifier: Apache-2.0

//! POST, PUT and PATCH: from a body to a stored object.
//!
//! A write reads, computes, calls admission webhooks, and commits only if the object has not changed meanwhile;
//! otherwise it starts again, as the real server does. The order of the steps is the server's: decode, defaults, patch,
//! ownership, admission, validation.

use std::sync::Arc;

use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use super::{
    Server,
    admission::{self, Asked, Operation},
    body, builtin, convert, crd,
    identity::User,
    metadata,
    patch::{self, Write, keep_times, track_update},
    refusal::{Named, Refusal},
    request::{Accept, Parameters, Unknown, WriteOptions},
    resource::{DEFINITIONS, Generation, NAMESPACES, Resource},
    store::{Draft, Object, key},
};

/// A write request, as it was sent.
pub(super) struct Sent<'a> {
    pub(super) resource: &'a Arc<Resource>,
    /// Empty for cluster-scoped objects.
    pub(super) namespace: &'a str,
    pub(super) subresource: Option<&'a str>,
    pub(super) parameters: &'a Parameters,
    pub(super) user: &'a User,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
}

/// A running write.
pub(super) struct Writing<'a> {
    pub(super) server: &'a Server,
    pub(super) resource: &'a Arc<Resource>,
    /// Empty for cluster-scoped objects.
    pub(super) namespace: &'a str,
    pub(super) subresource: Option<&'a str>,
    pub(super) options: WriteOptions,
    pub(super) user: &'a User,
    /// The errors of strict decoding in the text of a patch.
    strict: Vec<String>,
    /// Texts for the `Warning` header.
    pub(super) warnings: Vec<String>,
}

/// The result of a write.
pub(super) struct Written {
    pub(super) status: StatusCode,
    pub(super) object: Outcome,
    pub(super) warnings: Vec<String>,
}

/// The object of the answer.
pub(super) enum Outcome {
    Stored(Arc<Object>),
    /// A dry run: it has the version of the stored object, if there is one.
    Imagined(Box<Draft>, Option<u64>),
}

/// How a body changes an object.
enum Change {
    Replace(Value),
    Merge(Value),
    Json(Value),
    Apply(Value),
}

/// Limit of retries after concurrent writes, as in the server.
const TRIES_MAX: usize = 5;

const APPLY: &str = "application/apply-patch+yaml";
const PATCH_TYPES: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl Server {
    /// POST.
    pub(super) async fn create(&self, sent: &Sent<'_>) -> Result<Written, Refusal> {
        let mut writing = sent.begin(self, "CreateOptions", false)?;
        let created = writing.create(sent).await;
        created.map_err(|refusal| writing.refused(refusal))
    }

    /// PUT.
    pub(super) async fn replace(&self, sent: &Sent<'_>, name: &str) -> Result<Written, Refusal> {
        let mut writing = sent.begin(self, "UpdateOptions", false)?;
        let replaced = writing.replace(sent, name).await;
        replaced.map_err(|refusal| writing.refused(refusal))
    }

    /// PATCH.
    pub(super) async fn patch(&self, sent: &Sent<'_>, name: &str) -> Result<Written, Refusal> {
        let content_type = sent.content_type();
        let apply = content_type == APPLY;
        match content_type {
            APPLY | "application/merge-patch+json" | "application/json-patch+json" => {}
            "application/strategic-merge-patch+json" if !sent.resource.is_built_in() => {
                return Err(Refusal::unsupported_media(PATCH_TYPES));
            }
            "application/strategic-merge-patch+json" => return Err(Refusal::no_strategic_merge()),
            _ if !sent.resource.is_built_in() => return Err(Refusal::unsupported_media(PATCH_TYPES)),
            _ => return Err(Refusal::unsupported_patch()),
        }
        let mut writing = sent.begin(self, "PatchOptions", apply)?;
        let looks = writing.options.unknown != Unknown::Ignore;
        if !apply {
            // The server does not even read a patch of a missing object.
            metadata::check_key(name)?;
            self.find(sent.resource, sent.namespace, name)?;
        }
        let change = match content_type {
            APPLY => {
                let applied = body::yaml_mapping(sent.body)?;
                writing.strict = if looks { body::doubled_in_yaml(sent.body) } else { Vec::new() };
                Change::Apply(applied)
            }
            "application/merge-patch+json" => {
                let merged = if looks { body::patch(sent.body)? } else { body::unchecked_patch(sent.body, true)? };
                writing.strict = if looks { body::doubled(sent.body) } else { Vec::new() };
                Change::Merge(merged)
            }
            _ => {
                let operations = if looks { body::patch(sent.body)? } else { body::unchecked_patch(sent.body, false)? };
                writing.strict = if looks { body::doubled_or_unknown(sent.body, &operations) } else { Vec::new() };
                Change::Json(operations)
            }
        };
        let changed = writing.change(name, change).await;
        changed.map_err(|refusal| writing.refused(refusal))
    }

    /// Fails if the definition or the namespace of a new object is missing or being deleted.
    fn check_is_open(&self, resource: &Resource, namespace: &str, object: &Value) -> Result<(), Refusal> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if resource.custom.is_some()
            && self.0.store.get(DEFINITIONS, &resource.collection).is_some_and(|definition| definition.deleting)
        {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Refusal::forbidden(&Named::resource(resource, name), why));
        }
        if !resource.namespaced {
            return Ok(());
        }
        match self.0.store.get(NAMESPACES, namespace) {
            None => {
                let named = Named { group: "", kind: NAMESPACES, name: namespace };
                Err(Refusal::not_found(&named))
            }
            Some(found) if found.deleting => {
                Err(Refusal::namespace_terminating(&Named::resource(resource, name), namespace))
            }
            Some(_) => Ok(()),
        }
    }
}

// === impl Sent ===

impl<'a> Sent<'a> {
    /// Starts the write if its options are valid. `kind` is the name of the options in messages.
    pub(super) fn begin(&self, server: &'a Server, kind: &str, apply: bool) -> Result<Writing<'a>, Refusal> {
        let options = self.parameters.write_options(kind, self.headers, apply)?;
        Ok(Writing::new(server, self.resource, self.namespace, self.subresource, options, self.user))
    }

    /// Without its parameters.
    fn content_type(&self) -> &'a str {
        let value = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }
}

// === impl Writing ===

impl<'a> Writing<'a> {
    pub(super) fn new(
        server: &'a Server,
        resource: &'a Arc<Resource>,
        namespace: &'a str,
        subresource: Option<&'a str>,
        options: WriteOptions,
        user: &'a User,
    ) -> Writing<'a> {
        Writing { server, resource, namespace, subresource, options, user, strict: Vec::new(), warnings: Vec::new() }
    }

    async fn create(&mut self, sent: &Sent<'_>) -> Result<Written, Refusal> {
        let object = self.decode(sent)?;
        metadata::check_namespace(self.namespace, &object)?;
        self.server.check_is_open(self.resource, self.namespace, &object)?;
        let object = self.created(object, false).await?;
        self.commit_new(object).await
    }

    async fn replace(&mut self, sent: &Sent<'_>, name: &str) -> Result<Written, Refusal> {
        let object = self.decode(sent)?;
        metadata::check_name_on_url(&object, name)?;
        metadata::check_namespace(self.namespace, &object)?;
        self.change(name, Change::Replace(object)).await
    }

    /// Adds the earlier warnings to a refusal.
    fn refused(&mut self, refusal: Refusal) -> Refusal {
        refusal.warning(std::mem::take(&mut self.warnings))
    }

    /// The object of a body, without unknown fields.
    pub(super) fn decode(&mut self, sent: &Sent<'_>) -> Result<Value, Refusal> {
        let content_type = sent.content_type().to_ascii_lowercase();
        let mut object = body::object(self.resource, &content_type, sent.body)?;
        let (kind, version) = (&self.resource.kind.kind, &self.resource.kind.version);
        let is_json = matches!(content_type.as_str(), "" | "application/json");
        let looks = is_json && self.options.unknown != Unknown::Ignore;
        let strict = if looks { body::doubled(sent.body) } else { Vec::new() };
        let refusal = |_: &Value, problem: &str| {
            Refusal::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {problem}"))
        };
        body::check_unknown(self.resource, &mut object, self.options.unknown, &strict, &mut self.warnings, refusal)?;
        self.fill_in(&mut object);
        Ok(object)
    }

    /// Sets the defaults of the kind.
    fn fill_in(&self, object: &mut Value) {
        match &self.resource.custom {
            Some(custom) => custom.checks.default(object),
            None => builtin::default(&self.resource.kind, object),
        }
    }

    pub(super) fn write(&self) -> Write<'_> {
        Write {
            manager: &self.options.manager,
            subresource: self.subresource,
            api_version: &self.resource.api_version,
            now: self.server.0.clock.now(),
            force: self.options.force,
        }
    }

    fn named<'b>(&'b self, name: &'b str) -> Named<'b> {
        Named::resource(self.resource, name)
    }

    /// A new object as it would be stored. An applied one already has its managed fields.
    async fn created(&mut self, mut object: Value, applied: bool) -> Result<Value, Refusal> {
        let server = self.server;
        metadata::begin(self.resource, self.namespace, &mut object, &server.0.clock)?;
        if self.resource.habits.status && self.resource.custom.is_some() {
            remove(&mut object, "status");
        }
        server.begin(self.resource, &mut object);
        if !applied {
            object = track_update(&self.resource.schema, None, object, &self.write());
        }
        server.hold(self.resource, &mut object);
        let asked = Asked { operation: Operation::Create, before: None };
        let object = self.admitted(object, asked).await?;
        self.check(None, &object)?;
        self.warnings.extend(metadata::finalizer_warnings(self.resource, None, &object));
        Ok(object)
    }

    /// The object after mutating webhooks.
    async fn admitted(&mut self, object: Value, asked: Asked<'_>) -> Result<Value, Refusal> {
        let server = self.server;
        let Some(mut mutated) = server.mutate(self, &asked, Some(&object)).await? else { return Ok(object) };
        match &self.resource.custom {
            Some(custom) => drop(crd::prune(&custom.props, &mut mutated)),
            None => {
                let pruned = builtin::prune(&self.resource.kind, &mut mutated);
                pruned.map_err(|problem| Refusal::internal_error(&problem))?;
            }
        }
        self.fill_in(&mut mutated);
        // No manager owns what a webhook adds.
        Ok(mutated)
    }

    /// Validates an object before it is stored.
    fn check(&mut self, before: Option<&Value>, object: &Value) -> Result<(), Refusal> {
        let mut causes = metadata::check(self.resource, before, object);
        match &self.resource.custom {
            Some(custom) => {
                let (violations, warnings) = crd::violations(custom, before, object);
                causes.extend(violations);
                self.warnings.extend(warnings);
            }
            None if self.resource.is(DEFINITIONS) && self.subresource.is_none() => {
                causes.extend(crd::check(before, object));
            }
            None => {
                causes.extend(builtin::check(&self.resource.kind, before, object));
                if admission::is_configuration(self.resource) {
                    causes.extend(admission::check(object));
                }
            }
        }
        if causes.is_empty() {
            return Ok(());
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Err(Refusal::invalid(&Named::of_kind(self.resource, name), &causes))
    }

    /// Stores a new object.
    async fn commit_new(&mut self, object: Value) -> Result<Written, Refusal> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let place = key(self.namespace, &name);
        let server = self.server;
        server.validate(self, &Asked { operation: Operation::Create, before: None }, Some(&object)).await?;
        if self.server.0.store.get(&self.resource.collection, &place).is_some() {
            return Err(Refusal::exists(&self.named(&name)));
        }
        if self.options.dry_run {
            return Ok(
                self.written(StatusCode::CREATED, Outcome::Imagined(Box::new(Draft::from_object(&object)), None))
            );
        }
        let draft = Draft::from_object(&convert_in(self.resource, object));
        let stored = self.server.0.store.put(&self.resource.collection, &place, None, draft);
        let stored = stored.map_err(|_| Refusal::exists(&self.named(&name)))?;
        self.server.settle(self.resource, &place, &stored);
        Ok(self.written(StatusCode::CREATED, Outcome::Stored(stored)))
    }

    pub(super) fn written(&mut self, status: StatusCode, object: Outcome) -> Written {
        Written { status, object, warnings: std::mem::take(&mut self.warnings) }
    }

    /// Changes an existing object, or creates it if the change allows that.
    async fn change(&mut self, name: &str, change: Change) -> Result<Written, Refusal> {
        metadata::check_key(name)?;
        let place = key(self.namespace, name);
        for _ in 0..TRIES_MAX {
            let live = self.server.0.store.get(&self.resource.collection, &place);
            let Some(live) = live else {
                match self.create_by(name, &change).await {
                    // Another writer has just created it: now it can be changed.
                    Err(refusal)
                        if refusal.code == StatusCode::CONFLICT && refusal.message().ends_with("already exists") =>
                    {
                        continue;
                    }
                    result => return result,
                }
            };
            if let Some(written) = self.change_once(name, &place, &live, &change).await? {
                return Ok(written);
            }
            if has_version(&change) {
                return Err(Refusal::modified(&self.named(name)));
            }
        }
        Err(Refusal::modified(&self.named(name)))
    }

    /// Creates an object for a PUT or an apply.
    async fn create_by(&mut self, name: &str, change: &Change) -> Result<Written, Refusal> {
        let may = self.subresource.is_none()
            && match change {
                Change::Apply(_) => true,
                Change::Replace(_) => self.resource.habits.put_creates,
                Change::Merge(_) | Change::Json(_) => false,
            };
        if !may {
            return Err(Refusal::not_found(&self.named(name)));
        }
        let object = match change {
            Change::Apply(applied) => {
                let mut object = patch::apply(&self.resource.schema, None, applied, &self.write())
                    .map_err(|error| Refusal::of_status(&error.status()))?;
                self.check_applied()?;
                metadata::check_name_on_url(&object, name)?;
                metadata::check_namespace(self.namespace, &object)?;
                if let Some(uid) = object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(Refusal::conflict(&self.named(name), &why));
                }
                self.fill_in(&mut object);
                object
            }
            Change::Replace(object) | Change::Merge(object) | Change::Json(object) => object.clone(),
        };
        self.server.check_is_open(self.resource, self.namespace, &object)?;
        let mut object = object;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.shift_remove("resourceVersion");
        }
        let applied = matches!(change, Change::Apply(_));
        let object = self.created(object, applied).await?;
        self.commit_new(object).await
    }

    /// One attempt; `None` if another writer was faster.
    async fn change_once(
        &mut self,
        name: &str,
        place: &Arc<str>,
        live: &Arc<Object>,
        change: &Change,
    ) -> Result<Option<Written>, Refusal> {
        let before = convert_out(self.resource, live);
        let after = self.changed(name, &before, change)?;
        metadata::check_versions(self.resource, &before, &after, matches!(change, Change::Replace(_)))?;
        let after = metadata::go_on(&before, after);
        let mut after = self.scoped(&before, after);
        self.count(&before, &mut after);
        let asked = Asked { operation: Operation::Update, before: Some(&before) };
        let after = self.admitted(after, asked).await?;
        let mut after = self.scoped(&before, after);
        self.count(&before, &mut after);
        let after = keep_times(&before, after);
        self.check(Some(&before), &after)?;
        self.warnings.extend(metadata::finalizer_warnings(self.resource, Some(&before), &after));
        let asked = Asked { operation: Operation::Update, before: Some(&before) };
        let server = self.server;
        server.validate(self, &asked, Some(&after)).await?;
        if after == before {
            return Ok(Some(self.written(StatusCode::OK, Outcome::Stored(Arc::clone(live)))));
        }
        let finished = metadata::is_finished(self.resource, &after);
        if self.options.dry_run {
            let imagined = Outcome::Imagined(Box::new(Draft::from_object(&after)), Some(live.version));
            return Ok(Some(self.written(StatusCode::OK, imagined)));
        }
        let draft = Draft::from_object(&convert_in(self.resource, after));
        let store = &self.server.0.store;
        if finished {
            // The last finalizer was removed, so the object is removed and its last state is the answer.
            if store.remove(&self.resource.collection, place, live.version).is_err() {
                return Ok(None);
            }
            self.server.gone(self.resource, place, live);
            let last = Arc::new(draft.at(live.version));
            return Ok(Some(self.written(StatusCode::OK, Outcome::Stored(last))));
        }
        match store.put(&self.resource.collection, place, Some(live.version), draft) {
            Err(_) => Ok(None),
            Ok(stored) => {
                self.server.settle(self.resource, place, &stored);
                Ok(Some(self.written(StatusCode::OK, Outcome::Stored(stored))))
            }
        }
    }

    /// The object after the change, with ownership, before protected fields are restored.
    fn changed(&mut self, name: &str, before: &Value, change: &Change) -> Result<Value, Refusal> {
        let patched = match change {
            Change::Replace(object) => object.clone(),
            Change::Apply(applied) => {
                let mut after = patch::apply(&self.resource.schema, Some(before), applied, &self.write())
                    .map_err(|error| Refusal::of_status(&error.status()))?;
                self.check_applied()?;
                metadata::check_name_on_url(&after, name)?;
                metadata::check_namespace(self.namespace, &after)?;
                self.fill_in(&mut after);
                return Ok(after);
            }
            Change::Merge(sent) => {
                patch::merge_patch(before, sent).map_err(|error| Refusal::of_status(&error.status()))?
            }
            Change::Json(sent) => patch::json_patch(before, sent).map_err(|error| match error {
                patch::PatchError::Unfitting(_) => Refusal::unfitting_patch(),
                error => Refusal::of_status(&error.status()),
            })?,
        };
        let mut after = patched;
        if !matches!(change, Change::Replace(_)) {
            body::reread(self.resource, &mut after, self.options.unknown, &self.strict, &mut self.warnings)?;
            metadata::check_name_on_url(&after, name)?;
            metadata::check_namespace(self.namespace, &after)?;
            self.fill_in(&mut after);
        }
        Ok(track_update(&self.resource.schema, Some(before), after, &self.write()))
    }

    /// Warns about or refuses an apply patch with errors of strict decoding, as the request says.
    fn check_applied(&mut self) -> Result<(), Refusal> {
        let lines = std::mem::take(&mut self.strict);
        if lines.is_empty() || self.options.unknown != Unknown::Refuse {
            self.warnings.extend(lines);
            return Ok(());
        }
        let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
        Err(Refusal::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:{lines}"
        )))
    }

    /// Restores the fields that this endpoint does not change.
    fn scoped(&self, before: &Value, mut after: Value) -> Value {
        match self.subresource {
            None => {
                if self.resource.habits.status {
                    put_back(before, &mut after, "status");
                }
                after
            }
            Some(_) => {
                let mut scoped = before.clone();
                put_back(&after, &mut scoped, "status");
                let managed = after["metadata"].get("managedFields").cloned();
                if let Some(metadata) = scoped["metadata"].as_object_mut() {
                    match managed {
                        Some(managed) => metadata.insert("managedFields".to_owned(), managed),
                        None => metadata.shift_remove("managedFields"),
                    };
                }
                scoped
            }
        }
    }

    /// Increments the generation if relevant fields changed.
    fn count(&self, before: &Value, after: &mut Value) {
        let counts = |name: &str| match self.resource.habits.generation {
            Generation::None => false,
            Generation::Content => !matches!(name, "metadata" | "status"),
            Generation::All => name != "metadata",
        };
        let size = |object: &Value| object.as_object().into_iter().flatten().filter(|(name, _)| counts(name)).count();
        let is_same = |after: &Value| {
            let mut fields = after.as_object().into_iter().flatten().filter(|(name, _)| counts(name));
            size(before) == size(after) && fields.all(|(name, value)| before.get(name) == Some(value))
        };
        let former = before["metadata"]["generation"].as_i64();
        if self.resource.habits.generation == Generation::None {
            return;
        }
        let former = former.unwrap_or_default();
        let now = if is_same(after) { former } else { former + 1 };
        if now > 0 {
            after["metadata"]["generation"] = json!(now);
        }
    }
}

/// Whether a change requires a certain version of its object.
fn has_version(change: &Change) -> bool {
    let (Change::Replace(object) | Change::Merge(object) | Change::Apply(object)) = change else { return false };
    object["metadata"]["resourceVersion"].as_str().is_some_and(|version| !matches!(version, "" | "0"))
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove(field);
    }
}

/// Copies a field from `from` to `to`.
fn put_back(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => remove(to, field),
    }
}

/// The object in its stored version.
fn convert_in(resource: &Resource, object: Value) -> Value {
    if *resource.stored == *resource.api_version { object } else { convert::to_stored(resource, object) }
}

/// The object in the resource's version.
fn convert_out(resource: &Resource, object: &Object) -> Value {
    if *resource.stored == *resource.api_version {
        return object.value();
    }
    convert::from_stored(resource, object).unwrap_or_else(|| {
        let mut value = object.value();
        value["apiVersion"] = (&*resource.api_version).into();
        value
    })
}

impl Written {
    /// The body of the answer.
    pub(super) fn body(&self, resource: &Resource, accept: Accept, server: &Server) -> Result<bytes::Bytes, Refusal> {
        match &self.object {
            Outcome::Stored(object) => super::read::one(resource, object, accept, server),
            Outcome::Imagined(draft, version) => Ok(match (version, accept.form) {
                (_, super::request::Form::Metadata) => {
                    let value: Value = serde_json::from_slice(&draft.without_version()).unwrap_or_default();
                    let mut metadata = value["metadata"].clone();
                    if let Some(version) = version {
                        metadata["resourceVersion"] = version.to_string().into();
                    }
                    let answer = json!({
                        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                    });
                    answer.to_string().into()
                }
                (None, _) => draft.without_version(),
                (Some(version), _) => {
                    let mut value: Value = serde_json::from_slice(&draft.without_version()).unwrap_or_default();
                    value["metadata"]["resourceVersion"] = version.to_string().into();
                    value.to_string().into()
                }
            }),
        }
    }
}
