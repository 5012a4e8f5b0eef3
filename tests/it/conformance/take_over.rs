//! #101: a landscape that Lifecycle Manager wrote is taken up. Every object is as Lifecycle Manager writes it, by its
//! field managers, with the fields that its Go types always have.

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tidegate_core::{
    api::names::{annotation, finalizer, label},
    component::BlobDigest,
};
use tidegate_testbed::Extent;

use super::land::{self, KYMA, MANIFEST, THING};
use crate::{
    conformance::oci::component,
    harness::{self, SOON, eventually, holds},
    oci::{
        artifact::{Artifact, Schema, gzip, tar},
        server::Server,
    },
    stage::{self, QUIET, Stage, States, read},
    take_over::{apply_before, files_before, retire, write_again},
};

/// The field managers of Lifecycle Manager: where each has written what, and how. `Apply` is server-side apply.
const MANAGERS: [(&str, &str, &str, &str, &str); 19] = [
    (APPLIER, "kcp", "Manifest", "Apply", ""),
    (APPLIER, "kcp", "Manifest", "Apply", "status"),
    (APPLIER, "skr", "ConfigMap", "Apply", ""),
    (APPLIER, "skr", "CustomResourceDefinition", "Apply", ""),
    (APPLIER, "skr", "Deployment", "Apply", ""),
    ("catalog-sync", "skr", "ModuleReleaseMeta", "Apply", ""),
    ("catalog-sync", "skr", "ModuleTemplate", "Apply", ""),
    ("kyma-sync-context", "skr", "Kyma", "Apply", ""),
    ("kyma-sync-context", "skr", "Namespace", "Apply", ""),
    (MANAGER, "kcp", "Kyma", "Apply", "status"),
    (MANAGER, "kcp", "Manifest", "Apply", ""),
    (MANAGER, "skr", "CustomResourceDefinition", "Apply", ""),
    // The status of the Kyma in a runtime is an update of the typed client.
    ("manager", "skr", "Kyma", "Update", ""),
    ("manager", "skr", "Kyma", "Update", "status"),
    (OPERATOR, "kcp", "Certificate", "Apply", ""),
    (OPERATOR, "kcp", "Kyma", "Update", ""),
    (OPERATOR, "kcp", "ModuleReleaseMeta", "Update", ""),
    (RESOURCE, "kcp", "Manifest", "Apply", ""),
    (RESOURCE, "skr", "Thing", "Update", ""),
];
/// For certificates, and for the finalizers of Kymas.
const OPERATOR: &str = "operator.kyma-project.io/lifecycle-manager";
/// For the default custom resources of modules, and their finalizer of Manifests.
const RESOURCE: &str = "resource.kyma-project.io/finalizer";
/// Lifecycle Manager's field manager for the objects of modules, and for finalizers and status of Manifests.
const APPLIER: &str = "declarative.kyma-project.io/applier";
/// For Manifests, CRDs and the status of Kymas.
const MANAGER: &str = "lifecycle-manager";
const DISCLAIMER: &str = "DO NOT EDIT - This resource is managed by Kyma.\nAny modifications are discarded and the \
                          resource is reverted to the original state.";
/// When Lifecycle Manager was last here.
const THEN: &str = "2026-08-07T12:00:00Z";

/// The kinds of objects that Lifecycle Manager has in a runtime.
const KINDS: [land::Kind<'static>; 8] = [
    ("v1", "Namespace"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    KYMA,
    ("operator.kyma-project.io/v1beta2", "ModuleTemplate"),
    ("operator.kyma-project.io/v1beta2", "ModuleReleaseMeta"),
    ("v1", "ConfigMap"),
    ("apps/v1", "Deployment"),
    THING,
];

/// Applies an object as one of Lifecycle Manager's field managers.
async fn write(client: &Client, manager: &str, object: &Value) -> DynamicObject {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let name = object["metadata"]["name"].as_str().expect("a name");
    api.patch(name, &PatchParams::apply(manager).force(), &Patch::Apply(object)).await.expect("an apply")
}

/// Applies the status of an object as one of Lifecycle Manager's field managers.
async fn write_status(client: &Client, manager: &str, object: &Value, status: &Value) {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let (name, metadata) = (object["metadata"]["name"].as_str().expect("a name"), &object["metadata"]);
    let body = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "metadata": {"name": name, "namespace": metadata["namespace"]}, "status": status,
    });
    api.patch_status(name, &PatchParams::apply(manager).force(), &Patch::Apply(&body)).await.expect("a status");
}

/// Creates an object without server-side apply.
async fn create(client: &Client, manager: &str, object: &Value) {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let parameters = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    let object = serde_json::from_value(object.clone()).expect("an object");
    api.create(&parameters, &object).await.expect("a new object");
}

/// The objects of a module's layer, before Lifecycle Manager changes them.
fn layer(module: &str) -> Vec<Value> {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "one"},
        "metadata": {"name": format!("{module}-a"), "namespace": "kyma-system"},
    });
    if module != "keda" {
        return vec![map];
    }
    let crd: Value = serde_yaml::from_str(stage::THING_CRD).expect("a CRD");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "keda-manager", "namespace": "kyma-system", "labels": {"app": "keda"}},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "keda"}},
            "template": {
                "metadata": {"labels": {"app": "keda"}},
                "spec": {"containers": [{"name": "manager", "image": "registry.example.org/keda:2.0.0"}]},
            },
        },
    });
    vec![map, crd, deployment]
}

fn artifact(module: &str) -> Artifact {
    let documents: Vec<String> = layer(module).iter().map(Value::to_string).collect();
    let archive = gzip(&tar(&[("raw-manifest.yaml", documents.join("\n---\n").as_bytes())]));
    Artifact::new(&component(module, "1.0.0"), Schema::V2, archive, "application/x-tar")
}

/// Sets labels or annotations of an object.
fn mark(object: &mut Value, field: &str, marks: &Value) {
    let all = object["metadata"].as_object_mut().expect("metadata").entry(field).or_insert_with(|| json!({}));
    all.as_object_mut().expect("a mapping").extend(marks.as_object().expect("a mapping").clone());
}

/// An object of a module as Lifecycle Manager applies it.
fn transformed(mut object: Value, manifest: &str) -> Value {
    let labels = json!({
        label::MANAGED_BY: "kyma", "app.kubernetes.io/component": manifest, "app.kubernetes.io/part-of": "Kyma",
    });
    mark(&mut object, "labels", &labels);
    let annotations = json!({
        annotation::OWNED_BY: format!("kcp-system/{manifest}"),
        "operator.kyma-project.io/managed-by-reconciler-disclaimer": DISCLAIMER,
    });
    mark(&mut object, "annotations", &annotations);
    let image = object.pointer_mut("/spec/template/spec/containers/0/image");
    if let Some(image) = image {
        // The descriptor names an image of the same name and tag.
        *image = json!("r.example.com/a/keda:2.0.0");
    }
    object
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": THEN})
}

/// A definition as Argo CD puts it into the control plane.
fn definition(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": KYMA.0, "kind": kind, "spec": spec,
        "metadata": {"name": name, "namespace": "kcp-system", "labels": {"app.kubernetes.io/instance": "modules"}},
    });
    let noted = json!({"kubectl.kubernetes.io/last-applied-configuration": object.to_string()});
    mark(&mut object, "annotations", &noted);
    object
}

/// The definitions: `keda` is installed, `mailer` is only offered, `warden` is mandatory.
fn definitions() -> Vec<Value> {
    let mut all = Vec::new();
    for module in ["keda", "mailer", "warden"] {
        let mut spec = json!({
            "moduleName": module, "version": "1.0.0", "mandatory": false, "requiresDowntime": false,
            "descriptor": {"component": {"name": format!("example.org/module/{module}"), "version": "1.0.0"}},
            "info": {"repository": "https://example.org/r", "documentation": "https://example.org/d"},
        });
        let mut release = json!({"moduleName": module, "ocmComponentName": format!("example.org/module/{module}")});
        match module {
            "warden" => release["mandatory"] = json!({"version": "1.0.0"}),
            _ => release["channels"] = json!([{"channel": "regular", "version": "1.0.0"}]),
        }
        if module == "keda" {
            spec["data"] =
                json!({"apiVersion": THING.0, "kind": THING.1, "metadata": {"name": "default"}, "spec": {"size": 1}});
        }
        all.push(definition("ModuleTemplate", &format!("{module}-1.0.0"), spec));
        all.push(definition("ModuleReleaseMeta", module, release));
    }
    all
}

