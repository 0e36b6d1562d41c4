//! The scaling agent, `kew scale`, which observes a queue of each service. What runs the instances is a file with their
//! number.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::sleep;

use crate::services::{Storage, new_name};

/// Messages that two instances handle in half of the goal of 60 s, and one does not.
const MESSAGES: u32 = 40;

const SETTINGS: &str = "every = '1s'\nstart_delay = '0s'\ncool_down = '0s'\nidle_after = '1s'\ntasks_max = 1\n\
    rate_per_task = 1\nmaximum = 3\n";

/// An agent. It ends with this.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) async fn the_agent_scales_by_a_queue(storage: Storage) {
    let queue = new_name();
    storage.client.create_queue(&queue, &[]).await.unwrap();
    let place = std::env::temp_dir().join(&queue);
    std::fs::create_dir_all(&place).unwrap();
    let (file, number) = (place.join("scale.toml"), place.join("number"));
    std::fs::write(&number, "0").unwrap();
    let set = "echo $KEW_INSTANCES >\"$0.new\" && mv \"$0.new\" \"$0\"";
    let text = format!(
        "[[group]]\nname = 'jobs'\n{SETTINGS}[[group.source]]\nqueue = '{queue}'\nconnection_env = 'STORAGE'\n\
         [group.target.command]\ncount = ['cat', {number:?}]\nset = ['sh', '-c', {set:?}, {number:?}]\n"
    );
    std::fs::write(&file, text).unwrap();
    let scale = |action: &str| {
        let mut command = Command::new(std::env::var("KEW_BINARY").expect("KEW_BINARY"));
        command.args(["scale", action]).arg(&file);
        command.env("STORAGE", &storage.connection_string);
        command.stdin(Stdio::null());
        command
    };
    for _ in 0..MESSAGES {
        let put = storage.client.put(&queue, "x", Default::default());
        put.await.unwrap();
    }
    let explained = scale("explain").output().unwrap();
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.status.success(), "{explained:?}");
    let expected = format!("  {queue}: {MESSAGES} messages, the oldest is ");
    assert!(text.contains(&expected), "{text}");
    assert!(
        text.contains("  start instances until there are 2: "),
        "{text}"
    );
    let agent = Agent(scale("run").stderr(Stdio::null()).spawn().unwrap());
    reaches(&number, "2").await;
    storage.client.clear(&queue).await.unwrap();
    reaches(&number, "0").await;
    drop(agent);
    std::fs::remove_dir_all(&place).unwrap();
}

/// Waits until the agent has set this number. The suite bounds the time.
async fn reaches(number: &Path, expected: &str) {
    loop {
        let text = std::fs::read_to_string(number).unwrap_or_default();
        if text.trim() == expected {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
}
