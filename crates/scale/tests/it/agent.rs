//! The loop in paused time, with scripted sources and a scripted target.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use kew_scale::{
    ActError, Agent, FailedStart, Happened, Memory, Note, ReadError, Seen, Socket, Sources, Target,
    Told, Woken, Workers, ask,
};
use kew_scaling::{Day, Instances, Reading, TimeOfWeek};
use tokio::time::{Instant, sleep};

use crate::support::group;

/// What the world is at the moment.
#[derive(Default)]
struct World {
    backlog: Option<u64>,
    /// Whether a message comes and is completed each second, and the source counts that.
    is_counted: bool,
    /// What instances say. They count a message each second, too.
    workers: Option<Workers>,
    /// Whether instances are ready only when their pages have answered, and which ones have.
    has_pages: bool,
    answered: BTreeSet<u64>,
    /// Whether work is announced without an end.
    is_announced: bool,
    /// What wakes the agent once.
    wakes: Option<Woken>,
    is_throttled: bool,
    code: &'static str,
    is_countable: bool,
    running: u32,
    /// What the agent asked for.
    asked: Vec<u32>,
    looks: Vec<Duration>,
    /// How long the source takes to answer.
    answers_after: Duration,
    /// Why the number cannot be changed, if it cannot.
    fails: Option<&'static str>,
    /// After such a failure, nothing is tried at so many looks.
    waits: u32,
    waited: u32,
    /// What has happened to instances by itself.
    news: VecDeque<Happened>,
    began: Option<Instant>,
}

#[derive(Clone)]
struct Script(Arc<Mutex<World>>);

impl Sources for Script {
    async fn read(&mut self) -> Vec<Seen> {
        let answers_after = self.0.lock().unwrap().answers_after;
        sleep(answers_after).await;
        let mut world = self.0.lock().unwrap();
        let at = world.began.unwrap().elapsed();
        world.looks.push(at);
        let reading = world.backlog.map(|backlog| Reading {
            backlog,
            oldest: (backlog > 0).then_some(Duration::from_secs(1)),
            arrived: world.is_counted.then_some(at.as_secs()),
            completed: (world.is_counted || world.workers.is_some()).then_some(at.as_secs()),
        });
        vec![Seen {
            name: "jobs".to_owned(),
            reading: reading.ok_or(ReadError {
                text: format!("nobody answers request {}", world.looks.len()),
                code: Some(world.code.to_owned()),
                is_throttled: world.is_throttled,
            }),
        }]
    }

    fn workers(&self) -> Option<Workers> {
        self.0.lock().unwrap().workers.clone()
    }

