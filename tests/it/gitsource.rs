//! `docs/gitsource.md` has a row for each field of a GitSource, written from its CustomResourceDefinition.
//!
//! `UPDATE_GOLDEN=1 cargo test --test it gitsource::` writes the table anew. A new field needs a row in [`FIELDS`].

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Map, Value, json};
use tidegate_core::{
    api::{self, GitSource},
    intake::{SourceFile, Terms},
    revision::{Oid, Revision},
    schema::Schema,
    snapshot::{Content, File, Snapshot},
};

use crate::harness::check_recorded;

/// What the documentation says of a field, beside what its schema does.
struct Field {
    /// The field, with `[]` for the items of a list.
    name: &'static str,
    /// A valid value, in JSON.
    example: &'static str,
    /// An invalid value, in JSON: the table shows the answer.
    invalid: &'static str,
    /// The test that shows what the field does.
    shown_by: &'static str,
}

/// One row for each field. Sorted by name.
const FIELDS: &[Field] = &[
    field("allow", r#"{"kinds": ["Kyma"]}"#, r#"["Kyma"]"#, "what_is_not_allowed_is_withheld"),
    field("allow.kinds", r#"["Kyma", "Watcher"]"#, r#"["Secret"]"#, "what_is_not_allowed_is_withheld"),
    field("allow.names", r#"["dev-*"]"#, r#"["Dev"]"#, "names_that_are_not_allowed_are_withheld"),
    field("allow.namespaces", r#"["kcp-system"]"#, r#"["kcp_system"]"#, "what_is_not_allowed_is_withheld"),
    field(
        "allowRewrite",
        "true",
        r#""yes""#,
        "a_rewritten_branch_is_refused_and_where_it_is_allowed_its_losses_are_confirmed",
    ),
    field(
        "bearerTokenFile",
        r#""/var/run/secrets/git/token""#,
        r#""token""#,
        "a_token_file_of_a_source_file_is_read_for_each_fetch_and_no_log_has_a_token_or_a_key",
    ),
    field("deletionPolicy", r#""Delete""#, "true", "a_deleted_source_takes_its_objects_along_where_it_says_so"),
    field("ignore", r#"["**/testdata/**"]"#, r#"[""]"#, "paths_ignore_and_templates_say_what_is_read"),
    field("interval", r#""5m""#, r#""5s""#, "a_source_is_fetched_when_its_interval_is_over_or_a_user_asks"),
    field("onError", r#""RefuseRevision""#, "false", "a_refused_revision_changes_nothing_at_all"),
    field(
        "paths",
        r#"["modules", "landscapes/prod"]"#,
        r#"["../other"]"#,
        "what_is_outside_of_the_paths_is_not_opened",
    ),
    field("proxySecretRef", r#"{"name": "proxy"}"#, r#""proxy""#, "the_proxy_of_a_secret_is_used"),
    field("proxySecretRef.name", r#""proxy""#, r#""""#, "the_proxy_of_a_secret_is_used"),
    field("prune", "false", r#""no""#, "a_source_that_does_not_prune_leaves_what_git_drops_until_it_does"),
    field("pruneLimit", r#"{"objects": 20}"#, "20", "too_many_prunes_at_once_stop_and_go_on_when_confirmed"),
    field("pruneLimit.objects", "20", "-1", "too_many_prunes_at_once_stop_and_go_on_when_confirmed"),
    field("pruneLimit.percent", "5", "101", "too_many_prunes_at_once_stop_and_go_on_when_confirmed"),
    field(
        "receiver",
        r#"{"secretRef": {"name": "landscape-hook"}}"#,
        r#""landscape-hook""#,
        "a_push_that_is_delivered_is_applied_long_before_the_next_poll",
    ),
    field(
        "receiver.secretRef",
        r#"{"name": "landscape-hook"}"#,
        r#""landscape-hook""#,
        "a_token_is_rotated_without_a_delivery_that_is_refused",
    ),
    field(
        "receiver.secretRef.name",
        r#""landscape-hook""#,
        r#""""#,
        "a_token_is_rotated_without_a_delivery_that_is_refused",
    ),
    field(
        "ref",
        r#"{"branch": "prod"}"#,
        r#"{"branch": "prod", "tag": "v1"}"#,
        "branches_tags_commits_and_the_head_can_be_followed",
    ),
    field("ref.branch", r#""prod""#, r#""a branch""#, "branches_tags_commits_and_the_head_can_be_followed"),
    field(
        "ref.commit",
        r#""0123456789abcdef0123456789abcdef01234567""#,
        r#""0123456""#,
        "branches_tags_commits_and_the_head_can_be_followed",
    ),
    field("ref.name", r#""refs/pull/42/head""#, r#""main""#, "branches_tags_commits_and_the_head_can_be_followed"),
    field("ref.semver", r#"">=1.0.0 <2.0.0""#, r#""newest""#, "branches_tags_commits_and_the_head_can_be_followed"),
    field("ref.tag", r#""v1.4.0""#, r#""v1 .4""#, "branches_tags_commits_and_the_head_can_be_followed"),
    field(
        "removalLimit",
        "20",
        "-1",
        "objects_that_leave_a_version_in_more_runtimes_than_the_limit_stay_until_the_commit_is_confirmed",
    ),
    field(
        "secretRef",
        r#"{"name": "landscape-auth"}"#,
        r#""landscape-auth""#,
        "credentials_and_authority_come_from_the_secret_and_rotate",
    ),
    field(
        "secretRef.name",
        r#""landscape-auth""#,
        r#""""#,
        "credentials_and_authority_come_from_the_secret_and_rotate",
    ),
    field("strict", "true", "1", "kind_foreign_strict"),
    field("suspend", "true", r#""yes""#, "a_suspended_source_changes_nothing_and_goes_on_when_resumed"),
    field("templates", r#""templates""#, r#""/templates""#, "paths_ignore_and_templates_say_what_is_read"),
    field("timeout", r#""2m""#, r#""500ms""#, "a_check_ends_after_the_timeout_of_the_source"),
    field(
        "url",
        r#""https://git.example.com/team/landscape.git""#,
        r#""https://anna:secret@git.example.com/landscape.git""#,
        "a_local_path_in_kcp_is_refused_unless_the_daemon_allows_it",
    ),
    field("verify", r#"{"secretRef": {"name": "signers"}}"#, r#"{"mode": "Head"}"#, TRUST),
    field("verify.mode", r#""Head""#, r#""HEAD""#, "the_mode_says_whether_commit_or_tag_must_be_signed"),
    field(
        "verify.paths",
        r#"[{"path": "landscapes/prod/**", "signers": ["anna@example.com"]}]"#,
        r#"["landscapes/prod/**"]"#,
        SIGNERS,
    ),
    field("verify.paths[].path", r#""landscapes/prod/**""#, r##""#prod""##, SIGNERS),
    field("verify.paths[].signers", r#"["anna@example.com"]"#, "[]", SIGNERS),
    field("verify.secretRef", r#"{"name": "signers"}"#, r#""signers""#, TRUST),
    field("verify.secretRef.name", r#""signers""#, r#""""#, TRUST),
];

const TRUST: &str = "an_unverified_revision_is_refused_whole_and_the_active_one_stays_also_across_a_restart";
const SIGNERS: &str = "a_path_is_changed_only_by_its_signers";

const BEGIN: &str = "<!-- written by tests/it/gitsource.rs: begin -->\n";
const END: &str = "<!-- written by tests/it/gitsource.rs: end -->\n";

const fn field(name: &'static str, example: &'static str, invalid: &'static str, shown_by: &'static str) -> Field {
    Field { name, example, invalid, shown_by }
}

/// A field as its schema describes it.
struct Described {
    name: String,
    default: Option<Value>,
    description: String,
}

#[test]
fn each_field_of_a_gitsource_has_a_row_in_the_documentation() {
    let found = described();
    let names: Vec<&str> = found.iter().map(|field| field.name.as_str()).collect();
    let rows: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(names, rows, "one row in FIELDS for each field of the CustomResourceDefinition, in this order");

    let mut table = "| field | default | what it does | example | invalid, and the answer |\n".to_owned();
    table.push_str("| --- | --- | --- | --- | --- |\n");
    for (described, field) in found.iter().zip(FIELDS) {
        let default = described.default.as_ref().map_or_else(|| "none".to_owned(), |value| format!("`{value}`"));
        let answer =
            answer(field.name, field.invalid).unwrap_or_else(|| panic!("{}: its example is valid", field.name));
        table.push_str(&format!(
            "| `{}` | {default} | {} | `{}` | `{}`: {} |\n",
            field.name,
            described.description.replace('\n', " "),
            field.example,
            field.invalid,
            // A bar would end the cell, even in code.
            answer.replace('|', "\\|"),
        ));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gitsource.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (_, after) = rest.split_once(END).expect("the place has an end");
    check_recorded(&path, &format!("{before}{BEGIN}{table}{END}{after}"));
}

#[test]
fn each_example_is_accepted() {
    for field in FIELDS {
        assert_eq!(answer(field.name, field.example), None, "{}", field.name);
    }
}

#[test]
fn a_url_that_is_often_tried_gets_a_sentence_and_a_valid_one_is_parsed_by_the_daemon() {
    let quoted = |url: &str| serde_json::to_string(url).unwrap();
    let forms = "supported are https://host/path, ssh://user@host/path, user@host:path, and file:///path or /path if \
                 the daemon allows it";
    for (url, expected) in [
        ("http://git.example.com/a", "http:// is not encrypted: use https:// or ssh://"),
        (
            "https://anna:secret@git.example.com/a",
            "user name and password belong in a Secret: name it in spec.secretRef",
        ),
        (
            "ssh://git@github.com:team/a.git",
            "an ssh:// URL has a slash after the host, and a colon only before a port: use ssh://git@host/path, or \
             git@host:path without a scheme",
        ),
        (
            "ssh://git:secret@git.example.com/a",
            "an ssh URL must not contain a password: add the private key to a Secret as identity",
        ),
        (
            "git:secret@git.example.com:a",
            "an ssh URL must not contain a password: add the private key to a Secret as identity",
        ),
        ("https://git.example.com/a?token=secret", "a repository URL must not contain ? or #"),
        ("ssh://git@git.example.com", "the ssh URL names no repository: use ssh://git@host/path or git@host:path"),
        ("ssh://git.example.com/", "the ssh URL names no repository: use ssh://git@host/path or git@host:path"),
        ("ssh://git@git.example.com:65536/a", "a port is a number from 1 to 65535"),
        ("ssh://[2001:db8::1]:0/a", "a port is a number from 1 to 65535"),
        ("https://git.example.com:99999/a", "a port is a number from 1 to 65535"),
        ("https://git.example.com:/a", "a port is a number from 1 to 65535"),
        ("ssh://-oProxyCommand=x/a", "neither user name nor host may begin with a hyphen"),
        ("ssh://-git@git.example.com/a", "neither user name nor host may begin with a hyphen"),
        ("git@-git.example.com:a", "neither user name nor host may begin with a hyphen"),
        (
            "codecommit::eu://landscape",
            "remote helpers of git (name::…) are not supported: use an https:// or ssh:// URL",
        ),
        ("git://git.example.com/a", forms),
        ("ftp://git.example.com/a", forms),
        ("https://", forms),
        ("ssh:///a", forms),
        ("git.example.com", forms),
        ("https://git.example.com/a b", forms),
    ] {
        assert_eq!(answer("url", &quoted(url)).as_deref(), Some(expected), "{url}");
    }
    for url in [
        "https://git.example.com",
        "https://git.example.com:8443/team/a.git",
        "ssh://git@git.example.com/team/a.git",
        "ssh://git.example.com:2222/a",
        "ssh://git.example.com:65535/a",
        "ssh://git@[2001:db8::1]:2222/a",
        "git@git.example.com:team/a.git",
        "git@ssh.dev.azure.com:v3/team/a%20b/c",
        "git@git.example.com:/srv/a",
        "file:///srv/a",
        "/srv/with space",
    ] {
        assert_eq!(answer("url", &quoted(url)), None, "{url}");
        url.parse::<tidegate_git::Url>().unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

/// What `.tidegate/source.yaml` cannot set, because it belongs to the control plane.
const OF_THE_CONTROL_PLANE: [&str; 7] =
    ["bearerTokenFile", "proxySecretRef", "receiver", "secretRef", "suspend", "url", "verify"];

#[test]
fn each_field_in_a_repository_must_agree_with_the_gitsource_unless_it_belongs_to_the_control_plane() {
    let mut refused = BTreeSet::new();
    for field in FIELDS {
        let name = field.name;
        let mut spec = json!({});
        set(&mut spec, name, serde_json::from_str(field.example).unwrap());
        let own = match SourceFile::read(&with_source_file(&spec)) {
            Ok(own) => own.expect("the repository has the file"),
            Err(problem) => {
                let top = name.split('.').next().unwrap();
                let (begin, end) = (format!("`spec.{top}"), "only the GitSource in the control plane has it");
                assert!(problem.message.starts_with(&begin), "{name}: {problem:?}");
                assert!(problem.message.ends_with(end), "{name}: {problem:?}");
                refused.insert(top);
                continue;
            }
        };
        let differences = |spec: &Value| {
            let mut spec = spec.clone();
            spec["url"] = "https://git.example.com/team/landscape.git".into();
            let found = own.differences("landscape", "kcp-system", &serde_json::from_value(spec).unwrap());
            found.into_iter().map(|one| (one.place.map(|place| place.line), one.message)).collect::<Vec<_>>()
        };
        assert!(differences(&spec).is_empty(), "{name}: both say the same");
        let found = differences(&json!({}));
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert_eq!(found[0].0, Some(4), "{name}");
        assert!(found[0].1.contains(&format!(" as `spec.{name}")), "{name}: {found:?}");
    }
    assert_eq!(refused, BTreeSet::from(OF_THE_CONTROL_PLANE), "every other field is compared");
}

/// A repository whose own GitSource has this spec, in line 4.
fn with_source_file(spec: &Value) -> Snapshot {
    let text = format!("apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nspec:\n  {}\n", fields(spec));
    let mut snapshot = Snapshot::empty(Revision::WorkTree);
    let file = File { id: Oid::new([1; 20]), content: Content::Text(text.as_bytes().into()) };
    snapshot.files.insert(".tidegate/source.yaml".into(), file);
    snapshot
}

/// The only field of a spec as a line of YAML: its value in JSON is YAML as well.
fn fields(spec: &Value) -> String {
    let (name, value) = spec.as_object().and_then(|fields| fields.iter().next()).expect("a field");
    format!("{name}: {value}")
}

#[test]
fn each_field_of_a_gitsource_is_shown_by_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["tests", "src", "crates"].iter().flat_map(|folder| crate::tidy::rust_files(&root.join(folder)));
    let text: String = folders.map(|file| fs::read_to_string(file).unwrap()).collect();
    // A function, or a row of a table that a macro turns into one.
    let is_test = |name: &str| text.contains(&format!("fn {name}(")) || text.contains(&format!("    {name} => "));
    let missing: Vec<&str> = FIELDS.iter().map(|field| field.shown_by).filter(|name| !is_test(name)).collect();
    assert!(missing.is_empty(), "there are no such tests: {missing:?}");
}

/// Every field below `spec`, sorted by name.
fn described() -> Vec<Described> {
    fn visit(schema: &Value, prefix: &str, found: &mut Vec<Described>) {
        for (name, schema) in schema["properties"].as_object().unwrap_or(&Map::new()) {
            let name = format!("{prefix}{name}");
            visit(schema, &format!("{name}."), found);
            visit(&schema["items"], &format!("{name}[]."), found);
            let description = schema["description"].as_str().unwrap_or_default().to_owned();
            assert!(!description.is_empty(), "{name} has no description");
            found.push(Described { name, default: schema.get("default").cloned(), description });
        }
    }
    let mut found = Vec::new();
    visit(&spec_schema(), "", &mut found);
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn spec_schema() -> Value {
    let crd = serde_json::to_value(api::crd("GitSource").unwrap()).unwrap();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap().clone()
}

/// What `tidegate validate` and the API server say of a GitSource with this value; `None` if it is valid.
fn answer(name: &str, value: &str) -> Option<String> {
    let value: Value = serde_json::from_str(value).unwrap_or_else(|error| panic!("{name}: {value}: {error}"));
    let mut spec = json!({"url": "https://git.example.com/team/landscape.git"});
    if name.starts_with("verify.") {
        let rule = json!({"path": "modules/**", "signers": ["bert@example.com"]});
        spec["verify"] = json!({"secretRef": {"name": "signers"}, "paths": [rule]});
    }
    set(&mut spec, name, value);
    let source = json!({
        "apiVersion": "tidegate.dev/v1alpha1",
        "kind": "GitSource",
        "metadata": {"name": "landscape", "namespace": "kcp-system"},
        "spec": spec,
    });
    let schema = Schema::from_crd(api::crd("GitSource").unwrap()).unwrap();
    if let Some(violation) = schema.check(&source).into_iter().next() {
        return Some(violation.message);
    }
    let source: GitSource = serde_json::from_value(source).unwrap();
    Terms::from_source(&source).err().map(|error| error.to_string())
}

/// Sets a field. Lists and objects around it that do not exist have nothing else.
fn set(spec: &mut Value, name: &str, value: Value) {
    let mut place = spec;
    for part in name.split('.') {
        let (key, is_list) = part.strip_suffix("[]").map_or((part, false), |key| (key, true));
        place = &mut place[key];
        if is_list {
            if !place.is_array() {
                *place = json!([{}]);
            }
            place = &mut place[0];
        }
    }
    *place = value;
}
