use super::*;

fn error(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.yaml");
    std::fs::write(&path, text).unwrap();
    let error = Options::load(&path).and_then(Config::try_from).unwrap_err();
    let mut message = error.to_string();
    if let Some(source) = std::error::Error::source(&error)
        && !message.contains(&source.to_string())
    {
        message = format!("{message}: {source}");
    }
    message.replace(&folder.path().display().to_string(), "DIR")
}

#[test]
fn errors_name_file_line_and_option() {
    let cases = [
        ("workers: 1\nresink: 5m\n", "an unknown key"),
        ("workers: many\n", "a wrong type"),
        ("# a comment\n\nresync: soon\n", "no duration"),
        ("resync: 5s\n", "too short"),
        ("workers: 0\n", "out of bounds"),
        ("metricsAddress: everywhere\n", "no address"),
        ("namespaces: [kcp-system, Kcp_System]\n", "no name"),
        ("leaseDuration: 100s\n", "less than the renew deadline"),
        ("leaseRetryPeriod: 0s\n", "no pause"),
        ("logFormat: xml\n", "no format"),
        ("listenerAddress: https://listener\n", "no address of a listener"),
        ("listenerPortOverwrite: 70000\n", "no port"),
        ("skrWatcherImageTag: a b\n", "no tag"),
        ("skrWatcherImageTag: a\nskrWebhookMemoryLimits: much\n", "no quantity"),
        ("workers: 1\nworkers: 2\n", "twice"),
        ("- workers\n", "no mapping"),
        ("workers: [\n", "no YAML"),
    ];
    let mut report = String::new();
    for (text, what) in cases {
        report.push_str(&format!("{what}\n    {}\n", error(text)));
    }
    insta::assert_snapshot!(report);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Options::load(Path::new("/nowhere/tidegate.yaml")).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the configuration file /nowhere/tidegate.yaml");
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    let file = Options::parse("workers: 3\nresync: 1m\nnamespaces: [a, b]\n").unwrap();
    let flags = Options { workers: Some(7), ..Options::default() };
    let config = Config::try_from(flags.over(file)).unwrap();
    assert_eq!(config.workers, 7);
    assert_eq!(config.resync, Duration::from_secs(60));
    assert_eq!(config.namespaces, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    assert_eq!(config.control_plane_requests, 64);
}

#[test]
fn no_options_are_the_defaults() {
    let config = Config::try_from(Options::default()).unwrap();
    assert_eq!(config.namespaces, BTreeSet::from(["kcp-system".to_owned()]));
    assert_eq!(config.lease.unwrap().duration, Duration::from_secs(180));
    assert_eq!(Config::try_from(Options { leader_elect: Some(false), ..Options::default() }).unwrap().lease, None);
}

#[test]
fn what_is_printed_reads_as_the_same() {
    let options = Options {
        kubeconfig: Some("kcp.kubeconfig".into()),
        sources: vec!["../landscape".to_owned()],
        restricted_default_modules: vec!["keda".to_owned()],
        identity: Some("pod-0".to_owned()),
        ..Options::default()
    }
    .over(Options::defaults());
    assert_eq!(Options::parse(&options.to_yaml()).unwrap(), options);
}

#[test]
fn every_option_has_a_key_in_the_file_and_a_flag_of_the_same_name() {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        options: Options,
    }
    let full = Options {
        kubeconfig: Some("f".into()),
        sources: vec!["s".to_owned()],
        source_files: vec!["f".into()],
        templates: Some("t".into()),
        restricted_default_modules: vec!["m".to_owned()],
        additional_dns_names: vec!["n".to_owned()],
        identity: Some("i".to_owned()),
        xfcc_gateway_identity: Some("spiffe://g".to_owned()),
        listener_port_overwrite: Some(1),
        listener_address: Some("a:1".to_owned()),
        skr_watcher_image_tag: Some("t".to_owned()),
        skr_watcher_program: Some(WatcherProgram::Tidegate),
        skr_image_pull_secret: Some("p".to_owned()),
        skr_webhook_godebug: Some("fips140=only".to_owned()),
        ..Options::defaults()
    };
    let value = serde_json::to_value(full).unwrap();
    let keys: BTreeSet<String> = value.as_object().unwrap().keys().cloned().collect();
    let command = <Flags as clap::CommandFactory>::command();
    let plural = |name: &str| match name {
        "namespace" | "source" | "sourceFile" => format!("{name}s"),
        name => name.to_owned(),
    };
    let flags: BTreeSet<String> =
        command.get_arguments().filter_map(clap::Arg::get_long).map(camel_case).map(|name| plural(&name)).collect();
    assert_eq!(keys, flags);
}

