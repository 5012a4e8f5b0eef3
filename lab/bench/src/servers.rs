//! API servers that the demo and the benchmarks start, real or simulated.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use jiff::Timestamp;
use kube::Client;
use kube_sim::{self as sim, Kubeconfig, Served, Tally};
use tidegate_core::api::names;
use tidegate_testbed::{Assets, ControlPlane, Etcd, Extent, Options, Record};

/// The kind of an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Make {
    /// Simulated in this process: nothing is built, nothing is stored
    Simulated,
    /// Real: kube-apiserver and etcd, as processes
    Real,
}

/// A running API server. Dropping it stops the server.
pub(super) enum Server {
    /// A real one.
    Real(Box<ControlPlane>),
    /// One in this process, behind TLS.
    Simulated(Box<Served>),
}

/// The programs and the etcd of real API servers.
pub(super) struct Ground {
    pub(super) assets: Assets,
    etcd: Arc<Etcd>,
}

/// The moment from which the requests to a server are counted.
pub(super) enum Mark {
    /// A position in the audit log.
    Real(u64),
    /// The simulated server has reset its counters: only the last mark is valid.
    Simulated,
}

/// Requests of one user to one server, except those for Leases.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Counts, without the starts of watches.
    pub(super) tally: Tally,
    /// When the first was answered.
    pub(super) first: Option<Timestamp>,
    /// When the last write was answered.
    pub(super) last_write: Option<Timestamp>,
}

// === impl Ground ===

impl Ground {
    /// Builds or finds the programs and starts an etcd, with its data in the given folder or else in a temporary one.
    pub(super) async fn prepare(say: &(dyn Fn(&str) + Send + Sync), folder: Option<&Path>) -> anyhow::Result<Ground> {
        let assets = Assets::load(say).await?;
        let etcd = Etcd::start(&assets, folder).await?;
        Ok(Ground { assets, etcd })
    }

    /// Starts an API server whose requests are counted.
    pub(super) async fn start(&self, name: String, extent: Extent, folder: Option<&Path>) -> anyhow::Result<Server> {
        let etcd = Some(Arc::clone(&self.etcd));
        let folder = folder.map(Path::to_owned);
        let options = Options { name, etcd, extent, audit: true, folder, ..Options::default() };
        Ok(Server::Real(Box::new(ControlPlane::start(&self.assets, options).await?)))
    }
}

// === impl Server ===

impl Server {
    /// Starts a simulated server in this process.
    pub(super) async fn simulated(name: &str, options: &sim::Options) -> anyhow::Result<Server> {
        Ok(Server::Simulated(Box::new(sim::Server::new(options).listen(name).await?)))
    }

    /// Its short name.
    pub(super) fn name(&self) -> &str {
        match self {
            Server::Real(server) => server.name(),
            Server::Simulated(server) => server.name(),
        }
    }

    /// The administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> Kubeconfig {
        match self {
            Server::Real(server) => server.kubeconfig(),
            Server::Simulated(server) => server.kubeconfig().clone(),
        }
    }

    /// A kubeconfig with a client certificate for another administrator, whose requests can be distinguished.
    pub(super) fn kubeconfig_of(&self, user: &str) -> anyhow::Result<Kubeconfig> {
        const ADMINISTRATORS: Option<&str> = Some("system:masters");
        Ok(match self {
            Server::Real(server) => server.kubeconfig_of(user, ADMINISTRATORS)?,
            Server::Simulated(server) => server.kubeconfig_of(user, ADMINISTRATORS)?,
        })
    }

    /// A client of the administrator, over the network.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        Ok(self.kubeconfig().client()?)
    }

    /// Routes its calls to the agent's webhook to this loopback port.
    pub(super) fn lead_agent_to(&self, port: u16) {
        match self {
            Server::Real(server) => server.webhooks().lead_to(Some(port)),
            Server::Simulated(server) => {
                server.server().lead_to(names::SKR_WEBHOOK, names::SKR_NAMESPACE, Some(port));
            }
        }
    }

    /// Stops answering requests, but still accepts connections.
    pub(super) fn freeze(&self) {
        match self {
            Server::Real(server) => server.freeze(),
            Server::Simulated(server) => server.freeze(),
        }
    }

    /// Undoes [`Server::freeze`].
    pub(super) fn thaw(&self) {
        match self {
            Server::Real(server) => server.thaw(),
            Server::Simulated(server) => server.thaw(),
        }
    }

    /// Starts counting requests.
    pub(super) fn mark(&self) -> Mark {
        match self {
            Server::Real(server) => Mark::Real(server.audit().map_or(0, tidegate_testbed::Audit::mark)),
            Server::Simulated(server) => {
                server.server().count_anew();
                Mark::Simulated
            }
        }
    }

    /// The requests of a user since a mark.
    pub(super) fn since(&self, mark: &Mark, user: &str) -> anyhow::Result<Seen> {
        match (self, mark) {
            (Server::Real(server), Mark::Real(mark)) => {
                let records = server.audit().context("the server keeps no audit log")?.since(*mark)?;
                Ok(Seen::from_records(records.iter().filter(|record| {
                    record.user == user && record.verb != "watch" && !record.resource.starts_with("leases")
                })))
            }
            (Server::Simulated(server), _) => {
                let counts = |alike: &sim::Alike| {
                    alike.user == user && alike.verb != "watch" && !alike.resource.starts_with("leases")
                };
                let requests = server.server().journal().only(counts);
                Ok(Seen { tally: requests.tally(), first: requests.first(), last_write: requests.last_write() })
            }
            (Server::Real(_), Mark::Simulated) => anyhow::bail!("the marker belongs to another kind of server"),
        }
    }
}

// === impl Seen ===

impl Seen {
    fn from_records<'a>(records: impl Iterator<Item = &'a Record>) -> Seen {
        let mut seen = Seen::default();
        let mut records: Vec<&Record> = records.collect();
        records.sort_by(|one, other| one.answered.cmp(&other.answered));
        let time = |record: &&Record| record.answered.parse().ok();
        seen.first = records.first().and_then(time);
        seen.last_write = records.iter().rfind(|record| record.is_write()).and_then(time);
        seen.tally = tidegate_testbed::tally(records);
        seen
    }
}
