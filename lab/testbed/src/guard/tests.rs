use std::time::{Duration, Instant};

use super::*;

fn alive(pid: &str) -> bool {
    Command::new("/bin/sh").args(["-c", "kill -0 \"$1\" 2>/dev/null", "sh", pid]).status().unwrap().success()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A shell that writes its process id and then waits forever.
const WAITS: &str = "echo $$ > pid.new; mv pid.new pid; while :; do sleep 1; done";

async fn start(folder: &Path) -> (Guarded, String) {
    let guarded = Guarded::start(Path::new("/bin/sh"), ["-c", WAITS], folder, &folder.join("log")).unwrap();
    let file = folder.join("pid");
    until("the child's start", || file.exists()).await;
    (guarded, std::fs::read_to_string(file).unwrap().trim().to_owned())
}

#[tokio::test]
async fn a_child_ends_when_its_value_is_dropped() {
    let folder = Folder::temporary("tidegate-guard-").unwrap();
    let (guarded, pid) = start(folder.path()).await;
    assert!(alive(&pid));
    drop(guarded);
    until("the child's end", || !alive(&pid)).await;
}

#[tokio::test]
async fn a_signal_is_passed_on_and_an_end_is_seen() {
    let folder = Folder::temporary("tidegate-guard-").unwrap();
    let (mut guarded, pid) = start(folder.path()).await;
    assert!(guarded.ended().is_none());
    guarded.signal("TERM");
    until("the end", || guarded.ended().is_some()).await;
    assert!(!alive(&pid));
}

#[tokio::test]
async fn the_end_of_a_child_is_known_without_holding_it() {
    let folder = Folder::temporary("tidegate-guard-").unwrap();
    let (mut guarded, _) = start(folder.path()).await;
    let pulse = guarded.pulse();
    assert_eq!(pulse.ended(), None);
    guarded.signal("TERM");
    until("the end", || pulse.ended().is_some()).await;
}

#[tokio::test]
async fn a_folder_goes_with_its_value() {
    let folder = Folder::temporary("tidegate-guard-").unwrap();
    let path = folder.path().to_owned();
    std::fs::create_dir_all(path.join("a/b")).unwrap();
    std::fs::write(path.join("a/b/c"), "text").unwrap();
    drop(folder);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_folder_can_be_kept() {
    let folder = Folder::temporary("tidegate-guard-").unwrap();
    let path = folder.keep();
    assert!(path.exists());
    std::fs::remove_dir(path).unwrap();
}
