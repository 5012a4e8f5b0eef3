//! Packs that ask for all the memory that there is: one sentence about their source, and nothing else happens.

use std::{fs, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tidegate_core::name::Key;
use tidegate_git::{Error, Exhaustion, Reference, Remote, State, limits::ENGINE_MEMORY_MIB};
use tidegate_oci::limits;

use crate::{
    daemon::TestNamespace,
    git::{
        Fixture, engine,
        pack::{Answers, Pack},
        repository::Repository,
        server::{Action, Request, Server},
    },
    harness::{SOON, apply, eventually},
    stage::read,
    survive::pod::{self, Pod, Watched},
};

const MIB: usize = 1 << 20;

fn plain(server: &Server, repository: &str) -> Remote {
    Remote {
        url: server.url(repository).parse().unwrap(),
        reference: Reference::Branch("main".into()),
        credentials: None,
        client: None,
        ca: None,
        proxy: None,
        ssh: None,
        timeout: Duration::from_secs(60),
    }
}

/// A pack of a few KiB whose objects are a commit with a file, and a blob of a gigabyte.
fn bomb() -> Answers {
    let mut pack = Pack::default();
    let base = pack.blob(&[0; 1024]);
    let middle = pack.copies(base, 1024, 1024, 1024);
    pack.copies(middle, MIB, MIB, 1024);
    let tip = pack.commit("a.yaml", b"1");
    Answers::new(tip, pack.finish())
}

/// Zeros of 1 MiB to 1 GiB, compressed as git does: less than 200 KiB that describe two terabytes.
fn zeros() -> Answers {
    let mut pack = Pack::compressed();
    let base = pack.blob(&vec![0; MIB]);
    // The largest first: an engine that is to die need not compute for minutes before.
    for mib in (2..=1024).rev().flat_map(|mib| [mib; 4]) {
        pack.copies(base, MIB, MIB, mib);
    }
    let tip = pack.commit("a.yaml", b"1");
    Answers::new(tip, pack.finish())
}

/// A pack that fits into the memory of an engine, and takes it minutes.
fn endless() -> Answers {
    let mut pack = Pack::compressed();
    let base = pack.blob(&vec![0; MIB]);
    // Each is another one: libgit2 keeps what it has unpacked twice.
    for shorter in 1..16_384 {
        pack.copies(base, MIB, MIB - shorter, 4);
    }
    let tip = pack.commit("a.yaml", b"1");
    Answers::new(tip, pack.finish())
}

/// A pack whose tip is a commit of a gigabyte.
fn large_commit() -> Answers {
    let mut pack = Pack::default();
    pack.large_commit(1024, 1000);
    Answers::new("1".repeat(40), pack.finish())
}

/// A file of so many MiB in three revisions, as an accident leaves it in a repository.
fn dump(mib: usize) -> Answers {
    let mut pack = Pack::default();
    let size = mib * MIB;
    let first = pack.blob(&vec![b'x'; size]);
    let second = pack.copies(first, size, MIB, mib - 1);
    pack.copies(second, size - MIB, MIB, mib - 2);
    let tip = pack.commit("a.yaml", b"1");
    Answers::new(tip, pack.finish())
}

/// Names in a folder of a mirror that no finished work leaves.
fn leftovers(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.starts_with("pack_") || name.ends_with(".lock") || name.ends_with(".new") {
                found.push(name);
            }
        }
    }
    found
}

