//! The git host of the repository: it delivers pushes, loses some, sends some twice and some late, and its token is
//! rotated meanwhile.
//!
//! It has dice of its own, so that its draws change nothing else in a world.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body, extract::ConnectInfo, http::StatusCode};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Request;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use super::dice::Dice;

/// The git host.
pub(super) struct GitHost {
    dice: Dice,
    /// Where deliveries go; `None` while no daemon runs.
    door: Arc<Mutex<Option<Router>>>,
    counts: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    /// Deliveries on their way.
    sent: JoinSet<()>,
    /// Numbers the tokens.
    token: u64,
    /// Whether the Secret has the former token as well.
    rotating: bool,
    /// Numbers the deliveries.
    number: u64,
}

/// The path of the receiver.
const PATH: &str = "/hooks/kcp-system/landscape";
/// The name of its Secret.
pub(super) const SECRET: &str = "hook";

// === impl GitHost ===

impl GitHost {
    pub(super) fn new(seed: u64) -> GitHost {
        GitHost {
            dice: Dice::new(seed),
            door: Arc::default(),
            counts: Arc::default(),
            sent: JoinSet::new(),
            token: 1,
            rotating: false,
            number: 0,
        }
    }

    /// Deliveries go to this daemon from now on.
    pub(super) fn lead_to(&self, door: Router) {
        *lock(&self.door) = Some(door);
    }

    /// The daemon is gone.
    pub(super) fn lead_nowhere(&self) {
        *lock(&self.door) = None;
    }

    /// How often what happened.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.counts).clone()
    }

    /// The data of the receiver's Secret as they are now; a key that is gone is null.
    pub(super) fn data(&self) -> Value {
        let previous = self.rotating.then(|| STANDARD.encode(token(self.token - 1)));
        json!({"token": STANDARD.encode(token(self.token)), "previousToken": previous})
    }

    /// Sometimes a step of a rotation: a new token beside the former one, or the former one goes. Returns whether the
    /// Secret changes.
    pub(super) fn rotates(&mut self) -> bool {
        if self.dice.below(6) != 0 {
            return false;
        }
        if !self.rotating {
            self.token += 1;
        }
        self.rotating = !self.rotating;
        count(&self.counts, "hook token rotated");
        true
    }

    /// Delivers a push, or loses it. `url` is the repository.
    pub(super) fn pushed(&mut self, url: &str) {
        self.number += 1;
        let late = Duration::from_millis(self.dice.one_of(&[0, 10, 2_000, 30_000]));
        match self.dice.below(5) {
            0 => count(&self.counts, "delivery lost"),
            1 => {
                count(&self.counts, "delivery doubled");
                for late in [late, late * 2] {
                    let token = self.valid();
                    self.send(url, late, token);
                }
            }
            2 => self.send(url, late, 0),
            _ => {
                let token = self.valid();
                self.send(url, late, token);
            }
        }
    }

    /// Delivers a push at once. Returns the status of the answer.
    pub(super) async fn delivers(&mut self, url: &str) -> Option<StatusCode> {
        self.number += 1;
        let request = request(url, self.number, self.token);
        let door = lock(&self.door).clone()?;
        Some(door.oneshot(request).await.expect("the routes never fail").status())
    }

    /// A token that the Secret has: during a rotation, the host may know only the former one.
    fn valid(&mut self) -> u64 {
        if self.rotating && self.dice.below(2) == 0 { self.token - 1 } else { self.token }
    }

    /// Sends a delivery after some time. Token 0 is one that no Secret ever had.
    fn send(&mut self, url: &str, late: Duration, token: u64) {
        let (request, door, counts) =
            (request(url, self.number, token), Arc::clone(&self.door), Arc::clone(&self.counts));
        self.sent.spawn(async move {
            tokio::time::sleep(late).await;
            let Some(door) = lock(&door).clone() else { return count(&counts, "delivery unreachable") };
            let status = door.oneshot(request).await.expect("the routes never fail").status();
            count(
                &counts,
                match status {
                    StatusCode::ACCEPTED => "delivery accepted",
                    StatusCode::UNAUTHORIZED => "delivery refused",
                    StatusCode::SERVICE_UNAVAILABLE => "delivery put off",
                    StatusCode::TOO_MANY_REQUESTS => "delivery limited",
                    other => panic!("a delivery is answered with {other}"),
                },
            );
            assert!(token != 0 || status != StatusCode::ACCEPTED, "a delivery with a token that never was is accepted");
        });
        while let Some(ended) = self.sent.try_join_next() {
            ended.expect("a delivery ends");
        }
    }
}

/// A push to `main`, as Gitea sends it.
fn request(url: &str, number: u64, of: u64) -> Request<Body> {
    let peer: SocketAddr = "192.0.2.1:4711".parse().expect("an address");
    let body = json!({"ref": "refs/heads/main", "repository": {"clone_url": url}}).to_string();
    let mac = Hmac::<Sha256>::new_from_slice(token(of).as_bytes()).expect("any key").chain_update(&body).finalize();
    let signature: String = mac.into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Request::post(PATH)
        .extension(ConnectInfo(peer))
        .header("x-gitea-event", "push")
        .header("x-gitea-delivery", number.to_string())
        .header("x-gitea-signature", signature)
        .body(Body::from(body))
        .expect("a request")
}

fn token(number: u64) -> String {
    format!("token-of-the-webhook-{number:04}")
}

fn count(counts: &Mutex<BTreeMap<&'static str, u64>>, what: &'static str) {
    *lock(counts).entry(what).or_default() += 1;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