/// The Kyma in the control plane as the Kyma Environment Broker and Lifecycle Manager leave it. The user selected the
/// module in the runtime.
fn kyma(name: &str) -> Value {
    json!({
        "apiVersion": KYMA.0, "kind": KYMA.1,
        "metadata": {
            "name": name, "namespace": "kcp-system",
            "labels": {
                label::MANAGED_BY: "lifecycle-manager", "kyma-project.io/runtime-id": runtime_id(name),
                "kyma-project.io/instance-id": "i-1", "kyma-project.io/global-account-id": "ga-1",
                "kyma-project.io/subaccount-id": "sa-1", "kyma-project.io/region": "eu-1",
            },
            "annotations": {"skr-domain": "c-1234567.kyma.example.com"},
        },
        "spec": {"channel": "regular", "modules": []},
    })
}

/// The id of a runtime, which is its own.
fn runtime_id(kyma: &str) -> String {
    let index = stage::MANY.iter().position(|name| *name == kyma).expect("a Kyma of the stage") + 1;
    format!("3f0e7c1a-0000-4000-8000-{index:012}")
}

fn resource() -> Value {
    json!({
        "apiVersion": THING.0, "kind": THING.1, "metadata": {"name": "default", "namespace": "kyma-system"},
        "spec": {"size": 1},
    })
}

/// The Manifest of a module.
fn manifest(module: &str, (kyma, kyma_uid): (&str, &Value), repo: &str, layer: &BlobDigest) -> Value {
    let component = format!("example.org/module/{module}");
    let mut manifest = json!({
        "apiVersion": MANIFEST.0, "kind": MANIFEST.1,
        "metadata": {
            "name": land::name_of(kyma, module), "namespace": "kcp-system",
            "labels": {
                label::KYMA_NAME: kyma, label::MODULE_NAME: module, label::MANAGED_BY: "lifecycle-manager",
            },
            "annotations": {
                annotation::OCM_COMPONENT_NAME: component, annotation::FQDN: component,
                annotation::SYNC_OCI_REF: layer.to_string(),
            },
            "ownerReferences": [{
                "apiVersion": KYMA.0, "kind": KYMA.1, "name": kyma, "uid": kyma_uid, "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "remote": true, "version": "1.0.0", "customResourcePolicy": "CreateAndDelete",
            "install": {"name": "raw-manifest", "source": {
                "repo": repo, "name": component, "ref": layer.to_string(), "type": "oci-dir",
            }},
            "localizedImages": ["r.example.com/a/keda:2.0.0"],
        },
    });
    match module {
        "keda" => {
            mark(&mut manifest, "labels", &json!({label::CHANNEL: "regular"}));
            manifest["spec"]["resource"] = resource();
        }
        _ => mark(&mut manifest, "labels", &json!({label::MANDATORY_MODULE: "true"})),
    }
    manifest
}

fn manifest_status(module: &str, now: &str) -> Value {
    let mut synced: Vec<Value> = layer(module)
        .iter()
        .map(|object| {
            let (group, version) = object["apiVersion"].as_str().unwrap().rsplit_once('/').unwrap_or_default();
            let version = if group.is_empty() { "v1" } else { version };
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            json!({
                "group": group, "version": version, "kind": object["kind"], "name": object["metadata"]["name"],
                "namespace": namespace,
            })
        })
        .collect();
    // The order is that in which goroutines end.
    synced.reverse();
    let mut conditions = vec![
        condition("Resources", "ResourcesAvailable", "resources are parsed and ready for use"),
        condition("Installation", "Ready", "installation is ready and resources can be used"),
    ];
    if module == "keda" {
        conditions.push(condition("ModuleCR", "ModuleCRCreated", "module CR was created"));
    }
    json!({
        "state": "Ready", "conditions": conditions, "synced": synced,
        "lastOperation": {"operation": "resources are ready", "lastUpdateTime": now},
    })
}

/// The status of the Kyma in the control plane.
fn kyma_status(keda: &DynamicObject, template: &DynamicObject, now: &str) -> Value {
    let tracked = |object: &DynamicObject, kind: &str| {
        json!({
            "apiVersion": KYMA.0, "kind": kind,
            "metadata": {
                "name": object.metadata.name, "namespace": "kcp-system", "generation": object.metadata.generation,
            },
        })
    };
    json!({
        "state": "Ready", "activeChannel": "regular",
        "lastOperation": {"operation": "kyma is ready", "lastUpdateTime": now},
        "conditions": [
            condition("CRDsSync", "Ready", "CRDs are synchronized to the SKR"),
            condition("Modules", "Ready", "all modules are in ready state"),
            condition("ModuleCatalog", "Ready", "module templates are synchronized"),
            condition("SKRWebhook", "Ready", "skrwebhook is synchronized"),
        ],
        "modules": [{
            "name": "keda", "fqdn": "example.org/module/keda", "ocmComponentName": "example.org/module/keda",
            "channel": "regular", "version": "1.0.0", "state": "Ready", "manifest": tracked(keda, "Manifest"),
            "template": tracked(template, "ModuleTemplate"),
            "resource": {
                "apiVersion": THING.0, "kind": THING.1, "metadata": {"name": "default", "namespace": "kyma-system"},
            },
        }],
    })
}

/// What every runtime has.
async fn write_base(kcp: &Client, skr: &Client) {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "kyma-system", "labels": {
            label::MANAGED_BY: "kyma", "istio-injection": "enabled",
            "namespaces.warden.kyma-project.io/validate": "enabled",
        }},
    });
    write(skr, "kyma-sync-context", &namespace).await;
    for kind in ["kymas", "moduletemplates", "modulereleasemetas"] {
        let name = format!("{kind}.operator.kyma-project.io");
        let mut spec = read(kcp, "CustomResourceDefinition", "", &name).await.expect("a CRD")["spec"].clone();
        spec["conversion"] = json!({"strategy": "None"});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec,
            "metadata": {"name": name, "labels": {label::MANAGED_BY: "kyma"}},
        });
        write(skr, MANAGER, &crd).await;
        let crds = land::api(skr, ("apiextensions.k8s.io/v1", "CustomResourceDefinition"), "").await;
        eventually("the CRD is served", SOON, async || {
            let crd = crds.get(&name).await.map_err(|error| error.to_string())?;
            let conditions = crd.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_served = conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True");
            if is_served { Ok(()) } else { Err(format!("{conditions:?}")) }
        })
        .await;
    }
}

/// The module catalog: copies of typed objects, with everything that Argo CD put on them.
async fn write_catalog(skr: &Client, definitions: Vec<Value>) {
    for mut copy in definitions {
        if copy["metadata"]["name"].as_str().unwrap().starts_with("warden") {
            continue;
        }
        copy["metadata"]["namespace"] = json!("kyma-system");
        mark(&mut copy, "labels", &json!({label::MANAGED_BY: "kyma"}));
        let always = match copy["kind"].as_str().unwrap() {
            "ModuleTemplate" => json!({"channel": ""}),
            _ => json!({"beta": false, "internal": false}),
        };
        copy["spec"].as_object_mut().unwrap().extend(always.as_object().unwrap().clone());
        write(skr, "catalog-sync", &copy).await;
    }
}

