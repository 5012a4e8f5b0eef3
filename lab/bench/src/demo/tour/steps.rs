//! The steps, one function each: an action, then the checks.

use std::time::Instant;

use crate::demo::{
    RESYNC,
    landscape::{
        CACHE_CONFIG, CACHE_RELEASE, DEV, DEV_KYMA, DEV_MODULES, MAILER_BROKEN, MAILER_BROKEN_LINE, MAILER_BROKEN_TEXT,
        MAILER_RELEASE, MANDATORY, PROD, PROD_MODULES, SCANNER, SCANNER_FIRST, SCANNER_RELEASE, SCANNER_SECOND,
        scanner_files,
    },
    report, windows,
};
use anyhow::{Context as _, bail};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tidegate_core::{
    api::{Kyma, names},
    conditions,
};

use super::{QUIET, TOLD_AGAIN, Tour};

/// The modules of `prod` after the bump.
const PROD_BUMPED: [(&str, &str); 2] = [("cache", "1.1.0"), ("mailer", "2.4.0")];
const DEV_WITHOUT_TRACING: [(&str, &str); 2] = [("cache", "1.1.0"), ("mailer", "2.4.0")];

impl Tour<'_> {
    /// Everything is in git and nothing in the clusters. Then the daemon applies it.
    pub(super) async fn first_sync(&self) -> anyhow::Result<String> {
        let commit = self.repository.head()?;
        report::doing(&format!(
            "the repository has {} with {} Kymas, three modules to select and a mandatory one",
            short(&commit),
            self.kymas.len()
        ));
        self.until("the GitSource is applied", async || self.is_applied(&commit).await).await?;
        report::seen("all definitions are in the KCP");
        for (kyma, modules) in [(DEV, &DEV_MODULES[..]), (PROD, &PROD_MODULES[..])] {
            self.until(&format!("Kyma {kyma} is Ready"), async || self.is_ready(kyma, modules).await).await?;
            for (module, version) in modules {
                let what = format!("{module} {version} runs in {kyma}");
                self.until(&what, async || self.operator_runs(kyma, module, version).await).await?;
            }
            let list = modules.iter().map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>();
            report::seen(&format!("{kyma}: {}, operators running", list.join(", ")));
        }
        for kyma in [DEV, PROD] {
            let what = format!("{kyma} has the mandatory module");
            self.until(&what, async || self.is_configured(kyma, MANDATORY, "level", "metadata").await).await?;
            self.until(&what, async || self.has_mandatory(kyma).await).await?;
        }
        report::seen(&format!("dev, prod: mandatory module {MANDATORY}, which no Kyma lists"));
        let more = self.kymas.get(2..).unwrap_or_default();
        for kyma in more {
            self.until(&format!("Kyma {kyma} is Ready"), async || self.is_ready(kyma, &PROD_MODULES).await).await?;
        }
        if !more.is_empty() {
            report::seen(&format!("{} more runtimes have the same modules as prod", more.len()));
            return Ok(format!("{} runtimes have their modules", self.kymas.len()));
        }
        Ok("both runtimes have their modules, operators running".to_owned())
    }

    /// All API servers count requests, so they prove it.
    pub(super) async fn idle(&self) -> anyhow::Result<String> {
        // Effects of the last step may still follow, and a new agent requests a full resync.
        self.nothing_is_done(QUIET).await?;
        let seen = format!("in {QUIET:?}, no request to a runtime and no write to the KCP except for the Lease");
        report::seen(&seen);
        Ok(seen)
    }

    /// A user edits the Kyma in a runtime: its API server asks the agent, which reports to the daemon.
    pub(super) async fn heard(&self) -> anyhow::Result<String> {
        let kymas: Api<Kyma> = Api::namespaced(self.runtime(DEV).clone(), names::SKR_NAMESPACE);
        if self.is_counted() {
            self.is_heard().await?;
        } else {
            report::doing(&format!("no agent reports changes here: Tidegate looks every {} seconds", RESYNC.as_secs()));
        }
        let edit = json!({"spec": {"modules": [{"name": "cache"}]}});
        let since = Instant::now();
        kymas
            .patch(names::SKR_KYMA, &PatchParams::default(), &Patch::Merge(&edit))
            .await
            .context("cannot edit a Kyma")?;
        report::doing("in the runtime of dev, a user removes all modules except cache from the Kyma");
        self.until("the Kyma is as in git", async || {
            let live = kymas.get(names::SKR_KYMA).await.map_err(|error| error.to_string())?;
            let modules = live.spec.modules.len();
            if modules == DEV_MODULES.len() { Ok(()) } else { Err(format!("{modules} modules")) }
        })
        .await?;
        let took = since.elapsed();
        let found = if self.is_counted() { "was reported by its agent" } else { "was found" };
        let seen = format!("an edit in a runtime {found} and undone after {:.1} s", took.as_secs_f64());
        report::seen(&seen);
        self.until("dev is Ready", async || self.is_ready(DEV, &DEV_MODULES).await).await?;
        Ok(seen)
    }

    /// Waits until the agent of `dev` is known to report.
    async fn is_heard(&self) -> anyhow::Result<()> {
        self.until("the daemon receives events of the agent", async || {
            let live = self.kyma_api().get(DEV).await.map_err(|error| error.to_string())?;
            let conditions = live.status.map(|status| status.conditions).unwrap_or_default();
            let watch = conditions.into_iter().find(|condition| condition.type_ == conditions::WATCH);
            match watch {
                Some(watch) if watch.reason == conditions::watch::HEARD => Ok(()),
                Some(watch) => Err(watch.message),
                None => Err("no condition".to_owned()),
            }
        })
        .await
    }

    /// One line of a ModuleReleaseMeta.
    pub(super) async fn bump(&self) -> anyhow::Result<String> {
        self.repository.replace(CACHE_RELEASE, "regular\n      version: 1.0.0", "regular\n      version: 1.1.0")?;
        report::doing(&format!("{CACHE_RELEASE} is edited: what would a commit change?"));
        let (code, said) = self.tidegate(&["diff", "--from", "HEAD"]).await?;
        // One line says it in a sentence; the others are the details.
        match said.lines().find(|line| line.contains("cache 1.0.0 → 1.1.0")) {
            Some(headline) if code == Some(1) => report::quoted(headline),
            Some(_) | None => bail!("`tidegate diff` exits with {code:?} and prints {said}"),
        }
        let commit = self.repository.commit("Promote cache 1.1.0 to regular")?;
        // Each step runs once.
        let _ = self.bumped.set(commit.clone());
        report::doing(&format!("{}: channel regular moves to cache 1.1.0", short(&commit)));
        self.until("prod has cache 1.1.0", async || self.is_ready(PROD, &PROD_BUMPED).await).await?;
        self.until("its operator runs", async || self.operator_runs(PROD, "cache", "1.1.0").await).await?;
        self.until("its configuration came with it", async || {
            self.is_configured(PROD, "cache", "eviction", "least-frequently-used").await
        })
        .await?;
        report::seen("prod: cache 1.1.0, operator running");
        Ok("prod has cache 1.1.0, operator running".to_owned())
    }

    /// A user deletes one object and changes another in a runtime.
    pub(super) async fn drift(&self) -> anyhow::Result<String> {
        let runtime = self.runtime(DEV).clone();
        let maps: Api<ConfigMap> = Api::namespaced(runtime.clone(), names::SKR_NAMESPACE);
        let deployments: Api<Deployment> = Api::namespaced(runtime, names::SKR_NAMESPACE);
        let finds =
            if self.is_counted() { "the agent of dev reports the changes" } else { "Tidegate looks for changes" };
        report::doing(&format!("no user requests a reconcile: {finds}"));
        // One change after the other, because the pass for one would also repair the other.
        self.nothing_is_done(TOLD_AGAIN).await?;
        maps.delete("cache-config", &DeleteParams::default()).await.context("cannot delete a ConfigMap")?;
        report::doing("in dev, ConfigMap cache-config is deleted");
        self.until("the ConfigMap is back", async || self.configured(DEV, "cache", "max-memory").await).await?;
        self.nothing_is_done(TOLD_AGAIN).await?;
        // In clusters of the user, Deployments have no replicas.
        let (wanted, edited) = if self.is_counted() { (1, 0) } else { (0, 1) };
        let scale = json!({"spec": {"replicas": edited}});
        deployments
            .patch("tracing-agent-manager", &PatchParams::default(), &Patch::Merge(&scale))
            .await
            .context("cannot scale a Deployment")?;
        report::doing(&format!("in dev, tracing-agent-manager is scaled to {edited}"));
        self.until("the Deployment is as it was", async || {
            let live = deployments.get("tracing-agent-manager").await.map_err(|error| error.to_string())?;
            let replicas = live.spec.and_then(|spec| spec.replicas);
            if replicas == Some(wanted) { Ok(()) } else { Err(format!("{replicas:?} replicas")) }
        })
        .await?;
        self.until("the operator runs", async || self.operator_runs(DEV, "tracing-agent", "0.5.0").await).await?;
        report::seen("dev: both objects are as in git");
        Ok("a deleted and a changed object are restored".to_owned())
    }

    /// One commit with a mistake and a good change.
    pub(super) async fn broken(&self) -> anyhow::Result<String> {
        self.repository.write(MAILER_BROKEN, MAILER_BROKEN_TEXT)?;
        self.repository.replace(MAILER_RELEASE, "regular\n      version: 2.4.0", "regular\n      version: 2.5.0")?;
        self.repository.replace(CACHE_CONFIG, "\"256Mi\"", "\"512Mi\"")?;
        let commit = self.repository.commit("Promote mailer 2.5.0; more memory for cache")?;
        report::doing(&format!("{}: {MAILER_BROKEN} has `version: 2.5`, which is not a string", short(&commit)));
        let message = self
            .until("the status says what is skipped and why", async || {
                let status = self.source().await?.status.ok_or("the GitSource has no status")?;
                let problem = status.diagnostics.iter().find(|diagnostic| {
                    diagnostic.path.as_deref() == Some(MAILER_BROKEN) && diagnostic.line == Some(MAILER_BROKEN_LINE)
                });
                let release = status.withheld.iter().any(|one| one.kind == "ModuleReleaseMeta" && one.name == "mailer");
                match problem {
                    Some(problem) if release => Ok(problem.message.clone()),
                    Some(_) | None => Err(format!("skipped {:?}, {:?}", status.withheld, status.diagnostics)),
                }
            })
            .await?;
        report::seen(&format!("GitSource: {MAILER_BROKEN}:{MAILER_BROKEN_LINE}: {message}"));
        for kyma in [DEV, PROD] {
            self.until(&format!("the good change is in {kyma}"), async || {
                self.is_configured(kyma, "cache", "max-memory", "512Mi").await
            })
            .await?;
            self.until(&format!("{kyma} keeps mailer"), async || self.operator_runs(kyma, "mailer", "2.4.0").await)
                .await?;
        }
        self.until("prod stays Ready", async || self.is_ready(PROD, &PROD_BUMPED).await).await?;
        report::seen("the valid part of the commit is in both runtimes, mailer stays at 2.4.0, everything is Ready");
        let kubeconfig = self.kubeconfig.display().to_string();
        let (code, said) = self.tidegate(&["status", "--kubeconfig", &kubeconfig]).await?;
        if code != Some(1) || !said.contains(&format!("{MAILER_BROKEN}:{MAILER_BROKEN_LINE}")) {
            bail!("`tidegate status` exits with {code:?} and prints {said}");
        }
        report::quoted(&said);
        let reverted = self.repository.revert(&commit)?;
        report::doing(&format!("{}: git revert", short(&reverted)));
        self.until("all is applied again", async || self.is_applied(&reverted).await).await?;
        for kyma in [DEV, PROD] {
            self.until("the change is reverted", async || {
                self.is_configured(kyma, "cache", "max-memory", "256Mi").await
            })
            .await?;
        }
        Ok(format!("skipped with file and line ({MAILER_BROKEN}:{MAILER_BROKEN_LINE}), everything else was applied"))
    }

    /// The bump is reverted. A downgrade needs a confirmation.
    pub(super) async fn roll_back(&self) -> anyhow::Result<String> {
        let bump = self.bumped.get().context("no channel was bumped")?;
        let reverted = self.repository.revert(bump)?;
        report::doing(&format!(
            "{}: git revert {}: cache goes back to 1.0.0 on channel regular",
            short(&reverted),
            short(bump)
        ));
        let said = self
            .until("a downgrade without a confirmation is rejected", async || {
                let kyma = self.kyma_api().get(PROD).await.map_err(|error| error.to_string())?;
                let all = kyma.status.map(|status| status.conditions).unwrap_or_default();
                let hint = conditions::message(&all, conditions::HINTS).unwrap_or_default().to_owned();
                if hint.contains(names::annotation::ALLOW_DOWNGRADE) { Ok(hint) } else { Err(hint) }
            })
            .await?;
        report::seen(&format!("prod keeps 1.1.0: {said}"));
        let annotation = format!("  annotations:\n    {}: cache-1.0.0\nspec:", names::annotation::ALLOW_DOWNGRADE);
        self.repository.replace(CACHE_RELEASE, "spec:", &annotation)?;
        let allowed = self.repository.commit("Allow cache to go back to 1.0.0")?;
        report::doing(&format!("{}: adds the annotation that the message names", short(&allowed)));
        self.until("prod has cache 1.0.0", async || self.is_ready(PROD, &PROD_MODULES).await).await?;
        self.until("its operator runs", async || self.operator_runs(PROD, "cache", "1.0.0").await).await?;
        self.until("its configuration changes with it", async || {
            self.is_configured(PROD, "cache", "eviction", "least-recently-used").await
        })
        .await?;
        report::seen("prod: cache 1.0.0, operator running");
        Ok("prod is back at cache 1.0.0".to_owned())
    }

    /// Nothing changes while the source is suspended.
    pub(super) async fn suspend(&self) -> anyhow::Result<String> {
        self.patch_source(&json!({"spec": {"suspend": true}})).await?;
        self.until("status says so", async || {
            let status = self.source().await?.status.ok_or("the GitSource has no status")?;
            let said = status.conditions.iter().any(|condition| condition.reason == "Suspended");
            if said { Ok(()) } else { Err(format!("{:?}", status.conditions)) }
        })
        .await?;
        self.repository.replace(CACHE_CONFIG, "\"256Mi\"", "\"1Gi\"")?;
        let commit = self.repository.commit("Even more memory for cache")?;
        report::doing(&format!("the GitSource is suspended; {} is committed", short(&commit)));
        self.throughout("dev stays as it was", QUIET, async || {
            self.is_configured(DEV, "cache", "max-memory", "256Mi").await
        })
        .await?;
        report::seen(&format!("dev: nothing changed for {QUIET:?}"));
        self.patch_source(&json!({"spec": {"suspend": false}})).await?;
        self.until("the commit is applied", async || self.is_configured(DEV, "cache", "max-memory", "1Gi").await)
            .await?;
        report::seen("resumed: the commit is applied to dev");
        Ok("a commit was applied after the source was resumed".to_owned())
    }

    /// The daemon is killed during a rollout to both runtimes.
    pub(super) async fn killed(&self) -> anyhow::Result<String> {
        self.repository.replace(CACHE_RELEASE, "regular\n      version: 1.0.0", "regular\n      version: 1.1.0")?;
        self.repository.replace(CACHE_CONFIG, "\"1Gi\"", "\"2Gi\"")?;
        let commit = self.repository.commit("Promote cache 1.1.0 again, with more memory")?;
        report::doing(&format!("{}: cache 1.1.0 with a new configuration", short(&commit)));
        self.until("the rollout begins", async || {
            let status = self.source().await?.status.ok_or("the GitSource has no status")?;
            let attempted = status.attempted_revision.unwrap_or_default();
            if attempted.contains(&commit) { Ok(()) } else { Err(format!("attempted is {attempted}")) }
        })
        .await?;
        self.daemon.kill();
        report::doing("kill -9");
        self.until("prod has cache 1.1.0", async || self.is_ready(PROD, &PROD_BUMPED).await).await?;
        self.until("dev is Ready", async || self.is_ready(DEV, &DEV_MODULES).await).await?;
        for kyma in [DEV, PROD] {
            self.until(&format!("{kyma} has the new configuration"), async || {
                self.is_configured(kyma, "cache", "max-memory", "2Gi").await
            })
            .await?;
        }
        report::seen("the whole commit is in both runtimes");
        Ok("the restarted daemon finished the rollout".to_owned())
    }

    /// One line less in a Kyma.
    pub(super) async fn module_removed(&self) -> anyhow::Result<String> {
        self.repository.replace(DEV_KYMA, "    - name: tracing-agent\n", "")?;
        let commit = self.repository.commit("dev no longer needs tracing-agent")?;
        report::doing(&format!("{}: removes tracing-agent from dev", short(&commit)));
        self.until("dev is Ready without it", async || self.is_ready(DEV, &DEV_WITHOUT_TRACING).await).await?;
        let namespace = names::SKR_NAMESPACE;
        let objects = [
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                   "metadata": {"name": "tracing-agent-manager", "namespace": namespace}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                   "metadata": {"name": "tracing-agent-config", "namespace": namespace}}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                   "metadata": {"name": "tracing-agent-manager"}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                   "metadata": {"name": "tracingagents.tracing.example.org"}}),
        ];
        for object in &objects {
            self.until("its objects are gone", async || self.is_gone(self.runtime(DEV), object).await).await?;
        }
        self.until("the others run", async || self.operator_runs(DEV, "cache", "1.1.0").await).await?;
        report::seen(
            "dev: Deployment, ConfigMap, ClusterRole and CRD of tracing-agent are deleted, the other modules run",
        );
        Ok("all objects of tracing-agent are deleted from dev, the other modules run".to_owned())
    }

    /// A module whose ModuleTemplate names no folder: its objects are in the registry.
    pub(super) async fn registered(&self) -> anyhow::Result<String> {
        for (path, text) in scanner_files() {
            self.repository.write(&path, &text)?;
        }
        self.repository.replace(DEV_KYMA, "    - name: mailer\n", "    - name: mailer\n    - name: scanner\n")?;
        let commit = self.repository.commit("Scanner for dev")?;
        report::doing(&format!("{}: adds {SCANNER} {SCANNER_FIRST} to dev", short(&commit)));
        self.until("dev is Ready with it", async || self.is_ready(DEV, &with_scanner(SCANNER_FIRST)).await).await?;
        self.until("its objects are there", async || self.is_configured(DEV, SCANNER, "version", SCANNER_FIRST).await)
            .await?;
        let requests = self.registry.requests();
        if let Some((path, count)) = requests.iter().find(|(path, count)| path.contains("/blobs/") && **count != 1) {
            bail!("the registry was asked {count} times for {path}");
        }
        let (blobs, all) = (requests.keys().filter(|path| path.contains("/blobs/")).count(), requests.values());
        let seen = format!("{} requests to the registry, {blobs} blobs, each read once", all.sum::<u64>());
        report::seen(&format!("dev: {SCANNER} {SCANNER_FIRST} from {}; {seen}", self.registry.address()));
        Ok(format!("dev has {SCANNER} {SCANNER_FIRST} from the registry"))
    }

    /// A version that requires downtime, outside of the maintenance window of its runtime. Then the window opens.
    pub(super) async fn in_window(&self) -> anyhow::Result<String> {
        self.repository.replace(
            SCANNER_RELEASE,
            &format!("version: {SCANNER_FIRST}"),
            &format!("version: {SCANNER_SECOND}"),
        )?;
        let commit = self.repository.commit("Promote scanner 2.0.0, which requires downtime")?;
        report::doing(&format!("{}: channel fast moves to {SCANNER} {SCANNER_SECOND}", short(&commit)));
        let message = self.until("the upgrade waits", async || self.waits_for_window(DEV, SCANNER).await).await?;
        self.throughout("dev keeps the installed version", QUIET / 2, async || {
            self.is_configured(DEV, SCANNER, "version", SCANNER_FIRST).await
        })
        .await?;
        report::seen(&format!("dev: {message}"));
        windows::write(self.policy, windows::NOW)?;
        report::doing("the maintenance policy changes: the window of dev is open");
        self.until("dev is upgraded", async || self.is_ready(DEV, &with_scanner(SCANNER_SECOND)).await).await?;
        self.until("with its objects", async || self.is_configured(DEV, SCANNER, "version", SCANNER_SECOND).await)
            .await?;
        report::seen(&format!("dev: {SCANNER} {SCANNER_SECOND}"));
        Ok("an upgrade that requires downtime waited until the window opened".to_owned())
    }

    /// The removal of a Kyma takes all modules from a runtime, so it waits. It is taken back, and both runtimes stay.
    pub(super) async fn removal_waits(&self) -> anyhow::Result<String> {
        self.repository.remove(DEV_KYMA)?;
        let commit = self.repository.commit("dev is no longer needed")?;
        report::doing(&format!("{}: removes Kyma dev from git", short(&commit)));
        let message = self
            .until("the GitSource asks for a confirmation", async || {
                let status = self.source().await?.status.ok_or("the GitSource has no status")?;
                let asks = |text: &&str| text.contains(names::annotation::CONFIRM_PRUNE) && text.contains(&commit);
                let said = status.conditions.iter().map(|condition| condition.message.as_str());
                said.clone().find(asks).map(str::to_owned).ok_or_else(|| format!("{:?}", said.collect::<Vec<_>>()))
            })
            .await?;
        report::seen("the GitSource says what would be lost, and the command that confirms it:");
        report::quoted(&message);
        self.throughout("dev keeps its modules", QUIET / 2, async || self.operator_runs(DEV, "cache", "1.1.0").await)
            .await?;
        report::seen("nothing is deleted");
        let reverted = self.repository.revert(&commit)?;
        report::doing(&format!("{}: git revert", short(&reverted)));
        self.until("the revert is applied", async || self.is_applied(&reverted).await).await?;
        self.until("dev is Ready", async || self.is_ready(DEV, &with_scanner(SCANNER_SECOND)).await).await?;
        self.until("prod is Ready", async || self.is_ready(PROD, &PROD_BUMPED).await).await?;
        report::seen("no confirmation is needed any more; dev and prod are Ready");
        Ok("a removal waited for a confirmation and was reverted, both runtimes are Ready".to_owned())
    }
}

/// The modules of `dev` with that one at a version.
fn with_scanner(version: &str) -> [(&str, &str); 3] {
    let [cache, mailer] = DEV_WITHOUT_TRACING;
    [cache, mailer, (SCANNER, version)]
}

/// The first digits of a commit's id.
pub(super) fn short(commit: &str) -> &str {
    commit.get(..8).unwrap_or(commit)
}
