//! Charges as files of an object store, each transaction once.
//!
//! The name of a file says what it has: `parts/PACKAGE/INDEX` the charges of one part, `packages/PACKAGE` those of a
//! whole package. A part is the same in every repetition, so a repetition writes the same file again. When all parts of
//! a package are there, they become one file, and the parts are removed. From then on the package is done, and parts
//! that come again are dropped. A controller that dies in between leaves either all parts or the package.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Name;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode};

use crate::message::{Charged, Part};
use crate::transaction::Charge;

/// The content of a file, of a kind that can be chosen.
pub trait Format: Send + Sync + 'static {
    /// The ending of names.
    const ENDING: &'static str;

    /// The bytes of a file. They are the same for the same charges.
    fn encode(charges: &[Charge]) -> Result<Bytes, FormatError>;

    /// The charges of a file, in the same order.
    fn decode(bytes: Bytes) -> Result<Vec<Charge>, FormatError>;
}

/// A file cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("charges and their file do not fit together")]
pub struct FormatError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// One line of JSON for each charge.
#[derive(Clone, Copy, Debug)]
pub struct Lines;

impl Format for Lines {
    const ENDING: &'static str = "jsonl";

    fn encode(charges: &[Charge]) -> Result<Bytes, FormatError> {
        let mut out = Vec::with_capacity(charges.len() * 32);
        for charge in charges {
            serde_json::to_writer(&mut out, charge).map_err(|error| FormatError(error.into()))?;
            out.push(b'\n');
        }
        Ok(out.into())
    }

    fn decode(bytes: Bytes) -> Result<Vec<Charge>, FormatError> {
        let lines = bytes.split(|it| *it == b'\n').filter(|it| !it.is_empty());
        let read = lines.map(serde_json::from_slice);
        let read: Result<Vec<Charge>, _> = read.collect();
        read.map_err(|error| FormatError(error.into()))
    }
}

/// The file that has the ending of the others.
const FORMAT: &str = "format";

/// Why the archive did not do something.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The object store failed.
    #[error("the archive does not answer")]
    Store(#[from] Error),
    /// A file is not what was written.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The files are of another format.
    #[error(
        "it has files of the format {found}, and this program writes {own}: use another folder for data"
    )]
    OtherFormat {
        /// Their ending.
        found: String,
        /// The ending of this program's files.
        own: &'static str,
    },
    /// Parts vanished while they became a package that is not there.
    #[error("part {index} of package {package} vanished; the message is tried again")]
    Vanished {
        /// The package.
        package: u32,
        /// The part.
        index: u32,
    },
}

/// The files.
#[derive(Debug)]
pub struct Archive<F> {
    store: Arc<dyn ObjectStore>,
    format: std::marker::PhantomData<fn() -> F>,
}

impl<F> Clone for Archive<F> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            format: self.format,
        }
    }
}

impl<F: Format> Archive<F> {
    /// In any store of `object_store`. The first program writes the format into it, and others of another format are
    /// refused: they would not see each other's files.
    pub async fn open(store: Arc<dyn ObjectStore>) -> Result<Self, ArchiveError> {
        let format = std::marker::PhantomData;
        let archive = Self { store, format };
        let name = Name::from(FORMAT);
        let found = match archive.store.get(&name).await {
            Ok(found) => found.bytes().await?,
            Err(Error::NotFound { .. }) => archive.first(&name).await?,
            Err(error) => return Err(error.into()),
        };
        match found == F::ENDING.as_bytes() {
            true => Ok(archive),
            false => Err(ArchiveError::OtherFormat {
                found: String::from_utf8_lossy(&found).into_owned(),
                own: F::ENDING,
            }),
        }
    }

    /// Writes the format, unless the files have another one, and returns what it is now.
    async fn first(&self, name: &Name) -> Result<Bytes, ArchiveError> {
        for folder in ["parts", "packages"] {
            let files = self.list(&Name::from(folder)).await?;
            let mut endings = files.iter().filter_map(Name::extension);
            if let Some(other) = endings.find(|it| *it != F::ENDING) {
                return Ok(Bytes::copy_from_slice(other.as_bytes()));
            }
        }
        let own = Bytes::from_static(F::ENDING.as_bytes());
        let create = PutMode::Create.into();
        match self.store.put_opts(name, own.clone().into(), create).await {
            Ok(_) => Ok(own),
            // Another program was first.
            Err(Error::AlreadyExists { .. }) => Ok(self.store.get(name).await?.bytes().await?),
            Err(error) => Err(error.into()),
        }
    }

    /// In a folder, which is created. A file is on disk when it was written.
    pub async fn folder(path: &Path) -> Result<Self, ArchiveError> {
        let failed = |source: std::io::Error| Error::Generic {
            store: "folder",
            source: source.into(),
        };
        std::fs::create_dir_all(path).map_err(failed)?;
        let store = LocalFileSystem::new_with_prefix(path)?.with_fsync(true);
        Self::open(Arc::new(store)).await
    }

