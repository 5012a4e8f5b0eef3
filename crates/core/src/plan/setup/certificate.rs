//! The PKI of kcp landscapes as data: a table of certificates for each kind of resource, and how templates of users
//! change them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Gate, Kind, Labels, Root, name, workload::go_duration};
use crate::{
    api::setup::{CertificateTemplate, IssuerRef, Marks, PrivateKey, Subject},
    name::Key,
};

/// A cert-manager Issuer of type CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// Its name.
    pub name: String,
    /// The Secret with the CA and its key.
    pub secret: String,
    /// Labels.
    pub labels: Labels,
}

/// A cert-manager Certificate. Its Secret has the same name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Its name.
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
    /// Whether it is a CA.
    pub is_ca: bool,
    /// Whether it is the root CA of its resource, which an issuer of the user signs.
    #[serde(skip)]
    pub is_root: bool,
    /// Common name; empty for none.
    pub common_name: String,
    /// The subject.
    pub subject: Subject,
    /// DNS names.
    pub dns_names: Vec<String>,
    /// IP addresses.
    pub ip_addresses: Vec<String>,
    /// Usages; empty for the defaults of cert-manager.
    pub usages: Vec<&'static str>,
    /// How long it is valid.
    pub duration: String,
    /// How long before its end it is renewed; empty for the default of cert-manager.
    pub renew_before: String,
    /// The private key.
    pub private_key: PrivateKey,
    /// The issuer.
    pub issuer: IssuerRef,
    /// Labels and annotations of the Secret.
    pub secret: Marks,
    /// What it waits for: the Secret of the CA that issues it, if Tidegate makes that CA.
    #[serde(skip)]
    pub gates: Vec<Gate>,
}

/// Durations of CAs and of other certificates, as upstream writes them.
const CA_LIFE: (&str, &str) = ("87600h0m0s", "720h0m0s");
const LEAF_LIFE: (&str, &str) = ("8760h0m0s", "168h0m0s");
/// Size of RSA keys. Keys of existing installations stay as they are.
const KEY_SIZE: i64 = 4096;

const SERVER: &[&str] = &["server auth", "key encipherment", "digital signature"];
const SERVER_ONLY: &[&str] = &["server auth"];
const CLIENT: &[&str] = &["client auth"];
const CACHE_CLIENT: &[&str] = &["client auth", "key encipherment", "digital signature"];
const SIGNER: &[&str] = &["digital signature", "key encipherment"];

/// Which CA of a RootShard issues a certificate.
#[derive(Clone, Copy)]
pub(super) enum Ca {
    Server,
    Client,
    RequestHeader,
    ServiceAccount,
}

/// Which DNS names a certificate has.
#[derive(Clone, Copy)]
pub(super) enum Names {
    None,
    /// Those of its server.
    Server,
    /// The one of its virtual workspaces.
    VirtualWorkspaces,
}

/// One row of the PKI table. `{}` is the name of the resource.
pub(super) struct Row {
    /// The suffix of the certificate's name and its key in `certificateTemplates`.
    pub(super) suffix: &'static str,
    common_name: &'static str,
    organization: &'static str,
    names: Names,
    usages: &'static [&'static str],
    ca: Ca,
}

const fn client(suffix: &'static str, common_name: &'static str, organization: &'static str) -> Row {
    Row { suffix, common_name, organization, names: Names::None, usages: CLIENT, ca: Ca::Client }
}

const fn requestheader(suffix: &'static str, common_name: &'static str) -> Row {
    Row { suffix, common_name, organization: "", names: Names::None, usages: CLIENT, ca: Ca::RequestHeader }
}

