use super::*;

/// The options as `run` has them.
#[derive(clap::Parser)]
struct Run {
    #[command(flatten)]
    flags: Flags,
}

/// The options of a command line, over those of a file.
fn options(arguments: &[&str], file: &str) -> Options {
    let run = <Run as clap::Parser>::try_parse_from(["run"].iter().chain(arguments)).unwrap();
    run.flags.over(Options::parse(file).unwrap())
}

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
        ("# a comment\n\nresync: soon\n", "an invalid duration"),
        ("resync: 5s\n", "too short"),
        ("workers: 0\n", "out of bounds"),
        ("metricsAddress: everywhere\n", "an invalid address"),
        ("namespaces: [kcp-system, Kcp_System]\n", "an invalid name"),
        ("leaseDuration: 100s\n", "less than the renew deadline"),
        ("leaseRetryPeriod: 0s\n", "a pause of zero"),
        ("logFormat: xml\n", "an invalid format"),
        ("listenerAddress: https://listener\n", "an invalid listener address"),
        ("listenerPortOverwrite: 70000\n", "an invalid port"),
        ("skrWatcherImageTag: a\nskrWatcherImageName: ''\n", "an empty image name"),
        ("xfccGatewayIdentity: gateway\n", "an invalid SPIFFE ID"),
        ("namespaces: []\n", "an empty list"),
        ("workers:\n", "a missing value"),
        ("skrWatcherImageTag: a b\n", "an invalid tag"),
        ("skrWatcherImageTag: a\nskrWebhookMemoryLimits: much\n", "an invalid quantity"),
        ("workers: 1\nworkers: 2\n", "twice"),
        ("- workers\n", "not a mapping"),
        ("workers: [\n", "not YAML"),
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
    let file = "workers: 3\nresync: 1m\nnamespaces: [a, b]\nleaderElect: false\npaused: true\n";
    let flags = ["--workers=7", "--leader-elect", "--restricted-default-modules=keda,btp", "--paused=false"];
    let config = Config::try_from(options(&flags, file)).unwrap();
    assert_eq!(config.workers, 7);
    assert_eq!((config.lease.is_some(), config.paused), (true, false));
    assert_eq!(config.restricted_modules, BTreeSet::from(["btp".to_owned(), "keda".to_owned()]));
    assert_eq!(config.resync, Duration::from_secs(60));
    assert_eq!(config.namespaces, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    assert_eq!(config.control_plane_requests, 64);
    // A flag with the value of the default overrides the file, and a list replaces the file's list.
    let config = Config::try_from(options(&["--workers=64", "--namespace=c"], file)).unwrap();
    assert_eq!((config.workers, config.namespaces), (64, BTreeSet::from(["c".to_owned()])));
}

#[test]
fn a_confirmation_names_a_commit_of_a_source_of_the_command_line() {
    let confirmed = |arguments: &[&str]| Config::try_from(options(arguments, "")).map(|config| config.confirm_prune);
    let (commit, source) = (format!("--confirm-prune={}", "A1".repeat(20)), "--source=https://git.example.com/l");
    assert_eq!(confirmed(&[source, &commit]).unwrap(), Some("a1".repeat(20)));
    assert_eq!(confirmed(&[source, "--confirm-prune=0123456"]).unwrap().as_deref(), Some("0123456"));
    assert_eq!(confirmed(&[source]).unwrap(), None);
    for (arguments, problem) in [
        (vec![commit.as_str()], "there is no `--source` or `--source-file`: annotate the GitSource"),
        (vec![source, "--confirm-prune=012345"], "this is not the id of a commit"),
        (vec![source, "--confirm-prune=deletion:0123456"], "this is not the id of a commit"),
    ] {
        let error = confirmed(&arguments).unwrap_err().to_string();
        assert!(error.contains("confirmPrune") && error.contains(problem), "{error}");
    }
}

