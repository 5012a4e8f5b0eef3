//! The numbers of a measured landscape, as a table or as JSON.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::{fleet::Origin, limit::Limit, stage::Size};
use kube_sim::Tally;
use tidegate_process::say;

/// The format of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// A table
    Text,
    /// One JSON document
    Json,
}

/// One phase.
pub(super) struct Phase {
    pub(super) name: &'static str,
    /// From the start of the phase, usually a commit, to its last effect.
    pub(super) wall: Duration,
    pub(super) work: Work,
    pub(super) latency: Option<Latency>,
    /// Requests of the daemon to the KCP, without its Lease.
    pub(super) kcp: Tally,
    /// Requests of the daemon to all runtimes.
    pub(super) skrs: Tally,
    pub(super) cpu: Duration,
    /// At the end of the phase.
    pub(super) resident: u64,
    /// During the phase.
    pub(super) peak: u64,
    /// Requests to the OCI registry, if there is one.
    pub(super) registry: Option<Reads>,
    /// The limit of a bare client for the same objects, if any object changed.
    pub(super) limit: Option<Limit>,
    /// The part of the processors that other processes used during the phase, if known.
    pub(super) others: Option<f64>,
}

/// The work of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// There is nothing to do.
    Nothing,
    /// Objects in KCP and in runtimes that changed.
    Objects(usize),
    /// Events that the daemon accepted.
    Events(usize),
}

/// How long runtimes waited: for the last of their objects, or for the first request of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Latency {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    /// The number of runtimes.
    pub(super) runtimes: usize,
}

/// A measured landscape.
pub(super) struct Report {
    pub(super) size: Size,
    /// The kind of the servers.
    pub(super) servers: &'static str,
    pub(super) origin: Origin,
    pub(super) phases: Vec<Phase>,
}

/// Requests to an OCI registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reads {
    /// For manifests, each by the tag of a version.
    pub(super) manifests: u64,
    /// For blobs.
    pub(super) blobs: u64,
    /// For the blob that was requested most often, since the start.
    pub(super) most: u64,
}

/// A budget, and the measured value.
struct Budget {
    what: &'static str,
    measured: f64,
    most: f64,
}

/// Seconds of an hour.
const HOUR: f64 = 3_600.0;
/// Runs of the limit that differ by more than this factor cause a warning.
const DOUBT: f64 = 1.1;
/// Other processes that use more than this part of the processors cause a warning.
const OTHERS_MAX: f64 = 0.1;
const MEBIBYTE: u64 = 1 << 20;
/// The text in place of a missing number.
const NONE: &str = "-";

// === impl Latency ===

impl Latency {
    /// `None` for no values.
    pub(super) fn from_waits(mut waits: Vec<Duration>) -> Option<Latency> {
        waits.sort_unstable();
        let last = waits.len().checked_sub(1)?;
        // The smallest wait that is not exceeded by this percentage.
        let quantile = |percent: usize| waits[(waits.len() * percent).div_ceil(100).saturating_sub(1).min(last)];
        Some(Latency { p50: quantile(50), p99: quantile(99), runtimes: waits.len() })
    }
}

// === impl Reads ===

impl Reads {
    /// Those between two moments, of which the requests until then are known.
    pub(super) fn between(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Reads {
        let is_blob = |path: &str| path.contains("/blobs/");
        let count = |blobs: bool| {
            let paths = after.iter().filter(|(path, _)| is_blob(path) == blobs);
            paths.map(|(path, count)| count - before.get(path).copied().unwrap_or_default()).sum()
        };
        let most = after.iter().filter(|(path, _)| is_blob(path)).map(|(_, count)| *count).max();
        Reads { manifests: count(false), blobs: count(true), most: most.unwrap_or_default() }
    }
}

// === impl Work ===

impl Work {
    fn count(self) -> usize {
        match self {
            Work::Nothing => 0,
            Work::Objects(count) | Work::Events(count) => count,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Work::Nothing => "nothing",
            Work::Objects(_) => "objects",
            Work::Events(_) => "events",
        }
    }
}

// === impl Phase ===

impl Phase {
    fn writes(&self) -> usize {
        self.kcp.writes() + self.skrs.writes()
    }

    fn rate(&self) -> Option<f64> {
        (self.work.count() > 0 && !self.wall.is_zero()).then(|| float(self.work.count()) / self.wall.as_secs_f64())
    }

    /// The ratios of time and of writes to the limit.
    fn ratios(&self) -> Option<(f64, f64)> {
        let limit = self.limit.filter(|limit| limit.writes > 0 && !limit.wall.is_zero())?;
        let time = self.wall.as_secs_f64() / limit.wall.as_secs_f64();
        Some((time, float(self.writes()) / float(limit.writes)))
    }