    fn part_name(package: u32, index: u32) -> Name {
        Name::from(format!("parts/{package:06}/{index:06}.{}", F::ENDING))
    }

    fn package_name(package: u32) -> Name {
        Name::from(format!("packages/{package:06}.{}", F::ENDING))
    }

    /// Takes in the charges of a part, once however often it comes. Returns whether they completed the package.
    pub async fn collect(&self, charged: &Charged) -> Result<bool, ArchiveError> {
        let package = charged.part.package;
        if self.is_complete(package).await? {
            self.remove_parts(package).await?;
            return Ok(false);
        }
        self.keep(charged).await
    }

    /// Keeps a part of a package that was not complete a moment ago.
    async fn keep(&self, charged: &Charged) -> Result<bool, ArchiveError> {
        let Part {
            package,
            index,
            count,
        } = charged.part;
        let bytes = F::encode(&charged.charges)?;
        let name = Self::part_name(package, index);
        self.store.put(&name, bytes.into()).await?;
        if self.parts(package).await?.len() < usize::try_from(count).unwrap_or(usize::MAX) {
            // It may be one that came twice, and the others went into the package meanwhile.
            if self.is_complete(package).await? {
                self.remove_parts(package).await?;
            }
            return Ok(false);
        }
        self.complete(package, count).await
    }

    /// Makes one file of all parts.
    async fn complete(&self, package: u32, count: u32) -> Result<bool, ArchiveError> {
        let mut charges = Vec::new();
        for index in 0..count {
            match self.read(&Self::part_name(package, index)).await? {
                Some(mut part) => charges.append(&mut part),
                // Another controller has done it meanwhile.
                None if self.is_complete(package).await? => return Ok(false),
                None => return Err(ArchiveError::Vanished { package, index }),
            }
        }
        let bytes = F::encode(&charges)?;
        let name = Self::package_name(package);
        self.store.put(&name, bytes.into()).await?;
        self.remove_parts(package).await?;
        Ok(true)
    }

    /// Whether all of a package is in one file.
    pub async fn is_complete(&self, package: u32) -> Result<bool, ArchiveError> {
        Ok(self.complete_at_ms(package).await?.is_some())
    }

    /// The charges of a complete package.
    pub async fn package(&self, package: u32) -> Result<Option<Vec<Charge>>, ArchiveError> {
        self.read(&Self::package_name(package)).await
    }

