//! What the core costs: parse, plan, render, compare, over a landscape of 200 runtimes.
//!
//! `cargo bench --bench core`; `tidegate sim diff-offline` measures the command as a whole, and much larger.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![allow(clippy::unwrap_used, reason = "a benchmark of broken input measures nothing")]

use std::{collections::BTreeMap, hint::black_box, sync::Arc};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use tidegate_core::{
    definition::{self, Cache, Definitions, Options},
    diagnostic::Diagnostics,
    intake::Policy,
    landscape::{Landscape, ResumeBy, SourceName},
    name::Key,
    object::Digest,
    plan::{self, Components, InstalledModules, ModuleOutcome, Settings},
    render::{
        self,
        offline::{self, Assumptions, TargetName, render_each},
    },
    revision::{Oid, Revision},
    snapshot::{Content, File, Snapshot},
    template::{Library, Templates},
};
use tidegate_diff::{
    compare::{Given, Request, compare},
    mask::MaskKey,
    model::Subject,
};
use tidegate_testbed::landscape::{self, Size};

const SIZE: Size = Size { runtimes: 200, modules: 5, templates: 125, objects: 25 };

/// One revision, read.
struct Side {
    snapshot: Snapshot,
    definitions: Definitions,
    library: Library,
}

fn id(text: &str) -> Oid {
    Oid::new(Digest::of_bytes(text.as_bytes()).as_bytes()[..20].try_into().unwrap())
}

fn snapshot(files: &BTreeMap<String, String>) -> Snapshot {
    let mut snapshot = Snapshot::empty(Revision::WorkTree);
    for (path, text) in files {
        let content = Content::Text(text.as_bytes().into());
        snapshot.files.insert(path.as_str().into(), File { id: id(text), content });
        for (end, _) in path.match_indices('/') {
            snapshot.trees.insert(Arc::from(&path[..end]), id(&path[..end]));
        }
    }
    snapshot
}

fn read(snapshot: &Snapshot, cache: &mut Cache) -> Definitions {
    let mut diagnostics = Diagnostics::default();
    let definitions = definition::read(&mut diagnostics, snapshot, &Options::default(), cache);
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    definitions
}

fn source() -> SourceName {
    SourceName::new(Key::new("kcp-system", "landscape"))
}

/// The landscape, and the same after a bump.
fn sides() -> [Side; 2] {
    let mut files: BTreeMap<String, String> = SIZE.files().into_iter().collect();
    let mut cache = Cache::default();
    let mut side = |files: &BTreeMap<String, String>| {
        let snapshot = snapshot(files);
        let definitions = read(&snapshot, &mut cache);
        Side { snapshot, definitions, library: Library::new(Templates::embedded()) }
    };
    let old = side(&files);
    files.insert(landscape::release_path(0), landscape::release(0, landscape::REGULAR + 1));
    [old, side(&files)]
}

fn parse(criterion: &mut Criterion) {
    let files: BTreeMap<String, String> = SIZE.files().into_iter().collect();
    let snapshot = snapshot(&files);
    let mut group = criterion.benchmark_group("parse");
    group.sample_size(20);
    group.bench_function("cold", |bench| {
        bench.iter_batched(Cache::default, |mut cache| read(&snapshot, &mut cache), BatchSize::LargeInput);
    });
    let mut cache = Cache::default();
    read(&snapshot, &mut cache);
    let bytes = cache.to_bytes();
    group.bench_function("from a stored cache", |bench| {
        bench.iter(|| {
            let mut cache = Cache::from_bytes(black_box(&bytes), &Options::default()).unwrap();
            read(&snapshot, &mut cache)
        });
    });
    group.finish();
}

fn plans(criterion: &mut Criterion) {
    let [side, _] = sides();
    let (settings, components) = (Settings::default(), Components::default());
    criterion.bench_function("landscape", |bench| {
        bench.iter(|| Landscape::from_definitions(&mut Diagnostics::default(), &side.definitions, &source()));
    });
    let landscape = Landscape::from_definitions(&mut Diagnostics::default(), &side.definitions, &source());
    criterion.bench_function("plan", |bench| {
        bench.iter(|| {
            let kymas = landscape.kymas.values();
            kymas
                .map(|kyma| {
                    plan::runtime(
                        &landscape,
                        &components,
                        kyma,
                        &kyma.spec,
                        &settings,
                        &InstalledModules::default(),
                        plan::Windows::Unknown,
                    )
                    .modules
                    .len()
                })
                .sum::<usize>()
        });
    });
    let (_, kyma) = landscape.kymas.first_key_value().unwrap();
    let plan = plan::runtime(
        &landscape,
        &components,
        kyma,
        &kyma.spec,
        &settings,
        &InstalledModules::default(),
        plan::Windows::Unknown,
    );
    let ModuleOutcome::Install(installation) = &plan.modules[0].outcome else { panic!("it is installed") };
    criterion.bench_function("render/manifest", |bench| {
        bench.iter(|| render::manifest(side.library.base(), black_box(installation), "uid").unwrap());
    });
    criterion.bench_function("render/runtime", |bench| {
        let wanted = |name: &TargetName| matches!(name, TargetName::Runtime(key) if key.name() == "runtime-0001");
        bench.iter(|| {
            let mut objects = 0;
            let mut take = |piece: offline::Piece| -> Result<(), std::convert::Infallible> {
                objects += usize::from(matches!(piece, offline::Piece::Object(_)));
                Ok(())
            };
            let given = offline::Given {
                definitions: &side.definitions,
                components: &components,
                source: &source(),
                library: &side.library,
                assumptions: &Assumptions::default(),
            };
            render_each(&mut Diagnostics::default(), given, &wanted, &mut take).unwrap();
            objects
        });
    });
}

fn comparison(criterion: &mut Criterion) {
    let [old, new] = sides();
    let given = |side: &'static Side| Given {
        snapshot: &side.snapshot,
        definitions: &side.definitions,
        library: &side.library,
    };
    let (old, new): (&'static Side, &'static Side) = (Box::leak(Box::new(old)), Box::leak(Box::new(new)));
    let (source, policy, settings) = (source(), Policy::default(), Settings::default());
    let components = Components::default();
    let (assumptions, mask) = (Assumptions::default(), MaskKey::new([0; 32]));
    let request = |to: &'static Side| Request {
        from: given(old),
        to: given(to),
        errors: false,
        source: &source,
        policy: &policy,
        known: None,
        target: None,
        assumptions: &assumptions,
        settings: &settings,
        maintenance: None,
        components: &components,
        mask: &mask,
        numbers: true,
        idle: None,
        resume_by: ResumeBy::Command,
    };
    let run = |to| compare(request(to), Diagnostics::default(), Subject::default()).finish().differences.len();
    assert!(run(new) > 0 && run(old) == 0);
    criterion.bench_function("compare/equal", |bench| bench.iter(|| run(old)));
    criterion.bench_function("compare/one channel bumped", |bench| bench.iter(|| run(new)));
}

criterion_group!(benches, parse, plans, comparison);
criterion_main!(benches);
