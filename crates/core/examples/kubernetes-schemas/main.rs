//! Prints the table of kinds and fields that `crates/core/src/kubernetes/schemas.txt` is.
//!
//! Reads the OpenAPI documents of Kubernetes releases, oldest first. The Go module `k8s.io/kubernetes` contains them:
//!
//! ```sh
//! go mod download -json k8s.io/kubernetes@v1.37.0   # names the folder
//! cargo run -p tidegate-core --example kubernetes-schemas -- \
//!     1.36.3=FOLDER/api/openapi-spec/swagger.json 1.37.0=FOLDER/api/openapi-spec/swagger.json \
//!     >crates/core/src/kubernetes/schemas.txt
//! ```
#![expect(clippy::print_stdout, reason = "it prints the table")]

mod table;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut documents = Vec::new();
    for argument in std::env::args().skip(1) {
        let (version, path) = argument.split_once('=').ok_or("write VERSION=FILE, for example 1.37.0=swagger.json")?;
        documents.push((version.to_owned(), serde_json::from_slice(&std::fs::read(path)?)?));
    }
    print!("{}", table::table(&documents));
    Ok(())
}