#[tokio::test]
async fn a_pack_that_describes_a_gigabyte_is_one_sentence_and_leaves_the_mirror_as_it_was() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start_plain(&repository.root());
    let fixture = Fixture::new(plain(&server, "repo"));
    let good = fixture.update().await.revision;
    for answers in [bomb(), large_commit(), dump(60)] {
        let commit = answers.tip().to_owned();
        server.behave(move |request| answers.to(request));
        let error = fixture.fetch().await.unwrap_err();
        assert_eq!((error.reason(), error.class()), ("LimitExceeded", tidegate_process::retry::Class::Stalled));
        let url = server.url("repo");
        let expected = format!("unpacking branch `main` ({commit}) of {url} takes more than 96 MiB of memory: ");
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert!(error.to_string().ends_with("or set a larger --git-memory"), "{error}");
        assert_eq!(leftovers(fixture.folder.path()), [""; 0]);
        assert_eq!(fixture.read(&good).await.unwrap().text("a.yaml").unwrap()[..], b"1"[..]);
        // As long as nothing changes it is not downloaded again: each attempt would cost as much.
        let packs = || server.requests().iter().filter(|request| request.is_for_pack()).count();
        let before = packs();
        let again = fixture.fetch().await.unwrap_err();
        assert_eq!((again.reason(), again.to_string()), ("LimitExceeded", error.to_string()));
        assert_eq!(packs(), before);
    }
    // A commit without it helps at once.
    server.behave(|_| Action::Serve);
    repository.commit(&[("a.yaml", "2")]);
    fixture.update().await;
}

#[tokio::test]
async fn more_memory_helps_a_repository_that_needs_it() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start_plain(&repository.root());
    let answers = dump(60);
    server.behave(move |request| answers.to(request));
    let small = Fixture::new(plain(&server, "repo"));
    let error = small.fetch().await.unwrap_err();
    assert!(matches!(error, Error::Exhausted { limit: Exhaustion::Memory(ENGINE_MEMORY_MIB), .. }), "{error}");
    Fixture::within(plain(&server, "repo"), 256).update().await;
}

#[tokio::test]
async fn a_large_pack_does_not_need_its_size_in_memory() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start_plain(&repository.root());
    let mut pack = Pack::default();
    // Each blob is another one.
    for number in 0..128_u32 {
        let mut content = vec![b'x'; MIB / 2];
        content[..4].copy_from_slice(&number.to_be_bytes());
        pack.blob(&content);
    }
    let tip = pack.commit("a.yaml", b"1");
    let answers = Answers::new(tip, pack.finish());
    server.behave(move |request| answers.to(request));
    // 64 MiB of pack in 32 MiB of memory.
    Fixture::within(plain(&server, "repo"), 32).update().await;
}

#[tokio::test]
async fn a_repository_that_is_fetched_again_without_news_starts_no_process() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start_plain(&repository.root());
    let fixture = Fixture::new(plain(&server, "repo"));
    let first = fixture.update().await;
    // An engine would not come to its end now.
    let locked = fixture.generation().join("refs/tidegate/fetched.lock");
    fs::write(&locked, "").unwrap();
    let begin = std::time::Instant::now();
    for _ in 0..20 {
        let again = fixture.fetch().await.unwrap();
        assert_eq!((again.revision, again.fast_forward), (first.revision.clone(), true));
    }
    println!("20 fetches without news: {:?}", begin.elapsed());
}

#[tokio::test]
async fn servers_that_stall_in_the_middle_of_a_pack_hold_no_place_of_an_engine() {
    let repository = Repository::with(&[("a.yaml", "1"), ("b.yaml", &"large ".repeat(50_000))]);
    let (stalling, healthy) = (Server::start_plain(&repository.root()), Server::start_plain(&repository.root()));
    stalling.behave(|request| if request.is_for_pack() { Action::Stall(100) } else { Action::Serve });
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap().with_engine(engine(ENGINE_MEMORY_MIB));
    let mirror = |name: &str, server: &Server| {
        let remote = Remote { timeout: Duration::from_secs(600), ..plain(server, "repo") };
        (state.mirror(&Key::new("kcp-system", name), &remote.url).unwrap(), remote)
    };
    // More of them than there are places.
    let mut stalled = tokio::task::JoinSet::new();
    for name in ["one", "two", "three"] {
        let (mirror, remote) = mirror(name, &stalling);
        stalled.spawn(async move { mirror.fetch(&remote).await.map(drop) });
    }
    let on_their_way = || stalling.requests().iter().filter(|request| request.is_for_pack()).count();
    while on_their_way() < 3 {
        tokio::task::yield_now().await;
    }
    let (mirror, remote) = mirror("healthy", &healthy);
    mirror.fetch(&remote).await.unwrap();
    assert!(stalled.try_join_next().is_none(), "the others are still on their way");
}

