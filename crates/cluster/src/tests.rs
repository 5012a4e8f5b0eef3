use super::*;

/// Controllers run in tasks, so their futures must be `Send`.
#[test]
fn futures_can_be_spawned() {
    fn spawnable<T: Send>(_: impl FnOnce(&'static Cluster, &'static Pool) -> T) {}
    static CAUSE: std::sync::LazyLock<Cause> = std::sync::LazyLock::new(Cause::default);
    spawnable(|cluster, _| cluster.enact(&CAUSE, Vec::new()));
    spawnable(|cluster, _| cluster.prune(&CAUSE, &[], &|_| true));
    spawnable(|cluster, _| cluster.survey([]));
    spawnable(|cluster, _| async { cluster.list_metadata(&kind_for_test(), None, None).await });
    spawnable(|_, pool| async { pool.cluster(&Key::new("a", "b"), &Key::new("a", "b"), "1").await.map(drop) });
}

fn kind_for_test() -> Kind {
    Kind::new(Gvk::new("", "v1", "ConfigMap"), "configmaps", true)
}