#[test]
fn no_options_are_the_defaults() {
    assert_eq!(options(&[], ""), Options::default());
    let config = Config::try_from(Options::default()).unwrap();
    assert_eq!(config.namespaces, BTreeSet::from(["kcp-system".to_owned()]));
    assert_eq!(config.events.trusted_peers, Peers::loopback());
    assert_eq!(config.lease.unwrap().duration, Duration::from_secs(180));
    assert_eq!(Config::try_from(Options { leader_elect: false, ..Options::default() }).unwrap().lease, None);
}

#[test]
fn the_default_limits_of_git_are_those_of_its_crate() {
    assert_eq!(Config::try_from(Options::default()).unwrap().git_engine, EngineLimits::default());
    let error = Config::try_from(options(&["--git-cpu-time=10ms"], "")).unwrap_err();
    assert_eq!(error.to_string(), "`gitCpuTime`: 10ms is too short: use at least 1s");
}

#[test]
fn a_certificate_for_webhooks_needs_its_key_and_a_key_its_certificate() {
    let hooks = |flags: &[&str]| Config::try_from(options(flags, "")).map(|config| config.hooks);
    let text = |flags: &[&str]| hooks(flags).unwrap_err().to_string();
    let expected = "`hooksKey`: missing: `hooksCertificate` (`--hooks-certificate`) needs the file with its key";
    assert_eq!(text(&["--hooks-certificate=tls.crt"]), expected);
    let expected = "`hooksCertificate`: missing: `hooksKey` needs the file with its certificate";
    assert_eq!(text(&["--hooks-key=tls.key"]), expected);
    assert!(text(&["--hooks-trusted-peers=ingress"]).starts_with("`hooksTrustedPeers`: invalid network `ingress`"));
    let both = hooks(&["--hooks-certificate=tls.crt", "--hooks-key=tls.key", "--hooks-address=off"]).unwrap();
    assert_eq!((both.certificate, both.address), (Some(("tls.crt".into(), "tls.key".into())), None));
}

#[test]
fn what_is_printed_reads_as_the_same() {
    let options = Options {
        kubeconfig: Some("kcp.kubeconfig".into()),
        sources: vec!["../landscape".to_owned()],
        restricted_default_modules: vec!["keda".to_owned()],
        identity: Some("pod-0".to_owned()),
        ..Options::default()
    };
    assert_eq!(Options::parse(&options.to_yaml()).unwrap(), options);
}

/// An option as its help documents it.
struct Documented {
    flag: String,
    aliases: Vec<String>,
    value: String,
    key: String,
    /// `None` if the default is not a literal value: then the help describes it.
    literal: Option<String>,
    default: String,
    help: String,
}

fn documented() -> Vec<Documented> {
    let command = <Run as clap::CommandFactory>::command();
    // Flags of Lifecycle Manager that have no effect are hidden: see `upstream`.
    let options = command.get_arguments().filter(|option| option.get_id() != "help" && !option.is_hide_set());
    options.map(Documented::from_help).collect()
}

// === impl Documented ===

impl Documented {
    fn from_help(option: &clap::Arg) -> Documented {
        let flag = option.get_long().expect("every option has a flag").to_owned();
        let text = option.get_help().expect("every option has a help").to_string();
        let hidden = option.is_hide_default_value_set();
        let defaults = option.get_default_values().iter().filter(|_| !hidden);
        let literal = defaults.map(|value| value.to_str().expect("a default is UTF-8").to_owned()).next();
        let (help, default) = match (&literal, text.strip_suffix(']').and_then(|text| text.split_once(" [default: "))) {
            (Some(literal), None) => (text.clone(), format!("`{literal}`")),
            (None, Some((help, default))) => (help.to_owned(), default.to_owned()),
            (Some(_), Some(_)) => panic!("--{flag}: the default is documented twice"),
            (None, None) => panic!("--{flag}: the default is not documented"),
        };
        let names = option.get_value_names().expect("every option has a value");
        let aliases = option.get_visible_aliases().unwrap_or_default();
        Documented {
            key: camel_case(option.get_id().as_str().split('_')),
            aliases: aliases.into_iter().map(str::to_owned).collect(),
            value: names[0].to_string(),
            flag,
            literal,
            default,
            help,
        }
    }

