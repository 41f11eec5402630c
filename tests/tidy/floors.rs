//! Imports point down: a file may only import from its own folder or from a lower floor.

use super::Finding;
use super::lexer::Kind;
use super::source::SourceFile;

/// The folders under `src` and their floors.
const FLOORS: [(&str, u8); 11] = [
    ("base", 0),
    ("domain", 1),
    ("machine", 2),
    ("mail", 3),
    ("smtp", 3),
    ("store", 4),
    ("engine", 5),
    ("net", 6),
    ("http", 7),
    ("panel", 7),
    ("app", 8),
];

/// Folders of one floor that may still be imported.
const NEIGHBOURS: [(&str, &str, &str); 1] =
    [("panel", "http", "its pages are rows of the same route table, and its forms use the validation of the API")];

/// Returns the folder under `src` that a file belongs to; `None` for `lib.rs` and `main.rs`, which are above all
/// floors.
pub(crate) fn folder(file: &str) -> Option<&str> {
    Some(file.strip_prefix("src/")?.split_once('/')?.0)
}

fn floor(folder: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == folder).map(|(_, floor)| *floor)
}

/// Returns the places where `source` imports from a higher floor or from another folder of its floor.
pub(crate) fn upward_imports(source: &SourceFile) -> Vec<Finding> {
    let Some(own) = folder(&source.name) else { return Vec::new() };
    let Some(own_floor) = floor(own) else {
        return vec![Finding::new(
            &source.name,
            1,
            format!("add the folder {own} with its floor to tests/tidy/floors.rs"),
        )];
    };
    let modules = Modules::of(source);
    let wrong = |target: &str| match floor(target) {
        Some(floor) if floor > own_floor => Some(format!(
            "{own} (floor {own_floor}) imports {target} (floor {floor}): move shared code down, or pass it in"
        )),
        Some(floor) if floor == own_floor && target != own && !is_neighbour(own, target) => Some(format!(
            "{own} imports {target} on the same floor: move shared code down, or let a higher floor connect them"
        )),
        Some(_) | None => None,
    };
    let named = source.paths.iter().filter_map(|path| Some((path.line, modules.target(&path.segments, path.token)?)));
    named.filter_map(|(line, target)| Some(Finding::new(&source.name, line, wrong(&target)?))).collect()
}

fn is_neighbour(own: &str, target: &str) -> bool {
    NEIGHBOURS.iter().any(|(from, to, _)| (*from, *to) == (own, target))
}

/// The modules of a file: its own path, and those inside it with their token ranges.
struct Modules {
    own: Vec<String>,
    inner: Vec<(usize, usize)>,
}

impl Modules {
    fn of(source: &SourceFile) -> Self {
        let path = source.name.trim_start_matches("src/").trim_end_matches(".rs");
        let own = path.split('/').filter(|part| *part != "mod").map(str::to_owned).collect();
        let body_end = |at: usize| {
            let is_module = source.word(at) == Some("mod") && source.word(at + 1).is_some();
            let body = source.tokens.get(at + 2).filter(|token| is_module && token.kind == Kind::Mark('{'));
            Some((at, body?.end))
        };
        let inner = (0..source.tokens.len()).filter_map(body_end).collect();
        Self { own, inner }
    }

    /// Returns the folder under `src` that a path leads to; `None` if it does not begin with `crate` or `super`.
    fn target(&self, segments: &[String], token: usize) -> Option<String> {
        let supers = segments.iter().take_while(|segment| *segment == "super").count();
        if segments.first()? == "crate" {
            return segments.get(1).cloned();
        }
        let depth = self.own.len() + self.inner.iter().filter(|(from, to)| (*from..*to).contains(&token)).count();
        match depth.checked_sub(supers)? {
            _ if supers == 0 => None,
            0 => segments.get(supers).cloned(),
            _ => self.own.first().cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<String> {
        upward_imports(&SourceFile::new(file, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_import_of_a_higher_floor_is_found_anywhere() {
        let text =
            "use crate::base::id::Ulid;\n// use crate::app;\nfn a() { let b = crate::net::dns(\"crate::app::x\"); }";
        assert_eq!(
            found("src/machine/rate.rs", text),
            ["src/machine/rate.rs:3: machine (floor 2) imports net (floor 6): move shared code down, or pass it in"]
        );
        assert_eq!(found("src/store/op/x.rs", "use crate::{base::id, http::{error, body}};").len(), 2);
    }

    #[test]
    fn a_path_up_through_super_is_followed() {
        assert_eq!(found("src/store/op/x.rs", "use super::super::super::engine::ports;").len(), 1);
        assert_eq!(found("src/store/op/x.rs", "use super::super::row::Row; use super::Op;").len(), 0);
        assert_eq!(found("src/store/op/mod.rs", "use super::super::http::error;").len(), 1);
        assert_eq!(found("src/store/x.rs", "mod a { use super::super::super::app::b; }").len(), 1);
        assert_eq!(found("src/store/x.rs", "mod a { use super::super::engine; }").len(), 0);
    }

    #[test]
    fn folders_of_one_floor_import_each_other_only_with_a_reason() {
        assert_eq!(found("src/mail/x.rs", "use crate::smtp::reply::Reply;").len(), 1);
        assert_eq!(found("src/panel/x.rs", "use crate::http::route::Route;").len(), 0);
        assert_eq!(found("src/http/x.rs", "use crate::panel::page;").len(), 1);
    }

    #[test]
    fn a_folder_without_a_floor_is_found() {
        assert_eq!(found("src/misc/x.rs", "").len(), 1);
        assert_eq!(found("src/main.rs", "use crate::app;").len(), 0);
    }
}
