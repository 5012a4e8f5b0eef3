// SPDX-License-Identifier: Apache-2.0

use super::*;

fn route(path: &str) -> String {
    match Route::parse(path) {
        Some(Route::Resource(place)) => {
            let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
            let ResourcePath { group, version, plural, namespace, name, subresource } = &place;
            format!("{group}|{version}|{plural}|{}|{}|{}", part(namespace), part(name), part(subresource))
        }
        Some(Route::Other) => "other".to_owned(),
        None => "broken".to_owned(),
    }
}

#[test]
fn paths_lead_to_resources() {
    for (path, expected) in [
        ("/api/v1/namespaces/default/configmaps/a%2Eb", "|v1|configmaps|default|a.b|-"),
        ("/api/v1/configmaps", "|v1|configmaps|-|-|-"),
        ("/api/v1/namespaces", "|v1|namespaces|-|-|-"),
        ("/api/v1/namespaces/default", "|v1|namespaces|-|default|-"),
        ("/api/v1/namespaces/default/status", "|v1|namespaces|-|default|status"),
        ("/apis/apps/v1/namespaces/x/deployments/a/status", "apps|v1|deployments|x|a|status"),
        ("/apis/apps/v1/namespaces/x/pods/a/proxy/b", "apps|v1|pods|x|a|proxy/b"),
        ("/apis/apps/v1", "other"),
        ("/version", "other"),
        ("/", "other"),
        ("/api/v1/configmaps/%zz", "broken"),
        ("/api/v1/configmaps/%ff", "broken"),
    ] {
        assert_eq!(route(path), expected, "{path}");
    }
}

#[test]
fn parameters_are_decoded() {
    let parameters = Parameters::parse("labelSelector=a+in+%28b%29&watch&limit=5&empty=&force=0");
    assert_eq!(parameters.get("labelSelector"), Some("a in (b)"));
    assert_eq!((parameters.flag("watch"), parameters.flag("force"), parameters.flag("none")), (true, false, false));
    assert_eq!(parameters.get("empty"), None);
    assert_eq!(parameters.number("limit").unwrap(), Some(5));
    assert!(Parameters::parse("limit=x").number("limit").is_err());
}
