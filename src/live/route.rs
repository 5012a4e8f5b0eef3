//! Compares the VirtualService of a Watcher.

use std::sync::Arc;

use super::{
    Outcome, Wanted,
    compare::{Comparer, Wish},
    concerns_all,
};
use tidegate_cluster::Error;
use tidegate_core::{
    api::Watcher,
    definition::Kind,
    diagnostic::Diagnostic,
    landscape,
    name::Key,
    plan::reporting,
    render::{self, live as placeholder},
    template::Template,
};
use tidegate_diff::model::{Effect, Held, Why};

/// Compares the VirtualService of a Watcher, which selects `gateways`. Fails if the control plane as a whole fails.
pub(crate) async fn compare(
    wanted: &Wanted,
    gateways: &[reporting::Gateway],
    (key, watcher): (&Key, &Watcher),
    comparer: &Comparer<'_>,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let place = wanted.place(Kind::Watcher, key);
    let problem = |message: String| {
        let diagnostic = Diagnostic::warning(render::offline::CODE_WATCHER, message);
        match &place {
            Some(place) => diagnostic.at(place.clone()),
            None => diagnostic,
        }
    };
    let rendered = reporting::watch(watcher).and_then(|watch| {
        let port = watch.port()?;
        Ok((reporting::Gateways::from_matches(&landscape::key(&watcher.metadata), gateways.to_vec())?, watch, port))
    });
    let (gateways, watch, port) = match rendered {
        Ok(rendered) => rendered,
        Err(error) => {
            outcome.diagnostics.push(problem(error.to_string()));
            return Ok(());
        }
    };
    let uid = watcher.metadata.uid.clone();
    let uid = uid.unwrap_or_else(|| placeholder::placeholder(&placeholder::uid("Watcher", key)));
    let object =
        match render::virtual_service(wanted.library.for_object(&watcher.metadata), &watch, port, &gateways, &uid) {
            Ok(object) => object,
            Err(error) => {
                outcome.diagnostics.push(error.diagnostic());
                return Ok(());
            }
        };
    let wish = Wish {
        gvk: object.gvk(),
        object,
        places: place.clone().into_iter().collect(),
        maker: Some(Template::VirtualService.name()),
    };
    let live = match comparer.cluster.kind(&wish.gvk).await? {
        Some(kind) => comparer.cluster.get(&kind, key).await?,
        None => None,
    };
    let whose = live.as_ref().and_then(|live| reporting::strangers(watcher, live.value()));
    let differs = match (&live, &whose) {
        (Some(live), Some(managers)) => {
            comparer.stranger(&wish, live, managers).await.map(|differs| Some(Arc::new(differs)))
        }
        (Some(live), None) => comparer.existing(&wish, live).await,
        (None, _) => Ok(Some(Arc::new(comparer.created(&wish)))),
    };
    let effect = if whose.is_some() { Effect::Held } else { Effect::Applies };
    outcome.held.extend(whose.map(|managers| Held {
        why: Why::Conflict,
        module: String::new(),
        runtimes: Arc::default(),
        message: comparer.shared.scrub(&reporting::foreign(key, &managers)),
        hint: None,
        place: place.clone(),
    }));
    match differs {
        Ok(differs) => outcome.found.extend(differs.map(|differs| comparer.found(&wish, &differs, effect))),
        Err(error) if concerns_all(&error) => return Err(error),
        Err(error) => outcome.problem("kcp", place.as_ref(), &error, comparer),
    }
    Ok(())
}
