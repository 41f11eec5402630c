//! The original order of attachments. Inline files come next to the HTML that refers to them, before all others, so the
//! message itself does not show that order. If it differs, the outer boundary encodes the positions of the inline
//! files.

/// Prefix of the positions in a boundary.
const MARK: &str = "-o";

/// Returns the label for the boundary of these files; empty if inline files come first anyway.
pub(super) fn label(is_inline: &[bool]) -> String {
    if is_inline.is_sorted_by(|before, after| before >= after) {
        return String::new();
    }
    let places = is_inline.iter().enumerate().filter(|(_, is_inline)| **is_inline);
    format!("{MARK}{:x}", places.fold(0_u64, |bits, (place, _)| bits | 1 << (place % 64)))
}

/// Returns the files of a message in their original order, according to its outer `boundary`. A boundary that does not
/// fit the files, such as one of an unknown sender, changes nothing.
pub(super) fn restored<T>(files: Vec<T>, boundary: &str) -> Vec<T> {
    let places = boundary.split('_').find_map(|part| part.split_once(MARK)).map(|(_, digits)| digits);
    let Some(bits) = places.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else { return files };
    let inline = bits.count_ones() as usize;
    if files.len() < 64 - bits.leading_zeros() as usize || files.len() > 64 {
        return files;
    }
    let mut inline_files: Vec<T> = files;
    let attached_files = inline_files.split_off(inline);
    let (mut inline_files, mut attached_files) = (inline_files.into_iter(), attached_files.into_iter());
    let count = inline_files.len() + attached_files.len();
    let next = |place| match bits >> place & 1 {
        1 => inline_files.next(),
        _ => attached_files.next(),
    };
    (0..count).map_while(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_restores_the_order_and_is_omitted_if_unnecessary() {
        assert_eq!(label(&[]), "");
        assert_eq!(label(&[false, false]), "");
        assert_eq!(label(&[true, true, false]), "");
        let label = label(&[false, true, false, true]);
        assert_eq!(label, "-oa");
        assert_eq!(restored(vec!["b", "d", "a", "c"], &format!("=_mix{label}_msg_1")), ["a", "b", "c", "d"]);
    }

    #[test]
    fn an_unrelated_boundary_does_not_change_the_order() {
        for boundary in ["", "=_mix_msg_1", "=_mix-oa_x", "=_mix-o_x", "=_mix-ozz_x", "-offffffffffffffff", "-o8"] {
            assert_eq!(restored(vec![1, 2, 3], boundary), [1, 2, 3], "{boundary}");
        }
        assert_eq!(restored(vec![1, 2, 3], "-o7"), [1, 2, 3]);
        assert_eq!(restored(vec![0; 70], "-o2").len(), 70);
    }
}
