use super::*;

const LINES: &str = concat!(
    r#"{"stage":"ResponseComplete","verb":"patch","requestURI":"/apis/apps/v1/namespaces/a/deployments/b?fieldManager=x","#,
    r#""user":{"username":"tidegate"},"userAgent":"t","objectRef":{"resource":"deployments","namespace":"a","name":"b","#,
    r#""apiGroup":"apps"},"responseStatus":{"code":200}}"#,
    "\n",
    r#"{"stage":"ResponseComplete","verb":"patch","requestURI":"/apis/apps/v1/namespaces/a/deployments/b/status?dryRun=All","#,
    r#""user":{"username":"tidegate"},"objectRef":{"resource":"deployments","namespace":"a","name":"b","#,
    r#""apiGroup":"apps","subresource":"status"},"responseStatus":{"code":409}}"#,
    "\n",
    r#"{"stage":"ResponseStarted","verb":"watch","requestURI":"/api/v1/pods?watch=1","user":{"username":"tidegate"},"#,
    r#""objectRef":{"resource":"pods"},"responseStatus":{"code":200}}"#,
    "\n",
    r#"{"stage":"ResponseComplete","verb":"watch","requestURI":"/api/v1/pods?watch=1","user":{"username":"tidegate"},"#,
    r#""objectRef":{"resource":"pods"},"responseStatus":{"code":200}}"#,
    "\n",
    r#"{"stage":"ResponseComplete","verb":"get","requestURI":"/version?x=y","user":{"username":"admin"},"#,
    r#""responseStatus":{"code":200}}"#,
    "\n",
    r#"{"stage":"ResponseComplete","verb":"get","requestURI":"/half"#,
);

fn audit() -> (tempfile::TempDir, Audit) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    fs::write(&path, LINES).unwrap();
    (folder, Audit::new(path))
}

#[test]
fn requests_are_counted_once_and_half_a_line_not_at_all() {
    let (_folder, audit) = audit();
    let rows: Vec<(String, String, u16)> =
        audit.all().unwrap().into_iter().map(|record| (record.verb, record.resource, record.code)).collect();
    let row = |verb: &str, resource: &str, code| (verb.to_owned(), resource.to_owned(), code);
    assert_eq!(
        rows,
        [
            row("patch", "deployments.apps", 200),
            row("patch", "deployments.apps/status", 409),
            row("watch", "pods", 200),
            row("get", "/version", 200),
        ]
    );
}

#[test]
fn a_dry_run_is_no_write() {
    let (_folder, audit) = audit();
    let writes: Vec<bool> = audit.all().unwrap().iter().map(Record::is_write).collect();
    assert_eq!(writes, [true, false, false, false]);
}

#[test]
fn a_mark_hides_what_was_before() {
    let (_folder, audit) = audit();
    assert_eq!(audit.since(audit.mark()).unwrap(), []);
    assert_eq!(tally(&audit.all().unwrap()).requests(), 4);
}
