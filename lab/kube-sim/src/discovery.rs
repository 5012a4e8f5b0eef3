// SPDX-License-Identifier: Apache-2.0

//! Discovery: versions, groups, resources, health, and the index of OpenAPI.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::body::Body;
use http::{Response, StatusCode, header, request::Parts};
use serde_json::{Map, Value, json};

use super::{
    Server,
    identity::User,
    openapi,
    refusal::Refusal,
    resource::{self, Resource},
    service::response,
};

/// The simulated version.
const GIT_VERSION: &str = "v1.36.3";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Paths that anonymous users may read.
const PUBLIC: [&str; 5] = ["/version", "/version/", "/healthz", "/livez", "/readyz"];

/// Answers a path that is not a resource's.
pub(super) fn answer(server: &Server, parts: &Parts, user: &User) -> Result<Response<Body>, Refusal> {
    let path = parts.uri.path();
    if !user.is_known() && !PUBLIC.contains(&path) {
        return Err(Refusal::forbidden_path(&user.name, &parts.method.as_str().to_lowercase(), path));
    }
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let aggregated = wants_aggregated(parts);
    let json = |value: &Value| Ok(response(StatusCode::OK, "application/json", value.to_string()));
    match segments.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Ok(response(StatusCode::OK, "text/plain; charset=utf-8", "ok")),
        ["version"] => json(&version()),
        [""] => json(&json!({"paths": paths(server)})),
        ["api" | "apis"] if aggregated => {
            let list = aggregated_list(server, segments == ["api"]).to_string();
            Ok(response(StatusCode::OK, AGGREGATED, list))
        }
        ["api"] => json(&json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
        ["apis"] => {
            let groups: Vec<Value> =
                groups(server).iter().map(|(name, versions)| group(name, versions, false)).collect();
            json(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] => match groups(server).into_iter().find(|(known, _)| **known == **name) {
            Some((name, versions)) => json(&group(&name, &versions, true)),
            None => Ok(no_page()),
        },
        ["api", version] => resources(server, "", version).map_or_else(|| server.nothing_at(""), |list| json(&list)),
        ["apis", group, version] => {
            resources(server, group, version).map_or_else(|| server.nothing_at(group), |list| json(&list))
        }
        ["openapi", "v3"] => json(&openapi_index(server)),
        ["openapi", "v3", "api", version] => {
            openapi(server, "", version).map_or_else(|| Ok(no_page()), |document| json(&document))
        }
        ["openapi", "v3", "apis", group, version] => {
            openapi(server, group, version).map_or_else(|| Ok(no_page()), |document| json(&document))
        }
        _ => Ok(no_page()),
    }
}

/// The server's answer for an unknown path.
pub(super) fn no_page() -> Response<Body> {
    response(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n")
}

fn wants_aggregated(parts: &Parts) -> bool {
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|clause| {
        let has = |wanted: &str| clause.split(';').any(|part| part.trim() == wanted);
        has("g=apidiscovery.k8s.io") && has("v=v2") && has("as=APIGroupDiscoveryList")
    })
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35", "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

/// Groups with their versions, the preferred one first, without the core group.
fn groups(server: &Server) -> Vec<(Arc<str>, Vec<Arc<str>>)> {
    let mut groups: Vec<(Arc<str>, Vec<Arc<str>>)> = Vec::new();
    let mut custom: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
    for resource in resource::in_order().filter(|resource| !resource.kind.group.is_empty()) {
        if groups.iter().all(|(name, _)| *name != resource.kind.group) {
            groups.push((Arc::clone(&resource.kind.group), vec![Arc::clone(&resource.kind.version)]));
        }
    }
    for resource in server.custom().values() {
        custom.entry(Arc::clone(&resource.kind.group)).or_default().insert(Arc::clone(&resource.kind.version));
    }
    groups.extend(custom.into_iter().map(|(name, versions)| {
        let mut versions: Vec<Arc<str>> = versions.into_iter().collect();
        versions.sort_by(|left, right| rank(right).cmp(&rank(left)).then_with(|| left.cmp(right)));
        (name, versions)
    }));
    groups
}

/// Orders versions: `v2`, `v1`, `v2beta1`, `v1alpha1`, then anything else.
fn rank(version: &str) -> (u8, u64, u64) {
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    for (word, rank) in [("alpha", 1), ("beta", 2)] {
        if let Some((major, minor)) = rest.split_once(word) {
            return (rank, number(major), number(minor));
        }
    }
    if rest.parse::<u64>().is_ok() { (3, number(rest), 0) } else { (0, 0, 0) }
}

fn group(name: &str, versions: &[Arc<str>], alone: bool) -> Value {
    let version = |version: &Arc<str>| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    let mut group = json!({"name": name, "versions": versions, "preferredVersion": versions.first()});
    if alone {
        group["kind"] = "APIGroup".into();
        group["apiVersion"] = "v1".into();
    }
    group
}

/// The resources of a group and version, in the order of discovery.
fn of_version(server: &Server, group: &str, version: &str) -> Vec<Arc<Resource>> {
    let built_in = resource::in_order().cloned();
    let all = built_in.chain(server.custom().into_values());
    all.filter(|resource| *resource.kind.group == *group && *resource.kind.version == *version).collect()
}

fn resources(server: &Server, group: &str, version: &str) -> Option<Value> {
    let found = of_version(server, group, version);
    let api_version = found.first()?.api_version.clone();
    let mut list = Vec::new();
    for resource in &found {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind.kind, "verbs": resource.verbs(),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        list.push(entry);
        if resource.habits.status {
            list.push(json!({
                "name": format!("{}/status", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": resource.kind.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": list}))
}

fn aggregated_list(server: &Server, core: bool) -> Value {
    let groups = if core { vec![("".into(), vec!["v1".into()])] } else { groups(server) };
    let items: Vec<Value> = groups
        .iter()
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> =
                        of_version(server, name, version).iter().map(|resource| aggregated(resource)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let mut metadata = Map::new();
            if !name.is_empty() {
                metadata.insert("name".to_owned(), (&**name).into());
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated(resource: &Resource) -> Value {
    let kind = |resource: &Resource| match resource.is_built_in() {
        true => json!({"group": "", "version": "", "kind": resource.kind.kind}),
        false => json!({
            "group": resource.kind.group, "version": resource.kind.version, "kind": resource.kind.kind,
        }),
    };
    let mut entry = json!({
        "resource": resource.plural, "responseKind": kind(resource),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if resource.habits.status {
        let status =
            json!({"subresource": "status", "responseKind": kind(resource), "verbs": ["get", "patch", "update"]});
        entry["subresources"] = json!([status]);
    }
    entry
}

fn paths(server: &Server) -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for (name, versions) in groups(server) {
        paths.push(format!("/apis/{name}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{name}/{version}")));
    }
    paths.extend(["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
    paths
}

fn openapi_index(server: &Server) -> Value {
    let mut paths = Map::new();
    let mut add = |path: String| {
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    };
    add("api/v1".to_owned());
    for (name, versions) in groups(server) {
        versions.iter().for_each(|version| add(format!("apis/{name}/{version}")));
    }
    json!({"paths": paths})
}

/// The schemas of a group and version.
fn openapi(server: &Server, group: &str, version: &str) -> Option<Value> {
    let found = of_version(server, group, version);
    found.first()?;
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    Some(openapi::document(&root, &found, GIT_VERSION))
}
