//! Tests of the codec: objects are read back as written, only in their own place, and hostile bytes are refused.

use std::sync::Arc;

use proptest::prelude::*;

use super::claim::{Claim, ClaimCause};
use super::content;
use super::head::{HeadFault, LINE_BYTES_MAX};
use super::identity::Identity;
use super::manifest::{ContentRange, Manifest, PartInfo};
use super::name::{PART_MAX, SLOT_MAX};
use super::payload::{self, Assembler, Packer};
use super::slot::{self, Link, SlotBody};
use super::*;
use crate::base::entropy::SeededEntropy;
use crate::base::id::Ulid;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;

const TIME: Timestamp = Timestamp::from_millis(1_700_000_000_005);

fn sealer(encrypts: bool) -> Sealer {
    Sealer::new(Arc::new(MasterKey::new(&[7; 32])), Ulid([1; 16]), encrypts)
}

fn head(kind: Kind, number: u64) -> Head {
    Head { kind, number, epoch: 3, holder: "01J9Z3K5V6QW8XR2T4Y7B1C0DE".parse().unwrap(), time: TIME }
}

fn link(number: u64) -> Link {
    Link { head: head(Kind::Beat, number), row_format: 5, previous: [9; 32] }
}

fn bodies() -> [SlotBody; 4] {
    let (program, cause) = ("1.2.3".to_owned(), ClaimCause::Promotion);
    let claim = Claim { program, cause, lease_millis: 5000, sequence: 42, place: 7 };
    [SlotBody::Claim(claim), SlotBody::Batches(b"rows".repeat(100)), SlotBody::Beat, SlotBody::Release]
}

#[test]
fn the_first_line_is_readable_and_contains_only_the_contracts_fields() {
    let bytes = link(12).seal(&SlotBody::Release, &sealer(true), &SeededEntropy::new(1));
    let line = "postrider replica 1 release 12 3 01J9Z3K5V6QW8XR2T4Y7B1C0DE 2023-11-14T22:13:20.005+00:00\n";
    assert!(bytes.starts_with(line.as_bytes()), "{}", String::from_utf8_lossy(&bytes));
}

#[test]
fn names_match_the_contract_and_sort_by_number() {
    let bucket = Timestamp::from_millis(1_700_000_400_000);
    let names = [
        (ObjectName::Store, "store"),
        (ObjectName::Slot(1), "log/000000000001"),
        (ObjectName::Part { slot: 7, part: 2 }, "base/000000000007/000002"),
        (ObjectName::Manifest(7), "base/000000000007/manifest"),
        (ObjectName::Content { bucket, segment: 4, offset: 5 }, "content/1700000400000/000004/000000000000005"),
        (ObjectName::Key { bucket, segment: 4 }, "keys/1700000400000/000004"),
        (ObjectName::Probe("abc123".to_owned()), "probe/abc123"),
    ];
    for (name, text) in names {
        assert_eq!(name.to_string(), text);
        assert_eq!(text.parse(), Ok(name));
    }
    assert!(ObjectName::Slot(9).to_string() < ObjectName::Slot(10).to_string());
    for strange in [
        "",
        "log",
        "log/1",
        "log/+00000000001",
        "log/0000000000001",
        "log/000000000001/x",
        "base/000000000007/000000",
        "store/",
        "probe/A",
        "probe/",
        "probe/../store",
        "keys/1700000400000",
        "content/1/2/3",
    ] {
        assert!(strange.parse::<ObjectName>().is_err(), "{strange}");
    }
}

#[test]
fn a_slot_of_each_kind_decodes_as_encoded() {
    for encrypts in [true, false] {
        for (number, body) in (1..).zip(bodies()) {
            let bytes = link(number).seal(&body, &sealer(encrypts), &SeededEntropy::new(number));
            // The reader opens it under any configuration of the writer.
            let (found, opened) = Link::open(number, &bytes, &sealer(!encrypts)).unwrap();
            assert_eq!((found.head.kind, &opened), (body.kind(), &body));
            assert_eq!((found.row_format, found.previous), (5, [9; 32]));
            assert_eq!(Link::read(number, &bytes).unwrap(), found, "the chain needs no key");
        }
    }
}

