//! No command shows a value of a Secret, however it is written, unless the user asks for it.

use std::{
    fs,
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tempfile::TempDir;
use tidegate_landscape::Size;
use tidegate_testbed::Repository;

const OBJECTS: &str = "modules/alpha/1.22.0/objects";

/// A repository with one runtime and these objects of its module, committed; then each value changes.
fn repository(objects: &[(&str, String)]) -> (TempDir, Repository) {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(folder.path()).unwrap();
    for (path, text) in (Size { runtimes: 1, modules: 1, templates: 25, objects: 3 }).files() {
        repository.write(&path, &text).unwrap();
    }
    for (name, text) in objects {
        repository.write(&format!("{OBJECTS}/{name}.yaml"), &text.replace("hunter2", "hunter1")).unwrap();
    }
    repository.commit("old values").unwrap();
    for (name, text) in objects {
        repository.write(&format!("{OBJECTS}/{name}.yaml"), text).unwrap();
    }
    (folder, repository)
}

fn tidegate_in(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).current_dir(folder);
    command
}

/// Everything that a command prints, and its exit code.
fn printed(repository: &Repository, arguments: &[&str]) -> (String, i32) {
    let output = tidegate_in(repository.path(), arguments).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (text, output.status.code().unwrap())
}

fn secret(name: &str, values: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: kyma-system}}\n{values}")
}

fn config(name: &str, values: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: kyma-system}}\ndata:\n{values}")
}

/// Fails if any command that reads definitions prints one of these words, as it is or in base64.
#[track_caller]
fn nothing_is_shown(repository: &Repository, words: &[&str]) {
    let commands: [&[&str]; 7] = [
        &["render", "."],
        &["render", ".", "-o", "json"],
        &["validate", "."],
        &["validate", ".", "-o", "json"],
        &["diff", "--from", "HEAD", "--all-runtimes"],
        &["diff", "--from", "HEAD", "--all-runtimes", "-o", "json"],
        &["diff", "--from", "HEAD", "--all-runtimes", "-o", "markdown"],
    ];
    for command in commands {
        let (text, _) = printed(repository, command);
        for word in words {
            let encoded = STANDARD.encode(word);
            let encoded = encoded.trim_end_matches('=');
            for form in [word, &encoded[..encoded.len() - 1]] {
                assert!(!text.contains(form), "{command:?} shows {form}:\n{text}");
            }
        }
    }
}

#[test]
fn render_masks_values_of_secrets_and_copies_of_them_unless_asked_for() {
    let copies = config("copies", "  copy: the password is hunter2-in-clear\n  other: nothing\n");
    let values = format!(
        "stringData: {{password: hunter2-in-clear}}\ndata: {{token: {}}}\n",
        STANDARD.encode("hunter2-in-base64")
    );
    let (_folder, repository) = repository(&[("secret", secret("login", &values)), ("copies", copies)]);
    nothing_is_shown(&repository, &["hunter2-in-clear", "hunter2-in-base64"]);
    for format in ["yaml", "json"] {
        let render = |more: &[&str]| printed(&repository, &[&["render", ".", "-o", format][..], more].concat()).0;
        let masked = render(&[]);
        assert!(masked.contains("the password is (masked: Secret "), "{masked}");
        assert!(masked.contains("nothing"), "{masked}");
        assert_eq!(render(&[]), masked, "two runs print the same");
        let clear = render(&["--show-secrets"]);
        assert!(clear.contains("the password is hunter2-in-clear") && !clear.contains("masked"), "{clear}");
        assert!(clear.contains(&STANDARD.encode("hunter2-in-base64")), "{clear}");
    }
}

#[test]
fn parts_of_json_and_yaml_in_a_secret_are_secret_wherever_they_are_copied() {
    let docker = format!(
        r#"{{"auths":{{"registry.example.org":{{"username":"anna","password":"hunter2-docker","auth":"{}"}}}}}}"#,
        STANDARD.encode("anna:hunter2-in-auth")
    );
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: one\n  cluster: {{server: 'https://one.example.org'}}\nusers:\n\
         - name: admin\n  user:\n    token: hunter2-token\n    client-key-data: {}\n",
        STANDARD.encode("-----BEGIN KEY-----\nhunter2AAAABBBBCCCC\n-----END KEY-----\n")
    );
    let nested = format!(r#"{{"login":"{{\"pin\":\"hunter2-nested\"}}","number":{}}}"#, 4_815_162_342_u64);
    let values = format!(
        "data:\n  .dockerconfigjson: {}\n  kubeconfig: {}\n  nested: {}\n",
        STANDARD.encode(docker),
        STANDARD.encode(kubeconfig),
        STANDARD.encode(nested),
    );
    let copies = config(
        "copies",
        "  a: hunter2-docker\n  b: --password=hunter2-in-auth\n  c: Bearer hunter2-token\n  d: hunter2AAAABBBBCCCC\n  \
         e: x hunter2-nested y\n  f: '4815162342'\n  g: aHVudGVyMi1kb2NrZXI=\n  h: kind and Config\n",
    );
    let (_folder, repository) = repository(&[("secret", secret("pull", &values)), ("copies", copies)]);
    let words =
        ["hunter2-docker", "hunter2-in-auth", "hunter2-token", "hunter2AAAABBBBCCCC", "hunter2-nested", "4815162342"];
    nothing_is_shown(&repository, &words);
    let (text, _) = printed(&repository, &["render", "."]);
    assert!(text.contains("--password=(masked: Secret ") && text.contains("kind and Config"), "{text}");
}