#[test]
fn all_engines_fit_into_the_pod_beside_the_daemon() {
    // What an engine for templates has, of which there are two as well, but which are rarely full.
    let (templates, daemon) = (2 * 64, 192);
    let git = ENGINE_MEMORY_MIB * tidegate_git::limits::ENGINES_MAX as u64;
    let registries = limits::UNPACK_MEMORY_MIB_MAX * limits::UNPACKERS_MAX as u64;
    let pod = pod::memory_bytes() >> 20;
    assert!(git + registries + templates + daemon <= pod, "{git} MiB for git, {registries} MiB for registries");
}

fn source(namespace: &str, name: &str, url: &str, requested: &str) -> Value {
    json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {
            "name": name, "namespace": namespace,
            "annotations": { "tidegate.dev/reconcile-requested-at": requested },
        },
        "spec": { "url": url, "ref": { "branch": "main" }, "secretRef": { "name": "ca" } },
    })
}

fn condition<'a>(source: &'a Value, type_: &str) -> Option<&'a Value> {
    source["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

#[tokio::test]
async fn a_daemon_in_the_memory_of_its_pod_lives_beside_packs_that_want_a_gigabyte() {
    let world = TestNamespace::new().await;
    let repository = Repository::with(&[("a.yaml", "")]);
    let server = Server::start(&repository.root());
    let ca = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "ca", "namespace": world.namespace },
        "data": { "ca.crt": STANDARD.encode(&server.ca) },
    });
    apply(&world.client, &ca).await;
    let zeros = zeros();
    assert!((100 << 10..200 << 10).contains(&zeros.pack_bytes()), "{} bytes", zeros.pack_bytes());
    let hostile = [("bomb", bomb()), ("large", large_commit()), ("zeros", zeros), ("dump", dump(60))];
    let names: Vec<&str> = hostile.iter().map(|(name, _)| *name).collect();
    let tips: Vec<String> = hostile.iter().map(|(_, answers)| answers.tip().to_owned()).collect();
    for (name, path) in names.iter().map(|name| (*name, *name)).chain([("good", "repo")]) {
        apply(&world.client, &source(&world.namespace, name, &server.url(path), "first")).await;
    }
    server.behave(move |request: &Request| {
        let path = request.target.split('/').nth(1);
        let found = hostile.iter().find(|(name, _)| path == Some(*name));
        found.map_or(Action::Serve, |(_, answers)| answers.to(request))
    });
    let pod;
    let daemon = world.start("packs", &[]);
    let pid = eventually("the daemon runs", SOON, async || {
        daemon.process.program_pid().ok_or_else(|| daemon.process.log_tail())
    })
    .await;
    // Dropped after the daemon has ended.
    pod = Pod::of(pid);
    let watched = Watched::start(pid);
    let until = async |name: &str, what: &str, holds: &dyn Fn(&Value) -> bool| {
        eventually(what, SOON * 2, async || match read(&world.client, "GitSource", &world.namespace, name).await {
            Some(source) if holds(&source) => Ok(source),
            found => Err(format!("{found:?}\n{}", daemon.process.log_tail())),
        })
        .await
    };
    for (name, tip) in names.into_iter().zip(tips) {
        let source = until(name, "the limit is reported", &|source| {
            condition(source, "Fetched").is_some_and(|condition| condition["reason"] == "LimitExceeded")
        })
        .await;
        let message = condition(&source, "Fetched").unwrap()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("takes more than 96 MiB of memory: remove large files"), "{message}");
        assert!(message.contains(&tip), "the commit is named: {message}");
    }
    let second = repository.commit(&[("b.yaml", "")]);
    apply(&world.client, &source(&world.namespace, "good", &server.url("repo"), "second")).await;
    let applied = format!("main@sha1:{second}");
    until("good", "a good source beside them goes on", &|source| {
        source["status"]["appliedRevision"] == applied.as_str()
    })
    .await;
    let (own, engine) = (watched.daemon_mib(), watched.engine_mib());
    println!("{pod}; largest memory: daemon {own} MiB, an engine {engine} MiB");
    // Pages of the program are part of both, and a debug build has many.
    assert!(own < 256, "the daemon had {own} MiB");
    assert!(engine < ENGINE_MEMORY_MIB + 96, "an engine had {engine} MiB");
    let (status, _) = daemon.ask("health", "/healthz").await.unwrap();
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_repository_that_takes_too_long_is_one_sentence_and_other_sources_go_on() {
    let repository = Repository::with(&[("a.yaml", "")]);
    let server = Server::start(&repository.root());
    let endless = endless();
    server.behave(move |request: &Request| match request.target.split('/').nth(1) {
        Some("endless") => endless.to(request),
        _ => Action::Serve,
    });
    let expected = [
        ("--git-cpu-time=1s", "takes more than 1 s of CPU time: run `git gc` on the git server"),
        ("--git-time=5s", "takes more than 5 s: give Tidegate more CPU"),
    ];
    for (option, sentence) in expected {
        let world = TestNamespace::new().await;
        let ca = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "ca", "namespace": world.namespace },
            "data": { "ca.crt": STANDARD.encode(&server.ca) },
        });
        apply(&world.client, &ca).await;
        for (name, path) in [("endless", "endless"), ("good", "repo")] {
            apply(&world.client, &source(&world.namespace, name, &server.url(path), "first")).await;
        }
        let daemon = world.start("endless", &[option]);
        let until = async |name: &str, what: &str, holds: &dyn Fn(&Value) -> bool| {
            eventually(what, SOON * 2, async || match read(&world.client, "GitSource", &world.namespace, name).await {
                Some(source) if holds(&source) => Ok(source),
                found => Err(format!("{found:?}\n{}", daemon.process.log_tail())),
            })
            .await
        };
        // While the engine computes, and afterwards.
        for round in ["first", "second"] {
            let commit = repository.commit(&[("b.yaml", &format!("# {option} {round}\n"))]);
            apply(&world.client, &source(&world.namespace, "good", &server.url("repo"), round)).await;
            let applied = format!("main@sha1:{commit}");
            until("good", "a good source goes on", &|source| source["status"]["appliedRevision"] == applied.as_str())
                .await;
            let limit = until("endless", "the limit is reported", &|source| {
                condition(source, "Fetched").is_some_and(|condition| condition["reason"] == "LimitExceeded")
            })
            .await;
            let message = condition(&limit, "Fetched").unwrap()["message"].as_str().unwrap().to_owned();
            assert!(message.contains(sentence), "{message}");
        }
    }
}