#[test]
fn an_object_opens_only_under_its_own_name() {
    let entropy = SeededEntropy::new(2);
    for encrypts in [true, false] {
        let own = sealer(encrypts);
        let bytes = link(5).seal(&SlotBody::Beat, &own, &entropy);
        assert_eq!(Link::open(6, &bytes, &own), Err(ObjectFault::Misplaced));
        let renamed = [&b"postrider replica 1 beat 6"[..], &bytes[b"postrider replica 1 beat 5".len()..]].concat();
        assert_eq!(Link::open(6, &renamed, &own), Err(ObjectFault::Unsealable));
        let other_store = Sealer::new(Arc::new(MasterKey::new(&[7; 32])), Ulid([2; 16]), encrypts);
        assert_eq!(Link::open(5, &bytes, &other_store), Err(ObjectFault::Unsealable));
        let other_key = Sealer::new(Arc::new(MasterKey::new(&[8; 32])), Ulid([1; 16]), encrypts);
        assert_eq!(Link::open(5, &bytes, &other_key), Err(ObjectFault::Unsealable));
        assert!(content::open_piece(&ObjectName::Slot(5), &bytes, &own).is_err());
    }
}

#[test]
fn any_flipped_bit_or_truncation_is_detected() {
    for encrypts in [true, false] {
        let own = sealer(encrypts);
        let bytes = link(5).seal(&bodies()[1], &own, &SeededEntropy::new(3));
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1 << (place % 8);
            assert!(Link::open(5, &damaged, &own).is_err(), "byte {place}");
            assert!(Link::open(5, &bytes[..place], &own).is_err(), "{place} bytes");
        }
        assert!(Link::open(5, &[&bytes[..], b"x"].concat(), &own).is_err());
    }
}

#[test]
fn sealed_objects_do_not_reveal_their_body() {
    let piece = b"ada@example.com".repeat(20);
    let name = ObjectName::Content { bucket: TIME, segment: 1, offset: 0 };
    let shows = |bytes: &[u8]| bytes.windows(11).any(|window| window == b"ada@example");
    let seal = |encrypts| {
        content::seal_piece(&name, head(Kind::Content, 1), &piece, &sealer(encrypts), &SeededEntropy::new(4))
    };
    assert!(!shows(&seal(true)) && shows(&seal(false)));
    assert_eq!(content::open_piece(&name, &seal(true), &sealer(true)).unwrap().expose(), piece);
    let key = ObjectName::Key { bucket: TIME, segment: 1 };
    let bytes = content::seal_key(&key, head(Kind::Key, 1), &piece, &sealer(false), &SeededEntropy::new(5));
    assert!(!shows(&bytes), "keys are sealed in every configuration");
    assert_eq!(content::open_key(&key, &bytes, &sealer(true)).unwrap().expose(), piece);
    assert_eq!(content::open_key(&key, b"", &sealer(true)).unwrap_err(), ObjectFault::Empty);
    let part = ObjectName::Part { slot: 3, part: 1 };
    let bytes = content::seal_part(&part, head(Kind::Part, 3), &piece, &sealer(true), &SeededEntropy::new(6));
    assert_eq!(content::open_part(&part, &bytes, &sealer(true)).unwrap().expose(), piece);
}

#[test]
fn two_writers_of_one_slot_use_different_keystreams() {
    let body = SlotBody::Batches(vec![0; 64]);
    let seal = |seed| link(5).seal(&body, &sealer(true), &SeededEntropy::new(seed));
    assert_ne!(seal(1), seal(2));
    assert_eq!(seal(1), seal(1), "the same randomness gives the same bytes");
}