#[test]
fn a_secret_whose_kind_is_broken_or_misspelt_shows_no_values() {
    let encoded = STANDARD.encode("hunter2-in-base64");
    let string_data = "stringData:\n  password: hunter2-in-clear\n";
    let data = format!("data:\n  password: {encoded}\n");
    let head = |kind: &str| format!("apiVersion: v1\n{kind}metadata: {{name: a, namespace: kyma-system}}\n");
    // What an API server rejects, and what no parser reads.
    let kinds =
        ["kind: Secert\n", "kind: Secretts\n", "kind: Credential\n", "", "kind:\n", "kind: [Sceret]\n", "kind: 7\n"];
    for kind in kinds {
        for values in
            [string_data, &data, &format!("{data}  broken: [\n"), &format!("{string_data}  password: again\n")]
        {
            let (_folder, repository) = repository(&[("secret", head(kind) + values)]);
            nothing_is_shown(&repository, &["hunter2-in-clear", "hunter2-in-base64"]);
        }
    }
}

#[test]
fn a_password_in_the_url_of_a_source_file_is_refused_and_not_repeated() {
    let (folder, repository) = repository(&[]);
    let file = folder.path().join(".git/source.yaml");
    for url in [
        "https://anna:hunter2@git.example.com/l.git",
        "https://hunter2@git.example.com/l.git",
        "https://git.example.com/l.git?access_token=hunter2",
        "ssh://anna:hunter2@git.example.com/l.git",
        "anna:hunter2@git.example.com:l.git",
    ] {
        let source =
            format!("apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {{name: a}}\nspec:\n  url: {url}\n");
        fs::write(&file, source).unwrap();
        let file = file.to_str().unwrap();
        for command in [&["validate", "."][..], &["render", "."], &["diff", "--from", "HEAD"]] {
            let (text, code) = printed(&repository, &[command, &["--source-file", file]].concat());
            assert_eq!(code, 2, "{command:?}: {text}");
            assert!(text.contains("source.yaml:5:3: spec.url"), "{text}");
            assert!(!text.contains("hunter2") && !text.contains("anna"), "{command:?}: {text}");
        }
    }
}

/// The URL may be in another field, in the file of the option or in that of the repository.
#[test]
fn a_password_in_any_field_of_a_source_file_is_not_repeated() {
    let (folder, repository) = repository(&[]);
    let (given, own) = (folder.path().join(".git/source.yaml"), folder.path().join(".tidegate/source.yaml"));
    fs::create_dir_all(folder.path().join(".tidegate")).unwrap();
    let url = "https://anna:hunter2@git.example.com/l.git";
    let token = "https://git.example.com/l.git?access_token=hunter2";
    for spec in [
        format!("  paths: ['{url}']\n"),
        format!("  templates: '{url}'\n"),
        format!("  ref: {{branch: '{token}'}}\n"),
        format!("  ref: {{tag: '{token}'}}\n"),
        format!("  ref: {{name: '{token}'}}\n"),
        format!("  ref: {{commit: '{url}'}}\n"),
        format!("  interval: '{url}'\n"),
        format!("  timeout: '{url}'\n"),
        format!("  onError: '{url}'\n"),
        format!("  deletionPolicy: '{url}'\n"),
        format!("  allow: {{kinds: ['{url}']}}\n"),
        format!("  allow: {{names: ['{url}']}}\n"),
        format!("  strict: '{url}'\n"),
        format!("  remote: '{url}'\n"),
        format!("  allow: {{'{url}'}}\n"),
    ] {
        let head = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: a}\nspec:\n";
        for is_given in [true, false] {
            let (file, text) = match is_given {
                true => (&given, format!("{head}  url: https://git.example.com/l.git\n{spec}")),
                false => (&own, format!("{head}{spec}")),
            };
            fs::write(file, text).unwrap();
            let path = file.to_str().unwrap();
            for command in [&["validate", "."][..], &["render", "."], &["diff", "--from", "HEAD"]] {
                let option: &[&str] = if is_given { &["--source-file", path] } else { &[] };
                let (text, code) = printed(&repository, &[command, option].concat());
                assert_ne!(code, 0, "{command:?} {spec}: {text}");
                let place = if is_given { "source.yaml:6:" } else { "source.yaml:5:" };
                assert!(text.contains(place), "{command:?} {spec}: {text}");
                assert!(!text.contains("hunter2") && !text.contains("anna"), "{command:?} {spec}: {text}");
            }
            fs::remove_file(file).unwrap();
        }
    }
}

/// The objects of all runtimes are never in memory at once.
#[test]
fn render_of_a_fleet_needs_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(folder.path()).unwrap();
    for (path, text) in (Size { runtimes: 500, modules: 5, templates: 125, objects: 5 }).files() {
        repository.write(&path, &text).unwrap();
    }
    for format in ["yaml", "json"] {
        let mut child = tidegate_in(repository.path(), &["render", ".", "-o", format]);
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut out, mut peak_kib, mut read) = (child.stdout.take().unwrap(), 0, 0);
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = out.read(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            read += count;
            // The kernel keeps the maximum, so the last answer before the end is the peak.
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let kib = |name: &str| -> Option<u64> {
                let value = status.lines().find_map(|line| line.strip_prefix(name))?;
                value.trim().trim_end_matches(" kB").parse().ok()
            };
            // Without the pages of the program's file, which are many if it is not optimised.
            if let (Some(peak), Some(file)) = (kib("VmHWM:"), kib("RssFile:")) {
                peak_kib = peak.saturating_sub(file);
            }
        }
        assert!(child.wait().unwrap().success());
        assert!(read > 10 << 20, "{format}: only {read} bytes");
        assert!(peak_kib > 0 && peak_kib < 64 << 10, "{format}: {peak_kib} KiB for {read} bytes");
    }
}