#[tokio::test]
async fn a_stop_ends_the_engine_of_a_repository_that_takes_an_hour() {
    let repository = Repository::with(&[("a.yaml", "")]);
    let server = Server::start(&repository.root());
    let endless = endless();
    server.behave(move |request: &Request| endless.to(request));
    let world = TestNamespace::new().await;
    let ca = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "ca", "namespace": world.namespace },
        "data": { "ca.crt": STANDARD.encode(&server.ca) },
    });
    apply(&world.client, &ca).await;
    let mut endless = source(&world.namespace, "endless", &server.url("repo"), "first");
    endless["spec"]["timeout"] = json!("1h");
    apply(&world.client, &endless).await;
    // Far longer than the test waits.
    let more = ["--git-cpu-time=1h", "--git-time=1h", "--shutdown-timeout=1h"];
    let mut daemon = world.start("stopped", &more);
    let pid = eventually("the daemon runs", SOON, async || {
        daemon.process.program_pid().ok_or_else(|| daemon.process.log_tail())
    })
    .await;
    let engine = eventually("an engine computes", SOON * 2, async || {
        // No other task takes as long.
        let computes = |child: &u32| pod::computed_ticks(*child).is_some_and(|ticks| 200 < ticks);
        let found = pod::children(pid).into_iter().find(computes);
        found.ok_or_else(|| daemon.process.log_tail())
    })
    .await;
    let id = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(daemon.until_ended().await, Some(0));
    eventually("its engine has ended", SOON, async || {
        let is_gone = !std::path::Path::new(&format!("/proc/{engine}")).exists();
        if is_gone { Ok(()) } else { Err(format!("process {engine} still runs")) }
    })
    .await;
}