#[test]
fn a_manifest_decodes_as_encoded() {
    let content = vec![ContentRange { bucket: TIME, segment: 1, offset: 16, length: 99 }];
    let parts = vec![PartInfo { bytes: 10, sha256: [1; 32] }, PartInfo { bytes: 20, sha256: [2; 32] }];
    let (slot_sha256, sequence, taken_at) = ([3; 32], 77, TIME);
    let manifest = Manifest { slot: 9, slot_sha256, sequence, taken_at, row_format: 5, rows: 4, parts, content };
    let bytes = manifest.seal(head(Kind::Beat, 0), &sealer(true), &SeededEntropy::new(7));
    assert!(bytes.starts_with(b"postrider replica 1 manifest 9 3 "));
    assert_eq!(Manifest::open(9, &bytes, &sealer(true)), Ok(manifest));
    assert!(Manifest::open(8, &bytes, &sealer(true)).is_err());
}

#[test]
fn the_identity_is_readable_and_proves_the_master_key() {
    let master = MasterKey::new(&[7; 32]);
    let identity = Identity { store: Ulid([1; 16]), row_format: 5, head: head(Kind::Store, 0) };
    let bytes = identity.encode(&master);
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.starts_with("postrider replica 1 store 0 3 01J9"), "{text}");
    assert_eq!(Identity::decode(&bytes, &master), Ok(identity));
    assert_eq!(Identity::decode(&bytes, &MasterKey::new(&[8; 32])), Err(ObjectFault::Unsealable));
    let other = text.replace("\"row_format\":5", "\"row_format\":6");
    assert_eq!(Identity::decode(other.as_bytes(), &master), Err(ObjectFault::Unsealable));
}

#[test]
fn a_later_format_is_reported_and_other_files_are_rejected() {
    let decode = |text: &str| Head::decode(text.as_bytes()).map(drop);
    assert_eq!(decode("postrider replica 2 anything at all\n"), Err(HeadFault::Newer(2)));
    for strange in [
        "",
        "postrider backup 1\n",
        "postrider replica 0 beat 1 1 a 2023-11-14T22:13:20.005+00:00\n",
        "postrider replica 1 beat 01 1 a 2023-11-14T22:13:20.005+00:00\n",
        "postrider replica 1 beat 1 1 a 2023-11-14T22:13:20.005Z\n",
        "postrider replica 1 beat 1 1 a b 2023-11-14T22:13:20.005+00:00\n",
        "postrider replica 1 beat 1 1 a 2023-11-14T22:13:20.005+00:00",
        "postrider replica 1 other 1 1 a 2023-11-14T22:13:20.005+00:00\n",
        "postrider replica 4294967296 beat\n",
    ] {
        assert_eq!(decode(strange), Err(HeadFault::Strange), "{strange}");
    }
    let long = format!("postrider replica 1 {}\n", "x".repeat(LINE_BYTES_MAX));
    assert_eq!(decode(&long), Err(HeadFault::Strange), "the search for a line end is bounded");
}

#[test]
fn a_slot_that_decompresses_beyond_its_limit_is_refused() {
    let (own, entropy) = (sealer(true), SeededEntropy::new(8));
    let bomb = SlotBody::Batches(vec![0; payload::PAYLOAD_BYTES_MAX + 1]);
    let bytes = link(5).seal(&bomb, &own, &entropy);
    assert!(bytes.len() < 64 << 10);
    assert_eq!(Link::open(5, &bytes, &own), Err(ObjectFault::Damaged("its body can't be read")));
    let largest = SlotBody::Batches(vec![0; payload::PAYLOAD_BYTES_MAX]);
    assert!(Link::open(5, &link(5).seal(&largest, &own, &entropy), &own).is_ok());
}

#[test]
fn a_full_slot_that_does_not_compress_has_at_most_32_mib() {
    let mut noise = vec![0; payload::PAYLOAD_BYTES_MAX];
    crate::base::entropy::Entropy::fill(&SeededEntropy::new(9), &mut noise);
    let bytes = link(SLOT_MAX).seal(&SlotBody::Batches(noise), &sealer(true), &SeededEntropy::new(10));
    assert!(bytes.len() <= 32 << 20, "{}", bytes.len());
}