    /// A row of the table in `docs/configuration.md`.
    fn row(&self) -> String {
        let Documented { flag, value, key, default, help, .. } = self;
        let aliases: String = self.aliases.iter().map(|alias| format!(", `--{alias}`")).collect();
        format!("| `--{flag} {value}`{aliases} | `{key}` | {default} | {help} |\n")
    }
}

fn camel_case<'a>(mut parts: impl Iterator<Item = &'a str>) -> String {
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| name + &part[..1].to_uppercase() + &part[1..])
}

#[test]
fn every_option_has_a_key_in_the_file_and_a_flag_of_the_same_name() {
    let value = serde_json::to_value(Options::default()).unwrap();
    // Only the file has a list of registries.
    let keys = value.as_object().unwrap().keys().map(String::as_str).filter(|key| *key != "ociRegistries");
    let keys: Vec<&str> = keys.collect();
    let documented = documented();
    assert_eq!(keys, documented.iter().map(|option| &*option.key).collect::<Vec<_>>());
    for Documented { flag, aliases, key, .. } in &documented {
        let of_flag = camel_case(flag.split('-'));
        let is_list_of_it = matches!(&*of_flag, "namespace" | "source" | "sourceFile") && *key == format!("{of_flag}s");
        assert!(of_flag == *key || is_list_of_it, "--{flag} and {key}");
        for alias in aliases.iter().map(|alias| camel_case(alias.split('-'))) {
            let default = value[key].as_str().expect("options with an alias are texts");
            Options::parse(&format!("{alias}: '{default}'")).expect("the alias is a key as well");
        }
    }
}

#[test]
fn the_documented_default_of_every_option_is_the_real_one() {
    let value = serde_json::to_value(Options::default()).unwrap();
    let variable = |name| std::env::var(name).ok();
    let mut in_words = Vec::new();
    for option in documented() {
        let Some(literal) = option.literal else {
            match &*option.key {
                "state" => assert_eq!(value["state"], default_state().to_str().unwrap()),
                "skrWebhookGodebug" => assert_eq!(value["skrWebhookGodebug"].as_str(), variable("GODEBUG").as_deref()),
                key => assert!(value[key].is_null() || value[key] == serde_json::json!([]), "{key}"),
            }
            in_words.push(option.key);
            continue;
        };
        let flag = format!("--{}={literal}", option.flag);
        assert_eq!(options(&[&flag], ""), Options::default(), "{flag}");
        let is_list = value[&option.key].is_array();
        let file = if is_list { format!("[\"{}\"]", literal.replace(',', "\",\"")) } else { literal };
        assert_eq!(options(&[], &format!("{}: {file}", option.key)), Options::default(), "{}: {file}", option.key);
    }
    // The defaults of these options are documented in other places. If you add an option here, check its help.
    let expected = [
        "kubeconfig",
        "sources",
        "sourceFiles",
        "confirmPrune",
        "state",
        "templates",
        "xfccGatewayIdentity",
        "hooksCertificate",
        "hooksKey",
        "watchProbesMax",
        "restrictedDefaultModules",
        "ociRegistryHost",
        "ociRegistryCredSecret",
        "modulesRepositorySubpath",
        "ociRegistryCa",
        "ociRegistryTokenHosts",
        "moduleCache",
        "maintenancePolicy",
        "listenerPortOverwrite",
        "listenerAddress",
        "skrWatcherImageTag",
        "skrWatcherProgram",
        "skrImagePullSecret",
        "skrWebhookGodebug",
        "additionalDnsNames",
        "kcpImage",
        "identity",
    ];
    assert_eq!(in_words, expected);
}

