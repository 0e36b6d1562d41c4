//! A store in memory with a clock of its own, which can fail and stand still.

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use kew_claim_check::object_store::memory::InMemory;
use kew_claim_check::object_store::path::Path;
use kew_claim_check::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use kew_claim_check::{ClaimCheck, ClaimCheckOptions, ClaimStore};

use crate::fake::Service;

/// How the store answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    /// Every operation fails.
    Failing,
    /// So many operations fail, and none after them.
    FailingTimes(u32),
    /// No operation has the rights that it needs.
    Forbidden,
    /// No operation ends.
    Silent,
}

/// How many entries the answer to a list request has.
const PAGE: usize = 10;

#[derive(Debug, Default)]
struct State {
    mood: Mood,
    /// Since the start.
    elapsed: Duration,
    stored_after: HashMap<Path, Duration>,
    operations: u32,
    list_requests: u32,
    /// Whether lists have all marks at their end. A file system lists in any order.
    has_marks_last: bool,
    /// Where a crash can happen.
    points: Option<Arc<Service>>,
}

/// All clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct TestStore {
    objects: Arc<InMemory>,
    began: SystemTime,
    state: Arc<Mutex<State>>,
}

impl TestStore {
    pub(crate) fn new() -> Self {
        Self {
            objects: Arc::new(InMemory::new()),
            began: SystemTime::now(),
            state: Arc::default(),
        }
    }

    /// Options with which data of a few hundred bytes is stored.
    pub(crate) fn options() -> ClaimCheckOptions {
        ClaimCheckOptions {
            message_size_max_bytes: 400,
            size_max_bytes: 1 << 20,
            // Objects are swept after 30 days.
            message_life: Some(Duration::from_hours(29 * 24 - 1)),
            send_time_max: Duration::from_hours(24),
            ..ClaimCheckOptions::default()
        }
    }

    /// Operations can be stopped before and after their effect, as requests to the service can.
    pub(crate) fn crash_with(&self, service: &Arc<Service>) {
        self.state.lock().unwrap().points = Some(service.clone());
    }

    pub(crate) fn claim_check(&self) -> ClaimCheck {
        ClaimCheck::new(ClaimStore::new(self.clone()), Self::options()).unwrap()
    }

    pub(crate) fn set_mood(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }

    /// Lets time pass, on the clock of the store.
    pub(crate) fn pass(&self, time: Duration) {
        self.state.lock().unwrap().elapsed += time;
    }

    pub(crate) fn operations(&self) -> u32 {
        self.state.lock().unwrap().operations
    }

    /// How many pages of lists were asked for.
    pub(crate) fn list_requests(&self) -> u32 {
        self.state.lock().unwrap().list_requests
    }

    pub(crate) fn list_marks_last(&self) {
        self.state.lock().unwrap().has_marks_last = true;
    }

    /// The names of all objects.
    pub(crate) async fn names(&self) -> Vec<Path> {
        let listed = self.objects.list(None);
        listed.map(|found| found.unwrap().location).collect().await
    }

    /// The only object.
    pub(crate) async fn only(&self) -> (Path, Vec<u8>) {
        let names = self.names().await;
        let [name] = &names[..] else {
            panic!("{names:?}")
        };
        let found = self.objects.get(name).await.unwrap();
        (name.clone(), found.bytes().await.unwrap().to_vec())
    }

    pub(crate) async fn replace(&self, name: &Path, bytes: Vec<u8>) {
        self.objects.put(name, bytes.into()).await.unwrap();
    }

    pub(crate) async fn remove(&self, name: &Path) {
        self.objects.delete(name).await.unwrap();
    }

    /// Each operation waits once before it has an effect, and once after it.
    async fn operate(&self) -> Result<()> {
        let mood = {
            let mut state = self.state.lock().unwrap();
            state.operations += 1;
            let mood = state.mood;
            if let Mood::FailingTimes(count) = mood {
                state.mood = match count {
                    0 | 1 => Mood::Well,
                    _ => Mood::FailingTimes(count - 1),
                };
            }
            mood
        };
        self.point().await;
        match mood {
            Mood::Well => Ok(()),
            Mood::Failing | Mood::FailingTimes(_) => Err(Error::Generic {
                store: "test",
                source: "it fails".into(),
            }),
            Mood::Forbidden => Err(Error::PermissionDenied {
                path: String::new(),
                source: "no rights".into(),
            }),
            Mood::Silent => std::future::pending().await,
        }
    }

    async fn point(&self) {
        tokio::task::yield_now().await;
        let points = self.state.lock().unwrap().points.clone();
        if let Some(service) = points {
            service.point().await;
        }
    }

    fn dated(&self, mut meta: ObjectMeta) -> ObjectMeta {
        let state = self.state.lock().unwrap();
        let after = state.stored_after.get(&meta.location);
        meta.last_modified = (self.began + after.copied().unwrap_or_default()).into();
        meta
    }
}

impl fmt::Display for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("test")
    }
}

#[async_trait]
impl ObjectStore for TestStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.operate().await?;
        let put = self.objects.put_opts(location, payload, options).await?;
        {
            let mut state = self.state.lock().unwrap();
            let elapsed = state.elapsed;
            state.stored_after.insert(location.clone(), elapsed);
        }
        self.point().await;
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        panic!("objects are written whole")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.operate().await?;
        let mut found = self.objects.get_opts(location, options).await?;
        found.meta = self.dated(found.meta);
        self.point().await;
        Ok(found)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |location: Result<Path>| {
            let store = store.clone();
            async move {
                let location = location?;
                store.operate().await?;
                store.objects.delete(&location).await?;
                store.point().await;
                Ok(location)
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let store = self.clone();
        let listed = self.objects.list(prefix);
        let date = move |(index, found): (usize, Result<ObjectMeta>)| {
            let store = store.clone();
            async move {
                if index.is_multiple_of(PAGE) {
                    store.state.lock().unwrap().list_requests += 1;
                }
                store.operate().await?;
                Ok(store.dated(found?))
            }
        };
        if !self.state.lock().unwrap().has_marks_last {
            return listed.enumerate().then(date).boxed();
        }
        let is_mark = |found: &Result<ObjectMeta>| {
            let found = found.as_ref();
            found.is_ok_and(|found| found.location.extension() == Some("kept"))
        };
        let marks = self.objects.list(prefix);
        let marks = marks.filter(move |found| ready(is_mark(found)));
        let others = listed.filter(move |found| ready(!is_mark(found)));
        others.chain(marks).enumerate().then(date).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.state.lock().unwrap().list_requests += 1;
        self.operate().await?;
        let mut listed = self.objects.list_with_delimiter(prefix).await?;
        let dated = listed.objects.into_iter().map(|found| self.dated(found));
        listed.objects = dated.collect();
        Ok(listed)
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        panic!("objects are not copied")
    }
}