/// Packs batches into payloads of `limit` bytes, as a shipper does.
fn pack(limit: usize, batches: &[(u64, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut packer = Packer::with_limit(limit);
    let mut payloads = Vec::new();
    for (sequence, batch) in batches {
        let mut from = 0;
        while from < batch.len() {
            match packer.batch(*sequence, TIME, batch, from) {
                0 => payloads.push(packer.finish()),
                taken => from += taken,
            }
        }
    }
    if !packer.is_empty() {
        payloads.push(packer.finish());
    }
    payloads
}

proptest! {
    #[test]
    fn batches_of_any_size_survive_payloads_of_any_size(
        limit in 30_usize..200,
        sizes in prop::collection::vec(1_usize..400, 0..20),
    ) {
        let batches: Vec<_> = (1..).zip(sizes).map(|(number, size)| (number, vec![number as u8; size])).collect();
        let payloads = pack(limit, &batches);
        let mut assembler = Assembler::default();
        let mut found = Vec::new();
        for payload in &payloads {
            prop_assert!(payload.len() <= limit.max(30));
            for piece in payload::pieces(payload) {
                let piece = piece.unwrap();
                if let Some(batch) = assembler.take(&piece).unwrap() {
                    found.push((piece.sequence, batch));
                }
            }
        }
        prop_assert!(assembler.is_at_rest());
        prop_assert_eq!(found, batches);
    }

    #[test]
    fn pieces_out_of_order_do_not_join(skip in 0_usize..4) {
        let payloads = pack(60, &[(1, vec![1; 150])]);
        let mut assembler = Assembler::default();
        let taken = payloads.iter().enumerate().filter(|(place, _)| *place != skip).flat_map(|(_, payload)| {
            payload::pieces(payload).collect::<Vec<_>>()
        });
        let whole = taken.map(|piece| assembler.take(&piece.unwrap())).any(|taken| matches!(taken, Ok(Some(_))));
        prop_assert!(!whole);
    }

    #[test]
    fn hostile_payloads_end_and_yield_only_their_own_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let found: Vec<_> = payload::pieces(&bytes).collect();
        let total: usize = found.iter().flatten().map(|piece| piece.bytes.len()).sum();
        prop_assert!(total <= bytes.len());
        prop_assert!(found.iter().rev().skip(1).all(Result::is_ok), "a damaged piece is the last one");
    }

    #[test]
    fn hostile_objects_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let own = sealer(true);
        let with_line = [&head(Kind::Batches, 5).encode()[..], &bytes].concat();
        for bytes in [&bytes, &with_line] {
            prop_assert!(Link::open(5, bytes, &own).is_err());
            prop_assert!(Manifest::open(5, bytes, &own).is_err());
            prop_assert!(Identity::decode(bytes, &MasterKey::new(&[7; 32])).is_err());
        }
    }

    #[test]
    fn every_name_has_one_spelling(
        slot in 0..=SLOT_MAX, part in 1..=PART_MAX, bucket in 0..=253_402_300_799_999_u64, segment: u32, offset: u64,
    ) {
        let bucket = Timestamp::from_millis(bucket);
        for name in [
            ObjectName::Slot(slot),
            ObjectName::Part { slot, part },
            ObjectName::Manifest(slot),
            ObjectName::Content { bucket, segment, offset },
            ObjectName::Key { bucket, segment },
        ] {
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }
    }

    #[test]
    fn hostile_names_are_refused_or_round_trip(text in "(log|base|keys|content|probe|store)?/?[0-9a-z/+.-]{0,40}") {
        if let Ok(name) = text.parse::<ObjectName>() {
            prop_assert_eq!(name.to_string(), text);
        }
    }
}

#[test]
fn the_digest_of_a_slot_covers_its_whole_object() {
    let bytes = link(5).seal(&SlotBody::Beat, &sealer(true), &SeededEntropy::new(11));
    assert_eq!(slot::digest(&bytes), crate::base::digest::sha256(&bytes));
}
