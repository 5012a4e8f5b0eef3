//! Why passes over Kymas and Manifests are followed by others, in Lifecycle Manager's words.
//!
//! Lifecycle Manager counts each end of a reconcile. Tidegate counts what a pass found or did, with the reason that
//! Lifecycle Manager has for it. `docs/configuration.md` lists the reasons that Tidegate has no case for.

/// Whether a requeue is part of the normal course, or follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Requeue {
    /// The normal course.
    Intended(Reason),
    /// A failure.
    Unexpected(Reason),
}

/// A reason, as Lifecycle Manager names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// A Kyma is being deleted, and its runtime has no access Secret any more.
    DeletionWithoutAccess,
    /// The state of a Kyma becomes Deleting.
    StateDeleting,
    /// A Kyma got our finalizer and label.
    LabelsAndFinalizers,
    /// The namespace and the CRDs in a runtime.
    CrdsSync,
    /// The image pull Secret in a runtime.
    ImagePullSecret,
    /// The Manifests of a Kyma.
    Manifests,
    /// The module catalog in a runtime.
    Catalog,
    /// The webhook configuration and the agent in a runtime.
    Webhook,
    /// The first pass over a Kyma.
    InitialState,
    /// Access to a runtime.
    Access,
    /// The Kyma in a runtime is deleted.
    RemoteKymaDeletion,
    /// The Kyma in a runtime is read.
    RemoteSpec,
    /// The status is copied to the Kyma in a runtime.
    RemoteStatus,
    /// A pass over a Kyma that is Processing, or a failure without a reason of its own.
    Processing,
    /// The catalog in a runtime is deleted.
    RemoteCatalogDeletion,
    /// The Manifests of a deleted Kyma.
    ManifestsCleanup,
    /// The deletion of a Kyma.
    KymaDeletion,
    /// A runtime denies access.
    KymaUnauthorized,
    /// A Manifest is new.
    ManifestInitialize,
    /// A Manifest got our finalizers.
    ManifestFinalizer,
    /// The objects of a Manifest are read.
    ManifestRender,
    /// A Manifest cannot be reconciled without access to its runtime.
    ManifestClient,
    /// The runtime of a Manifest denies access.
    ManifestUnauthorized,
    /// The objects of a Manifest are not ready.
    ManifestSyncWaits,
    /// The objects of a Manifest are applied and checked.
    ManifestSync,
    /// The removal of a Manifest waits.
    ManifestPreDelete,
    /// A Manifest is as desired, or gone.
    ManifestFinished,
    /// A Manifest becomes unmanaged.
    ManifestUnmanaged,
    /// The objects of an unmanaged Manifest lose our label.
    ManifestLabels,
    /// A Manifest is an orphan.
    ManifestOrphaned,
}

// === impl Requeue ===

impl Requeue {
    /// The values of the labels `requeue_reason` and `requeue_type`.
    pub(super) fn labels(self) -> (&'static str, &'static str) {
        match self {
            Requeue::Intended(reason) => (reason.name(), "intended"),
            Requeue::Unexpected(reason) => (reason.name(), "unexpected"),
        }
    }
}

// === impl Reason ===

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Reason::DeletionWithoutAccess => "kyma_under_deletion_with_no_access_secret",
            Reason::StateDeleting => "kyma_status_update_to_deleting",
            Reason::LabelsAndFinalizers => "labels_and_finalizers_update",
            Reason::CrdsSync => "crds_sync",
            Reason::ImagePullSecret => "image_pull_secret_sync",
            Reason::Manifests => "manifest_reconciliation",
            Reason::Catalog => "module_catalog_sync",
            Reason::Webhook => "skr_webhook_installation",
            Reason::InitialState => "initial_state_handling",
            Reason::Access => "sync_context_retrieval",
            Reason::RemoteKymaDeletion => "remote_kyma_deletion",
            Reason::RemoteSpec => "spec_replacement_from_remote",
            Reason::RemoteStatus => "status_sync_to_remote",
            Reason::Processing => "processing_kyma_state",
            Reason::RemoteCatalogDeletion => "remote_module_catalog_deletion",
            Reason::ManifestsCleanup => "manifest_crs_cleanup",
            Reason::KymaDeletion => "kyma_deletion",
            Reason::KymaUnauthorized => "kyma_unauthorized",
            Reason::ManifestInitialize => "manifest_initialize",
            Reason::ManifestFinalizer => "manifest_add_finalizer",
            Reason::ManifestRender => "manifest_render_resources",
            Reason::ManifestClient => "manifest_client_init",
            Reason::ManifestUnauthorized => "manifest_unauthorized",
            Reason::ManifestSyncWaits => "manifest_sync_resources_enqueue_required",
            Reason::ManifestSync => "manifest_sync_resources",
            Reason::ManifestPreDelete => "manifest_pre_delete_enqueue_required",
            Reason::ManifestFinished => "manifest_reconcile_finished",
            Reason::ManifestUnmanaged => "manifest_unmanaged_update",
            Reason::ManifestLabels => "manifest_labels_removal",
            Reason::ManifestOrphaned => "manifest_orphaned",
        }
    }
}
