use super::*;

#[test]
fn a_revert_brings_back_what_a_commit_changed() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repo")).unwrap();
    repository.write("a/one.yaml", "one: 1\n").unwrap();
    repository.write("two.yaml", "two: 2\n").unwrap();
    repository.commit("first").unwrap();
    repository.replace("a/one.yaml", "1", "3").unwrap();
    repository.remove("two.yaml").unwrap();
    let second = repository.commit("second").unwrap();
    assert_eq!(repository.head().unwrap(), second);
    repository.write("three.yaml", "three: 3\n").unwrap();
    repository.commit("third").unwrap();

    let reverted = repository.revert(&second).unwrap();

    assert_eq!(repository.head().unwrap(), reverted);
    assert_eq!(repository.read("a/one.yaml").unwrap(), "one: 1\n");
    assert_eq!(repository.read("two.yaml").unwrap(), "two: 2\n");
    assert_eq!(repository.read("three.yaml").unwrap(), "three: 3\n");
}

#[test]
fn a_removed_file_is_no_longer_in_the_commit() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(folder.path()).unwrap();
    repository.write("one.yaml", "one: 1\n").unwrap();
    repository.commit("first").unwrap();
    repository.remove("one.yaml").unwrap();
    repository.write("two.yaml", "two: 2\n").unwrap();
    let id = repository.commit("second").unwrap();
    let repository = git2::Repository::open(folder.path()).unwrap();
    let tree = repository.find_commit(Oid::from_str(&id).unwrap()).unwrap().tree().unwrap();
    assert_eq!(tree.iter().filter_map(|entry| entry.name().ok().map(str::to_owned)).collect::<Vec<_>>(), ["two.yaml"]);
}