/// The Kyma in a runtime, whose user selected `keda`.
async fn write_counterpart(skr: &Client, name: &str, status: &Value) {
    let mut kyma = json!({
        "apiVersion": KYMA.0, "kind": KYMA.1, "metadata": {"name": "default", "namespace": "kyma-system"},
        "spec": {"channel": "regular"},
    });
    let api = harness::api_of(skr, &kyma).await.unwrap();
    if api.get_opt("default").await.unwrap().is_none() {
        create(skr, "manager", &kyma).await;
        let selects = json!({"spec": {"modules": [{"name": "keda"}]}});
        let by_user = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
        api.patch("default", &by_user, &Patch::Merge(selects)).await.unwrap();
    }
    kyma.as_object_mut().unwrap().remove("spec");
    let labels = json!({
        "operator.kyma-project.io/watched-by": "kyma", label::MANAGED_BY: "kyma",
        "kyma-project.io/runtime-id": runtime_id(name), "kyma-project.io/global-account-id": "ga-1",
        "kyma-project.io/subaccount-id": "sa-1",
    });
    mark(&mut kyma, "labels", &labels);
    mark(&mut kyma, "annotations", &json!({annotation::OWNED_BY: format!("kcp-system/{name}")}));
    write(skr, "kyma-sync-context", &kyma).await;
    let mut shown = status.clone();
    shown["modules"][0].as_object_mut().unwrap().remove("manifest");
    shown["modules"][0]["template"]["metadata"]["namespace"] = json!("kyma-system");
    let update = json!({"status": shown});
    let by_manager = PatchParams { field_manager: Some("manager".to_owned()), ..PatchParams::default() };
    api.patch_status("default", &by_manager, &Patch::Merge(update)).await.unwrap();
}

/// The landscape of Lifecycle Manager: control plane and runtime.
async fn landscape(server: &Server) -> Stage {
    landscape_with(server, &[&format!("--oci-registry-host={}", server.address())]).await
}

/// The same, for a daemon with these options.
async fn landscape_with(server: &Server, options: &[&str]) -> Stage {
    landscape_of(1, server, options).await
}

/// The same with so many runtimes.
async fn landscape_of(runtimes: usize, server: &Server, options: &[&str]) -> Stage {
    let files = [("README.md", "No definitions yet.\n".to_owned())];
    let stage = Stage::real(runtimes, Extent::Node, &files, options).await;
    let kcp = &stage.kcp;
    for object in definitions() {
        create(kcp, "argocd-controller", &object).await;
    }
    add_finalizer(kcp, ("ModuleReleaseMeta", "warden"), finalizer::MANDATORY_MODULE).await;
    harness::install_crds_from(kcp, "cert-manager-crds.yaml", &["certificates.cert-manager.io"]).await;
    harness::apply(kcp, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}})).await;
    for (&name, skr) in stage::MANY.iter().zip(&stage.skrs) {
        create(kcp, "KEB", &kyma(name)).await;
        add_finalizer(kcp, ("Kyma", name), finalizer::KYMA).await;
        pass(kcp, (name, skr), &server.host(), &definitions(), THEN).await;
        let is_ready = |deployment: &Value| deployment["status"]["readyReplicas"] == 1;
        stage.until("the module is ready", skr, "Deployment", "kyma-system", "keda-manager", is_ready).await;
    }
    assert_eq!(
        managers(&stage).await,
        MANAGERS.map(|(name, cluster, kind, how, part)| { [name, cluster, kind, how, part].map(str::to_owned) }).into()
    );
    stage
}

/// One pass of Lifecycle Manager over a Kyma and its runtime: each of its managers writes what it always writes.
/// `catalog` are the definitions that the runtime sees.
async fn pass(kcp: &Client, (name, skr): (&str, &Client), registry: &str, catalog: &[Value], now: &str) {
    write_certificate(kcp, name).await;
    let uid = read(kcp, "Kyma", "kcp-system", name).await.unwrap()["metadata"]["uid"].clone();
    write_base(kcp, skr).await;
    write_catalog(skr, catalog.to_vec()).await;
    let mut keda = None;
    for module in ["keda", "warden"] {
        let mut manifest = manifest(module, (name, &uid), registry, &BlobDigest::of(&artifact(module).layer));
        write(kcp, MANAGER, &manifest).await;
        let mut finalizers = vec![finalizer::MANIFEST, finalizer::LABEL_REMOVAL];
        manifest["metadata"]["finalizers"] = json!(finalizers);
        write(kcp, APPLIER, &manifest).await;
        if module == "keda" {
            finalizers.push(finalizer::MANIFEST_RESOURCE);
            let metadata = &manifest["metadata"];
            let body = json!({
                "apiVersion": MANIFEST.0, "kind": MANIFEST.1, "metadata": {
                    "name": metadata["name"], "namespace": metadata["namespace"], "finalizers": finalizers,
                },
            });
            keda = Some(write(kcp, RESOURCE, &body).await);
        }
        for object in layer(module) {
            write(skr, APPLIER, &transformed(object, &land::name_of(name, module))).await;
        }
        write_status(kcp, APPLIER, &manifest, &manifest_status(module, now)).await;
    }
    eventually("the module's kind is served", SOON, async || {
        harness::api_of(skr, &resource()).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    if read(skr, "Thing", "kyma-system", "default").await.is_none() {
        create(skr, RESOURCE, &resource()).await;
    }
    let templates = land::api(kcp, (KYMA.0, "ModuleTemplate"), "kcp-system").await;
    let template = templates.get("keda-1.0.0").await.expect("it is there");
    let status = kyma_status(&keda.expect("its Manifest"), &template, now);
    write_status(kcp, MANAGER, &kyma(name), &status).await;
    write_counterpart(skr, name, &status).await;
}

/// A finalizer as Lifecycle Manager adds it, by a merge patch.
async fn add_finalizer(kcp: &Client, (kind, name): (&str, &str), finalizer: &str) {
    let shape = json!({"apiVersion": KYMA.0, "kind": kind, "metadata": {"name": name, "namespace": "kcp-system"}});
    let patch = json!({"metadata": {"finalizers": [finalizer]}});
    let by = PatchParams { field_manager: Some(OPERATOR.to_owned()), ..PatchParams::default() };
    harness::api_of(kcp, &shape).await.unwrap().patch(name, &by, &Patch::Merge(patch)).await.unwrap();
}

/// The certificate of a runtime's agent, with the empty DNS name that Lifecycle Manager writes.
async fn write_certificate(kcp: &Client, kyma: &str) {
    let name = format!("{kyma}-webhook-tls");
    let service = "skr-webhook.kyma-system.svc";
    let certificate = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {"name": name, "namespace": "istio-system"},
        "spec": {
            "commonName": runtime_id(kyma), "secretName": name, "duration": "1440h", "renewBefore": "720h",
            "dnsNames": ["c-1234567.kyma.example.com", "", format!("{service}.cluster.local"), service],
            "issuerRef": {"name": "klm-watcher-selfsigned"},
            "privateKey": {"algorithm": "RSA", "size": 4096, "encoding": "PKCS1", "rotationPolicy": "Always"},
            "usages": ["digital signature", "key encipherment"],
        },
    });
    write(kcp, OPERATOR, &certificate).await;
}

/// Which field manager of Lifecycle Manager has written which kind, in which cluster and how, with the subresource.
async fn managers(stage: &Stage) -> BTreeSet<[String; 5]> {
    let known: Vec<&str> = MANAGERS.iter().map(|row| row.0).collect();
    let mut found = BTreeSet::new();
    let of_kcp = [KYMA, MANIFEST, ("cert-manager.io/v1", "Certificate"), (KYMA.0, "ModuleReleaseMeta")];
    let kinds = of_kcp.map(|kind| ("kcp", kind)).into_iter().chain(KINDS.map(|kind| ("skr", kind)));
    for (cluster, kind) in kinds {
        let (client, namespaces) = match cluster {
            "kcp" => (&stage.kcp, ["kcp-system", "istio-system"].as_slice()),
            _ => (&stage.skrs[0], ["kyma-system"].as_slice()),
        };
        for namespace in namespaces {
            for object in land::api(client, kind, namespace).await.list(&ListParams::default()).await.unwrap() {
                for entry in object.metadata.managed_fields.unwrap_or_default() {
                    let text = |part: Option<String>| part.unwrap_or_default();
                    let manager = text(entry.manager);
                    if known.contains(&manager.as_str()) {
                        let (how, part) = (text(entry.operation), text(entry.subresource));
                        found.insert([manager, cluster.to_owned(), kind.1.to_owned(), how, part]);
                    }
                }
            }
        }
    }
    found
}

/// The objects of these kinds in a runtime.
async fn objects(skr: &Client) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (version, kind) in KINDS {
        let found = land::api(skr, (version, kind), "kyma-system").await.list(&ListParams::default()).await.unwrap();
        for object in found {
            let name = object.metadata.name.clone().unwrap();
            all.insert(format!("{kind} {name}"), serde_json::to_value(object).unwrap());
        }
    }
    all
}

