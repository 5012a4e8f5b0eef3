//! What a repository says of a revision's signatures: see [`tidegate_core::evidence`].
//!
//! A path is changed by a commit if the entry at it differs from the parent: there are no renames, only files that go
//! and come. Submodules and symbolic links are entries like files. A commit without a parent changes all its files.
//!
//! A merge changes a path unless its content follows from the parents: it is that of one parent, and each parent with
//! other content has had it since before they diverged. So a merge that keeps an old version of a file, against a
//! parent that changed it, is a change of the merge itself. What the parents bring are changes of their own commits.
//!
//! The work follows from what differs: a folder that commits share is read once, as far as it is remembered. Whoever
//! can push may still build a history that is small and takes long, so all steps together have a limit.

mod folders;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
};

use git2::{Commit, ErrorCode, ObjectType, Oid as GitOid, Repository};

use self::folders::{Entry, Folder, Folders};
use super::{
    limits::{
        DEPTH_MAX, EVIDENCE_BYTES_MAX, EVIDENCE_COMMITS_MAX, EVIDENCE_PARENTS_MAX, EVIDENCE_PATHS_MAX,
        EVIDENCE_STEPS_MAX, EVIDENCE_TAGS_MAX, EVIDENCE_TOUCHED_MAX,
    },
    loose::LooseObjects,
    objects::{from_git, to_git},
    work::{Frame, Sink, Stopped, Trouble, trouble},
};
use tidegate_core::{
    evidence::{Gap, Guards, OBJECT_BYTES_MAX, Part, StoredObject, Touched},
    revision::Oid,
};

/// What is said at the end: the paths that the head answers for, and why the changes are not known completely.
pub(super) type Outcome = (BTreeMap<usize, String>, Option<Gap>);

/// A path: names with `/` between them, as bytes.
type Path = Vec<u8>;

struct Walk<'a> {
    repository: &'a Repository,
    loose: LooseObjects,
    guards: Guards,
    folders: Folders,
    /// What an entry that differs costs: its path is compared with each rule.
    difference_steps: usize,
    /// Steps that are left.
    steps: usize,
}

/// Steps of comparing a path with a rule; a step is an entry that is read or passed over.
const RULE_STEPS: usize = 10;

/// Why a walk ends early.
enum Stop {
    Trouble(Trouble),
    Gap(Gap),
}

/// Sends the tags, the commit and the commits since `base` that change guarded paths. `id` is a commit or a tag.
pub(super) fn collect(
    repository: &Repository,
    id: Oid,
    base: Option<Oid>,
    rules: &[String],
    sink: Sink<'_>,
) -> Result<Outcome, Trouble> {
    collect_within(EVIDENCE_STEPS_MAX, repository, (id, base), rules, sink)
}

/// The same, in so many steps.
fn collect_within(
    steps: usize,
    repository: &Repository,
    (id, base): (Oid, Option<Oid>),
    rules: &[String],
    sink: Sink<'_>,
) -> Result<Outcome, Trouble> {
    let mut walk = Walk {
        repository,
        loose: LooseObjects::of(repository),
        guards: Guards::new(rules),
        folders: Folders::default(),
        difference_steps: RULE_STEPS * rules.len(),
        steps,
    };
    match walk.run(id, base, sink) {
        Ok(vouched) => Ok((vouched, None)),
        Err(Stop::Gap(gap)) => Ok((BTreeMap::new(), Some(gap))),
        Err(Stop::Trouble(trouble)) => Err(trouble),
    }
}

// === impl Walk ===

