use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{super::*, *};

/// The options as `run` has them.
#[derive(Debug, clap::Parser)]
struct Run {
    #[command(flatten)]
    flags: Flags,
}

/// What the program does with a flag of Lifecycle Manager.
enum Does {
    /// It sets this option.
    Sets(&'static str, Value),
    /// It has no effect, and one warning says why.
    Ignores,
}

use Does::{Ignores, Sets};

/// Every flag of Lifecycle Manager 1.20, with a value as its Deployment writes it.
fn all() -> Vec<(&'static str, &'static str, Does)> {
    let mut all = vec![
        ("additional-dns-names", "a.example.org,b.example.org", {
            Sets("additionalDnsNames", json!(["a.example.org", "b.example.org"]))
        }),
        ("cert-management", "cert.gardener.cloud/v1alpha1", Sets("pki", json!("gardener"))),
        ("health-probe-bind-address", ":9081", Sets("healthAddress", json!("0.0.0.0:9081"))),
        ("istio-gateway-name", "gateway", Sets("istioGatewayName", json!("gateway"))),
        ("istio-gateway-namespace", "istio", Sets("istioGatewayNamespace", json!("istio"))),
        ("istio-gateway-server-cert-expiry-window", "24h", {
            Sets("istioGatewayServerCertExpiryWindow", json!("24h"))
        }),
        ("istio-gateway-server-cert-switch-grace-period", "36h0m0s", {
            Sets("istioGatewayServerCertSwitchGracePeriod", json!("36h"))
        }),
        ("istio-namespace", "istio", Sets("istioNamespace", json!("istio"))),
        ("kyma-skr-listener-bind-address", ":9082", Sets("eventsAddress", json!("0.0.0.0:9082"))),
        ("leader-elect", "False", Sets("leaderElect", json!(false))),
        ("leader-election-lease-duration", "90s", Sets("leaseDuration", json!("1m30s"))),
        ("leader-election-renew-deadline", "60s", Sets("leaseRenewDeadline", json!("1m"))),
        ("leader-election-retry-period", "2s", Sets("leaseRetryPeriod", json!("2s"))),
        ("listener-port-overwrite", "9443", Sets("listenerPortOverwrite", json!(9443))),
        ("metrics-bind-address", ":9080", Sets("metricsAddress", json!("0.0.0.0:9080"))),
        ("min-maintenance-window-size", "0", Sets("minMaintenanceWindowSize", json!("0s"))),
        ("module-upgrade-rollout-max-delay", "5m", Sets("moduleUpgradeRolloutMaxDelay", json!("5m"))),
        ("modules-repository-subpath", "modules", Sets("modulesRepositorySubpath", json!("modules"))),
        ("oci-registry-cred-secret", "registry", Sets("ociRegistryCredSecret", json!("registry"))),
        ("oci-registry-host", "r.example.org", Sets("ociRegistryHost", json!("r.example.org"))),
        ("restricted-default-modules", "keda,btp", Sets("restrictedDefaultModules", json!(["keda", "btp"]))),
        ("self-signed-cert-duration", "48h", Sets("selfSignedCertDuration", json!("48h"))),
        ("self-signed-cert-issuer-name", "issuer", Sets("selfSignedCertIssuerName", json!("issuer"))),
        ("self-signed-cert-issuer-namespace", "pki", Sets("selfSignedCertIssuerNamespace", json!("pki"))),
        ("self-signed-cert-key-size", "2048", Sets("selfSignedCertKeySize", json!(2048))),
        ("self-signed-cert-renew-before", "24h", Sets("selfSignedCertRenewBefore", json!("24h"))),
        ("self-signed-cert-renew-buffer", "1h", Sets("selfSignedCertRenewBuffer", json!("1h"))),
        ("skr-image-pull-secret", "pull", Sets("skrImagePullSecret", json!("pull"))),
        ("skr-watcher-image-name", "watcher", Sets("skrWatcherImageName", json!("watcher"))),
        ("skr-watcher-image-registry", "r.example.org", Sets("skrWatcherImageRegistry", json!("r.example.org"))),
        ("skr-watcher-image-tag", "2.1.12", Sets("skrWatcherImageTag", json!("2.1.12"))),
        ("skr-webhook-cpu-limits", "0.2", Sets("skrWebhookCpuLimits", json!("0.2"))),
        ("skr-webhook-memory-limits", "100Mi", Sets("skrWebhookMemoryLimits", json!("100Mi"))),
    ];
    // The values that upstream has by default.
    let ignored = [
        ("cache-sync-timeout", "60m"),
        ("drop-crd-stored-version-map", "Manifest:v1beta1,Kyma:v1beta1"),
        ("enable-webhooks", "true"),
        ("failure-base-delay", "5s"),
        ("failure-max-delay", "30s"),
        ("istio-gateway-cert-switch-before-expiration-time", "0"),
        ("istio-gateway-secret-requeue-error-interval", "2s"),
        ("istio-gateway-secret-requeue-success-interval", "5m"),
        ("k8s-client-burst", "2000"),
        ("k8s-client-qps", "1000"),
        ("k8s-skr-client-burst", "100"),
        ("k8s-skr-client-qps", "50"),
        ("kyma-requeue-busy-interval", "5s"),
        ("kyma-requeue-error-interval", "2s"),
        ("kyma-requeue-success-interval", "5m"),
        ("kyma-requeue-warning-interval", "30s"),
        ("log-level", "-1"),
        ("mandatory-module-deletion-requeue-success-interval", "30s"),
        ("mandatory-module-requeue-success-interval", "30s"),
        ("manifest-requeue-busy-interval", "5s"),
        ("manifest-requeue-error-interval", "2s"),
        ("manifest-requeue-jitter-percentage", "0.02"),
        ("manifest-requeue-jitter-probability", "0.02"),
        ("manifest-requeue-success-interval", "5m"),
        ("manifest-requeue-warning-interval", "30s"),
        ("max-concurrent-kyma-reconciles", "1"),
        ("max-concurrent-mandatory-modules-deletion-reconciles", "1"),
        ("max-concurrent-mandatory-modules-reconciles", "1"),
        ("max-concurrent-manifest-reconciles", "1"),
        ("max-concurrent-watcher-reconciles", "1"),
        ("metrics-cleanup-interval", "15"),
        ("pprof", "true"),
        ("pprof-bind-address", ":8084"),
        ("pprof-server-timeout", "90s"),
        ("rate-limiter-burst", "2000"),
        ("rate-limiter-frequency", "1000"),
        ("watcher-requeue-success-interval", "1m"),
    ];
    all.extend(ignored.map(|(flag, value)| (flag, value, Ignores)));
    all.push(("sync-namespace", "kyma-system", Sets("namespaces", json!(["kcp-system"]))));
    all
}

fn parse(arguments: &[String]) -> Result<Flags, String> {
    let run = <Run as clap::Parser>::try_parse_from(std::iter::once("run").chain(arguments.iter().map(String::as_str)));
    run.map(|run| run.flags).map_err(|error| error.to_string())
}

#[test]
fn every_flag_of_lifecycle_manager_sets_an_option_or_is_ignored_with_one_warning() {
    for (flag, value, does) in all() {
        // Deployments write both forms.
        for arguments in [vec![format!("--{flag}={value}")], vec![format!("--{flag}"), value.to_owned()]] {
            let is_switch = matches!(flag, "leader-elect" | "pprof" | "enable-webhooks");
            if is_switch && arguments.len() == 2 {
                continue;
            }
            let flags = parse(&arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
            let options = flags.over(Options::default());
            let ignored: Vec<&str> = flags.ignored().iter().map(|ignored| ignored.flag).collect();
            match &does {
                Sets(key, expected) => {
                    assert_eq!(&serde_json::to_value(&options).unwrap()[key], expected, "{arguments:?}");
                    assert!(ignored.is_empty(), "{arguments:?}");
                }
                Ignores => {
                    assert_eq!(options, Options::default(), "{arguments:?}");
                    assert_eq!(ignored, [flag], "{arguments:?}");
                }
            }
        }
    }
    let ignored = all().into_iter().filter(|(_, _, does)| matches!(does, Ignores)).map(|(flag, ..)| flag);
    assert!(ignored.eq(IGNORED.iter().map(|ignored| ignored.flag)), "the table of the test is that of the program");
    assert!(IGNORED.is_sorted_by_key(|ignored| ignored.flag));
}

#[test]
fn the_arguments_of_a_deployment_are_a_configuration() {
    // Only one of the two can be given, and this key size is refused.
    let is_alone = |flag: &str| matches!(flag, "oci-registry-cred-secret" | "self-signed-cert-key-size");
    let all = all().into_iter().filter(|(flag, ..)| !is_alone(flag));
    let mut arguments: Vec<String> = all.map(|(flag, value, _)| format!("--{flag}={value}")).collect();
    arguments.extend(["--self-signed-cert-key-size=4096".to_owned(), "--oci-registry-cred-secret=".to_owned()]);
    let flags = parse(&arguments).unwrap();
    let config = Config::try_from(flags.over(Options::default())).unwrap();
    assert_eq!(config.lease, None);
    assert_eq!(flags.ignored().len(), IGNORED.len());
    // Switches may stand alone.
    let flags = parse(&["--leader-elect", "--pprof", "--enable-webhooks"].map(str::to_owned)).unwrap();
    assert_eq!((flags.over(Options::default()).leader_elect, flags.ignored().len()), (true, 2));
}

#[test]
fn flags_without_a_value_are_as_if_they_were_not_given() {
    let flags = ["additional-dns-names", "restricted-default-modules", "listener-port-overwrite", "oci-registry-host"];
    let more = ["oci-registry-cred-secret", "modules-repository-subpath", "skr-image-pull-secret"];
    let arguments: Vec<String> = flags.iter().chain(&more).map(|flag| format!("--{flag}=")).collect();
    let config = Config::try_from(parse(&arguments).unwrap().over(Options::default())).unwrap();
    assert_eq!(config, Config::try_from(Options::default()).unwrap());
}

#[test]
fn values_that_ask_for_something_else_are_refused_with_a_sentence() {
    let error = |argument: &str| match parse(&[argument.to_owned()]) {
        Ok(flags) => Config::try_from(flags.over(Options::default())).unwrap_err().to_string(),
        Err(error) => error,
    };
    for (argument, expected) in [
        ("--sync-namespace=other", "Tidegate installs modules in kyma-system only: remove the flag"),
        ("--self-signed-cert-key-size=2048", "2048 is not supported: use 4096"),
        ("--leader-elect=perhaps", "use true or false"),
        ("--listener-port-overwrite=70000", "use a port from 1 to 65535"),
        ("--metrics-bind-address=0", "invalid address `0`: use IP:PORT or :PORT, for example 0.0.0.0:8080"),
        ("--leader-election-lease-duration=1m", "must be longer than `leaseRenewDeadline`"),
        // Removed upstream long ago.
        ("--purge-finalizer-timeout=5m", "unexpected argument"),
    ] {
        assert!(error(argument).contains(expected), "{argument}: {}", error(argument));
    }
}

#[test]
fn the_documentation_says_what_becomes_of_every_flag() {
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/flags.md")).unwrap();
    let rows: Vec<(&str, &str)> =
        docs.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")).collect();
    let named: BTreeSet<&str> = rows.iter().map(|(flag, _)| *flag).collect();
    assert_eq!(named, all().iter().map(|(flag, ..)| *flag).collect());
    assert_eq!(named.len(), rows.len(), "a flag has one row");
    assert!(rows.is_sorted(), "the rows are sorted");
    for ignored in IGNORED {
        let row = rows.iter().find(|(flag, _)| *flag == ignored.flag).map(|(_, does)| *does);
        assert_eq!(row, Some(&*format!("ignored: {}", ignored.why)), "{}", ignored.flag);
    }
    let taken = rows.iter().filter(|(_, does)| !does.starts_with("ignored: "));
    assert_eq!(taken.count(), all().iter().filter(|(.., does)| matches!(does, Sets(..))).count());
}
