use super::*;
use crate::FaultyStorage;

const LOG: LogId = LogId {
    cluster: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
    partition: 0,
};

const OWNER: Owner = Owner {
    log: LOG,
    epoch: Epoch::new(3),
    began: LogPosition::new(64),
};

fn claimed(durable: &[u64]) -> FaultyStorage {
    let storage = FaultyStorage::new();
    let mut proof = FoundProof::default().adopt(&storage, OWNER).unwrap();
    storage.sync_dir().unwrap();
    for durable in durable {
        proof.claim(LogPosition::new(*durable)).run().unwrap();
    }
    storage
}

fn durable(storage: &FaultyStorage) -> u64 {
    FoundProof::read(storage).unwrap().durable.as_u64()
}

#[test]
fn golden_claim() {
    let content = claimed(&[4096, 0x1_2345_6788]).content(NAME).unwrap();
    let hex: String = content[..CLAIM_SIZE]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let expected = "4b455750 524f4f46 02000000 00000000 ffeeddcc bbaa9988 77665544 33221100 \
                    02000000 00000000 88674523 01000000 03000000 00000000 40000000 00000000 d9d98acf";
    assert_eq!(hex, expected.replace(' ', ""));
    assert_eq!(content.len(), 8192);
}

#[test]
fn the_newest_claim_counts_and_is_continued() {
    assert_eq!(durable(&claimed(&[])), 0);
    let storage = claimed(&[4096, 8192]);
    assert_eq!(durable(&storage), 8192);
    let found = FoundProof::read(&storage).unwrap();
    let mut proof = found.adopt(&storage, OWNER).unwrap();
    proof.claim(LogPosition::new(9000)).run().unwrap();
    assert_eq!(durable(&storage), 9000);
    // The slot of the first claim was used again, and that of the second one is still there.
    storage.corrupt(NAME, 4096, &[0; 4096]);
    assert_eq!(durable(&storage), 8192);
}

#[test]
fn a_torn_or_damaged_claim_leaves_the_one_before_it() {
    let storage = claimed(&[4096, 8192]);
    for bit in 0..CLAIM_SIZE as u64 * 8 {
        let disk = storage.kill();
        disk.flip(NAME, bit / 8, 1 << (bit % 8));
        let found = FoundProof::read(&disk).unwrap();
        assert_eq!(found.durable.as_u64(), 4096, "bit {bit}");
        assert!(found.damage.is_none(), "it may be torn");
    }
    storage.flip(NAME, 3, 1);
    storage.flip(NAME, 4096 + 44, 1);
    let found = FoundProof::read(&storage).unwrap();
    assert_eq!(found.durable.as_u64(), 0);
    assert!(found.damage.is_some(), "only one of them can be torn");
}

#[test]
fn a_power_cut_while_a_claim_is_written_leaves_that_claim_or_the_one_before() {
    for seed in 0..200_u32 {
        let storage = claimed(&[4096, 8192]);
        let mut proof = FoundProof::read(&storage)
            .unwrap()
            .adopt(&storage, OWNER)
            .unwrap();
        storage.crash_after(u64::from(seed % 3));
        let _ = proof.claim(LogPosition::new(9000)).run();
        let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
        let after = storage.crash(&mut |below| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        });
        assert!([8192, 9000].contains(&durable(&after)), "seed {seed}");
    }
}

#[test]
fn a_newer_version_is_refused() {
    let storage = claimed(&[4096]);
    let mut bytes = storage.content(NAME).unwrap()[4096..4096 + 64].to_vec();
    bytes[8] = 7;
    let crc = crc32c::crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    storage.corrupt(NAME, 4096, &bytes);
    let error = FoundProof::read(&storage).err().unwrap();
    assert!(matches!(error, OpenError::NewerFormat { found: 7, .. }));
}

#[test]
fn a_proof_of_another_log_proves_nothing() {
    let storage = claimed(&[4096, 8192]);
    let found = || FoundProof::read(&storage).unwrap();
    for log in [None, Some(LOG)] {
        assert_eq!(found().of_log(log).durable.as_u64(), 8192);
    }
    let other = LogId { cluster: 7, ..LOG };
    let found = found().of_log(Some(other));
    assert_eq!(found.durable.as_u64(), 0);
    assert!(found.damage.is_some());
    let mut proof = found
        .adopt(
            &storage,
            Owner {
                log: other,
                ..OWNER
            },
        )
        .unwrap();
    proof.claim(LogPosition::new(100)).run().unwrap();
    assert_eq!(FoundProof::read(&storage).unwrap().log, Some(other));
}

#[test]
fn a_damaged_proof_is_made_anew() {
    let storage = claimed(&[4096, 8192]);
    storage.flip(NAME, 3, 1);
    storage.flip(NAME, 4096 + 3, 1);
    let found = FoundProof::read(&storage).unwrap();
    let mut proof = found.adopt(&storage, OWNER).unwrap();
    proof.claim(LogPosition::new(100)).run().unwrap();
    assert_eq!(durable(&storage), 100);
}