impl<'a> Walk<'a> {
    fn run(&mut self, id: Oid, base: Option<Oid>, sink: Sink<'_>) -> Result<BTreeMap<usize, String>, Stop> {
        let head = self.peel(to_git(id), sink)?;
        let stored = self.stored(head)?;
        send(sink, Part::Head(stored))?;
        if self.guards.is_empty() {
            return Ok(BTreeMap::new());
        }
        let head = self.commit(head)?;
        let base = base.map(to_git).filter(|base| self.repository.odb().is_ok_and(|odb| odb.exists(*base)));
        let Some(base) = base else { return self.touched_between(None, Some(head.tree_id())) };
        self.commits_since(base, head.id(), sink)?;
        let follows = head.id() == base || self.repository.graph_descendant_of(head.id(), base).unwrap_or(false);
        if follows {
            return Ok(BTreeMap::new());
        }
        // The branch was rewritten: no commit takes away what it no longer has.
        let before = self.commit(base)?.tree_id();
        self.touched_between(Some(before), Some(head.tree_id()))
    }

    /// Sends the tags from a reference to its commit. Returns the commit.
    fn peel(&self, mut id: GitOid, sink: Sink<'_>) -> Result<GitOid, Stop> {
        for _ in 0..=EVIDENCE_TAGS_MAX {
            self.check(id)?;
            let object = self.repository.find_object(id, None).map_err(|error| missing(&error, id))?;
            match object.kind() {
                Some(ObjectType::Commit) => return Ok(id),
                Some(ObjectType::Tag) => {
                    send(sink, Part::Tag(self.stored(id)?))?;
                    let tag = object.into_tag().map_err(|_| broken(id))?;
                    id = tag.target_id();
                }
                _ => return Err(Stop::Trouble(Trouble::NoCommit)),
            }
        }
        Err(Stop::Gap(Gap::Tags(EVIDENCE_TAGS_MAX)))
    }

    /// Sends the commits since `base` that change guarded paths.
    fn commits_since(&mut self, base: GitOid, head: GitOid, sink: Sink<'_>) -> Result<(), Stop> {
        let unread = |error: git2::Error| Stop::Trouble(trouble(&error, Trouble::Broken("its history".to_owned())));
        let mut walk = self.repository.revwalk().map_err(unread)?;
        walk.push(head).and_then(|()| walk.hide(base)).map_err(unread)?;
        let (mut sent, mut bytes) = (0, 0);
        for (index, id) in walk.enumerate() {
            if EVIDENCE_COMMITS_MAX <= index {
                return Err(Stop::Gap(Gap::Commits(EVIDENCE_COMMITS_MAX)));
            }
            let id = id.map_err(unread)?;
            let paths = self.touched_by(id)?;
            if paths.is_empty() {
                continue;
            }
            let commit = self.stored(id)?;
            sent += 1;
            bytes += commit.bytes.as_ref().map_or(0, Vec::len);
            if EVIDENCE_TOUCHED_MAX < sent || EVIDENCE_BYTES_MAX < bytes {
                return Err(Stop::Gap(Gap::Touched(sent - 1)));
            }
            send(sink, Part::Touched(Touched { commit, paths }))?;
        }
        Ok(())
    }

    /// The guarded paths that a commit changes, one for each rule.
    fn touched_by(&mut self, id: GitOid) -> Result<BTreeMap<usize, String>, Stop> {
        let result = match self.commit(id) {
            Ok(commit) => self.touched_by_commit(&commit),
            Err(stop) => Err(stop),
        };
        match result {
            // A folder is shared by commits; the error names the one that was looked at.
            Err(Stop::Gap(Gap::Folder(_))) => Err(Stop::Gap(Gap::Folder(from_git(id)))),
            other => other,
        }
    }

    fn touched_by_commit(&mut self, commit: &Commit<'_>) -> Result<BTreeMap<usize, String>, Stop> {
        let parents: Vec<GitOid> = commit.parent_ids().collect();
        match &*parents {
            [] => self.touched_between(None, Some(commit.tree_id())),
            [parent] => {
                let before = self.commit(*parent)?.tree_id();
                self.touched_between(Some(before), Some(commit.tree_id()))
            }
            parents if EVIDENCE_PARENTS_MAX < parents.len() => Err(Stop::Gap(Gap::Parents(EVIDENCE_PARENTS_MAX))),
            parents => self.touched_by_merge(commit, parents),
        }
    }