    /// Warnings about other load on the machine, which makes the time and its ratio to the limit unreliable.
    fn doubts(&self) -> Vec<String> {
        let name = self.name;
        let others = |what: &str, part: Option<f64>| {
            let part = part.filter(|part| *part > OTHERS_MAX)? * 100.0;
            Some(format!(
                "{name}: other processes used {part:.0} % of the processors {what}: measure again on an idle machine"
            ))
        };
        let differ = self.limit.and_then(|limit| {
            let (least, most) = (limit.between.0.as_secs_f64(), limit.between.1.as_secs_f64());
            (most > least * DOUBT).then(|| format!("{name}: the limit took between {least:.2} and {most:.2} s"))
        });
        let of_limit = self.limit.and_then(|limit| others("during its limit", limit.others));
        [others("meanwhile", self.others), of_limit, differ].into_iter().flatten().collect()
    }

    fn line(&self) -> String {
        let seconds = |duration: Duration| format!("{:.2}", duration.as_secs_f64());
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let ratios = self.ratios();
        format!(
            "{:<24} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9} {:>7} {:>8}",
            self.name,
            seconds(self.wall),
            self.work.count(),
            or_none(self.rate().map(|rate| format!("{rate:.0}"))),
            or_none(self.latency.map(|latency| seconds(latency.p50))),
            or_none(self.latency.map(|latency| seconds(latency.p99))),
            self.kcp.writes(),
            self.kcp.requests() - self.kcp.writes(),
            self.skrs.writes(),
            self.skrs.requests() - self.skrs.writes(),
            seconds(self.cpu),
            self.resident / MEBIBYTE,
            self.peak / MEBIBYTE,
            or_none(self.limit.map(|limit| seconds(limit.wall))),
            or_none(ratios.map(|(time, _)| format!("{time:.2}"))),
            or_none(ratios.map(|(_, writes)| format!("{writes:.3}"))),
        )
    }

    fn json(&self) -> Value {
        let latency = self.latency.map(|latency| {
            json!({
                "p50Seconds": latency.p50.as_secs_f64(), "p99Seconds": latency.p99.as_secs_f64(),
                "runtimes": latency.runtimes,
            })
        });
        let limit = self.limit.map(|limit| {
            let (least, most) = (limit.between.0.as_secs_f64(), limit.between.1.as_secs_f64());
            json!({
                "wallSeconds": limit.wall.as_secs_f64(), "leastSeconds": least, "mostSeconds": most,
                "writes": limit.writes, "othersPart": limit.others,
            })
        });
        let ratios = self.ratios().map(|(time, writes)| json!({"time": time, "writes": writes}));
        json!({
            "name": self.name,
            "wallSeconds": self.wall.as_secs_f64(),
            "work": {"unit": self.work.unit(), "count": self.work.count(), "perSecond": self.rate()},
            "latency": latency,
            "kcp": requests(&self.kcp),
            "runtimes": requests(&self.skrs),
            "registry": self.registry.map(|reads| {
                json!({"manifests": reads.manifests, "blobs": reads.blobs, "mostOfOneBlob": reads.most})
            }),
            "cpuSeconds": self.cpu.as_secs_f64(),
            "residentBytes": self.resident,
            "peakBytes": self.peak,
            "othersPart": self.others,
            "limit": limit,
            "timesTheLimit": ratios,
        })
    }
}

/// Prints the numbers of landscapes.
pub(super) fn print(reports: &[Report], output: Output) {
    match output {
        Output::Text => say!("{}", reports.iter().map(Report::table).collect::<Vec<_>>().join("\n\n")),
        Output::Json => say!("{:#}", json(reports)),
    }
}

/// The numbers of one landscape, or an array of those of several.
pub(super) fn json(reports: &[Report]) -> Value {
    match reports {
        [report] => report.json(),
        _ => reports.iter().map(Report::json).collect(),
    }
}

// === impl Report ===

impl Report {
    fn table(&self) -> String {
        let Size { runtimes, modules, objects } = self.size;
        let mut lines = vec![
            format!(
                "{runtimes} runtimes × {modules} modules × {objects} objects, {}, modules in {}",
                self.servers,
                match self.origin {
                    Origin::Git => "git",
                    Origin::Oci => "an OCI registry",
                }
            ),
            String::new(),
            format!(
                "{:<24} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9} {:>7} {:>8}",
                "phase",
                "wall s",
                "work",
                "per s",
                "p50 s",
                "p99 s",
                "KCP wr",
                "KCP rd",
                "SKR wr",
                "SKR rd",
                "CPU s",
                "res MiB",
                "peak MiB",
                "limit s",
                "× time",
                "× writes"
            ),
        ];
        lines.extend(self.phases.iter().map(Phase::line));
        lines.push(String::new());
        lines.extend(self.budgets().iter().map(Budget::line));
        lines.extend(self.phases.iter().flat_map(Phase::doubts));
        for phase in &self.phases {
            let (kcp, skrs) = (verbs(&phase.kcp), verbs(&phase.skrs));
            lines.push(format!("\n{}\n  KCP       {kcp}\n  runtimes  {skrs}", phase.name));
            if let Some(Reads { manifests, blobs, most }) = phase.registry {
                let most = format!("the most of one blob until then: {most}");
                lines.push(format!("  registry  manifests {manifests}, blobs {blobs}; {most}"));
            }
        }
        lines.join("\n")
    }