#[test]
fn a_registry_is_given_by_its_host_or_by_a_secret() {
    let registry = |flags: &[&str]| {
        let config = Config::try_from(options(flags, "")).map_err(|error| error.to_string())?;
        Ok::<_, String>(config.registries.all.into_iter().next().map(|registry| registry.access))
    };
    let address = |text: &str| RegistryAccess::Anonymous(text.parse().unwrap());
    for (flags, expected) in [
        (&[][..], None),
        (&["--oci-registry-host="], None),
        (&["--oci-registry-host=r.example.com/prod"], Some(address("r.example.com/prod"))),
        (
            &["--oci-registry-host=http://r.example.com", "--modules-repository-subpath=a/b"],
            Some(address("http://r.example.com/a/b")),
        ),
        (&["--oci-registry-cred-secret=registry"], Some(RegistryAccess::Secret(Key::new("kcp-system", "registry")))),
    ] {
        assert_eq!(registry(flags), Ok(expected), "{flags:?}");
    }
    for (flags, expected) in [
        (
            &["--oci-registry-host=r.example.com", "--oci-registry-cred-secret=registry"][..],
            "`ociRegistryHost`: either registry or credSecretName should be provided, not both",
        ),
        (&["--oci-registry-host=ftp://r.example.com"], "its scheme is neither http nor https"),
        (&["--oci-registry-host=user:password@r.example.com"], "it contains credentials; use a Secret"),
        (&["--oci-registry-host=r", "--modules-repository-subpath=../b"], "its path is invalid"),
        (&["--oci-registry-cred-secret=No_Name"], "ociRegistryCredSecret"),
        (&["--oci-registry-host=r", "--module-cache-quota=1"], "use a number of MiB from 64 to 1048576"),
    ] {
        let error = registry(flags).unwrap_err();
        assert!(error.contains(expected), "{flags:?}: {error}");
        assert!(!error.contains("password@"), "{error}");
    }
}

#[test]
fn a_printed_configuration_has_no_credentials() {
    let sources = [
        ("https://anna:secret@git.example.com/a", "https://***@git.example.com/a"),
        ("https://secret@git.example.com/a@b#main", "https://***@git.example.com/a@b#main"),
        ("ssh://git@git.example.com/a", "ssh://git@git.example.com/a"),
        ("ssh://git:secret@git.example.com/a", "ssh://***@git.example.com/a"),
        ("git@git.example.com:a", "git@git.example.com:a"),
        ("/a@b", "/a@b"),
    ];
    for (source, expected) in sources {
        let printed = options(&[&format!("--source={source}")], "").to_yaml();
        assert!(printed.contains(expected) && !printed.contains("secret"), "{source}: {printed}");
    }
}

