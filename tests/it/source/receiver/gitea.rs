//! Gitea, built from its Go module: the real sender of deliveries, and the git server over ssh.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
};

use tidegate_testbed::{Folder, Guarded, free_port};
use tokio::net::TcpListener;

use super::*;
use crate::git::ssh::server::{key, key_path};

/// A running Gitea with a private repository, which the key `ed25519` of the tests may read. It ends with this value.
struct Gitea {
    port: u16,
    ssh_port: u16,
    _process: Guarded,
    folder: Folder,
}

/// The user who owns the repository.
const USER: &str = "team";
const PASSWORD: &str = "a-password-for-tests";

impl Gitea {
    async fn start() -> Gitea {
        let (program, assets) = harness::gitea().await;
        let folder = harness::folder();
        // Another process may take a port before Gitea binds it.
        for _ in 0..5 {
            let (port, ssh_port) = (free_port(), free_port());
            fs::write(folder.path().join("app.ini"), settings(folder.path(), &assets, port, ssh_port)).unwrap();
            let log = folder.path().join("log");
            let process = Guarded::start(program, ["--config", "app.ini", "web"], folder.path(), &log).unwrap();
            let pulse = process.pulse();
            let is_up = eventually("Gitea answers", SOON, async || match TcpStream::connect(("127.0.0.1", port)) {
                Ok(_) => Ok(true),
                Err(_) if pulse.ended().is_some() => Ok(false),
                Err(error) => Err(error.to_string()),
            });
            if is_up.await {
                let gitea = Gitea { port, ssh_port, _process: process, folder };
                gitea.furnish(program);
                return gitea;
            }
        }
        panic!("Gitea does not start: {}", fs::read_to_string(folder.path().join("log")).unwrap_or_default());
    }

    /// Creates the user and the repository, and lets the key read it.
    fn furnish(&self, program: &Path) {
        let mut create = Command::new(program);
        create.args(["--config", "app.ini", "admin", "user", "create", "--admin", "--username", USER]);
        create.args(["--password", PASSWORD, "--email", "team@example.org", "--must-change-password=false"]);
        let output = create.current_dir(self.folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let repository = json!({"name": "landscape", "auto_init": true, "default_branch": "main", "private": true});
        self.post("/user/repos", &repository);
        self.post(
            "/repos/team/landscape/keys",
            &json!({"title": "tidegate", "key": key("ed25519.pub"), "read_only": true}),
        );
    }

    /// The URL of the repository.
    fn url(&self) -> String {
        format!("ssh://git@localhost:{}/team/landscape.git", self.ssh_port)
    }

    fn known_hosts(&self) -> String {
        format!("[localhost]:{} {}", self.ssh_port, key("host_ed25519.pub"))
    }

    /// Creates a webhook for pushes.
    fn create_webhook(&self, url: &str, secret: &str) {
        let config = json!({"url": url, "content_type": "json", "secret": secret});
        let webhook = json!({"type": "gitea", "active": true, "events": ["push", "create"], "config": config});
        self.post("/repos/team/landscape/hooks", &webhook);
    }

    /// Commits a new file to the branch `main`, and returns the commit.
    fn write(&self, path: &str, text: &str) -> String {
        let file = json!({"content": STANDARD.encode(text), "message": "a change", "branch": "main"});
        let written = self.post(&format!("/repos/team/landscape/contents/{path}"), &file);
        written["commit"]["sha"].as_str().unwrap_or_else(|| panic!("{written}")).to_owned()
    }

    /// Creates a tag of the last commit.
    fn tag(&self, name: &str) {
        self.post("/repos/team/landscape/tags", &json!({"tag_name": name, "target": "main"}));
    }

    /// Sends a request to its API, which creates something. By HTTP/1.0, so that the answer ends with the connection.
    fn post(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "POST /api/v1{path} HTTP/1.0\r\nhost: localhost:{}\r\nauthorization: Basic {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.port,
            STANDARD.encode(format!("{USER}:{PASSWORD}")),
            body.len(),
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split_whitespace().nth(1).unwrap();
        assert_eq!(status, "201", "{path}: {answer}\n{}", self.log());
        serde_json::from_str(body).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// Its configuration: all of its data is in the folder, and it may send webhooks to this machine.
fn settings(folder: &Path, assets: &Path, port: u16, ssh_port: u16) -> String {
    let (folder, assets, host_key) = (folder.display(), assets.display(), key_path("host_ed25519"));
    format!(
        "RUN_MODE = prod\nWORK_PATH = {folder}\nI_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true\n\
         [server]\nPROTOCOL = http\nHTTP_ADDR = 127.0.0.1\nHTTP_PORT = {port}\nROOT_URL = http://localhost:{port}/\n\
         STATIC_ROOT_PATH = {assets}\nOFFLINE_MODE = true\nLFS_START_SERVER = false\n\
         START_SSH_SERVER = true\nSSH_DOMAIN = localhost\nSSH_LISTEN_HOST = 127.0.0.1\nSSH_LISTEN_PORT = {ssh_port}\n\
         SSH_PORT = {ssh_port}\nBUILTIN_SSH_SERVER_USER = git\nSSH_USER = git\nSSH_SERVER_HOST_KEYS = {host_key}\n\
         [database]\nDB_TYPE = sqlite3\nPATH = {folder}/gitea.db\n\
         [security]\nINSTALL_LOCK = true\nSECRET_KEY = of-a-test\nINTERNAL_TOKEN = of-a-test\n\
         [oauth2]\nENABLED = false\n[actions]\nENABLED = false\n[indexer]\nISSUE_INDEXER_TYPE = db\n\
         [webhook]\nALLOWED_HOST_LIST = loopback\n[log]\nLEVEL = warn\n",
        host_key = host_key.display(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_to_gitea_is_delivered_by_it_and_applied_from_it() {
    let mut world = World::new("gitea").await;
    let gitea = Gitea::start().await;
    gitea.write("mail-1.0.0.yaml", &template(&world.namespace, "mail", "1.0.0"));
    let commit = gitea.write("mail.yaml", &release(&world.namespace, "mail", "1.0.0"));
    world.give_token("hook", &[("token", TOKEN)]).await;
    let (identity, known_hosts) = (key("ed25519"), gitea.known_hosts());
    world.give_token("access", &[("identity", identity.as_str()), ("known_hosts", known_hosts.as_str())]).await;
    world.declare_with_receiver("landscape", json!({"url": gitea.url(), "secretRef": {"name": "access"}})).await;
    world.start().await;
    world.settled("landscape", &commit).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = hook_routes(Peers::loopback(), &world.daemon().context, &Leadership::unconditional());
    let routes = routes.into_make_service_with_connect_info::<SocketAddr>();
    let serving = tokio::spawn(async move { axum::serve(listener, routes).await });
    gitea.create_webhook(&format!("http://{address}/hooks/{}/landscape", world.namespace), TOKEN);

    // A tag is a push as well, of a ref that the source does not follow.
    gitea.tag("v1.0.0");
    let commit = gitea.write("mail-1.1.0.yaml", &template(&world.namespace, "mail", "1.1.0"));
    world.settled("landscape", &commit).await;
    assert!(world.api::<ModuleTemplate>().get("mail-1.1.0").await.is_ok());
    let received = world.received("landscape").await;
    assert!(received.starts_with("True Delivered: the last delivery arrived at "), "{received}");
    serving.abort();
}
