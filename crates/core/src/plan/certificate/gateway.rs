//! The Secret that the gateway serves with, step by step through a change of the authority.
//!
//! A pass looks at what stands and says what shall stand. Run again over its own result it changes nothing, however
//! often the authority has been replaced meanwhile.

use k8s_openapi::jiff::Timestamp;

use super::{Authority, Rules, Validity, ends_soon, later};

/// The authorities that are trusted, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle(Vec<Authority>);

/// What the gateway's Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who is trusted.
    pub bundle: Bundle,
    /// When the newest of them was added; absent if the Secret does not say, or not in a form that we can read.
    pub bundled_at: Option<Timestamp>,
    /// What is served.
    pub served: Served,
}

/// The certificate that the gateway serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Whether it is the present authority's, or that itself.
    pub is_current: bool,
    /// Whether it names the hosts that it is to be reached by, and is far enough from its end, so that only a change of
    /// the authority is a reason to replace it.
    pub is_fit: bool,
    /// When it counts.
    pub validity: Validity,
}

/// What is known of the runtimes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Runtimes that are not known to trust the present authority.
    pub behind: usize,
}

/// What the gateway's Secret shall hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPlan {
    /// Who is trusted.
    pub bundle: Bundle,
    /// When the newest of them was added.
    pub bundled_at: Timestamp,
    /// What becomes of the certificate that is served.
    pub switch: Switch,
    /// Whether bundle or moment are not what the Secret holds.
    pub is_new: bool,
}

/// What becomes of the certificate that the gateway serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// It is as it should be.
    Stays,
    /// It is replaced now.
    Now,
    /// It is replaced, but not before this moment.
    At(Timestamp),
    /// It is replaced once so many runtimes trust the present authority.
    Behind(usize),
}

/// Why nothing can be done about the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// To trust it would be of no use.
    #[error("the certificate of the authority has expired: it must be issued anew")]
    Expired,
    /// Without the moment nobody knows which certificates are of a former authority.
    #[error(
        "its annotation `{}` is absent or no time in the form of RFC 3339: set it to the time at which the newest \
         certificate in `ca.crt` was added",
        crate::api::names::annotation::BUNDLED_AT
    )]
    NoMoment,
}

/// What the gateway's Secret shall hold, given what it holds and who the authority is.
pub fn gateway(
    held: Option<&Held>,
    root: &Authority,
    observed: Observed,
    rules: &Rules,
    now: Timestamp,
) -> Result<GatewayPlan, Refusal> {
    // It would be added, dropped as expired, and added again.
    if root.validity.not_after <= now {
        return Err(Refusal::Expired);
    }
    let Some(held) = held else {
        let bundle = Bundle(vec![root.clone()]);
        return Ok(GatewayPlan { bundle, bundled_at: now, switch: Switch::Now, is_new: true });
    };
    let mut bundle = held.bundle.clone();
    let added = bundle.prepend(root);
    let dropped = bundle.drop_expired(now);
    let bundled_at = if added { next_second(now) } else { held.bundled_at.ok_or(Refusal::NoMoment)? };
    let switch = switch(&held.served, bundled_at, observed, rules, now);
    Ok(GatewayPlan { bundle, bundled_at, switch, is_new: added || dropped })
}

/// Moments are written in whole seconds. What was issued in the second in which an authority is added may be of the former
/// one, and what is issued later is not.
fn next_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second().saturating_add(1)).unwrap_or(Timestamp::MAX)
}

fn switch(served: &Served, bundled_at: Timestamp, observed: Observed, rules: &Rules, now: Timestamp) -> Switch {
    match (served.is_current, served.is_fit) {
        (true, true) => return Switch::Stays,
        (true, false) => return Switch::Now,
        (false, _) => {}
    }
    // Nothing can be lost by replacing what nobody accepts any more.
    if served.validity.not_after <= now {
        return Switch::Now;
    }
    let from = later(bundled_at, rules.switch_grace);
    // Where authorities follow each other faster than that, it would never come, and the certificate would end first.
    let lasts = from < served.validity.not_after;
    if now <= from && lasts {
        return Switch::At(from);
    }
    // A runtime that sleeps for weeks must not take the gateway's certificate with it into its end.
    if observed.behind == 0 || (lasts && ends_soon(&served.validity, rules.expiry_window, now)) {
        return Switch::Now;
    }
    Switch::Behind(observed.behind)
}

// === impl Bundle ===

impl Bundle {
    /// Of these, the newest first.
    pub fn new(authorities: Vec<Authority>) -> Bundle {
        Bundle(authorities)
    }

    /// The authorities, the newest first.
    pub fn authorities(&self) -> &[Authority] {
        &self.0
    }

    /// Whether an authority is in it.
    pub fn contains(&self, authority: &Authority) -> bool {
        self.0.iter().any(|known| known.der == authority.der)
    }

    /// Puts an authority first, if it is not in the bundle. Returns whether it was not.
    pub fn prepend(&mut self, authority: &Authority) -> bool {
        let is_new = !self.contains(authority);
        if is_new {
            self.0.insert(0, authority.clone());
        }
        is_new
    }

    /// Drops those that have expired; the others keep their order. Returns whether there were any.
    pub fn drop_expired(&mut self, now: Timestamp) -> bool {
        let before = self.0.len();
        self.0.retain(|authority| now < authority.validity.not_after);
        self.0.len() < before
    }
}

impl Served {
    /// Whether its end is so near that somebody should look.
    pub fn is_close_to_expiry(&self, rules: &Rules, now: Timestamp) -> bool {
        ends_soon(&self.validity, rules.expiry_window, now)
    }
}