#[test]
fn an_agent_is_installed_once_its_tag_is_given() {
    let agent = |options: Options| Config::try_from(options).map(|config| config.agent);
    assert_eq!(agent(Options::default()).unwrap(), None);
    assert_eq!(agent(Options { skr_watcher_image_tag: Some(String::new()), ..Options::default() }).unwrap(), None);

    let tagged = || Options { skr_watcher_image_tag: Some("2.1.12".to_owned()), ..Options::default() };
    let upstream = agent(tagged()).unwrap().unwrap();
    assert_eq!(upstream.image, "europe-docker.pkg.dev/kyma-project/prod/runtime-watcher:2.1.12");
    assert_eq!((upstream.program, upstream.pull_secret.as_deref()), (Program::RuntimeWatcher, None));
    assert_eq!((&*upstream.memory_limit, &*upstream.cpu_limit), ("200Mi", "0.1"));
    assert_eq!(upstream.listener.gateway, Key::new("kcp-system", "klm-watcher"));

    let named = |name: &str| Options { skr_watcher_image_name: Some(name.to_owned()), ..tagged() };
    let own = Options { skr_watcher_image_registry: Some("registry.example.org:5000".to_owned()), ..named("agent") };
    let own = agent(own).unwrap().unwrap();
    assert_eq!((&*own.image, own.program), ("registry.example.org:5000/agent:2.1.12", Program::Tidegate));
    let said = Options { skr_watcher_program: Some(WatcherProgram::Tidegate), ..named("runtime-watcher") };
    assert_eq!(agent(said).unwrap().unwrap().program, Program::Tidegate);

    let quantity = |text: &str| agent(Options { skr_webhook_cpu_limits: Some(text.to_owned()), ..tagged() }).is_ok();
    assert!(["0.1", "100m", "1", "2k"].into_iter().all(quantity));
    assert!(!["", "much", "0", "-1", "1e", "1 Gi", "."].into_iter().any(quantity));
}

fn camel_case(flag: &str) -> String {
    let mut parts = flag.split('-');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| name + &part[..1].to_uppercase() + &part[1..])
}

#[test]
fn who_issues_certificates_is_said_in_our_words_or_in_those_of_lifecycle_manager() {
    use tidegate_core::plan::certificate::Backend;
    let table = [
        ("auto", None),
        ("cert-manager", Some(Backend::CertManager)),
        ("cert-manager.io/v1", Some(Backend::CertManager)),
        ("gardener", Some(Backend::Gardener)),
        ("cert.gardener.cloud/v1alpha1", Some(Backend::Gardener)),
        ("builtin", Some(Backend::Builtin)),
    ];
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        options: Options,
    }
    for (text, expected) in table {
        for key in ["pki", "certManagement"] {
            let config = Config::try_from(Options::parse(&format!("{key}: {text}")).unwrap()).unwrap();
            assert_eq!(config.certificates.backend, expected, "{key}: {text}");
        }
        for flag in ["--pki", "--cert-management"] {
            let flags = <Flags as clap::Parser>::try_parse_from(["run", flag, text]).unwrap();
            assert_eq!(Config::try_from(flags.options).unwrap().certificates.backend, expected, "{flag} {text}");
        }
    }
    let rules = Config::try_from(Options::default()).unwrap().certificates;
    assert_eq!(rules, Rules::default());
}

#[test]
fn rules_of_certificates_that_cannot_be_kept_are_refused() {
    let table = [
        ("selfSignedCertKeySize: 2048", "`selfSignedCertKeySize`: 2048 is not 4096"),
        ("selfSignedCertDuration: 1s", "`selfSignedCertDuration`: 1s is shorter than 1m"),
        (
            "selfSignedCertRenewBefore: 1440h",
            "`selfSignedCertRenewBefore`: 1440h must be shorter than `selfSignedCertDuration`, which is 1440h",
        ),
    ];
    for (text, expected) in table {
        let error = Config::try_from(Options::parse(text).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
