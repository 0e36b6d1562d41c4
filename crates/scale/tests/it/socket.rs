//! The socket of the agent: it takes no other file's place.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use kew_scale::Socket;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;

/// The names in a directory.
fn names(place: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(place).unwrap();
    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[tokio::test]
async fn its_file_is_for_the_own_user_and_ends_with_it() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("kew.billing");
    // What begins with the same name is another file.
    let beside = ["kew.billing.new", "kew.mail", "kew.new"];
    for name in beside {
        std::fs::write(place.path().join(name), "x").unwrap();
    }
    let socket = Socket::open(&path).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        names(place.path()),
        ["kew.billing", "kew.billing.new", "kew.mail", "kew.new"]
    );
    drop(socket);
    assert_eq!(names(place.path()), beside);
}

#[tokio::test]
async fn what_is_no_socket_of_an_agent_stays() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("scale.toml");
    std::fs::write(&file, "settings").unwrap();
    let error = Socket::open(&file).await.unwrap_err();
    assert_eq!(error.to_string(), "a file is there that is no socket");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "settings");
    // A link is no socket, either.
    let link = place.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    Socket::open(&link).await.unwrap_err();
    // Nor is the socket of another program that runs.
    let other = place.path().join("other.sock");
    let listener = UnixListener::bind(&other).unwrap();
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 mail\n").await.unwrap();
    };
    let (opened, ()) = tokio::join!(Socket::open(&other), answer);
    assert_eq!(
        opened.unwrap_err().to_string(),
        "another program listens there"
    );
    assert_eq!(names(place.path()), ["link", "other.sock", "scale.toml"]);
}

#[tokio::test]
async fn an_agent_that_ends_leaves_the_socket_of_the_next_one() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("agent.sock");
    let old = Socket::open(&path).await.unwrap();
    // The next one finds the name free, as after a cleaner.
    std::fs::remove_file(&path).unwrap();
    let next = Socket::open(&path).await.unwrap();
    drop(old);
    assert!(path.exists());
    drop(next);
    assert!(!path.exists());
}