const fn server(suffix: &'static str, names: Names, usages: &'static [&'static str]) -> Row {
    Row { suffix, common_name: "", organization: "", names, usages, ca: Ca::Server }
}

const SERVICE_ACCOUNT: Row = Row {
    suffix: "service-account",
    common_name: "{}-service-account",
    organization: "",
    names: Names::None,
    usages: SIGNER,
    ca: Ca::ServiceAccount,
};

/// The certificate of a shard for requests that it forwards for mounts.
pub(super) const MOUNTS_PROXY: Row = requestheader("mounts-proxy", "kcp-mounts-proxy");

/// The certificates of a RootShard.
pub(super) const ROOT_SHARD: &[Row] = &[
    server("server", Names::Server, SERVER),
    SERVICE_ACCOUNT,
    server("virtual-workspaces", Names::VirtualWorkspaces, SERVER_ONLY),
    client("logical-cluster-admin", "logical-cluster-admin", "system:kcp:logical-cluster-admin"),
    client(
        "external-logical-cluster-admin",
        "external-logical-cluster-admin",
        "system:kcp:external-logical-cluster-admin",
    ),
    client("client", "{}", "system:masters"),
    client("kcp-operator", "system:kcp-operator", "system:kcp:admin"),
];
/// The certificates of the internal proxy of a RootShard.
pub(super) const INTERNAL_PROXY: &[Row] = &[
    server("server", Names::Server, SERVER),
    client("kubeconfig", "kcp-root-shard-proxy", "system:masters"),
    requestheader("requestheader", "kcp-root-shard-proxy"),
];
/// The certificates of a FrontProxy.
pub(super) const FRONT_PROXY: &[Row] = &[
    server("server", Names::Server, SERVER),
    client("kubeconfig", "kcp-front-proxy", "system:masters"),
    requestheader("requestheader", "kcp-front-proxy"),
];
/// The certificates of a Shard.
pub(super) const SHARD: &[Row] = &[
    server("server", Names::Server, SERVER),
    SERVICE_ACCOUNT,
    server("virtual-workspaces", Names::VirtualWorkspaces, SERVER_ONLY),
    client("client", "shard-{}", "system:masters"),
    MOUNTS_PROXY,
    client("logical-cluster-admin", "logical-cluster-admin-shard-{}", "system:kcp:logical-cluster-admin"),
    client(
        "external-logical-cluster-admin",
        "external-logical-cluster-admin-shard-{}",
        "system:kcp:external-logical-cluster-admin",
    ),
];
/// The certificates of a VirtualWorkspace.
pub(super) const VIRTUAL_WORKSPACE: &[Row] =
    &[server("server", Names::Server, SERVER), client("client", "{}-virtual-workspace", "system:masters")];

/// The sub CAs of a RootShard.
pub(super) const SUB_CAS: [&str; 4] = ["server", "requestheader-client", "client", "service-account"];

/// The names of the CAs of a RootShard in `certificateTemplates`.
pub(super) const CA_TEMPLATES: [&str; 5] =
    ["root-ca", "server-ca", "requestheader-client-ca", "client-ca", "service-account-ca"];

/// The names that `certificateTemplates` may have for the certificates of a table and these others.
pub(super) fn template_names(rows: &[Row], others: &[&'static str]) -> Vec<&'static str> {
    rows.iter().map(|row| row.suffix).chain(others.iter().copied()).collect()
}

/// What the certificates of one resource have in common.
pub(super) struct Of<'a> {
    /// The resource.
    pub(super) kind: Kind,
    pub(super) key: &'a Key,
    /// Prefix of the names of certificates.
    pub(super) prefix: String,
    /// Labels of certificates.
    pub(super) labels: Labels,
    /// Labels of their Secrets.
    pub(super) secret_labels: Labels,
    /// Changes of the user.
    pub(super) templates: &'a BTreeMap<String, CertificateTemplate>,
    /// DNS names of its server.
    pub(super) server_names: Vec<String>,
    /// DNS names of its virtual workspaces.
    pub(super) virtual_names: Vec<String>,
}

impl Of<'_> {
    /// The certificates of a table, issued by the sub CAs of a RootShard.
    pub(super) fn table(&self, root: Root<'_>, rows: &[Row]) -> Vec<Certificate> {
        rows.iter().map(|row| self.leaf(root, row)).collect()
    }

    fn leaf(&self, root: Root<'_>, row: &Row) -> Certificate {
        let ca = match row.ca {
            Ca::Server => "server",
            Ca::Client => "client",
            Ca::RequestHeader => "requestheader-client",
            Ca::ServiceAccount => "service-account",
        };
        let dns_names = match row.names {
            Names::None => Vec::new(),
            Names::Server => self.server_names.clone(),
            Names::VirtualWorkspaces => self.virtual_names.clone(),
        };
        let mut certificate = self.make(row.suffix, name::sub_ca(root.key.name(), ca), LEAF_LIFE);
        certificate.common_name = row.common_name.replace("{}", self.key.name());
        certificate.subject.organizations =
            [row.organization].into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect();
        certificate.dns_names = dns_names;
        certificate.usages = row.usages.to_vec();
        if matches!(row.ca, Ca::ServiceAccount) {
            // A new key would invalidate every token at once.
            certificate.private_key.rotation_policy = "Never".to_owned();
        }
        self.change(certificate, row.suffix)
    }

    /// A CA. `issuer` is `None` for one that the CA `parent` issues.
    pub(super) fn ca(&self, ca: &str, template: &str, issuer: Result<&IssuerRef, String>) -> Certificate {
        let (issuer, parent) = match issuer {
            Ok(issuer) => (Some(issuer), String::new()),
            Err(parent) => (None, parent),
        };
        let mut certificate = self.make(ca, parent, CA_LIFE);
        certificate.is_ca = true;
        certificate.common_name.clone_from(&certificate.name);
        certificate.private_key.rotation_policy = "Never".to_owned();
        if let Some(issuer) = issuer {
            certificate.issuer = issuer.clone();
            certificate.is_root = true;
        }
        self.change(certificate, template)
    }

    /// A certificate of a CacheServer.
    pub(super) fn of_cache(&self, suffix: &str, template: &str, ca: &str) -> Certificate {
        let mut certificate = self.make(suffix, ca.to_owned(), LEAF_LIFE);
        if template == "server" {
            certificate.dns_names.clone_from(&self.server_names);
            certificate.usages = SERVER.to_vec();
        } else {
            certificate.common_name = "cache-client".to_owned();
            certificate.subject.organizations = vec!["system:masters".to_owned()];
            certificate.usages = CACHE_CLIENT.to_vec();
        }
        self.change(certificate, template)
    }

    /// The certificate of a Kubeconfig.
    pub(super) fn of_user(
        &self,
        root: &str,
        username: &str,
        groups: impl IntoIterator<Item = String>,
        validity: &str,
        template: Option<&CertificateTemplate>,
    ) -> Certificate {
        let mut certificate = self.make("", name::sub_ca(root, "client"), (&go_duration(validity), ""));
        certificate.name.clone_from(&self.prefix);
        certificate.common_name = username.to_owned();
        certificate.subject.organizations = groups.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        certificate.usages = CLIENT.to_vec();
        let changed = changed(certificate, template);
        self.marked(changed)
    }

    fn make(&self, suffix: &str, issuer: String, (duration, renew_before): (&str, &str)) -> Certificate {
        Certificate {
            name: format!("{}-{suffix}", self.prefix),
            labels: self.labels.clone(),
            annotations: Labels::new(),
            is_ca: false,
            is_root: false,
            common_name: String::new(),
            subject: Subject::default(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            usages: Vec::new(),
            duration: duration.to_owned(),
            renew_before: renew_before.to_owned(),
            private_key: PrivateKey { algorithm: "RSA".to_owned(), size: Some(KEY_SIZE), ..PrivateKey::default() },
            issuer: IssuerRef { name: issuer, kind: "Issuer".to_owned(), group: "cert-manager.io".to_owned() },
            secret: Marks { labels: self.secret_labels.clone(), annotations: Labels::new() },
            gates: Vec::new(),
        }
    }

    fn change(&self, certificate: Certificate, template: &str) -> Certificate {
        self.marked(changed(certificate, self.templates.get(template)))
    }

    /// Its Secret bears the mark as well, whatever a template says.
    fn marked(&self, mut certificate: Certificate) -> Certificate {
        let mark = name::setup_mark(self.kind, self.key.name());
        certificate.secret.labels.insert(crate::api::names::label::SETUP.to_owned(), mark);
        certificate
    }
}

/// A certificate as a template changes it. The values that Tidegate sets win in maps.
fn changed(mut certificate: Certificate, template: Option<&CertificateTemplate>) -> Certificate {
    let Some(template) = template else { return certificate };
    if let Some(metadata) = &template.metadata {
        add(&mut certificate.labels, &metadata.labels);
        add(&mut certificate.annotations, &metadata.annotations);
    }
    let Some(spec) = &template.spec else { return certificate };
    if let Some(marks) = &spec.secret_template {
        add(&mut certificate.secret.labels, &marks.labels);
        add(&mut certificate.secret.annotations, &marks.annotations);
    }
    match (&spec.issuer_ref, spec.dns_names.is_empty()) {
        (_, true) => {}
        (Some(_), false) => certificate.dns_names.clone_from(&spec.dns_names),
        (None, false) => certificate.dns_names = union(&certificate.dns_names, &spec.dns_names),
    }
    if !spec.ip_addresses.is_empty() {
        certificate.ip_addresses = union(&certificate.ip_addresses, &spec.ip_addresses);
    }
    if let Some(subject) = &spec.subject {
        change_subject(&mut certificate.subject, subject);
    }
    if let Some(issuer) = &spec.issuer_ref {
        certificate.issuer = issuer.clone();
    }
    if let Some(duration) = &spec.duration {
        certificate.duration = go_duration(duration);
    }
    if let Some(renew_before) = &spec.renew_before {
        certificate.renew_before = go_duration(renew_before);
    }
    if let Some(key) = &spec.private_key {
        let own = &mut certificate.private_key;
        let texts = [
            (&mut own.rotation_policy, &key.rotation_policy),
            (&mut own.encoding, &key.encoding),
            (&mut own.algorithm, &key.algorithm),
        ];
        texts.into_iter().filter(|(_, text)| !text.is_empty()).for_each(|(own, text)| own.clone_from(text));
        own.size = key.size.filter(|&size| size != 0).or(own.size);
    }
    certificate
}

fn change_subject(own: &mut Subject, more: &Subject) {
    let lists = [
        (&mut own.organizations, &more.organizations),
        (&mut own.countries, &more.countries),
        (&mut own.organizational_units, &more.organizational_units),
        (&mut own.localities, &more.localities),
        (&mut own.provinces, &more.provinces),
        (&mut own.street_addresses, &more.street_addresses),
        (&mut own.postal_codes, &more.postal_codes),
    ];
    lists.into_iter().filter(|(_, more)| !more.is_empty()).for_each(|(own, more)| *own = union(own, more));
    if !more.serial_number.is_empty() {
        own.serial_number.clone_from(&more.serial_number);
    }
}

fn union(left: &[String], right: &[String]) -> Vec<String> {
    left.iter().chain(right).cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Adds entries whose keys are new.
pub(super) fn add(own: &mut Labels, more: &Labels) {
    more.iter().for_each(|(key, value)| {
        own.entry(key.clone()).or_insert_with(|| value.clone());
    });
}