    fn json(&self) -> Value {
        let Size { runtimes, modules, objects } = self.size;
        json!({
            "runtimes": runtimes, "modules": modules, "objects": objects, "servers": self.servers,
            "modulesFrom": match self.origin { Origin::Git => "git", Origin::Oci => "oci" },
            "phases": self.phases.iter().map(Phase::json).collect::<Vec<_>>(),
            "budgets": self.budgets().iter().map(Budget::json).collect::<Vec<_>>(),
        })
    }

    /// The budgets that these phases can check.
    fn budgets(&self) -> Vec<Budget> {
        let phase = |name: &str| self.phases.iter().find(|phase| phase.name == name);
        let Size { runtimes, modules, objects } = self.size;
        let mut budgets = Vec::new();
        let reads = self.phases.iter().filter_map(|phase| phase.registry).map(|reads| reads.most).max();
        let mut add = |what, measured: Option<f64>, most| {
            budgets.extend(measured.map(|measured| Budget { what, measured, most }));
        };
        let rollout = phase("first rollout").and_then(Phase::ratios);
        add("first rollout, times the limit's time", rollout.map(|(time, _)| time), 1.25);
        add("first rollout, times the limit's writes", rollout.map(|(_, writes)| writes), 1.05);
        if let Some(idle) = phase("idle").filter(|idle| !idle.wall.is_zero()) {
            let seconds = idle.wall.as_secs_f64();
            let calls = float(idle.kcp.requests() + idle.skrs.requests());
            add("idle, writes", Some(float(idle.writes())), 0.0);
            add(
                "idle, calls for each object and hour",
                Some(calls * HOUR / seconds / float(runtimes * modules * objects)),
                0.1,
            );
            add("idle, part of a core", Some(idle.cpu.as_secs_f64() / seconds), 0.02);
        }
        // For a bump of only the healthy runtimes, the expected time is proportional to their number.
        let p99 = |name| phase(name).and_then(|phase| phase.latency).filter(|latency| !latency.p99.is_zero());
        if let (Some(all), Some(healthy)) = (p99("channel bump"), p99("20 % black-holed")) {
            let expected = all.p99.as_secs_f64() * float(healthy.runtimes) / float(all.runtimes);
            add(
                "20 % black-holed, p99 of the healthy, times that of a bump for each runtime",
                Some(healthy.p99.as_secs_f64() / expected),
                1.1,
            );
        }
        add("registry, reads of one blob", reads.and_then(|most| u32::try_from(most).ok()).map(f64::from), 1.0);
        if let Some(restart) = phase("daemon restart") {
            add("restart, seconds until caught up", Some(restart.wall.as_secs_f64()), 30.0);
            add("restart, writes", Some(float(restart.writes())), 0.0);
        }
        budgets
    }
}

// === impl Budget ===

impl Budget {
    fn is_met(&self) -> bool {
        self.measured <= self.most
    }

    fn line(&self) -> String {
        let met = if self.is_met() { "met" } else { "not met" };
        format!("{:<82} {:>9.3} of {:>6.3}  {met}", self.what, self.measured, self.most)
    }

    fn json(&self) -> Value {
        json!({"what": self.what, "measured": self.measured, "atMost": self.most, "met": self.is_met()})
    }
}

/// Requests by verb.
fn by_verb(tally: &Tally) -> BTreeMap<&str, usize> {
    let mut verbs = BTreeMap::new();
    for ((_, verb, _, _), count) in &tally.0 {
        *verbs.entry(verb.as_str()).or_default() += count;
    }
    verbs
}

fn verbs(tally: &Tally) -> String {
    let verbs: Vec<String> = by_verb(tally).iter().map(|(verb, count)| format!("{verb} {count}")).collect();
    if verbs.is_empty() { "nothing".to_owned() } else { verbs.join(", ") }
}

fn requests(tally: &Tally) -> Value {
    let rows: Vec<Value> = tally
        .0
        .iter()
        .map(|((_, verb, resource, code), count)| {
            json!({"verb": verb, "resource": resource, "code": code, "count": count})
        })
        .collect();
    json!({"writes": tally.writes(), "requests": tally.requests(), "byVerb": by_verb(tally), "rows": rows})
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