    /// The guarded paths that differ between two trees, one for each rule.
    fn touched_between(
        &mut self,
        before: Option<GitOid>,
        after: Option<GitOid>,
    ) -> Result<BTreeMap<usize, String>, Stop> {
        let mut changed = BTreeSet::new();
        self.compare(before, after, &[], 0, &mut changed)?;
        Ok(self.by_rule(changed.iter()))
    }

    fn by_rule<'p>(&self, paths: impl Iterator<Item = &'p Path>) -> BTreeMap<usize, String> {
        let mut touched = BTreeMap::new();
        for path in paths {
            let shown = String::from_utf8_lossy(path).into_owned();
            for rule in self.guards.of(&shown) {
                touched.entry(rule).or_insert_with(|| shown.clone());
            }
        }
        touched
    }

    /// The guarded paths that a merge itself changes.
    fn touched_by_merge(&mut self, commit: &Commit<'_>, parents: &[GitOid]) -> Result<BTreeMap<usize, String>, Stop> {
        let mut trees = Vec::new();
        let mut changed = BTreeSet::new();
        for parent in parents {
            let tree = self.commit(*parent)?.tree_id();
            trees.push(tree);
            self.compare(Some(tree), Some(commit.tree_id()), &[], 0, &mut changed)?;
        }
        let mut bases = HashMap::new();
        let mut own = BTreeSet::new();
        for path in changed {
            let result = self.find(commit.tree_id(), &path)?;
            let mut values = Vec::new();
            for tree in &trees {
                values.push(self.find(*tree, &path)?);
            }
            if !self.follows(&path, result, &values, parents, &mut bases)? {
                own.insert(path);
            }
        }
        Ok(self.by_rule(own.iter()))
    }

    /// Whether a merge's entry at a path follows from its parents' entries.
    fn follows(
        &mut self,
        path: &Path,
        result: Option<Entry>,
        values: &[Option<Entry>],
        parents: &[GitOid],
        bases: &mut HashMap<(usize, usize), Vec<GitOid>>,
    ) -> Result<bool, Stop> {
        for (source, _) in values.iter().enumerate().filter(|(_, value)| **value == result) {
            let mut is_newer = true;
            for (other, value) in values.iter().enumerate().filter(|(_, value)| **value != result) {
                let trees = match bases.get(&(source, other)) {
                    Some(trees) => trees.clone(),
                    None => {
                        let trees = self.base_trees(parents[source], parents[other])?;
                        bases.insert((source, other), trees.clone());
                        trees
                    }
                };
                is_newer &= !trees.is_empty();
                for tree in trees {
                    is_newer &= self.find(tree, path)? == *value;
                }
            }
            if is_newer {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The trees of the best common ancestors of two commits; none if they have no common history.
    fn base_trees(&self, one: GitOid, other: GitOid) -> Result<Vec<GitOid>, Stop> {
        match self.repository.merge_bases(one, other) {
            Ok(bases) => bases.iter().map(|base| Ok(self.commit(*base)?.tree_id())).collect(),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(Vec::new()),
            Err(error) => Err(Stop::Trouble(trouble(&error, Trouble::Broken("its history".to_owned())))),
        }
    }

    // --- trees ---

    /// Collects the guarded paths at which two trees differ.
    fn compare(
        &mut self,
        before: Option<GitOid>,
        after: Option<GitOid>,
        folder: &[u8],
        depth: usize,
        changed: &mut BTreeSet<Path>,
    ) -> Result<(), Stop> {
        if before == after {
            return Ok(());
        }
        if DEPTH_MAX < depth {
            return Err(Stop::Trouble(Trouble::TooDeep(String::from_utf8_lossy(folder).into_owned())));
        }
        let before = before.map(|tree| self.folder(tree)).transpose()?.unwrap_or_default();
        let after = after.map(|tree| self.folder(tree)).transpose()?.unwrap_or_default();
        self.spend(before.len() + after.len())?;
        for (name, old, new) in folders::differences(&before, &after) {
            self.spend(self.difference_steps)?;
            let path = join(folder, name);
            let trees = [old, new].map(|entry| entry.filter(|(mode, _)| is_folder(*mode)).map(|(_, id)| id));
            let is_entry = |entry: Option<Entry>| entry.is_some_and(|(mode, _)| !is_folder(mode));
            if (is_entry(old) || is_entry(new)) && self.guards.covers(&String::from_utf8_lossy(&path)) {
                changed.insert(path.clone());
                if EVIDENCE_PATHS_MAX < changed.len() {
                    return Err(Stop::Trouble(Trouble::TooManyPaths));
                }
            }
            self.compare(trees[0], trees[1], &path, depth + 1, changed)?;
        }
        Ok(())
    }

    /// The entry at a path that is no folder.
    fn find(&mut self, mut tree: GitOid, path: &[u8]) -> Result<Option<Entry>, Stop> {
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            self.spend(1)?;
            match self.folder(tree)?.get(name) {
                Some((mode, id)) if is_folder(mode) && names.peek().is_some() => tree = id,
                Some(entry) if !is_folder(entry.0) && names.peek().is_none() => return Ok(Some(entry)),
                Some(_) | None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The entries of a folder by name. Fails if a name is ambiguous: git writes no such folder.
    fn folder(&mut self, id: GitOid) -> Result<Rc<Folder>, Stop> {
        if let Some(folder) = self.folders.get(id) {
            return Ok(folder);
        }
        self.check(id)?;
        let tree = self.repository.find_tree(id).map_err(|error| missing(&error, id))?;
        self.spend(tree.len())?;
        let folder = Rc::new(Folder::read(&tree).ok_or(Stop::Gap(Gap::Folder(from_git(id))))?);
        self.folders.insert(id, Rc::clone(&folder));
        Ok(folder)
    }

    /// Takes steps from those that are left.
    fn spend(&mut self, steps: usize) -> Result<(), Stop> {
        let left = self.steps.checked_sub(steps).ok_or(Stop::Trouble(Trouble::TooMuchHistory))?;
        self.steps = left;
        Ok(())
    }

    // --- objects ---

    fn commit(&self, id: GitOid) -> Result<Commit<'a>, Stop> {
        self.check(id)?;
        let repository: &'a Repository = self.repository;
        repository.find_commit(id).map_err(|error| missing(&error, id))
    }

    fn check(&self, id: GitOid) -> Result<(), Stop> {
        self.loose.check(id).map_err(|_| broken(id))
    }

    /// An object as git stores it.
    fn stored(&self, id: GitOid) -> Result<StoredObject, Stop> {
        let odb = self.repository.odb().map_err(|error| missing(&error, id))?;
        let (length, _) = odb.read_header(id).map_err(|error| missing(&error, id))?;
        if OBJECT_BYTES_MAX < length {
            return Ok(StoredObject { id: from_git(id), bytes: None });
        }
        let object = odb.read(id).map_err(|error| missing(&error, id))?;
        Ok(StoredObject { id: from_git(id), bytes: Some(object.data().to_vec()) })
    }
}

fn join(folder: &[u8], name: &[u8]) -> Path {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

fn is_folder(mode: i32) -> bool {
    mode == 0o040_000
}

fn send(sink: &mut dyn FnMut(Frame) -> Result<(), Stopped>, part: Part) -> Result<(), Stop> {
    sink(Frame::Evidence(part)).map_err(|Stopped| Stop::Trouble(Trouble::Stopped))
}

fn missing(error: &git2::Error, id: GitOid) -> Stop {
    Stop::Trouble(trouble(error, Trouble::Broken(format!("object {id}"))))
}

fn broken(id: GitOid) -> Stop {
    Stop::Trouble(Trouble::Broken(format!("object {id}")))
}

#[cfg(test)]
mod tests;
