//! The content of the gateway's Secret, step by step through a change of the CA.
//!
//! A pass compares the current content with the desired one. It is idempotent, even if the CA was
//! replaced several times.

use k8s_openapi::jiff::Timestamp;

use super::{Authority, Rules, Validity, ends_soon, later};

/// The trusted CA certificates, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle(Vec<Authority>);

/// The current content of the gateway's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The trusted CAs.
    pub bundle: Bundle,
    /// When the newest of them was added. `None` if the Secret does not say, or not in a valid
    /// format.
    pub bundled_at: Option<Timestamp>,
    /// The served certificate.
    pub served: Served,
}

/// The certificate that the gateway serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Whether the current CA signed it, or it is the current CA certificate itself.
    pub is_current: bool,
    /// Whether it has the required hosts and is far enough from its expiry. Then only a change of
    /// the CA is a reason to replace it.
    pub is_fit: bool,
    /// Its validity.
    pub validity: Validity,
}

/// What is known about the runtimes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The number of runtimes that may not trust the current CA yet.
    pub behind: usize,
}

/// The desired content of the gateway's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPlan {
    /// The trusted CAs.
    pub bundle: Bundle,
    /// When the newest of them was added.
    pub bundled_at: Timestamp,
    /// What happens to the served certificate.
    pub switch: Switch,
    /// Whether the bundle or the timestamp differ from the Secret.
    pub is_new: bool,
}

/// What happens to the certificate that the gateway serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// It stays.
    Stays,
    /// It is replaced now.
    Now,
    /// It is replaced, but not before this time.
    At(Timestamp),
    /// It is replaced when this many more runtimes trust the current CA.
    Behind(usize),
}

/// Why the Secret cannot be updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An expired CA cannot be trusted.
    #[error("the CA certificate has expired: renew it")]
    Expired,
    /// Without the timestamp, Tidegate cannot know which certificates a former CA signed.
    #[error(
        "its annotation `{}` is missing or not an RFC 3339 time: set it to the time at which the newest \
         certificate in `ca.crt` was added",
        crate::api::names::annotation::BUNDLED_AT
    )]
    NoMoment,
}

/// The desired content of the gateway's Secret, from its current content and the current CA.
///
/// # Errors
///
/// Fails if the CA has expired, or if the Secret has a bundle without a valid timestamp.
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

/// Timestamps have whole seconds. A certificate from the second in which a CA is added may be
/// signed by the former CA; a later one is not.
fn next_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second().saturating_add(1)).unwrap_or(Timestamp::MAX)
}

fn switch(served: &Served, bundled_at: Timestamp, observed: Observed, rules: &Rules, now: Timestamp) -> Switch {
    match (served.is_current, served.is_fit) {
        (true, true) => return Switch::Stays,
        (true, false) => return Switch::Now,
        (false, _) => {}
    }
    // Replacing a certificate that no client accepts any more loses nothing.
    if served.validity.not_after <= now {
        return Switch::Now;
    }
    let from = later(bundled_at, rules.switch_grace);
    // If CAs change faster than that, the replacement would never happen, and the certificate would expire first.
    let lasts = from < served.validity.not_after;
    if now <= from && lasts {
        return Switch::At(from);
    }
    // A runtime that hibernates for weeks must not let the gateway's certificate expire.
    if observed.behind == 0 || (lasts && ends_soon(&served.validity, rules.expiry_window, now)) {
        return Switch::Now;
    }
    Switch::Behind(observed.behind)
}

// === impl Bundle ===

impl Bundle {
    /// A bundle of these, newest first.
    pub fn new(authorities: Vec<Authority>) -> Bundle {
        Bundle(authorities)
    }

    /// The CA certificates, newest first.
    pub fn authorities(&self) -> &[Authority] {
        &self.0
    }

    /// Whether the bundle contains a CA.
    pub fn contains(&self, authority: &Authority) -> bool {
        self.0.iter().any(|known| known.der == authority.der)
    }

    /// Prepends a CA if the bundle does not contain it. Returns whether it did.
    pub fn prepend(&mut self, authority: &Authority) -> bool {
        let is_new = !self.contains(authority);
        if is_new {
            self.0.insert(0, authority.clone());
        }
        is_new
    }

    /// Drops expired CAs and keeps the order of the others. Returns whether it dropped any.
    pub fn drop_expired(&mut self, now: Timestamp) -> bool {
        let before = self.0.len();
        self.0.retain(|authority| now < authority.validity.not_after);
        self.0.len() < before
    }
}

impl Served {
    /// Whether its expiry is so near that a user should act.
    pub fn is_close_to_expiry(&self, rules: &Rules, now: Timestamp) -> bool {
        ends_soon(&self.validity, rules.expiry_window, now)
    }
}
