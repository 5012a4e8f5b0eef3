use super::*;

const AUTHORITY: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

/// A kubeconfig with these fields in `cluster` and `user`, besides the required ones.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
         contexts: [{{name: x, context: {{cluster: x, user: x}}}}]\n\
         clusters: [{{name: x, cluster: {{server: 'https://api.example.org:6443', certificate-authority-data: {AUTHORITY}{cluster}}}}}]\n\
         users: [{{name: x, user: {{{user}}}}}]\n"
    )
}

#[track_caller]
fn refused(kubeconfig: &str, expected: &str) {
    assert_eq!(parse(kubeconfig.as_bytes()).unwrap_err().to_string(), expected);
}

#[test]
fn inline_data_is_accepted() {
    let access = parse(kubeconfig(", tls-server-name: inner.example.org", "token: s3cret").as_bytes()).unwrap();
    assert_eq!(access.server().to_string(), "https://api.example.org:6443/");
    let config = access.config().unwrap();
    assert_eq!(config.tls_server_name.as_deref(), Some("inner.example.org"));
    assert!(config.auth_info.token.is_some() && config.auth_info.exec.is_none());
    assert_eq!(config.root_cert.unwrap().len(), 1);
    assert!(!format!("{access:?}").contains("s3cret"));
    parse(kubeconfig("", "client-certificate-data: Zm9v, client-key-data: YmFy").as_bytes()).unwrap();
    // Fields without effect are allowed.
    parse(kubeconfig(", insecure-skip-tls-verify: false, proxy-url: ''", "token: a, username: ''").as_bytes()).unwrap();
}

#[test]
fn everything_that_is_not_inline_is_refused_by_name() {
    for (field, why) in REFUSED {
        let value = if field == "insecure-skip-tls-verify" { "true" } else { "s3cret" };
        for config in [
            kubeconfig(&format!(", {field}: {value}"), "token: a"),
            kubeconfig("", &format!("token: a, {field}: {value}")),
        ] {
            refused(&config, &format!("`{field}` is not accepted: {why}"));
        }
    }
}

#[test]
fn what_another_context_uses_is_refused_too() {
    let config = kubeconfig("", "token: a").replace(
        "users: [",
        "users: [{name: other, user: {exec: {command: touch, apiVersion: client.authentication.k8s.io/v1}}}, ",
    );
    refused(&config, "`exec` is not accepted: no program is run; use a token or a client certificate");
}

#[test]
fn what_is_absent_or_malformed_is_named_without_its_content() {
    let good = kubeconfig("", "token: s3cret");
    let with = |from: &str, to: &str| good.replace(from, to);
    refused("", "it is not a kubeconfig");
    refused("s3cret", "it is not a kubeconfig");
    refused("a: b\n---\na: b\n", "it is not a kubeconfig");
    refused("token: 's3cret", "it is not a kubeconfig");
    refused(
        &with("current-context: x", "current-context: z"),
        "`current-context` refers to an entry that does not exist",
    );
    refused(&with("user: x}", "user: z}"), "`context.user` refers to an entry that does not exist");
    refused(&with("cluster: x,", "cluster: z,"), "`context.cluster` refers to an entry that does not exist");
    refused(&with("token: s3cret", "token: ' '"), "`token` is missing");
    refused(&with(AUTHORITY, "''"), "`certificate-authority-data` is missing");
    refused(&with(AUTHORITY, "s3cret"), "`certificate-authority-data` is not base64-encoded PEM certificates");
    refused(&with("token: s3cret", "client-certificate-data: Zm9v"), "`client-key-data` is missing");
    refused(
        &with("token: s3cret", "client-certificate-data: Zm9v, client-key-data: s3cret!"),
        "`client-key-data` is not a base64-encoded PEM key",
    );
    for server in ["http://api.example.org", "https://user:s3cret@api.example.org", "/a/socket", "https://a?s3cret"] {
        refused(
            &with("https://api.example.org:6443", server),
            "`server` is not an https URL without user, query or fragment",
        );
    }
    refused(&"#".repeat(LEN_MAX + 1), "it is larger than 262144 bytes");
    assert_eq!(parse(&[0xff, 0xfe]).unwrap_err(), Refused::NotAKubeconfig);
}

#[test]
fn the_only_context_needs_no_name() {
    parse(kubeconfig("", "token: a").replace("current-context: x\n", "").as_bytes()).unwrap();
}