    /// When a package was complete, in milliseconds since 1970 by the clock of the store.
    pub async fn complete_at_ms(&self, package: u32) -> Result<Option<i64>, ArchiveError> {
        match self.store.head(&Self::package_name(package)).await {
            Ok(found) => Ok(Some(found.last_modified.timestamp_millis())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The numbers of all complete packages.
    pub async fn packages(&self) -> Result<Vec<u32>, ArchiveError> {
        let listed = self.list(&Name::from("packages")).await?;
        let ending = format!(".{}", F::ENDING);
        let number = |name: Name| name.filename()?.strip_suffix(&ending)?.parse().ok();
        let mut numbers: Vec<u32> = listed.into_iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// How many parts wait for the others of their packages.
    pub async fn waiting_parts(&self) -> Result<usize, ArchiveError> {
        Ok(self.list(&Name::from("parts")).await?.len())
    }

    async fn parts(&self, package: u32) -> Result<Vec<Name>, ArchiveError> {
        self.list(&Name::from(format!("parts/{package:06}"))).await
    }

    async fn remove_parts(&self, package: u32) -> Result<(), ArchiveError> {
        for name in self.parts(package).await? {
            match self.store.delete(&name).await {
                // Another controller has removed it.
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn list(&self, below: &Name) -> Result<Vec<Name>, ArchiveError> {
        let listed = self.store.list(Some(below));
        let names = listed.map_ok(|it| it.location).try_collect().await;
        match names {
            Ok(names) => Ok(names),
            // A file was removed while the folder was read.
            Err(Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    async fn read(&self, name: &Name) -> Result<Option<Vec<Charge>>, ArchiveError> {
        match self.store.get(name).await {
            Ok(found) => Ok(Some(F::decode(found.bytes().await?)?)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::message::Package;
    use crate::transaction::package;

    /// The results of a package of 25 transactions in three parts, and all of its charges.
    fn results(number: u32) -> (Vec<Charged>, Vec<Charge>) {
        let package = Package {
            number,
            part_size: 10,
            transactions: package(1, number, 25),
        };
        let items = package.split();
        let results: Vec<Charged> = items.iter().map(|it| it.charge().unwrap()).collect();
        let charges = results.iter().flat_map(|it| it.charges.clone()).collect();
        (results, charges)
    }

    async fn archive() -> (Archive<Lines>, Arc<InMemory>) {
        let store = Arc::new(InMemory::new());
        (Archive::open(store.clone()).await.unwrap(), store)
    }

    /// Lines with another ending.
    #[derive(Debug)]
    struct Other;

    impl Format for Other {
        const ENDING: &'static str = "other";

        fn encode(charges: &[Charge]) -> Result<Bytes, FormatError> {
            Lines::encode(charges)
        }

        fn decode(bytes: Bytes) -> Result<Vec<Charge>, FormatError> {
            Lines::decode(bytes)
        }
    }

    #[tokio::test]
    async fn one_folder_has_one_format() {
        let folder = tempfile::tempdir().unwrap();
        let (results, charges) = results(1);
        let lines = Archive::<Lines>::folder(folder.path()).await.unwrap();
        lines.collect(&results[0]).await.unwrap();
        let refused = |error: ArchiveError| {
            let error = error.to_string();
            assert!(
                error.contains("of the format jsonl, and this program writes other"),
                "{error}"
            );
        };
        refused(Archive::<Other>::folder(folder.path()).await.unwrap_err());
        // What was half collected goes on.
        let lines = Archive::<Lines>::folder(folder.path()).await.unwrap();
        for result in &results[1..] {
            lines.collect(result).await.unwrap();
        }
        assert_eq!(lines.package(1).await.unwrap(), Some(charges));
        // Also without the file of the format, which earlier versions did not write.
        std::fs::remove_file(folder.path().join(FORMAT)).unwrap();
        refused(Archive::<Other>::folder(folder.path()).await.unwrap_err());
        Archive::<Lines>::folder(folder.path()).await.unwrap();
    }

    #[tokio::test]
    async fn a_package_is_complete_with_its_last_part_in_any_order() {
        let (archive, _) = archive().await;
        let (results, charges) = results(7);
        for (index, completes) in [(2, false), (0, false), (0, false), (1, true)] {
            assert_eq!(archive.package(7).await.unwrap(), None);
            assert_eq!(archive.collect(&results[index]).await.unwrap(), completes);
        }
        assert_eq!(archive.package(7).await.unwrap(), Some(charges));
        assert_eq!(archive.packages().await.unwrap(), [7]);
        assert_eq!(archive.waiting_parts().await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_part_of_a_complete_package_changes_nothing() {
        let (archive, _) = archive().await;
        let (results, charges) = results(7);
        for result in results.iter().chain(&results) {
            archive.collect(result).await.unwrap();
        }
        assert_eq!(archive.package(7).await.unwrap(), Some(charges));
        assert_eq!(archive.waiting_parts().await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_controller_that_dies_between_package_and_parts_leaves_work_that_is_finished_later() {
        let (archive, store) = archive().await;
        let (results, charges) = results(7);
        for result in &results[..2] {
            archive.collect(result).await.unwrap();
        }
        // The third one came, and its controller died after it wrote the package.
        let bytes = Lines::encode(&charges).unwrap();
        let name = Name::from("packages/000007.jsonl");
        store.put(&name, bytes.into()).await.unwrap();
        assert_eq!(archive.waiting_parts().await.unwrap(), 2);
        // Its message comes back.
        assert!(!archive.collect(&results[2]).await.unwrap());
        assert_eq!(archive.waiting_parts().await.unwrap(), 0);
        assert_eq!(archive.package(7).await.unwrap(), Some(charges));
    }

    #[tokio::test]
    async fn a_part_that_comes_while_its_package_is_completed_does_not_stay() {
        let (archive, _) = archive().await;
        let (results, _) = results(7);
        for result in &results {
            archive.collect(result).await.unwrap();
        }
        assert!(!archive.keep(&results[0]).await.unwrap());
        assert_eq!(archive.waiting_parts().await.unwrap(), 0);
    }

    #[tokio::test]
    async fn two_controllers_complete_a_package_together() {
        let folder = tempfile::tempdir().unwrap();
        let (results, charges) = results(1);
        let one = Archive::<Lines>::folder(folder.path()).await.unwrap();
        let two = Archive::<Lines>::folder(folder.path()).await.unwrap();
        one.collect(&results[0]).await.unwrap();
        let both = tokio::join!(one.collect(&results[1]), two.collect(&results[2]));
        // At least one of them saw all parts; either may have lost the race for parts, and then tries again.
        for (result, done) in [(1, both.0), (2, both.1)] {
            if done.is_err() {
                one.collect(&results[result]).await.unwrap();
            }
        }
        assert_eq!(two.package(1).await.unwrap(), Some(charges));
        assert_eq!(two.waiting_parts().await.unwrap(), 0);
    }
}
