use git2::{IndexEntry, IndexTime, Signature};

use super::*;

const PROD: &str = "landscapes/prod/kyma.yaml";
const DEV: &str = "landscapes/dev/kyma.yaml";
const RULE: &str = "landscapes/prod/**";

/// A repository, and its commits by name.
struct World {
    _folder: tempfile::TempDir,
    repository: Repository,
    names: BTreeMap<GitOid, &'static str>,
}

/// What happens to a path.
enum Change {
    Write(&'static str, &'static str),
    Remove(&'static str),
    Link(&'static str),
    Submodule(&'static str),
}
use Change::{Link, Remove, Submodule, Write};

fn entry(path: &str, id: GitOid, mode: u32) -> IndexEntry {
    IndexEntry {
        ctime: IndexTime::new(0, 0),
        mtime: IndexTime::new(0, 0),
        dev: 0,
        ino: 0,
        mode,
        uid: 0,
        gid: 0,
        file_size: 0,
        id,
        flags: 0,
        flags_extended: 0,
        path: path.as_bytes().to_vec(),
    }
}

impl World {
    /// With a first commit that has a file in each folder.
    fn new() -> (World, GitOid) {
        crate::prepare();
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let mut world = World { _folder: folder, repository, names: BTreeMap::new() };
        let first = world.commit("first", &[], &[Write(PROD, "1"), Write(DEV, "1")]);
        (world, first)
    }

    /// A commit with the files of its first parent, and these changes.
    fn commit(&mut self, name: &'static str, parents: &[GitOid], changes: &[Change]) -> GitOid {
        let tree = self.tree(parents.first().copied(), changes);
        self.commit_tree(name, parents, tree)
    }

    fn tree(&self, parent: Option<GitOid>, changes: &[Change]) -> GitOid {
        let mut index = git2::Index::new().unwrap();
        if let Some(parent) = parent {
            let before = self.repository.find_commit(parent).unwrap().tree().unwrap();
            index.read_tree(&before).unwrap();
        }
        let blob = |text: &str| self.repository.blob(text.as_bytes()).unwrap();
        for change in changes {
            let (path, id, mode) = match change {
                Write(path, text) => (path, blob(text), 0o100_644),
                Link(path) => (path, blob("elsewhere"), 0o120_000),
                Submodule(path) => (path, parent.unwrap(), 0o160_000),
                Remove(path) => {
                    index.remove_path(path.as_ref()).unwrap();
                    continue;
                }
            };
            index.add(&entry(path, id, mode)).unwrap();
        }
        index.write_tree_to(&self.repository).unwrap()
    }

    fn commit_tree(&mut self, name: &'static str, parents: &[GitOid], tree: GitOid) -> GitOid {
        let author = Signature::new("a", "a@example.com", &git2::Time::new(1_700_000_000, 0)).unwrap();
        let id = {
            let parents: Vec<Commit<'_>> = parents.iter().map(|id| self.repository.find_commit(*id).unwrap()).collect();
            let tree = self.repository.find_tree(tree).unwrap();
            let parents: Vec<&Commit<'_>> = parents.iter().collect();
            self.repository.commit(None, &author, &author, name, &tree, &parents).unwrap()
        };
        self.names.insert(id, name);
        id
    }

    fn collect(&self, base: Option<GitOid>, head: GitOid) -> (Vec<Part>, Outcome) {
        self.collect_within(EVIDENCE_STEPS_MAX, base, head).unwrap()
    }

    fn collect_within(
        &self,
        steps: usize,
        base: Option<GitOid>,
        head: GitOid,
    ) -> Result<(Vec<Part>, Outcome), Trouble> {
        let mut parts = Vec::new();
        let mut sink = |frame| match frame {
            Frame::Evidence(part) => {
                parts.push(part);
                Ok(())
            }
            _ => Err(Stopped),
        };
        let rules = [RULE.to_owned(), "*.secret".to_owned()];
        let range = (from_git(head), base.map(from_git));
        let outcome = super::collect_within(steps, &self.repository, range, &rules, &mut sink)?;
        Ok((parts, outcome))
    }

    /// A tree whose folder `landscapes/prod` has the files of this one, and others.
    fn with_files(&self, folder: Option<GitOid>, files: impl IntoIterator<Item = (String, String)>) -> [GitOid; 2] {
        let before = folder.map(|folder| self.repository.find_tree(folder).unwrap());
        let mut builder = self.repository.treebuilder(before.as_ref()).unwrap();
        for (name, text) in files {
            builder.insert(name, self.repository.blob(text.as_bytes()).unwrap(), 0o100_644).unwrap();
        }
        let folder = builder.write().unwrap();
        [folder, self.within("landscapes", self.within("prod", folder))]
    }

    /// A folder with only this folder in it.
    fn within(&self, name: &str, folder: GitOid) -> GitOid {
        let mut builder = self.repository.treebuilder(None).unwrap();
        builder.insert(name, folder, 0o040_000).unwrap();
        builder.write().unwrap()
    }

    /// The commits that change guarded paths, with the paths, sorted by name; then what the head answers for.
    fn touched(&self, base: Option<GitOid>, head: GitOid) -> Vec<String> {
        let (parts, (vouched, gap)) = self.collect(base, head);
        assert_eq!(gap, None);
        let mut lines = Vec::new();
        for part in parts {
            let Part::Touched(Touched { commit, paths }) = part else { continue };
            let name = self.names[&to_git(commit.id)];
            lines.extend(paths.iter().map(|(rule, path)| format!("{name}: {rule} {path}")));
        }
        lines.sort();
        lines.extend(vouched.iter().map(|(rule, path)| format!("head: {rule} {path}")));
        lines
    }
}

#[test]
fn each_commit_is_named_that_changes_a_guarded_path() {
    let (mut world, first) = World::new();
    let dev = world.commit("dev", &[first], &[Write(DEV, "2")]);
    let prod = world.commit("prod", &[dev], &[Write(PROD, "2"), Write("a.secret", "1")]);
    let back = world.commit("back", &[prod], &[Write(PROD, "1")]);
    assert_eq!(world.touched(Some(first), dev), [""; 0]);
    let expected = [format!("back: 0 {PROD}"), format!("prod: 0 {PROD}"), "prod: 1 a.secret".to_owned()];
    assert_eq!(world.touched(Some(first), back), expected);
    assert_eq!(world.touched(Some(back), back), [""; 0]);
    assert_eq!(world.touched(Some(prod), back), [format!("back: 0 {PROD}")]);
}

#[test]
fn a_rename_is_a_change_of_both_paths() {
    let (mut world, first) = World::new();
    let into = world.commit("into", &[first], &[Remove(DEV), Write("landscapes/prod/dev.yaml", "1")]);
    let out = world.commit("out", &[into], &[Remove(PROD), Write("landscapes/test/kyma.yaml", "1")]);
    let expected = ["into: 0 landscapes/prod/dev.yaml".to_owned(), format!("out: 0 {PROD}")];
    assert_eq!(world.touched(Some(first), out), expected);
}

#[test]
fn a_link_and_a_submodule_in_place_of_a_folder_are_changes() {
    let (mut world, first) = World::new();
    let empty = world.commit("empty", &[first], &[Remove(PROD)]);
    let link = world.commit("link", &[empty], &[Link("landscapes/prod")]);
    let submodule = world.commit("submodule", &[empty], &[Submodule("landscapes/prod")]);
    assert_eq!(world.touched(Some(empty), link), ["link: 0 landscapes/prod"]);
    assert_eq!(world.touched(Some(empty), submodule), ["submodule: 0 landscapes/prod"]);
    let direct = world.commit("direct", &[first], &[Remove(PROD), Submodule("landscapes/prod")]);
    assert_eq!(world.touched(Some(first), direct), ["direct: 0 landscapes/prod"]);
    let above = world.commit("above", &[first], &[Remove(PROD), Remove(DEV), Submodule("landscapes")]);
    assert_eq!(world.touched(Some(first), above), [format!("above: 0 {PROD}")]);
}

#[test]
fn a_merge_without_conflict_changes_nothing_itself() {
    let (mut world, first) = World::new();
    let prod = world.commit("prod", &[first], &[Write(PROD, "2")]);
    let dev = world.commit("dev", &[first], &[Write(DEV, "2")]);
    // In both orders of the parents.
    let merge = world.commit("merge", &[prod, dev], &[Write(DEV, "2")]);
    let other = world.commit("other", &[dev, prod], &[Write(PROD, "2")]);
    assert_eq!(world.touched(Some(first), merge), [format!("prod: 0 {PROD}")]);
    assert_eq!(world.touched(Some(first), other), [format!("prod: 0 {PROD}")]);
    assert_eq!(world.touched(Some(prod), merge), [""; 0], "the active revision has the change already");
    assert_eq!(world.touched(Some(dev), merge), [format!("prod: 0 {PROD}")], "the merge brings it");
    // And three branches at once.
    let more = world.commit("more", &[first], &[Write("landscapes/prod/more.yaml", "1")]);
    let changes = [Write(DEV, "2"), Write("landscapes/prod/more.yaml", "1")];
    let octopus = world.commit("octopus", &[prod, dev, more], &changes);
    let expected = ["more: 0 landscapes/prod/more.yaml".to_owned(), format!("prod: 0 {PROD}")];
    assert_eq!(world.touched(Some(first), octopus), expected);
}

#[test]
fn a_merge_that_undoes_a_change_is_a_change() {
    let (mut world, first) = World::new();
    let prod = world.commit("prod", &[first], &[Write(PROD, "2")]);
    let dev = world.commit("dev", &[first], &[Write(DEV, "2")]);
    // The content is that of a parent, which never changed it.
    let undone = world.commit("undone", &[dev, prod], &[]);
    assert_eq!(world.touched(Some(prod), undone), [format!("undone: 0 {PROD}")]);
    let other = world.commit("other", &[prod, dev], &[Write(PROD, "1")]);
    assert_eq!(world.touched(Some(prod), other), [format!("other: 0 {PROD}")]);
    let removed = world.commit("removed", &[prod, dev], &[Remove(PROD)]);
    assert_eq!(world.touched(Some(prod), removed), [format!("removed: 0 {PROD}")]);
    // The same over a merge that looks harmless.
    let later = world.commit("later", &[undone], &[Write(DEV, "3")]);
    assert_eq!(world.touched(Some(prod), later), [format!("undone: 0 {PROD}")]);
}

#[test]
fn a_merge_with_content_of_its_own_is_a_change() {
    let (mut world, first) = World::new();
    let prod = world.commit("prod", &[first], &[Write(PROD, "2")]);
    let dev = world.commit("dev", &[first], &[Write(DEV, "2")]);
    let evil = world.commit("evil", &[prod, dev], &[Write(PROD, "3"), Write(DEV, "2")]);
    assert_eq!(world.touched(Some(prod), evil), [format!("evil: 0 {PROD}")]);
    // Both sides changed it: whoever merges decides.
    let also = world.commit("also", &[first], &[Write(PROD, "4")]);
    let chosen = world.commit("chosen", &[prod, also], &[]);
    let expected = [format!("also: 0 {PROD}"), format!("chosen: 0 {PROD}")];
    assert_eq!(world.touched(Some(prod), chosen), expected);
}

#[test]
fn a_branch_without_common_history_changes_all_its_files() {
    let (mut world, first) = World::new();
    let root = world.commit("root", &[], &[Write(PROD, "9")]);
    let merge = world.commit("merge", &[first, root], &[Write(PROD, "9")]);
    let expected = [format!("merge: 0 {PROD}"), format!("root: 0 {PROD}")];
    assert_eq!(world.touched(Some(first), merge), expected);
}

#[test]
fn the_head_answers_for_a_first_revision_and_for_a_rewrite() {
    let (mut world, first) = World::new();
    let prod = world.commit("prod", &[first], &[Write(PROD, "2")]);
    let dev = world.commit("dev", &[first], &[Write(DEV, "2")]);
    assert_eq!(world.touched(None, prod), [format!("head: 0 {PROD}")]);
    let missing = "1".repeat(40).parse::<Oid>().unwrap();
    assert_eq!(world.touched(Some(to_git(missing)), prod), [format!("head: 0 {PROD}")], "an unknown base is none");
    assert_eq!(world.touched(Some(prod), dev), [format!("head: 0 {PROD}")], "the branch lost a change");
    assert_eq!(world.touched(Some(dev), prod), [format!("prod: 0 {PROD}"), format!("head: 0 {PROD}")]);
}

#[test]
fn a_folder_that_git_does_not_write_is_a_gap() {
    let (mut world, first) = World::new();
    let blob = world.repository.blob(b"1").unwrap();
    let entry = |name: &[u8]| [b"100644 ", name, b"\0", blob.as_bytes()].concat();
    for (name, entries) in [("double", [entry(b"a"), entry(b"a")]), ("slash", [entry(b"a"), entry(b"a/b")])] {
        let odb = world.repository.odb().unwrap();
        let tree = odb.write(ObjectType::Tree, &entries.concat()).unwrap();
        drop(odb);
        let commit = world.commit_tree(name, &[first], tree);
        let (_, (_, gap)) = world.collect(Some(first), commit);
        assert_eq!(gap, Some(Gap::Folder(from_git(commit))), "{name}");
    }
}

#[test]
fn tags_are_followed_to_their_commit() {
    let (world, first) = World::new();
    let tagger = Signature::new("a", "a@example.com", &git2::Time::new(1_700_000_000, 0)).unwrap();
    let mut target = world.repository.find_object(first, None).unwrap();
    for depth in 1..=EVIDENCE_TAGS_MAX + 1 {
        let tag = world.repository.tag(&format!("v{depth}"), &target, &tagger, "", false).unwrap();
        target = world.repository.find_object(tag, None).unwrap();
        let (parts, (_, gap)) = world.collect(Some(first), tag);
        let tags = parts.iter().filter(|part| matches!(part, Part::Tag(_))).count();
        let too_many = EVIDENCE_TAGS_MAX < depth;
        assert_eq!(gap, too_many.then_some(Gap::Tags(EVIDENCE_TAGS_MAX)), "{depth}");
        assert_eq!(tags, depth);
    }
}

#[test]
fn a_merge_is_judged_also_if_it_changes_all_of_a_thousand_files() {
    let (mut world, first) = World::new();
    let all =
        |text: &str| (0..1_000).map(|number| (format!("kyma-{number}.yaml"), text.to_owned())).collect::<Vec<_>>();
    let [folder, tree] = world.with_files(None, all("1"));
    let base = world.commit_tree("base", &[first], tree);
    let [changed, tree] = world.with_files(Some(folder), all("2"));
    let branch = world.commit_tree("branch", &[base], tree);
    let [_, tree] = world.with_files(Some(folder), [("other.yaml".to_owned(), "1".to_owned())]);
    let main = world.commit_tree("main", &[base], tree);
    let [merged, tree] = world.with_files(Some(changed), [("other.yaml".to_owned(), "1".to_owned())]);
    let merge = world.commit_tree("merge", &[main, branch], tree);
    assert_eq!(world.touched(Some(main), merge), ["branch: 0 landscapes/prod/kyma-0.yaml"]);
    // One file of its own among them is found.
    let [_, tree] = world.with_files(Some(merged), [("kyma-7.yaml".to_owned(), "evil".to_owned())]);
    let evil = world.commit_tree("evil", &[main, branch], tree);
    let expected = ["branch: 0 landscapes/prod/kyma-0.yaml", "evil: 0 landscapes/prod/kyma-7.yaml"];
    assert_eq!(world.touched(Some(main), evil), expected);
}

#[test]
fn many_commits_are_judged_also_in_a_large_folder() {
    let (mut world, first) = World::new();
    let files = (0..5_000).map(|number| (format!("kyma-{number}.yaml"), "1".to_owned()));
    let [mut folder, tree] = world.with_files(None, files);
    let base = world.commit_tree("base", &[first], tree);
    let mut head = base;
    for number in 0..400 {
        let tree;
        [folder, tree] = world.with_files(Some(folder), [(format!("kyma-{number}.yaml"), "2".to_owned())]);
        head = world.commit_tree("one", &[head], tree);
    }
    assert_eq!(world.touched(Some(base), head).len(), 400);
}

#[test]
fn a_history_that_takes_too_long_is_not_judged() {
    let (mut world, first) = World::new();
    let files = (0..500).map(|number| (format!("kyma-{number}.yaml"), "1".to_owned()));
    let [_, tree] = world.with_files(None, files);
    let empty = world.repository.treebuilder(None).unwrap().write().unwrap();
    let mut head = world.commit_tree("large", &[first], tree);
    for _ in 0..20 {
        let without = world.commit_tree("empty", &[head], empty);
        head = world.commit_tree("large", &[without], tree);
    }
    // Both folders are read once; what costs is the comparison.
    let judged = |steps| world.collect_within(steps, Some(first), head).map(drop);
    assert_eq!(judged(100_000), Err(Trouble::TooMuchHistory));
    assert_eq!(judged(1_000_000), Ok(()));
}

#[test]
fn folders_that_multiply_are_not_judged() {
    let (mut world, first) = World::new();
    let blob = world.repository.blob(b"1").unwrap();
    let folders = |leaf: &str, depth: usize| {
        let mut builder = world.repository.treebuilder(None).unwrap();
        builder.insert(leaf, blob, 0o100_644).unwrap();
        let mut tree = builder.write().unwrap();
        for _ in 0..depth {
            let mut builder = world.repository.treebuilder(None).unwrap();
            for name in ["a", "b", "c", "d"] {
                builder.insert(name, tree, 0o040_000).unwrap();
            }
            tree = builder.write().unwrap();
        }
        tree
    };
    // A few small objects, and 4 to the power of 30 files.
    let (unguarded, guarded) = (folders("kyma.yaml", 30), folders("a.secret", 30));
    let unguarded = world.commit_tree("unguarded", &[first], unguarded);
    let guarded = world.commit_tree("guarded", &[first], guarded);
    for base in [Some(first), None] {
        let result = |head| world.collect_within(10_000_000, base, head).map(drop);
        assert_eq!(result(unguarded), Err(Trouble::TooMuchHistory));
        assert_eq!(result(guarded), Err(Trouble::TooManyPaths));
    }
}