/// The objects without what a write of `managedFields` changes, and without their status.
fn content(objects: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let mut objects = objects.clone();
    for object in objects.values_mut() {
        object.as_object_mut().unwrap().remove("status");
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    objects
}

/// No object of the runtime is applied by one of these managers any more.
async fn are_taken_over(skr: &Client, former: &[&str]) {
    eventually("all objects are taken over", SOON * 2, async || {
        let objects = objects(skr).await;
        let is_left = |object: &&Value| appliers(object).iter().any(|manager| former.contains(manager));
        match objects.values().find(is_left) {
            Some(object) => Err(format!("{} {:?}", object["metadata"]["name"], appliers(object))),
            None => Ok(()),
        }
    })
    .await;
}

/// The field managers that applied an object, without those of its status.
fn appliers(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let applied = entries.filter(|entry| entry["operation"] == "Apply" && entry["subresource"].is_null());
    applied.filter_map(|entry| entry["manager"].as_str()).collect()
}

/// The daemon's writes to the runtime: verb, resource and name.
fn writes(stage: &Stage, marks: &[u64]) -> Vec<String> {
    let is_write = |line: &String| {
        line.starts_with("skr-1 ") && ![" get ", " list ", " watch "].iter().any(|read| line.contains(read))
    };
    stage.requests_since(marks).into_iter().filter(is_write).collect()
}

/// The daemon's writes to the control plane: verb, resource and name, without those that follow time.
fn writes_to_kcp(stage: &Stage, marks: &[u64]) -> Vec<String> {
    let is_write = |line: &String| {
        line.starts_with("kcp ")
            && ![" get ", " list ", " watch ", " leases", " events"].iter().any(|other| line.contains(other))
    };
    stage.requests_since(marks).into_iter().filter(is_write).collect()
}

/// #101: objects of modules from a registry, of a mandatory module, the catalog, the CRDs and the namespace keep
/// content and identity: only their field manager changes. A new process then writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn row_101_a_landscape_of_lifecycle_manager_is_taken_up_by_its_managed_fields_alone() {
    let server = Server::start(None, None).await;
    for module in ["keda", "mailer", "warden"] {
        server.push("", &artifact(module), None);
    }
    let stage = landscape(&server).await;
    let skr = &stage.skrs[0];
    let before = objects(skr).await;
    let kcp = async |kind: &str, name: &str| read(&stage.kcp, kind, "kcp-system", name).await.expect("it is there");
    let names = ["keda", "warden"].map(|module| land::name_of("one", module));
    let manifests = [kcp("Manifest", &names[0]).await, kcp("Manifest", &names[1]).await];
    let kyma = kcp("Kyma", "one").await;

    let states = States::follow([&stage.kcp, skr]).await;
    let marks = stage.marks();
    stage.start();
    are_taken_over(skr, &[APPLIER, MANAGER, "catalog-sync"]).await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    states.were_ready(4);

    let after = objects(skr).await;
    let (old, new) = (content(&before), content(&after));
    for (name, object) in &old {
        assert_eq!(new.get(name), Some(object), "{name}");
    }
    assert!(new.keys().eq(old.keys()), "{:?}", new.keys());
    let of_modules = ["ConfigMap keda-a", "ConfigMap warden-a", "Deployment keda-manager"];
    let of_all = ["Namespace kyma-system", "ModuleTemplate mailer-1.0.0", "ModuleReleaseMeta keda"];
    for name in of_modules.iter().chain(&of_all) {
        assert_eq!(appliers(&after[*name]), ["tidegate"], "{name}");
    }
    let (written, written_to_kcp) = (writes(&stage, &marks), writes_to_kcp(&stage, &marks));
    let of_status = "skr-1 patch kymas.operator.kyma-project.io/status default";
    // What reports changes is Tidegate's own: W76, W77, W81.
    for line in written.iter().filter(|line| !line.ends_with(" skr-webhook")) {
        let is_known = old.keys().any(|name| line.ends_with(&format!(" {}", name.rsplit(' ').next().unwrap())));
        assert!(line.starts_with("skr-1 patch ") && is_known, "{line}");
        assert!(line == of_status || !line.starts_with("skr-1 patch kymas."), "{line}");
        assert!(!line.starts_with("skr-1 patch things."), "{line}");
    }

    // Each object once, because only its managers change.
    for object in old.keys().filter(|name| !name.starts_with("Kyma ")) {
        let name = object.rsplit(' ').next().unwrap();
        let of_kind = |line: &&String| match object.starts_with("Module") {
            true => line.contains(&object.split(' ').next().unwrap().to_lowercase()),
            false => true,
        };
        let count = written.iter().filter(of_kind).filter(|line| line.ends_with(&format!(" {name}"))).count();
        assert!(count <= 1, "{object} is written {count} times: {written:?}");
    }

    // In the control plane, the Manifests stay the same, and users see the same modules.
    for (name, manifest) in names.iter().zip(&manifests) {
        let found = kcp("Manifest", name).await;
        assert_eq!(appliers(&found), ["tidegate"], "{name}");
        // The claims of its managers, then the digest of its component (row M7b).
        let write = format!("kcp patch manifests.operator.kyma-project.io {name}");
        assert_eq!(written_to_kcp.iter().filter(|line| **line == write).count(), 2, "{written_to_kcp:?}");
        assert_eq!(found["metadata"]["uid"], manifest["metadata"]["uid"]);
        assert_eq!(found["spec"], manifest["spec"]);
        assert_eq!(found["metadata"]["finalizers"], manifest["metadata"]["finalizers"]);
        assert_eq!(found["status"]["state"], "Ready");
        assert_eq!(land::synced(&found), land::synced(manifest));
    }
    let taken = kcp("Kyma", "one").await;
    assert_eq!(taken["spec"], kyma["spec"]);
    assert_eq!(taken["status"]["modules"], kyma["status"]["modules"]);
    assert_eq!(after["Kyma default"]["status"]["modules"], before["Kyma default"]["status"]["modules"]);

    starts_again_quietly(&stage).await;
    ends_with_its_finalizers(&stage, &names).await;
}

/// A new process writes nothing.
async fn starts_again_quietly(stage: &Stage) {
    stage.kill().await;
    let marks = stage.marks();
    stage.start();
    holds("nothing is written", QUIET, async || {
        let written = [writes(stage, &marks), writes_to_kcp(stage, &marks)].concat();
        if written.is_empty() { Ok(()) } else { Err(format!("{written:?}")) }
    })
    .await;
}

/// The finalizers that Lifecycle Manager set end: those of a Manifest whose module the user deselects, of a mandatory
/// module that is deleted, and of the Kyma. Names are those of the Manifests of `keda` and `warden`.
async fn ends_with_its_finalizers(stage: &Stage, names: &[String; 2]) {
    let (kcp, skr) = (&stage.kcp, &stage.skrs[0]);
    let now = async |count: &str| {
        let annotate = json!({"metadata": {"annotations": {annotation::RECONCILE_REQUESTED_AT: count}}});
        land::merge(kcp, KYMA, "kcp-system", "one", annotate).await;
    };
    land::merge(skr, KYMA, "kyma-system", "default", json!({"spec": {"modules": []}})).await;
    now("deselected").await;
    stage.until_gone(kcp, "Manifest", "kcp-system", &names[0]).await;
    for (kind, name) in [("Thing", "default"), ("Deployment", "keda-manager"), ("ConfigMap", "keda-a")] {
        stage.until_gone(skr, kind, "kyma-system", name).await;
    }
    assert!(read(skr, "ConfigMap", "kyma-system", "warden-a").await.is_some(), "the other module stays");

    let release = (KYMA.0, "ModuleReleaseMeta");
    land::delete(kcp, release, "kcp-system", "warden").await;
    now("deleted").await;
    stage.until_gone(kcp, "Manifest", "kcp-system", &names[1]).await;
    stage.until_gone(kcp, release.1, "kcp-system", "warden").await;
    stage.until_gone(skr, "ConfigMap", "kyma-system", "warden-a").await;

    land::delete(kcp, KYMA, "kcp-system", "one").await;
    stage.until_gone(kcp, "Kyma", "kcp-system", "one").await;
}

