use super::*;

fn component() -> Component {
    Component::new("example.org/module/keda", "1.0.0").unwrap()
}

const NO_CONFIG: &str =
    "failed to get config file for ocm artifact with name=\"example.org/module/keda\" and version=\"1.0.0\": ";

#[test]
fn failures_are_told_in_the_words_of_lifecycle_manager() {
    let connect = || oci::Error::Connect { from: "r/keda:1.0.0".to_owned(), why: "connection refused" };
    let why = NoAccess("no private oci registry auth secret found: kcp-system/registry".to_owned());
    let refused = "cannot reach r/keda:1.0.0: connection refused";
    for (failure, expected) in [
        (not_found(&component(), &connect()), format!("{NO_CONFIG}{refused}")),
        (not_found_without_access(&component(), &why), format!("{NO_CONFIG}{}", why.0)),
        (
            not_found(
                &component(),
                &oci::Error::Descriptor {
                    from: "r/keda:1.0.0".to_owned(),
                    problem: tidegate_core::component::DescriptorError::NoRawManifest,
                },
            ),
            "r/keda:1.0.0: the component descriptor has no resource `raw-manifest`, which contains the objects of the \
             module"
                .to_owned(),
        ),
        (
            not_pulled(&connect()),
            format!("failed to extract raw manifest from layer digest: failed to pull layer due to: {refused}"),
        ),
        (not_pulled_without_access(&why), why.0.clone()),
    ] {
        assert_eq!(failure.message, expected);
    }
}

#[test]
fn only_a_registry_that_may_answer_later_is_away() {
    let of = |class, is_of_host| Failure { message: String::new(), class, retry_after: None, is_of_host };
    for (failure, expected) in [
        (not_pulled(&oci::Error::Connect { from: "r/keda:1.0.0".to_owned(), why: "connection refused" }), true),
        (of(Class::Transient, true), true),
        (of(Class::Transient, false), false),
        (of(Class::Stalled, true), false),
        (not_pulled_without_access(&NoAccess("no Secret".to_owned())), false),
        (not_done(), false),
    ] {
        assert_eq!(is_away(&failure), expected, "{failure:?}");
    }
}

#[test]
fn the_delay_follows_class_attempt_and_registry() {
    let failure = |class, retry_after: Option<u64>| Failure {
        message: String::new(),
        class,
        retry_after: retry_after.map(Duration::from_secs),
        is_of_host: false,
    };
    for (failure, attempt, expected) in [
        (failure(Class::Transient, None), 1, retry::BACKOFF_MIN),
        (failure(Class::Transient, None), 20, retry::BACKOFF_MAX),
        (failure(Class::Transient, Some(7)), 1, Duration::from_secs(7)),
        (failure(Class::Transient, Some(7)), 20, retry::BACKOFF_MAX),
        (failure(Class::Transient, Some(100_000)), 1, retry::BACKOFF_MAX),
        (failure(Class::Stalled, None), 1, RETRY_STALLED),
    ] {
        assert_eq!(delay(&failure, attempt, 0.0), expected, "{failure:?} {attempt}");
    }
}

#[test]
fn only_what_concerns_the_whole_registry_holds_the_others() {
    let from = || "r/keda:1.0.0".to_owned();
    let status = |status, retry_after| oci::Error::Status { from: from(), status, retry_after };
    for (error, expected) in [
        (oci::Error::Authentication { from: from(), sent: true }, true),
        (oci::Error::Deadline { from: from(), timeout: Duration::ZERO }, true),
        (status(503, None), true),
        (status(429, None), true),
        (status(418, None), false),
        (oci::Error::NotFound { from: from() }, false),
        (oci::Error::Forbidden { from: from() }, false),
        (oci::Error::TooMuch { from: from(), limit: 1 }, false),
    ] {
        assert_eq!(is_of_host(&error), expected, "{error}");
    }
}
