//! The pass over a Watcher: its VirtualService in the control plane.

use std::sync::Arc;

use kube::core::SelectorExt as _;
use tidegate_core::{name::Key, plan::selector};
use tidegate_diff::{mask::Masker, model::Side};

use super::{Observation, difference::Difference};
use crate::{
    controller::{self, Context, Failure, Pass},
    live::{
        Method, Outcome,
        compare::{Comparer, Shared},
        route,
    },
    queue::{Finish, Trigger},
};

/// Compares the VirtualService of a Watcher.
pub(super) async fn compare(context: &Context, observation: &Observation, key: &Key) -> Pass {
    let expected = observation.expected(context);
    let Some(watcher) = expected.intent.after.watchers.get(key) else {
        observation.seen.lock().routes.remove(key);
        return Ok(Finish::Gone);
    };
    controller::templates_read(&context.stores, &context.sources, &watcher.metadata)?;
    let has_route = context.certificates.listener.address.is_none();
    if watcher.metadata.deletion_timestamp.is_some() || !has_route {
        observation.seen.lock().routes.remove(key);
        return Ok(Finish::Done);
    }
    let selector = selector::parse(&watcher.spec.gateway.selector);
    let all = context.stores.gateways();
    let is_selected = |labels| selector.as_ref().is_some_and(|selector| selector.matches(labels));
    let selected = all.iter().filter(|entry| is_selected(&entry.labels));
    let gateways: Vec<_> = selected.map(|entry| entry.gateway.clone()).collect();
    let shared = Shared::new(Masker::new(observation.mask.clone()), Method::Reads, false);
    let comparer = Comparer::new(&shared, &context.kcp, Side::ControlPlane, Arc::default(), Vec::new());
    let mut outcome = Outcome::default();
    let compared = route::compare(&expected.wanted, &gateways, (key, watcher), &comparer, &mut outcome).await;
    compared.map_err(|error| Failure::new(error.class(), error.reason(), error))?;
    let differences = outcome.found.iter().map(|found| Difference::from_found(found, None)).collect();
    observation.seen.lock().routes.insert(key.clone(), differences);
    Ok(Finish::After(observation.interval, Trigger::Resync))
}