/// Without a registry, the daemon leaves what is installed from one as it is, in KCP and in the runtime, and users see
/// no error. The rest of the runtime is taken over.
#[tokio::test(flavor = "multi_thread")]
async fn row_101_without_a_registry_what_lifecycle_manager_installed_stays_ready() {
    let server = Server::start(None, None).await;
    let stage = landscape_with(&server, &[]).await;
    let skr = &stage.skrs[0];
    let names = ["keda", "warden"].map(|module| land::name_of("one", module));
    let manifests = async || {
        let mut all = Vec::new();
        for name in &names {
            all.push(read(&stage.kcp, "Manifest", "kcp-system", name).await.expect("it is there"));
        }
        all
    };
    let (before, manifests_before) = (objects(skr).await, manifests().await);
    let states = States::follow([&stage.kcp, skr]).await;
    stage.start();
    let kyma = stage
        .until("it says what to configure", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"]["conditions"].to_string().contains("tidegate.dev/Registry")
        })
        .await;
    stage.rests().await;
    states.were_ready(4);
    let conditions = kyma["status"]["conditions"].as_array().unwrap();
    let said = conditions.iter().find(|one| one["type"] == "tidegate.dev/Registry").unwrap();
    assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("NotConfigured")));
    let message = said["message"].as_str().unwrap();
    let expected = "2 installed modules stay as they are and are not checked (keda, warden): no OCI registry is configured \
                    for it: set --oci-registry-host or ";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(manifests().await, manifests_before, "nothing is written");
    let after = objects(skr).await;
    for name in ["ConfigMap keda-a", "ConfigMap warden-a", "Deployment keda-manager", "Thing default"] {
        assert_eq!(after[name]["metadata"], before[name]["metadata"], "{name}");
    }
    assert_eq!(appliers(&after["ModuleTemplate mailer-1.0.0"]), ["tidegate"], "the rest is taken over");
    let shown = &after["Kyma default"]["status"];
    assert_eq!(shown["modules"], before["Kyma default"]["status"]["modules"]);
    assert!(!shown["conditions"].to_string().contains("tidegate.dev/Registry"), "its users cannot configure one");
    let log = std::fs::read_to_string(stage.log()).unwrap();
    let warned = log.lines().filter(|line| line.contains("because no registry is configured for them")).count();
    assert_eq!(warned, 1, "{log}");

    // A module that is not installed yet needs its registry.
    let selects = json!({"spec": {"modules": [{"name": "keda"}, {"name": "mailer"}]}});
    land::merge(skr, KYMA, "kyma-system", "default", selects).await;
    let is_wrong = |kyma: &Value| {
        let modules = kyma["status"]["modules"].as_array().cloned().unwrap_or_default();
        let state =
            |name: &str| modules.iter().find(|module| module["name"] == name).map(|module| module["state"].clone());
        (state("keda"), state("mailer")) == (Some(json!("Ready")), Some(json!("Error")))
    };
    let annotate = json!({"metadata": {"annotations": {annotation::RECONCILE_REQUESTED_AT: "now"}}});
    land::merge(&stage.kcp, KYMA, "kcp-system", "one", annotate).await;
    stage.until("the new module is an error", &stage.kcp, "Kyma", "kcp-system", "one", is_wrong).await;
    assert_eq!(manifests().await, manifests_before);
}

/// The output of a command, with its errors, and its exit code.
async fn run(stage: &Stage, arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = stage.command(arguments).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Argo CD hands the definitions over, and Lifecycle Manager copies them to the runtime.
async fn hand_over_from_argo(stage: &Stage) {
    let mut all = definitions();
    for definition in &mut all {
        let labels = json!({"metadata": {"labels": {"app.kubernetes.io/instance": null}}});
        let (kind, name) = (definition["kind"].as_str().unwrap(), definition["metadata"]["name"].as_str().unwrap());
        land::merge(&stage.kcp, (KYMA.0, kind), "kcp-system", name, labels).await;
        definition["metadata"].as_object_mut().unwrap().remove("labels");
    }
    for skr in &stage.skrs {
        write_catalog(skr, all.clone()).await;
    }
}

/// Version 1.1.0 of `keda` in the registry and in the repository: the objects differ in one text.
async fn bumped(server: &Server, stage: &Stage) -> Vec<String> {
    let next = |object: &Value| {
        let mut object = object.clone();
        if object["kind"] == "ConfigMap" {
            object["data"]["text"] = json!("two");
        }
        object.to_string()
    };
    let documents: Vec<String> = layer("keda").iter().map(next).collect();
    let archive = gzip(&tar(&[("raw-manifest.yaml", documents.join("\n---\n").as_bytes())]));
    server.push("", &Artifact::new(&component("keda", "1.1.0"), Schema::V2, archive, "application/x-tar"), None);

    let marks = stage.marks();
    for path in files_below(stage.repository.path(), "") {
        let text = std::fs::read_to_string(stage.repository.path().join(&path)).expect("a file");
        let names = |kind: &str, name: &str| {
            text.contains(&format!("kind: {kind}\n")) && text.contains(&format!("name: {name}\n"))
        };
        if names("ModuleTemplate", "keda-1.0.0") {
            let path = path.replace("1.0.0", "1.1.0");
            stage.repository.write(&path, &text.replace("1.0.0", "1.1.0")).expect("a file");
        } else if names("ModuleReleaseMeta", "keda") {
            stage.repository.write(&path, &text.replace("1.0.0", "1.1.0")).expect("a file");
        }
    }
    stage.repository.commit("version 1.1.0 of keda").expect("a commit");
    let has_version = |kyma: &Value| {
        let mut modules = kyma["status"]["modules"].as_array().into_iter().flatten();
        modules.any(|one| one["name"] == "keda" && one["version"] == "1.1.0" && one["state"] == "Ready")
    };
    stage.until("it has the new version", &stage.kcp, "Kyma", "kcp-system", "one", has_version).await;
    stage.until_gone(&stage.skrs[0], "ModuleTemplate", "kyma-system", "keda-1.0.0").await;
    stage.rests().await;
    let map = read(&stage.skrs[0], "ConfigMap", "kyma-system", "keda-a").await.expect("it is there");
    assert_eq!(map["data"]["text"], "two");
    let mut written = [writes(stage, &marks), writes_to_kcp(stage, &marks)].concat();
    written.retain(|line| !line.contains("/status ") && !line.contains(" selfsubject"));
    written.sort();
    written
}

/// The paths of the files below a folder, without hidden ones.
fn files_below(root: &std::path::Path, below: &str) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(root.join(below)).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("UTF-8");
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        match entry.file_type().expect("a type").is_dir() {
            true if name.starts_with('.') => {}
            true => all.extend(files_below(root, &path)),
            false => all.push(path),
        }
    }
    all
}

/// A landscape of Tidegate alone, with these definitions, after a user has selected `keda`.
async fn of_our_own(files: &[(String, String)], options: &[&str]) -> Stage {
    let stage = Stage::real(1, Extent::Node, &land::borrowed(files), options).await;
    let skr = &stage.skrs[0];
    stage.start();
    stage.until("its Kyma is there", skr, "Kyma", "kyma-system", "default", |_| true).await;
    land::merge(skr, KYMA, "kyma-system", "default", json!({"spec": {"modules": [{"name": "keda"}]}})).await;
    let annotate = json!({"metadata": {"annotations": {annotation::RECONCILE_REQUESTED_AT: "now"}}});
    land::merge(&stage.kcp, KYMA, "kcp-system", "one", annotate).await;
    let is_installed = |kyma: &Value| {
        let mut modules = kyma["status"]["modules"].as_array().into_iter().flatten();
        modules.any(|one| one["name"] == "keda" && one["state"] == "Ready")
    };
    stage.until("keda is installed", &stage.kcp, "Kyma", "kcp-system", "one", is_installed).await;
    stage.until("warden is installed", skr, "ConfigMap", "kyma-system", "warden-a", |_| true).await;
    stage.rests().await;
    stage
}

