//! The place of a data directory: a number that identifies this boot of the machine and a file of the directory. A
//! clone of a disk is used after another boot, and a copied directory has another file. A process with the same number
//! holds the lock that the process before it held, so that process has ended.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::base::digest::sha256;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns the place of the data directory; 0 if it can't be determined.
pub(super) fn of(directory: &Path) -> u64 {
    // The directory itself may be the root of a volume, which has the same number on each volume.
    let file = fs::metadata(directory.join("replica/holder"));
    let (Ok(boot), Ok(file)) = (fs::read_to_string(BOOT_ID), file) else { return 0 };
    let digest = sha256(format!("{} {} {}", boot.trim(), file.dev(), file.ino()).as_bytes());
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_directory_has_another_place_and_a_moved_one_the_same() {
        let home = tempfile::tempdir().unwrap();
        let [original, copy, moved] = ["original", "copy", "moved"].map(|name| home.path().join(name));
        for directory in [&original, &copy] {
            fs::create_dir_all(directory.join("replica")).unwrap();
        }
        fs::write(original.join("replica/holder"), "first").unwrap();
        fs::copy(original.join("replica/holder"), copy.join("replica/holder")).unwrap();
        let place = of(&original);
        assert_ne!(place, 0);
        assert_ne!(of(&copy), place);
        fs::rename(&original, &moved).unwrap();
        assert_eq!(of(&moved), place);
        assert_eq!(of(&original), 0);
    }
}