    async fn woken(&mut self) -> Woken {
        loop {
            if let Some(woken) = self.wakes() {
                return woken;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Script {
    fn wakes(&self) -> Option<Woken> {
        let mut world = self.0.lock().unwrap();
        let once = world.wakes.take();
        once.or(world.is_announced.then_some(Woken::Announced))
    }
}

#[async_trait]
impl Target for Script {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        let world = self.0.lock().unwrap();
        let answered = u32::try_from(world.answered.len()).unwrap();
        let ready = if world.has_pages {
            answered
        } else {
            world.running
        };
        match world.is_countable {
            true => Ok(Instances {
                ready,
                starting: world.running - ready,
                ..Instances::default()
            }),
            false => Err(ActError::NotLinux),
        }
    }

    fn answered(&mut self, instances: &BTreeSet<u64>) {
        self.0.lock().unwrap().answered.extend(instances);
    }

    async fn set(&mut self, count: u32) -> Vec<Happened> {
        let mut world = self.0.lock().unwrap();
        if let Some(fails) = world.fails {
            if world.waited < world.waits {
                world.waited += 1;
                return vec![Happened::Waiting];
            }
            world.waited = 0;
            let error = ActError::Elsewhere(fails.to_owned());
            return vec![Happened::Failed(error)];
        }
        world.running = count;
        world.asked.push(count);
        Vec::new()
    }

    async fn changed(&mut self) -> Vec<Happened> {
        loop {
            let news = self.0.lock().unwrap().news.pop_front();
            if let Some(news) = news {
                return vec![news];
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// An agent that runs in paused time.
struct Running {
    world: Arc<Mutex<World>>,
    notes: Arc<Mutex<Vec<String>>>,
    memory: Memory,
    task: tokio::task::JoinHandle<()>,
    stop: tokio::sync::oneshot::Sender<()>,
}

fn early_end() -> Happened {
    let by = FailedStart::EndedEarly;
    let delay = Duration::from_secs(2);
    Happened::Delayed { by, delay }
}

const NOTHING: [u32; 0] = [];

const SETTINGS: &str =
    "rate_per_task = 1\ntasks_max = 1\ncool_down = '30s'\nidle_after = '60s'\nstart_delay = '10s'";

impl Running {
    fn start(backlog: Option<u64>, running: u32) -> Self {
        Self::start_with(
            SETTINGS,
            backlog,
            running,
            TimeOfWeek::new(Day::Monday, 12, 0),
        )
    }

    fn start_with(settings: &str, backlog: Option<u64>, running: u32, week: TimeOfWeek) -> Self {
        let world = World {
            backlog,
            running,
            is_countable: true,
            began: Some(Instant::now()),
            ..World::default()
        };
        let world = Arc::new(Mutex::new(world));
        let script = Script(world.clone());
        let group = group(settings, Path::new("/x"), "['x']");
        let mut agent = Agent::new(&group, script.clone(), script).unwrap();
        let memory = agent.memory();
        let notes = Arc::new(Mutex::new(Vec::new()));
        let told = notes.clone();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let tell = move |note: Note| {
                let text = match note {
                    Note::Decided(decision) => decision.to_string(),
                    Note::Unreadable { source, error } => format!("{source}: {error}"),
                    Note::Readable(source) => format!("{source} can be read again"),
                    Note::Uncounted(error) => format!("uncounted: {error}"),
                    Note::Counted => "counted again".to_owned(),
                    Note::SilentPage(_) | Note::NoSilentPage => note.to_string(),
                    Note::Happened(happened) => happened.to_string(),
                };
                told.lock().unwrap().push(text);
            };
            let stopped = async {
                let _ = stopped.await;
            };
            agent.run(move || week, tell, stopped).await;
        });
        Self {
            world,
            notes,
            memory,
            task,
            stop,
        }
    }

    async fn pass(&self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.world.lock().unwrap());
    }

    fn asked(&self) -> Vec<u32> {
        std::mem::take(&mut self.world.lock().unwrap().asked)
    }

    fn notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn it_looks_at_once_and_then_every_ten_seconds() {
    let agent = Running::start(Some(0), 0);
    agent.pass(35).await;
    let looks: Vec<u64> = agent
        .world
        .lock()
        .unwrap()
        .looks
        .iter()
        .map(Duration::as_secs)
        .collect();
    assert_eq!(looks, [0, 10, 20, 30]);
    agent.stop.send(()).unwrap();
    agent.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_backlog_starts_instances_and_an_empty_queue_stops_them() {
    let agent = Running::start(Some(0), 0);
    agent.pass(5).await;
    assert_eq!(agent.asked(), NOTHING);
    // 300 messages within half a minute, one a second for each instance.
    agent.change(|world| world.backlog = Some(300));
    agent.pass(10).await;
    assert_eq!(agent.asked(), [10]);
    agent.pass(60).await;
    assert_eq!(agent.asked(), NOTHING);
    agent.change(|world| world.backlog = Some(0));
    agent.pass(200).await;
    let asked = agent.asked();
    assert_eq!(asked.last(), Some(&0), "{asked:?}");
    assert!(asked.is_sorted_by(|a, b| a > b), "{asked:?}");
    let notes = agent.notes();
    let starts = notes
        .iter()
        .filter(|it| it.starts_with("start instances until there are 10: "));
    assert_eq!(starts.count(), 1, "{notes:#?}");
    assert!(
        notes
            .iter()
            .any(|it| it.starts_with("stop instances until there are 0: ")),
        "{notes:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn announced_work_causes_a_look_at_once_and_no_more_than_one_a_second() {
    let settings = format!("{SETTINGS}\nevery = '1h'");
    let week = TimeOfWeek::new(Day::Monday, 12, 0);
    let agent = Running::start_with(&settings, Some(0), 0, week);
    agent.pass(5).await;
    assert_eq!(agent.asked(), NOTHING);
    agent.change(|world| world.is_announced = true);
    agent.pass(1).await;
    // The queue was still empty when it looked.
    assert_eq!(agent.asked(), [1]);
    agent.pass(19).await;
    let looks = agent.world.lock().unwrap().looks.len();
    assert!((20..=22).contains(&looks), "{looks} looks");
}

/// What was announced while it connected was missed.
#[tokio::test(start_paused = true)]
async fn when_it_begins_to_hear_it_looks_at_once_and_starts_nothing_for_that() {
    let settings = format!("{SETTINGS}\nevery = '1h'");
    let week = TimeOfWeek::new(Day::Monday, 12, 0);
    for (backlog, expected) in [(0, &NOTHING[..]), (300, &[10])] {
        let agent = Running::start_with(&settings, Some(0), 0, week);
        sleep(Duration::from_millis(150)).await;
        agent.change(|world| {
            world.backlog = Some(backlog);
            world.wakes = Some(Woken::Listening);
        });
        sleep(Duration::from_millis(150)).await;
        assert_eq!(agent.world.lock().unwrap().looks.len(), 2);
        assert_eq!(agent.asked(), expected);
    }
}

/// An agent with a long time between looks, for which work was announced in second 5. The queue is empty.
async fn announced_once() -> Running {
    let settings = format!("{SETTINGS}\nevery = '1h'");
    let week = TimeOfWeek::new(Day::Monday, 12, 0);
    let agent = Running::start_with(&settings, Some(0), 0, week);
    agent.pass(5).await;
    agent.change(|world| world.wakes = Some(Woken::Announced));
    sleep(Duration::from_millis(150)).await;
    assert_eq!(agent.asked(), [1]);
    agent
}

#[tokio::test(start_paused = true)]
async fn work_that_comes_after_its_announcement_is_soon_seen() {
    let agent = announced_once().await;
    agent.pass(10).await;
    assert_eq!(agent.asked(), NOTHING);
    // It is 10 s late, and is seen within as much time.
    agent.change(|world| world.backlog = Some(300));
    agent.pass(10).await;
    assert_eq!(agent.asked(), [10]);
}

#[tokio::test(start_paused = true)]
async fn looks_after_an_announcement_are_few_and_stop_an_idle_instance() {
    let agent = announced_once().await;
    agent.pass(120).await;
    // It is idle after a minute.
    assert_eq!(agent.asked(), [0]);
    agent.pass(4 * 3600).await;
    let looks = agent.world.lock().unwrap().looks.clone();
    let looks: Vec<u64> = looks.iter().map(Duration::as_secs).collect();
    let expected = [
        0, 5, 6, 8, 12, 20, 36, 68, 132, 260, 516, 1028, 2052, 4100, 7700, 11_300,
    ];
    assert_eq!(looks, expected);
}

#[tokio::test(start_paused = true)]
async fn with_counters_several_instances_stop_at_once() {
    for (is_counted, expected) in [(true, &[2][..]), (false, &[5, 4, 3, 2][..])] {
        let agent = Running::start(Some(1), 6);
        agent.change(|world| world.is_counted = is_counted);
        agent.pass(155).await;
        let asked = agent.asked();
        // Without them, one stops in each cool-down.
        assert!(asked.starts_with(expected), "{is_counted}: {asked:?}");
        assert!(!is_counted || asked == expected, "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_told_once_although_its_numbers_change() {
    let settings = format!("{SETTINGS}\nminimum = 3");
    let week = TimeOfWeek::new(Day::Monday, 12, 0);
    let agent = Running::start_with(&settings, Some(20), 3, week);
    agent.pass(5).await;
    assert_eq!(agent.notes().len(), 1);
    for backlog in [21, 22, 23] {
        agent.change(|world| world.backlog = Some(backlog));
        agent.pass(10).await;
    }
    let notes = agent.notes();
    assert_eq!(notes, [] as [&str; 0]);
    assert_eq!(agent.asked(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_changes_nothing() {
    let agent = Running::start(None, 4);
    agent.pass(300).await;
    assert_eq!(agent.asked(), NOTHING);
    let notes = agent.notes();
    assert_eq!(notes.len(), 2, "{notes:#?}");
    assert_eq!(notes[0], "jobs: nobody answers request 1");
    assert!(notes[1].starts_with("hold 4 instances: "), "{notes:#?}");
    agent.change(|world| world.code = "another");
    agent.pass(10).await;
    assert_eq!(agent.notes(), ["jobs: nobody answers request 31"]);
    // Afterwards a whole cool-down begins.
    agent.change(|world| world.backlog = Some(0));
    agent.pass(25).await;
    assert_eq!(agent.asked(), NOTHING);
    assert_eq!(agent.notes()[0], "jobs can be read again");
    agent.pass(200).await;
    assert_eq!(agent.asked().last(), Some(&0));
}

#[tokio::test(start_paused = true)]
async fn instances_that_cannot_be_counted_are_left_alone() {
    let agent = Running::start(Some(1000), 1);
    agent.change(|world| world.is_countable = false);
    agent.pass(100).await;
    assert_eq!(agent.asked(), NOTHING);
    let notes = agent.notes();
    assert!(notes[0].starts_with("uncounted: "), "{notes:#?}");
    assert_eq!(notes.len(), 2, "each once: {notes:#?}");
    agent.change(|world| world.is_countable = true);
    agent.pass(10).await;
    assert_eq!(agent.asked(), [20]);
    assert_eq!(agent.notes()[0], "counted again");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_refuses_requests_gets_no_more_instances() {
    let agent = Running::start(Some(1000), 2);
    agent.change(|world| (world.is_throttled, world.backlog) = (true, None));
    agent.pass(100).await;
    assert_eq!(agent.asked(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_peak_of_the_week_starts_instances() {
    let peak = "time_zone = 'UTC'\npeaks = [{ days = ['mon'], from = '08:00', until = '09:00', instances = 7 }]";
    for (hour, asked) in [(8, &[7][..]), (10, &[])] {
        let week = TimeOfWeek::new(Day::Monday, hour, 30);
        let agent = Running::start_with(peak, Some(0), 0, week);
        agent.pass(25).await;
        assert_eq!(agent.asked(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn what_happens_between_looks_is_told_at_once() {
    let agent = Running::start(Some(0), 0);
    agent.pass(1).await;
    agent.notes();
    agent.change(|world| world.news.push_back(early_end()));
    agent.pass(1).await;
    assert_eq!(
        agent.notes(),
        ["an instance ended within 10 s: none starts for 2 s"]
    );
}

/// A SIGKILL that is due, and the end of an instance, do not wait for a source that says nothing.
#[tokio::test(start_paused = true)]
async fn what_happens_during_a_slow_look_is_told_at_once_too() {
    let agent = Running::start(Some(0), 0);
    agent.change(|world| world.answers_after = Duration::from_secs(25));
    agent.pass(12).await;
    assert_eq!(agent.world.lock().unwrap().looks.len(), 0);
    agent.change(|world| world.news.push_back(early_end()));
    agent.pass(1).await;
    assert_eq!(
        agent.notes(),
        ["an instance ended within 10 s: none starts for 2 s"]
    );
    // The look goes on, and is not begun again.
    agent.pass(15).await;
    assert_eq!(agent.world.lock().unwrap().looks.len(), 1);
}

/// What an operator is told at the agent's socket.
async fn asked(agent: &Running, path: &Path) -> Told {
    let socket = Socket::open(path).await.unwrap();
    tokio::select! {
        never = socket.answer("jobs", &agent.memory) => match never {},
        told = ask(path) => told.unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_agent_says_what_it_did_and_why() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("agent.sock");
    assert!(ask(&path).await.is_err(), "nobody listens");
    // The socket of an agent that was killed.
    drop(tokio::net::UnixListener::bind(&path).unwrap());
    assert!(ask(&path).await.is_err(), "nobody listens any more");
    let agent = Running::start(Some(0), 0);
    let told = agent.memory.tell("jobs");
    let first = "group jobs\n  the agent has run for 0 s, and has not looked yet\n";
    assert_eq!((told.is_whole, told.text.as_str()), (false, first));
    agent.pass(5).await;
    agent.change(|world| world.backlog = Some(300));
    agent.pass(10).await;
    let told = asked(&agent, &path).await;
    let expected = "group jobs\n  the agent has run for 15 s\n  look 2, 5 s ago:\n    jobs: 300 messages, the oldest is 1 s \
                    old\n    instances: 0 ready, 0 starting\n    start instances until there are 10: ";
    assert!(
        told.is_whole && told.text.starts_with(expected),
        "{}",
        told.text
    );
    let lines: Vec<&str> = told.text.lines().skip(6).collect();
    assert_eq!(lines[0], "  what it did since that look, the newest first:");
    assert!(
        lines[1].starts_with("    5 s ago: start instances until there are 10: "),
        "{lines:?}"
    );
    assert_eq!(lines[2], "  what it did before, the newest first:");
    assert!(
        lines[3].starts_with("    15 s ago: hold 0 instances: "),
        "{lines:?}"
    );
    assert_eq!(lines.len(), 4);
    // What cannot be read is said, and why nothing happens.
    agent.change(|world| world.backlog = None);
    agent.pass(10).await;
    let told = asked(&agent, &path).await;
    let expected = "  hold 10 instances: jobs cannot be read, so no instance stops\n";
    assert!(
        !told.is_whole && told.text.contains(expected),
        "{}",
        told.text
    );
    // The oldest are forgotten.
    for round in 0..30 {
        agent.change(|world| world.backlog = (round % 2 == 0).then_some(0));
        agent.pass(10).await;
    }
    let told = asked(&agent, &path).await;
    assert_eq!(told.text.matches(" ago: ").count(), 40, "{}", told.text);
    assert!(!path.exists(), "it is removed with its agent");
}

/// What instances say, of which so many answered.
fn workers(answered: u32, error: Option<&str>) -> Workers {
    Workers {
        answered,
        silent: usize::from(error.is_some()),
        error: error.map(str::to_owned),
        ..Workers::default()
    }
}

#[tokio::test(start_paused = true)]
async fn completions_are_those_of_all_instances_or_not_known() {
    let world = Arc::new(Mutex::new(World {
        backlog: Some(5),
        running: 3,
        began: Some(Instant::now()),
        ..World::default()
    }));
    let script = Script(world.clone());
    let group = group(SETTINGS, Path::new("/x"), "['x']");
    let mut agent = Agent::new(&group, script.clone(), script).unwrap();
    let mut look = async |is_countable, workers| {
        world.lock().unwrap().is_countable = is_countable;
        world.lock().unwrap().workers = Some(workers);
        let look = agent.look(|| TimeOfWeek::new(Day::Monday, 12, 0)).await;
        let reading = look.observation.sources[0].reading.unwrap();
        (reading.completed.is_some(), look.is_whole(), look.lines())
    };
    let (are_known, is_whole, lines) = look(true, workers(3, None)).await;
    assert!(are_known && is_whole, "{lines:?}");
    // One is overloaded, so nobody names it.
    let (are_known, is_whole, lines) = look(true, workers(2, None)).await;
    assert!(!are_known && is_whole, "{lines:?}");
    let expected = "metrics pages of instances: nothing is known of what they completed, because 2 answered, and 3 instances are ready";
    assert!(lines.contains(&expected.to_owned()), "{lines:?}");
    // One that nobody counts has no page, as far as is known.
    let (are_known, _, lines) = look(false, workers(3, None)).await;
    assert!(!are_known, "{lines:?}");
    let (_, is_whole, lines) = look(true, workers(2, Some("w3 is silent"))).await;
    assert!(!is_whole, "{lines:?}");
    let expected = "because 2 answered, and 1 did not: w3 is silent";
    assert!(lines.iter().any(|it| it.ends_with(expected)), "{lines:?}");
}

/// It counts at the same look, and what it completes is known.
#[tokio::test(start_paused = true)]
async fn an_instance_whose_page_answers_is_ready() {
    let agent = Running::start(Some(5), 2);
    let answers = |numbers: &[u64]| Workers {
        own: numbers.iter().copied().collect(),
        ..workers(u32::try_from(numbers.len()).unwrap(), None)
    };
    agent.change(|world| (world.has_pages, world.workers) = (true, Some(answers(&[]))));
    for (numbers, expected) in [
        (&[][..], "instances: 0 ready, 2 starting"),
        (&[7], "instances: 1 ready, 1 starting"),
        (&[7, 8], "instances: 2 ready, 0 starting"),
    ] {
        agent.change(|world| world.workers = Some(answers(numbers)));
        agent.pass(11).await;
        let told = agent.memory.tell("jobs");
        assert!(
            told.is_whole && told.text.contains(expected),
            "{}",
            told.text
        );
        assert!(!told.text.contains("nothing is known"), "{}", told.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_page_is_a_line_of_the_log_at_its_begin_and_end() {
    let agent = Running::start(Some(0), 1);
    agent.pass(5).await;
    agent.notes();
    for answers in [
        workers(0, Some("one")),
        workers(0, Some("two")),
        workers(1, None),
    ] {
        agent.change(|world| world.workers = Some(answers));
        agent.pass(10).await;
    }
    let notes = agent.notes();
    let notes: Vec<&String> = notes.iter().filter(|it| it.contains("be read")).collect();
    let expected = [
        "an instance cannot be read: one",
        "all instances can be read again",
    ];
    assert_eq!(notes, expected);
}

/// What fails at each look is told when it begins, and when it fails in another way.
#[tokio::test(start_paused = true)]
async fn a_change_that_fails_again_and_again_is_told_once() {
    let agent = Running::start(Some(300), 0);
    agent.change(|world| world.fails = Some("no permission"));
    agent.pass(95).await;
    let failed = |notes: &[String]| {
        let all = notes.iter().filter(|it| it.starts_with("no "));
        all.cloned().collect::<Vec<_>>()
    };
    assert_eq!(failed(&agent.notes()), ["no permission"]);
    agent.change(|world| world.fails = Some("no space"));
    agent.pass(30).await;
    assert_eq!(failed(&agent.notes()), ["no space"]);
    agent.change(|world| world.fails = None);
    agent.pass(10).await;
    assert_eq!(agent.asked(), [10]);
    agent.change(|world| {
        world.backlog = Some(3000);
        world.fails = Some("no space");
    });
    agent.pass(30).await;
    assert_eq!(failed(&agent.notes()), ["no space"]);
}

/// Between two tries, the pause after a failure leaves looks without one.
#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_told_once_although_it_waits_between_its_tries() {
    let agent = Running::start(Some(300), 0);
    agent.change(|world| (world.fails, world.waits, world.waited) = (Some("no program"), 2, 2));
    agent.pass(155).await;
    let notes = agent.notes();
    let of_starts = notes.iter().filter(|it| it.starts_with("no "));
    let of_starts: Vec<&String> = of_starts.collect();
    assert_eq!(of_starts, ["no program"]);
}

/// Instances that something else runs get no more tasks, and the reason is named.
#[tokio::test(start_paused = true)]
async fn busy_processors_of_instances_elsewhere_are_explained() {
    let agent = Running::start(Some(300), 3);
    agent.change(|world| {
        world.workers = Some(Workers {
            cpu: Some(0.95),
            tasks: Some(1),
            ..workers(3, None)
        });
    });
    agent.pass(15).await;
    let notes = agent.notes();
    let expected = "the processors of the instances are busy to 95 %";
    assert!(notes.iter().any(|it| it.contains(expected)), "{notes:#?}");
    let lines = agent.memory.tell("jobs").text;
    assert!(lines.contains(", processors used to 95 %"), "{lines}");
}