/// `export --as-git`, `adopt take` and `diff --live` on a landscape of Lifecycle Manager: nothing differs, and the
/// daemon then writes nothing to Manifests, and nothing but field managers and the status to the runtime. Lifecycle
/// Manager left no webhook configuration here, and there is no Watcher: none is created. A restart writes nothing, and
/// a new version what it writes on a landscape of our own.
#[tokio::test(flavor = "multi_thread")]
async fn row_101_after_a_take_over_of_its_export_nothing_differs() {
    let server = Server::start(None, None).await;
    for module in ["keda", "mailer", "warden"] {
        server.push("", &artifact(module), None);
    }
    let cache = harness::folder();
    let options =
        [format!("--oci-registry-host={}", server.address()), format!("--module-cache={}", cache.path().display())];
    let stage = landscape_with(&server, &[&options[0], &options[1]]).await;
    hand_over_from_argo(&stage).await;
    let before = objects(&stage.skrs[0]).await;
    // What reads the modules for the comparison.
    stage.start_with(&["--observe"]);
    eventually("the modules are read", SOON * 8, async || {
        let (_, text) = stage.ask("metrics", "/observed.json").await?;
        let report: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        let is_done = report["summary"]["runtimes"] == json!({"Compared": 1}) && report["summary"]["incomplete"] == 0;
        if is_done { Ok(()) } else { Err(format!("{report:#}")) }
    })
    .await;
    stage.kill().await;

    let exported = stage.repository.path().with_file_name("exported");
    let folder = exported.to_string_lossy().into_owned();
    let (text, errors, code) = run(&stage, &["export", "--as-git", &folder]).await;
    assert_eq!(code, Some(0), "{text}{errors}");
    let (text, errors, code) = run(&stage, &["adopt", "plan", &folder, &options[0]]).await;
    assert_eq!(code, Some(0), "{text}{errors}");
    let claims = "to do   2 Manifests get Tidegate as field manager in place of Lifecycle Manager: ";
    assert!(text.contains(claims), "{text}");
    let manifests = async || {
        let mut all = Vec::new();
        for module in ["keda", "warden"] {
            let name = land::name_of("one", module);
            all.push(read(&stage.kcp, "Manifest", "kcp-system", &name).await.expect("it is there"));
        }
        all
    };
    let manifests_before = manifests().await;
    let (text, errors, code) = run(&stage, &["adopt", "take", "--yes", &folder, &options[0]]).await;
    let said = "0 objects stored again, 7 definitions marked for kcp-system/landscape, 2 Manifests taken over, 1 runtime \
                held;";
    assert!(code == Some(0) && text.starts_with(said), "{code:?} {text}{errors}");
    for (found, before) in manifests().await.iter().zip(&manifests_before) {
        assert_eq!(appliers(found), ["tidegate"]);
        let content = |object: &Value| [object["spec"].clone(), object["metadata"]["annotations"].clone()];
        assert_eq!(content(found), content(before));
    }

    let validated = stage.command_offline(&["validate", &folder]).await;
    assert_eq!(String::from_utf8_lossy(&validated.stdout).trim(), "0 errors, 0 warnings in 7 files");
    let diff = ["diff", &folder, "--live", "-o", "json", &options[0], &options[1]];
    let (text, errors, code) = run(&stage, &diff).await;
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{errors}"));
    for part in ["differences", "unreached", "unknown", "diagnostics"] {
        let is_empty = report[part].as_array().is_none_or(Vec::is_empty);
        assert!(is_empty, "{part}: {:#}", report[part]);
    }
    let held = report["held"].as_array().into_iter().flatten();
    let held: Vec<&str> = held.filter_map(|held| held["why"].as_str()).collect();
    assert_eq!((held, code), (vec!["adopted"], Some(0)), "{report:#}");

    harness::copy(&exported, stage.repository.path());
    stage.repository.commit("what the control plane has").expect("a commit");
    let states = States::follow([&stage.kcp, &stage.skrs[0]]).await;
    let marks = stage.marks();
    stage.start();
    are_taken_over(&stage.skrs[0], &[APPLIER]).await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    states.were_ready(4);
    assert_eq!(content(&objects(&stage.skrs[0]).await), content(&before));
    assert!(read(&stage.skrs[0], "ValidatingWebhookConfiguration", "", "skr-webhook").await.is_none());
    let written = writes_to_kcp(&stage, &marks);
    let of_manifests: Vec<&String> =
        written.iter().filter(|line| line.starts_with("kcp patch manifests.operator.kyma-project.io ")).collect();
    assert_eq!(of_manifests, Vec::<&String>::new());

    starts_again_quietly(&stage).await;
    let root = stage.repository.path();
    let paths = files_below(root, "").into_iter().chain([".tidegate/source.yaml".to_owned()]);
    let text = |path: &str| std::fs::read_to_string(root.join(path)).expect("a file");
    let files: Vec<(String, String)> = paths.map(|path| (path.clone(), text(&path))).collect();
    let after_take_over = bumped(&server, &stage).await;
    // Lifecycle Manager left no webhook configuration, so a Watcher gets none before the take-over is finished.
    harness::apply(&stage.kcp, &serde_yaml::from_str(stage::WATCHER).unwrap()).await;
    let is_seen = |watcher: &Value| watcher["status"]["state"].is_string();
    stage.until("the Watcher is seen", &stage.kcp, "Watcher", "kcp-system", "watcher", is_seen).await;
    stage.rests().await;
    assert!(read(&stage.skrs[0], "ValidatingWebhookConfiguration", "", "skr-webhook").await.is_none());
    drop(stage);
    let ours = of_our_own(&files, &[&options[0]]).await;
    assert_eq!(after_take_over, bumped(&server, &ours).await);
    let write = format!("kcp patch manifests.operator.kyma-project.io {}", land::name_of("one", "keda"));
    assert_eq!(after_take_over.iter().filter(|line| **line == write).count(), 1, "{after_take_over:?}");
    assert!(after_take_over.contains(&"skr-1 patch configmaps keda-a".to_owned()), "{after_take_over:?}");
}

/// What a merge patch without a change does to an object: the API server stores it in the storage version.
async fn touch(client: &Client, object: &Value) {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let name = object["metadata"]["name"].as_str().expect("a name");
    api.patch(name, &PatchParams::default(), &Patch::Merge(json!({}))).await.expect("a patch");
}

/// Our definitions of these kinds, with `v1beta1` as the version that is served and stored.
fn outdated(kinds: &[&str]) -> Vec<Value> {
    let all = tidegate_core::api::crds().iter().map(|crd| serde_json::to_value(crd).unwrap());
    let mut crds: Vec<Value> =
        all.filter(|crd| kinds.iter().any(|kind| crd["spec"]["names"]["kind"] == **kind)).collect();
    for version in crds.iter_mut().flat_map(|crd| crd["spec"]["versions"].as_array_mut().unwrap()) {
        let is_old = version["name"] == "v1beta1";
        version["served"] = json!(true);
        version["storage"] = json!(is_old);
    }
    crds
}

