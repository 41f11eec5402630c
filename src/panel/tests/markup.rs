//! Check of the pages' markup, which the test browser makes of every page: each element is closed, in order. A browser
//! repairs a wrong end tag without a word, and the rest of the page then stands in another element.

/// Elements without an end tag.
const VOID: [&str; 8] = ["br", "col", "hr", "img", "input", "link", "meta", "wbr"];

/// Returns the first element of the page that isn't closed, or the first end tag without its element.
pub(super) fn first_imbalance(page: &str) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some((_, tag)) = rest.split_once('<') {
        let end = end_of_tag(tag);
        let (inside, after) = tag.split_at(end);
        rest = after;
        let name = inside.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or_default();
        if inside.starts_with('!') || inside.ends_with('/') || VOID.contains(&name) {
            continue;
        }
        if !inside.starts_with('/') {
            open.push(name);
        } else if open.pop() != Some(name) {
            let line = page[..page.len() - after.len()].matches('\n').count() + 1;
            return Some(format!("</{name}> without its element, in line {line}"));
        }
    }
    open.pop().map(|name| format!("<{name}> is not closed"))
}

/// Returns the position of a tag's `>`, which can stand in a quoted value too.
fn end_of_tag(tag: &str) -> usize {
    let mut quoted = false;
    let end = |(at, byte): (usize, u8)| {
        quoted ^= byte == b'"';
        (byte == b'>' && !quoted).then_some(at)
    };
    tag.bytes().enumerate().find_map(end).unwrap_or(tag.len())
}

#[test]
fn a_wrong_end_tag_is_found() {
    assert_eq!(first_imbalance("<!doctype html><p title=\"a>b\">x<br></p><svg><path d=\"\"/></svg>"), None);
    assert!(first_imbalance("<main><div>x</div></div></main>").is_some());
    assert!(first_imbalance("<main><div>x</main>").is_some());
    assert!(first_imbalance("<main><div>x</div>").is_some());
}