#[test]
fn the_file_names_more_registries_for_some_components() {
    let registries = |file: &str| {
        let config = Config::try_from(options(&["--oci-registry-host=r.example.com"], file));
        config.map(|config| config.registries.all).map_err(|error| error.to_string())
    };
    let file = "ociRegistries:\n\
                - {components: [example.org/team/, kyma-project.io/module/keda], host: team.example.org, subpath: a}\n\
                - {components: [other.org], credSecret: other, tokenHosts: [auth.other.org], ca: /ca.pem}\n";
    let found = registries(file).unwrap();
    let shown = found.iter().map(|registry| (registry.components.clone().unwrap_or_default(), registry.access.clone()));
    let address = |text: &str| RegistryAccess::Anonymous(text.parse().unwrap());
    let expected = [
        (vec![], address("r.example.com")),
        (vec!["example.org/team".to_owned(), "kyma-project.io/module/keda".to_owned()], address("team.example.org/a")),
        (vec!["other.org".to_owned()], RegistryAccess::Secret(Key::new("kcp-system", "other"))),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    assert_eq!(found[2].token_hosts, ["auth.other.org"]);
    assert_eq!(found[2].ca.as_deref(), Some(Path::new("/ca.pem")));
    let printed = options(&["--oci-registry-host=r.example.com"], file).to_yaml();
    assert_eq!(registries(&printed).unwrap(), found, "{printed}");
    for (entry, expected) in [
        ("{host: r}", "entry 1: name its `components`"),
        ("{components: [example.org/c]}", "entry 1: set `host` or `credSecret`"),
        ("{components: [example.org/c, example.org/c/], host: r}", "`example.org/c` occurs twice"),
        ("{components: [A B], host: r}", "`A B` does not begin the name of a component"),
        (
            "{components: [example.org/c], host: r, credSecret: s}",
            "either registry or credSecretName should be provided",
        ),
        ("{components: [example.org/c], host: ftp://r}", "its scheme is neither http nor https"),
    ] {
        let error = registries(&format!("ociRegistries: [{entry}]")).unwrap_err();
        assert!(error.contains("`ociRegistries`") && error.contains(expected), "{entry}: {error}");
    }
    let unknown = yaml::read_own::<Options>("ociRegistries:\n- {component: a}\n").unwrap_err();
    assert!(unknown.message.contains("component"), "{unknown:?}");
}

#[test]
fn help_and_docs_name_the_default_of_every_option() {
    let help = <Run as clap::CommandFactory>::command().term_width(0).render_help().to_string();
    let mut table = "| flag | file key | default | effect |\n| --- | --- | --- | --- |\n".to_owned();
    for option in documented() {
        let default = option.literal.as_ref().unwrap_or(&option.default);
        let at = help.find(&format!("--{} ", option.flag)).or_else(|| help.find(&format!("--{}[", option.flag)));
        let entry = help[at.expect("the help has the option")..].split("\n  ").take(2).collect::<String>();
        assert!(entry.contains(&format!("[default: {default}]")), "{entry}");
        table.push_str(&option.row());
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
    let docs = std::fs::read_to_string(path).unwrap();
    let rows = docs.lines().skip_while(|line| !line.starts_with("| flag ")).take_while(|line| !line.is_empty());
    let found: String = rows.map(|row| format!("{row}\n")).collect();
    assert!(found == table, "the table of options in docs/configuration.md must be:\n\n{table}");
}

#[test]
fn state_is_kept_in_the_folder_that_the_help_names() {
    let cases = [
        (&[("XDG_STATE_HOME", "/x"), ("HOME", "/h")][..], "/x/tidegate"),
        (&[("HOME", "/h")], "/h/.local/state/tidegate"),
        (&[], "/var/lib/tidegate"),
    ];
    for (variables, expected) in cases {
        let variable = |name: &str| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.into());
        assert_eq!(state_folder(variable), PathBuf::from(expected));
    }
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

    let named = |name: &str| Options { skr_watcher_image_name: name.to_owned(), ..tagged() };
    let own = Options { skr_watcher_image_registry: "registry.example.org:5000".to_owned(), ..named("agent") };
    let own = agent(own).unwrap().unwrap();
    assert_eq!((&*own.image, own.program), ("registry.example.org:5000/agent:2.1.12", Program::Tidegate));
    let said = Options { skr_watcher_program: Some(WatcherProgram::Tidegate), ..named("runtime-watcher") };
    assert_eq!(agent(said).unwrap().unwrap().program, Program::Tidegate);

    let quantity = |text: &str| agent(Options { skr_webhook_cpu_limits: text.to_owned(), ..tagged() }).is_ok();
    assert!(["0.1", "100m", "1", "2k"].into_iter().all(quantity));
    assert!(!["", "much", "0", "-1", "1e", "1 Gi", "."].into_iter().any(quantity));
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
    let backend = |options| Config::try_from(options).unwrap().certificates.backend;
    for (text, expected) in table {
        for key in ["pki", "certManagement"] {
            assert_eq!(backend(options(&[], &format!("{key}: {text}"))), expected, "{key}: {text}");
        }
        for flag in ["--pki", "--cert-management"] {
            assert_eq!(backend(options(&[flag, text], "")), expected, "{flag} {text}");
        }
    }
    let rules = Config::try_from(Options::default()).unwrap().certificates;
    assert_eq!(rules, Rules::default());
}

#[test]
fn rules_of_certificates_that_cannot_be_kept_are_refused() {
    let table = [
        ("selfSignedCertKeySize: 2048", "`selfSignedCertKeySize`: 2048 is not supported: use 4096"),
        ("selfSignedCertDuration: 1s", "`selfSignedCertDuration`: 1s is too short: use at least 1m"),
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
