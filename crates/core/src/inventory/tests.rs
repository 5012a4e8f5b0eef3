use super::*;

fn entry(version: &str, name: &str) -> SyncedObject {
    SyncedObject {
        group: "apps".to_owned(),
        version: version.to_owned(),
        kind: "Deployment".to_owned(),
        name: name.to_owned(),
        namespace: "a".to_owned(),
    }
}

#[test]
fn what_status_holds_comes_back_sorted_and_each_object_once() {
    let inventory = Inventory::from_status(&[entry("v1", "b"), entry("v1beta1", "a"), entry("v1", "a")]);
    assert_eq!(inventory.to_synced(), [entry("v1", "a"), entry("v1", "b")]);
    assert_eq!(Inventory::from_status(&inventory.to_synced()), inventory);
    assert_eq!(
        inventory.gvk(&ObjectId::new("apps", "Deployment", "a", "b")),
        Some(Gvk::new("apps", "v1", "Deployment"))
    );
}

#[test]
fn it_grows_before_the_writes_and_shrinks_after_them() {
    let owned = Inventory::from_status(&[entry("v1beta1", "old"), entry("v1beta1", "kept")]);
    let desired = Inventory::from_status(&[entry("v1", "kept"), entry("v1", "new")]);
    let recorded = owned.union(&desired);
    assert_eq!(recorded.to_synced(), [entry("v1", "kept"), entry("v1", "new"), entry("v1beta1", "old")]);
    let gone = ObjectId::new("apps", "Deployment", "a", "old");
    assert_eq!(recorded.without([&gone]), desired);
}