/// #2: objects that etcd has as `v1beta1` are stored again by `adopt take`, each once and without a change, and the
/// version leaves `storedVersions`. Then a definition without it is accepted.
#[tokio::test(flavor = "multi_thread")]
async fn row_2_what_was_stored_as_v1beta1_is_stored_again() {
    let files = files_before(&[]);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, &[]).await;
    let kinds = ["Kyma", "ModuleTemplate"];
    harness::install_crds(&stage.kcp, &outdated(&kinds)).await;
    apply_before(&stage, &files).await;
    let mut objects = Vec::new();
    for (kind, name) in [("Kyma", "one"), ("ModuleTemplate", "cache-1.0.0"), ("ModuleTemplate", "mailer-2.0.0")] {
        objects.push(read(&stage.kcp, kind, "kcp-system", name).await.expect("it was applied"));
    }
    let key_of = |object: &Value| {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        format!("operator.kyma-project.io/{kind}s/kcp-system/{}", object["metadata"]["name"].as_str().unwrap())
    };
    let stored = async |object: &Value| {
        let found = stage.landscape.kcp.real().stored(&key_of(object)).await.expect("etcd answers");
        found.expect("it is stored")
    };
    // A server that was told of a version uses it soon.
    let until_stored = async |object: &Value, version: &str| {
        eventually("the server uses the version", SOON, async || {
            touch(&stage.kcp, object).await;
            let found = stored(object).await["apiVersion"].clone();
            if found == format!("operator.kyma-project.io/{version}") { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    };
    for object in &objects {
        until_stored(object, "v1beta1").await;
    }
    // The upgrade that Lifecycle Manager made. Other objects of both kinds show when it is in effect.
    harness::install_own_crds(&stage.kcp).await;
    let mut kyma = kyma("one");
    kyma["metadata"] = json!({"name": "probe", "namespace": "kcp-system"});
    create(&stage.kcp, "KEB", &kyma).await;
    until_stored(&kyma, "v1beta2").await;
    let other = read(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.1.0").await.expect("it was applied");
    until_stored(&other, "v1beta2").await;
    land::api(&stage.kcp, KYMA, "kcp-system").await.delete("probe", &DeleteParams::default()).await.expect("a delete");
    for object in &objects {
        assert_eq!(stored(object).await["apiVersion"], "operator.kyma-project.io/v1beta1", "{}", key_of(object));
    }
    let crds = async || {
        let mut all = Vec::new();
        for plural in ["kymas", "moduletemplates"] {
            let name = format!("{plural}.operator.kyma-project.io");
            all.push(read(&stage.kcp, "CustomResourceDefinition", "", &name).await.expect("it is there"));
        }
        all
    };
    for crd in crds().await {
        let versions = crd["status"]["storedVersions"].as_array().unwrap();
        assert!(versions.contains(&json!("v1beta1")) && versions.contains(&json!("v1beta2")), "{versions:?}");
    }
    let without = async |crd: &Value| {
        let versions = crd["spec"]["versions"].as_array().unwrap().iter().filter(|one| one["name"] != "v1beta1");
        let patch = json!({"spec": {"versions": versions.collect::<Vec<_>>()}});
        let api = harness::api_of(&stage.kcp, crd).await.expect("a kind that is served");
        api.patch(crd["metadata"]["name"].as_str().unwrap(), &PatchParams::default(), &Patch::Merge(patch)).await
    };
    for crd in crds().await {
        let refused = without(&crd).await.expect_err("objects may be stored so").to_string();
        assert!(refused.contains("status.storedVersions"), "{refused}");
    }

    let folder = stage.repository.path().to_string_lossy().into_owned();
    let (text, errors, code) = run(&stage, &["adopt", "plan", &folder]).await;
    assert_eq!(code, Some(0), "{text}{errors}");
    for said in [
        "kymas.operator.kyma-project.io: the API server may store objects as v1beta1; 1 object must be written again as",
        "moduletemplates.operator.kyma-project.io: the API server may store objects as v1beta1; 3 objects must be written",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let (text, errors, code) = run(&stage, &["adopt", "take", "--yes", &folder]).await;
    assert!(code == Some(0) && text.starts_with("4 objects stored again, "), "{text}{errors}");
    for object in &objects {
        let found = stored(object).await;
        assert_eq!(found["apiVersion"], "operator.kyma-project.io/v1beta2", "{}", key_of(object));
        assert_eq!(found["spec"], object["spec"], "{}", key_of(object));
        assert_eq!(found["metadata"]["uid"], object["metadata"]["uid"], "{}", key_of(object));
        assert_eq!(found["metadata"]["generation"], object["metadata"]["generation"], "{}", key_of(object));
    }
    for crd in crds().await {
        assert_eq!(crd["status"]["storedVersions"], json!(["v1beta2"]));
        without(&crd).await.expect("no object is stored so any more");
    }
}

/// What the field managers of an object claim, without what a status has: manager, operation and path.
fn claims(object: &Value) -> BTreeSet<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut all = BTreeSet::new();
    for entry in entries.filter(|entry| entry["subresource"].is_null()) {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let beginning = format!("{} {} ", text("manager"), text("operation"));
        leaves(&entry["fieldsV1"], &beginning, &mut all);
    }
    all
}

/// The paths of claims that have none below them.
fn leaves(claims: &Value, path: &str, all: &mut BTreeSet<String>) {
    for (field, below) in claims.as_object().into_iter().flatten().filter(|(field, _)| *field != ".") {
        let path = format!("{path}/{}", field.trim_start_matches("f:"));
        match below.as_object().is_some_and(|below| below.keys().any(|field| field != ".")) {
            true => leaves(below, &path, all),
            false => _ = all.insert(path),
        }
    }
}

/// The objects of these kinds in the control plane.
async fn objects_of_kcp(stage: &Stage) -> BTreeMap<String, Value> {
    let kinds = ["Kyma", "Manifest", "ModuleTemplate", "ModuleReleaseMeta"].map(|kind| ((KYMA.0, kind), "kcp-system"));
    let mut all = BTreeMap::new();
    for (kind, namespace) in kinds.into_iter().chain([(("cert-manager.io/v1", "Certificate"), "istio-system")]) {
        for object in land::api(&stage.kcp, kind, namespace).await.list(&ListParams::default()).await.unwrap() {
            let name = object.metadata.name.clone().unwrap();
            all.insert(format!("{} {name}", kind.1), serde_json::to_value(object).unwrap());
        }
    }
    all
}

/// What of two sets of objects differs, one line each: the content, or what a field manager claims.
fn differing(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Vec<String> {
    let (old, new) = (content(before), content(after));
    let mut found: Vec<String> =
        old.keys().filter(|name| !new.contains_key(*name)).map(|one| format!("{one} is gone")).collect();
    found.extend(new.keys().filter(|name| !old.contains_key(*name)).map(|one| format!("{one} is new")));
    for (name, object) in old.iter().filter(|(name, _)| new.contains_key(*name)) {
        if new[name] != *object {
            found.push(format!("{name}: {object:#} is {:#}", new[name]));
        }
        let (had, has) = (claims(&before[name]), claims(&after[name]));
        found.extend(had.difference(&has).map(|claim| format!("{name} lost {claim}")));
        found.extend(has.difference(&had).map(|claim| format!("{name} got {claim}")));
    }
    found
}

/// The way there and back, with a pass of the daemon between: each object has the content that Lifecycle Manager wrote,
/// and each of its six managers claims what it claimed.
#[tokio::test(flavor = "multi_thread")]
async fn row_101_what_is_given_back_is_as_its_managers_wrote_it() {
    let server = Server::start(None, None).await;
    for module in ["keda", "mailer", "warden"] {
        server.push("", &artifact(module), None);
    }
    let option = format!("--oci-registry-host={}", server.address());
    let stage = landscape_with(&server, &[&option]).await;
    hand_over_from_argo(&stage).await;
    let skr = &stage.skrs[0];
    let (kcp_before, skr_before) = (objects_of_kcp(&stage).await, objects(skr).await);

    let exported = stage.repository.path().with_file_name("exported");
    let folder = exported.to_string_lossy().into_owned();
    let (text, errors, code) = run(&stage, &["export", "--as-git", &folder]).await;
    assert_eq!(code, Some(0), "{text}{errors}");
    harness::copy(&exported, stage.repository.path());
    stage.repository.commit("what the control plane has").expect("a commit");
    let folder = stage.repository.path().to_string_lossy().into_owned();
    let (text, errors, code) = run(&stage, &["adopt", "take", "--yes", &folder, &option]).await;
    assert_eq!(code, Some(0), "{text}{errors}");
    stage.start();
    are_taken_over(skr, &[APPLIER, MANAGER, "catalog-sync"]).await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    retire(&stage).await;
    let (text, errors, code) = run(&stage, &["adopt", "release", "--yes"]).await;
    assert_eq!(code, Some(0), "{text}{errors}");

    let found = [differing(&kcp_before, &objects_of_kcp(&stage).await), differing(&skr_before, &objects(skr).await)];
    assert_eq!(found.concat(), Vec::<String>::new());
    managers_write_again(&stage).await;
}

/// Each manager that wrote the landscape writes again what it claims, in the same way: by an apply or an update, on the
/// object or its status. No object changes.
async fn managers_write_again(stage: &Stage) {
    let all: BTreeSet<&str> = MANAGERS.iter().map(|row| row.0).collect();
    let all: Vec<&str> = all.into_iter().collect();
    let typed = |objects: BTreeMap<String, Value>, versions: &[land::Kind<'_>]| -> Vec<Value> {
        let of_kind = |(name, mut object): (String, Value)| {
            let kind = name.split(' ').next().unwrap();
            let version = versions.iter().find(|(_, other)| *other == kind).unwrap().0;
            // The items of a list do not say what they are.
            (object["apiVersion"], object["kind"]) = (json!(version), json!(kind));
            object
        };
        objects.into_iter().map(of_kind).collect()
    };
    let of_kcp = ["Kyma", "Manifest", "ModuleTemplate", "ModuleReleaseMeta"].map(|kind| (KYMA.0, kind));
    let of_kcp = [&of_kcp[..], &[("cert-manager.io/v1", "Certificate")]].concat();
    let in_kcp = write_again(&stage.kcp, &typed(objects_of_kcp(stage).await, &of_kcp), &all).await;
    let in_runtime = write_again(&stage.skrs[0], &typed(objects(&stage.skrs[0]).await, &KINDS), &all).await;
    let wrote = |cluster: &str| -> BTreeSet<String> {
        let rows = MANAGERS.iter().filter(|row| row.1 == cluster);
        rows.map(|(name, _, _, how, part)| format!("{name} {how} {part}").trim_end().to_owned()).collect()
    };
    assert_eq!([in_kcp, in_runtime], ["kcp", "skr"].map(wrote), "all managers have what they had");
}

/// An observer of three real runtimes while Lifecycle Manager works: it passes over each of them all the time, as its
/// six managers, and renews its Lease. The observer sends nothing but reads to any server, and what Lifecycle Manager
/// wrote stays as it was.
#[tokio::test(flavor = "multi_thread")]
async fn row_101_an_observer_of_three_runtimes_beside_lifecycle_manager_only_reads() {
    const RUNTIMES: usize = 3;
    const PASSES: usize = 4;
    let server = Server::start(None, None).await;
    for module in ["keda", "mailer", "warden"] {
        server.push("", &artifact(module), None);
    }
    let stage = landscape_of(RUNTIMES, &server, &[&format!("--oci-registry-host={}", server.address())]).await;
    let (registry, definitions) = (server.host(), definitions());
    let mut before = Vec::new();
    for skr in &stage.skrs {
        before.push(objects(skr).await);
    }
    let marks = stage.marks();
    stage.start_with(&["--observe"]);
    let works = async {
        for count in 1_usize.. {
            let now = format!("2026-08-07T13:{:02}:{:02}Z", count / 60 % 60, count % 60);
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "893110f7.kyma-project.io", "namespace": "kcp-system"},
                "spec": {
                    "holderIdentity": "klm-controller-manager-0_1", "leaseDurationSeconds": 180,
                    "renewTime": now.replace('Z', ".000000Z"),
                },
            });
            write(&stage.kcp, "lifecycle-manager", &lease).await;
            for (&name, skr) in stage::MANY.iter().zip(&stage.skrs) {
                pass(&stage.kcp, (name, skr), &registry, &definitions, &now).await;
            }
            // What the observer has seen of it.
            let report = match stage.ask("metrics", "/observed.json").await {
                Ok((200, text)) => serde_json::from_str::<Value>(&text).expect("JSON"),
                _ => Value::Null,
            };
            let is_compared =
                report["summary"]["runtimes"] == json!({"Compared": RUNTIMES}) && report["summary"]["incomplete"] == 0;
            if PASSES <= count && is_compared {
                return report;
            }
        }
        unreachable!("it passes until the runtimes are compared")
    };
    let report = tokio::time::timeout(SOON * 8, works).await.expect("all runtimes are compared");
    stage.kill().await;

    // Nothing of what Lifecycle Manager writes is a difference but what the webhook configuration is missing.
    for runtime in report["runtimes"].as_array().expect("runtimes") {
        for (module, part) in runtime["modules"].as_object().expect("modules") {
            let objects = part["objects"].as_array().into_iter().flatten();
            let differing: Vec<&Value> = objects
                .filter(|one| one["improvement"].is_null() && one["kind"] != "ValidatingWebhookConfiguration")
                .collect();
            assert!(differing.is_empty(), "{} {module}: {differing:#?}", runtime["name"]);
        }
    }
    let (mut reads, mut others) = (BTreeMap::new(), BTreeMap::new());
    for (cluster, mark) in stage.landscape.servers().zip(&marks) {
        for record in cluster.records_since(*mark) {
            let is_read = ["get", "list", "watch"].contains(&record.verb.as_str());
            match (record.user == stage::USER, is_read) {
                (true, true) => *reads.entry(cluster.name().to_owned()).or_insert(0) += 1,
                (true, false) => panic!("the observer sent {record:?} to {}", cluster.name()),
                (false, false) => *others.entry(cluster.name().to_owned()).or_insert(0) += 1,
                (false, true) => {}
            }
        }
    }
    assert_eq!(reads.len(), 1 + RUNTIMES, "it reads each cluster: {reads:?}");
    // A pass over a runtime is more than ten writes there.
    assert!(others.values().all(|writes: &usize| 10 * PASSES < *writes) && others.len() == 1 + RUNTIMES, "{others:?}");
    for (skr, before) in stage.skrs.iter().zip(&before) {
        let after = objects(skr).await;
        assert_eq!(differing(before, &after), Vec::<String>::new());
        assert!(!after.values().any(|object| object["metadata"].to_string().contains("tidegate")));
    }
    let kcp = objects_of_kcp(&stage).await;
    assert!(!kcp.values().any(|object| object["metadata"]["managedFields"].to_string().contains("\"tidegate\"")));
}

/// Before the take-over, the same landscape is observed: it differs by the field managers alone, which is decided,
/// and by the webhook configuration, which Lifecycle Manager has not written here. Nothing is written.
#[tokio::test(flavor = "multi_thread")]
async fn row_101_a_landscape_of_lifecycle_manager_is_observed_without_a_write() {
    let server = Server::start(None, None).await;
    for module in ["keda", "mailer", "warden"] {
        server.push("", &artifact(module), None);
    }
    let stage = landscape(&server).await;
    let before = objects(&stage.skrs[0]).await;
    let marks = stage.marks();
    stage.start_with(&["--observe"]);
    // What changed since is compared after a minute. A registry that a busy machine keeps waiting is asked again later.
    let report = eventually("the runtime is compared", SOON * 8, async || {
        let (_, text) = stage.ask("metrics", "/observed.json").await?;
        let report: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        let summary = &report["summary"];
        let is_done = summary["runtimes"] == json!({"Compared": 1}) && summary["incomplete"] == 0;
        if is_done { Ok(report) } else { Err(format!("{report:#}")) }
    })
    .await;
    let modules = report["runtimes"][0]["modules"].as_object().unwrap();
    let of = |module: &str| modules[module]["objects"].as_array().cloned().unwrap_or_default();
    let all: Vec<Value> = modules.keys().flat_map(|module| of(module)).collect();
    let differing: Vec<String> = all
        .iter()
        .filter(|one| one["improvement"].is_null())
        .map(|one| format!("{} {} {}", one["reason"], one["kind"], one["name"]))
        .collect();
    assert_eq!(differing, [r#""Missing" "ValidatingWebhookConfiguration" "skr-webhook""#], "{report:#}");
    let named = |module: &str, kind: &str| {
        of(module).iter().any(|one| one["kind"] == kind && one["improvement"]["row"] == "R2")
    };
    for (module, kind) in [
        ("keda", "ConfigMap"),
        ("keda", "Deployment"),
        ("keda", "CustomResourceDefinition"),
        ("warden", "ConfigMap"),
        ("-", "Namespace"),
        ("-", "ModuleTemplate"),
    ] {
        assert!(named(module, kind), "{module} {kind}: {report:#}");
    }
    let manifest = of("keda").into_iter().find(|one| one["kind"] == "Manifest").expect("its Manifest");
    assert_eq!(manifest["improvement"]["row"], "M7b", "it gets the digest of its component");
    stage.kill().await;
    assert_eq!(objects(&stage.skrs[0]).await, before);
    let written: Vec<String> = stage.requests_since(&marks);
    let is_write = |line: &&String| ![" get ", " list ", " watch "].iter().any(|read| line.contains(read));
    assert_eq!(written.iter().find(is_write), None);
    assert!(!written.is_empty(), "the runtime was read");
}
