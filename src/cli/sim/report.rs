//! The numbers of a measured landscape, as a table or as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::limit::Limit;
use crate::testbed::Tally;

/// How the numbers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// A table.
    Text,
    /// One JSON document.
    Json,
}

/// One phase.
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) wall: Duration,
    /// Requests of the daemon to KCP, its Lease aside.
    pub(super) kcp: Tally,
    /// Requests of the daemon to all runtimes.
    pub(super) skrs: Tally,
    pub(super) cpu: Duration,
    pub(super) resident: u64,
    pub(super) peak: u64,
}

/// A measured landscape.
pub(super) struct Report {
    pub(super) runtimes: usize,
    pub(super) modules: usize,
    pub(super) objects: usize,
    pub(super) phases: Vec<Phase>,
    pub(super) limit: Limit,
}

const MEBIBYTE: u64 = 1 << 20;

// === impl Report ===

impl Report {
    pub(super) fn print(&self, output: Output) {
        match output {
            Output::Text => self.table(),
            Output::Json => anstream::println!("{:#}", self.json()),
        }
    }

    fn table(&self) {
        anstream::println!(
            "{} runtimes × {} modules × {} objects, real API servers on one etcd\n",
            self.runtimes,
            self.modules,
            self.objects
        );
        anstream::println!(
            "{:<20} {:>9} {:>12} {:>12} {:>12} {:>12} {:>8} {:>9} {:>9}",
            "phase",
            "wall",
            "KCP writes",
            "KCP reads",
            "SKR writes",
            "SKR reads",
            "CPU",
            "resident",
            "peak"
        );
        for phase in &self.phases {
            anstream::println!(
                "{:<20} {:>7.2} s {:>12} {:>12} {:>12} {:>12} {:>6.2} s {:>5} MiB {:>5} MiB",
                phase.name,
                phase.wall.as_secs_f64(),
                phase.kcp.writes(),
                phase.kcp.requests() - phase.kcp.writes(),
                phase.skrs.writes(),
                phase.skrs.requests() - phase.skrs.writes(),
                phase.cpu.as_secs_f64(),
                phase.resident / MEBIBYTE,
                phase.peak / MEBIBYTE,
            );
        }
        anstream::println!(
            "{:<20} {:>7.2} s {:>12} writes in all",
            "limit of the rollout",
            self.limit.wall.as_secs_f64(),
            self.limit.writes
        );
        if let Some(rollout) = self.phases.first() {
            anstream::println!(
                "\nrollout: {:.2} × the limit's time, {:.3} × its writes",
                rollout.wall.as_secs_f64() / self.limit.wall.as_secs_f64(),
                ratio(rollout.kcp.writes() + rollout.skrs.writes(), self.limit.writes),
            );
        }
        for phase in &self.phases {
            anstream::println!(
                "\n{}: requests to KCP\n{}{}: requests to runtimes\n{}",
                phase.name,
                phase.kcp,
                phase.name,
                phase.skrs
            );
        }
    }

    fn json(&self) -> Value {
        let phases: Vec<Value> = self
            .phases
            .iter()
            .map(|phase| {
                json!({
                    "name": phase.name,
                    "wallSeconds": phase.wall.as_secs_f64(),
                    "kcp": requests(&phase.kcp),
                    "runtimes": requests(&phase.skrs),
                    "cpuSeconds": phase.cpu.as_secs_f64(),
                    "residentBytes": phase.resident,
                    "peakBytes": phase.peak,
                })
            })
            .collect();
        json!({
            "runtimes": self.runtimes, "modules": self.modules, "objects": self.objects, "phases": phases,
            "limit": {"wallSeconds": self.limit.wall.as_secs_f64(), "writes": self.limit.writes},
        })
    }
}

fn requests(tally: &Tally) -> Value {
    let rows: Vec<Value> = tally
        .0
        .iter()
        .map(|((_, verb, resource, code), count)| json!({"verb": verb, "resource": resource, "code": code, "count": count}))
        .collect();
    json!({"writes": tally.writes(), "requests": tally.requests(), "rows": rows})
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
fn ratio(one: usize, other: usize) -> f64 {
    one as f64 / other as f64
}
