//! The parts that every runtime has: CRDs, namespace, webhook configuration and catalog. They are
//! compared by the classes of runtimes on both sides.

use std::collections::BTreeMap;

use super::{Comparison, Hit, Names, Runtime, Seen};
use tidegate_core::{
    api::KYMA_GROUP,
    definition::Kind,
    diagnostic::FilePosition,
    immutable::Context,
    name::Key,
    object::ObjectId,
    plan::Class,
    render::{
        SharedObject,
        offline::{Outline, Part},
    },
    template::Template,
};

use crate::model::{Effect, Side};

type Objects<'a> = BTreeMap<&'a ObjectId, (&'a SharedObject, &'a Part)>;

/// Compares the objects of each pair of classes.
pub(super) fn finish(comparison: &Comparison<'_>, seen: &mut Seen) {
    let effect = if comparison.until_confirmed.is_some() { Effect::NeedsConfirmation } else { Effect::Applies };
    for ((old, new), runtimes) in std::mem::take(&mut seen.classes) {
        let class = |outline: &Outline<'_>, number: Option<u32>| -> Option<Class> {
            outline.classes().nth(number? as usize).cloned()
        };
        let (old, new) = (class(&comparison.old, old), class(&comparison.new, new));
        compare(comparison, seen, (old.as_ref(), new.as_ref()), effect, &runtimes);
    }
}

fn compare(
    comparison: &Comparison<'_>,
    seen: &mut Seen,
    (old, new): (Option<&Class>, Option<&Class>),
    effect: Effect,
    runtimes: &[Runtime],
) {
    let Some(owner) = runtimes.first().and_then(|first| comparison.keys.get(*first as usize)) else { return };
    let before = objects(&comparison.old, old);
    let after = objects(&comparison.new, new);
    let ids: std::collections::BTreeSet<&ObjectId> = before.keys().chain(after.keys()).copied().collect();
    for id in ids {
        let (was, is) = (before.get(id), after.get(id));
        let same = was.zip(is).is_some_and(|((was, _), (is, _))| was.digest == is.digest);
        // If a template fails, it is unknown which objects left the catalog. The namespace of the runtime's own Kyma is
        // never deleted.
        let stays = is.is_none() && ((new.is_some() && comparison.new.is_partial()) || &*id.kind == "Namespace");
        if same || stays {
            continue;
        }
        let Some((_, part)) = is.or(was) else { continue };
        let definition = new.or(old).and_then(|class| definition(class, id));
        let object = |found: Option<&(&SharedObject, &Part)>| found.map(|(shared, _)| shared.object(owner));
        let hit = Hit {
            side: Side::Runtime,
            effect,
            old: object(was),
            new: object(is),
            places: causes(comparison, definition.as_ref(), part, old.is_none() || new.is_none()),
            maker: Some(part.maker),
            own: Names::new([(owner.to_string(), "key"), (owner.name().to_owned(), "name")]),
            owner: None,
            moves: false,
            context: Context::default(),
        };
        seen.found.add(hit, runtimes);
    }
}

fn objects<'a>(outline: &'a Outline<'_>, class: Option<&Class>) -> Objects<'a> {
    let parts = class.into_iter().flat_map(|class| outline.shared(class));
    parts.flat_map(|part| part.shared.objects.iter().map(move |object| (&object.id, (object, part)))).collect()
}

/// The definition that an object of the catalog is copied from.
fn definition(class: &Class, id: &ObjectId) -> Option<(Kind, Key)> {
    let kind = match (&*id.group, &*id.kind) {
        (KYMA_GROUP, "ModuleTemplate") => Kind::ModuleTemplate,
        (KYMA_GROUP, "ModuleReleaseMeta") => Kind::ModuleReleaseMeta,
        _ => return None,
    };
    Some((kind, Key::new(&class.namespace, &id.name)))
}

/// The lines that cause the difference: of the changed definition or Watchers, of the release that
/// starts or stops to name a version, or of the template.
fn causes(
    comparison: &Comparison<'_>,
    definition: Option<&(Kind, Key)>,
    part: &Part,
    is_whole_runtime: bool,
) -> Vec<FilePosition> {
    if is_whole_runtime {
        return part.places.iter().take(1).cloned().collect();
    }
    let mut places: Vec<FilePosition> = definition.and_then(|id| comparison.place_of(id)).into_iter().collect();
    if places.is_empty()
        && let Some((Kind::ModuleTemplate, key)) = definition
        && let Some(module) = comparison.module_of(key)
    {
        places.extend(comparison.place_of(&(Kind::ModuleReleaseMeta, Key::new(key.namespace(), &module))));
    }
    if part.maker == Template::Webhook.name() {
        let watchers = comparison.prepared.old.watchers.keys().chain(comparison.prepared.new.watchers.keys());
        places.extend(watchers.filter_map(|key| comparison.place_of(&(Kind::Watcher, key.clone()))));
    }
    if places.is_empty() {
        let templates = Template::named(part.maker);
        places.extend(templates.and_then(|template| comparison.template_place(template)));
    }
    places
}
