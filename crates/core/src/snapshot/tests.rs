use super::*;

fn id(byte: u8) -> Oid {
    Oid::new([byte; 20])
}

fn snapshot(paths: &[&str]) -> Snapshot {
    let mut snapshot = Snapshot::empty(Revision::WorkTree);
    for path in paths {
        let file = File { id: id(1), content: Content::Text(path.as_bytes().into()) };
        snapshot.files.insert((*path).into(), file);
    }
    snapshot
}

#[test]
fn yaml_json_and_templates_matter() {
    let filter = Filter::new(Some("./templates/"));
    for path in ["a.yaml", "a/b.yml", "a/b.json", "a.YAML", "templates/kcp/manifest.txt", "templates/a.yaml"] {
        assert!(filter.takes(path), "{path}");
    }
    for path in ["README.md", ".a.yaml", ".github/a.yaml", "templates/.x", "templates-old/x", "yaml"] {
        assert!(!filter.takes(path), "{path}");
    }
    assert!(!Filter::new(None).takes("templates/x"));
    // `/` is not a folder: it would match every file.
    assert!(!Filter::new(Some("/")).takes("x"));
}

#[test]
fn the_files_that_say_how_a_repository_is_read_matter_wherever_definitions_are() {
    let whole = Filter::new(None);
    let part = Filter::new(None).within(&["kymas".to_owned()], &["*".to_owned()]);
    let below = Filter::new(None).within_folder("land", &[], &[]);
    for (filter, root) in [(&whole, ""), (&part, ""), (&below, "land/")] {
        for (path, expected) in [
            (".tidegate/source.yaml", true),
            (".tidegate/prod.yml", true),
            (".tidegate/README.md", false),
            (".tidegate/.hidden.yaml", false),
            (".tidegate/deep/source.yaml", false),
            ("kymas/.tidegate/source.yaml", false),
        ] {
            assert_eq!(filter.takes(&format!("{root}{path}")), expected, "{root}{path}");
        }
        assert!(filter.enters(&format!("{root}.tidegate")), "{root}");
    }
    assert!(!below.takes(".tidegate/source.yaml"), "that is another repository");
}

#[test]
fn below_knows_folders_from_names_that_begin_alike() {
    let snapshot = snapshot(&["a-b/x.yaml", "a/x.yaml", "a/y/z.yaml", "a.yaml", "ab/x.yaml", "b.yaml"]);
    let below = |path: &str| snapshot.below(path).map(|(path, _)| path.to_string()).collect::<Vec<_>>();
    assert_eq!(below("a"), ["a/x.yaml", "a/y/z.yaml"]);
    assert_eq!(below("a/y"), ["a/y/z.yaml"]);
    assert_eq!(below("b.yaml"), ["b.yaml"]);
    assert_eq!(below("").len(), 6);
    assert_eq!(below("c"), Vec::<String>::new());
}

#[test]
fn a_link_has_no_object_id() {
    let mut snapshot = snapshot(&["a.yaml"]);
    snapshot.trees.insert("".into(), id(2));
    snapshot.files.insert("link.yaml".into(), File { id: id(3), content: Content::Symlink });
    assert_eq!(snapshot.object_id(""), Some(id(2)));
    assert_eq!(snapshot.object_id("a.yaml"), Some(id(1)));
    assert_eq!(snapshot.object_id("link.yaml"), None);
    assert_eq!(snapshot.object_id("absent"), None);
}

#[test]
fn paths_and_patterns_are_relative_to_the_folder_of_the_scope() {
    let (paths, ignore) = (["modules".to_owned()], ["/modules/junk/".to_owned()]);
    for root in ["", "land", "a/land"] {
        let filter = Filter::new(None).within_folder(root, &paths, &ignore);
        let below = |path: &str| if root.is_empty() { path.to_owned() } else { format!("{root}/{path}") };
        for (folder, expected) in [("modules", true), ("modules/a", true), ("modules/junk", false), ("junk", false)] {
            assert_eq!(filter.enters(&below(folder)), expected, "{root}: {folder}");
            assert_eq!(filter.takes(&below(&format!("{folder}/x.yaml"))), expected, "{root}: {folder}");
        }
    }
    let filter = Filter::new(None).within_folder("a/land", &[], &[]);
    for (folder, expected) in [("a", true), ("a/land", true), ("a/land/x", true), ("a/landing", false), ("b", false)] {
        assert_eq!(filter.enters(folder), expected, "{folder}");
    }
    assert!(filter.takes("a/land/x.yaml") && !filter.takes("a/x.yaml") && !filter.takes("modules/x.yaml"));
}
