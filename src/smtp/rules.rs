//! The table of rules that says what a server's refusal means: `data/bounces.toml`, and an operator's file over it.
//!
//! Rules are tried in order and the first that fits counts. A rule says what an answer is about; it can't change
//! whether the answer is final.

use std::sync::LazyLock;

use serde::Deserialize;

use super::category::Category;
use super::reply::{EnhancedCode, Reply, ReplyParser};
use crate::domain::event::{Bounce, BounceKind, BounceSource};

const BUILT_IN: &str = include_str!("../../data/bounces.toml");

/// A file of rules is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRules {
    /// It is not TOML of the right shape; the text has line and column.
    #[error("{0}")]
    Syntax(String),
    /// A pattern of codes can't be read.
    #[error("rule {rule}: {pattern:?} is not a code such as \"550\" or \"5xx\", or \"5.1.1\" or \"5.7.*\"")]
    Pattern {
        /// The rule.
        rule: String,
        /// The pattern.
        pattern: String,
    },
    /// A rule would suppress an address for what is not its fault.
    #[error("rule {0}: only a hard bounce of an invalid or inactive recipient may suppress")]
    Suppression(String),
    /// An example does not meet its rule: it is no reply, or an earlier rule takes it.
    #[error("rule {rule}: its example {example:?} does not meet it")]
    Example {
        /// The rule.
        rule: String,
        /// The example.
        example: String,
    },
    /// A rule without condition would hide all behind it.
    #[error("rule {0}: it needs at least one of code, enhanced and text")]
    Unconditional(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Entry>,
}

/// A rule as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    #[serde(default)]
    code: Vec<String>,
    #[serde(default)]
    enhanced: Vec<String>,
    #[serde(default)]
    text: Vec<String>,
    kind: BounceKind,
    category: Category,
    #[serde(default)]
    suppress: bool,
    advice: String,
    #[serde(default)]
    examples: Vec<String>,
}

/// One rule. A condition that is empty holds always; of several codes or texts one has to fit.
#[derive(Debug, Clone)]
struct Rule {
    id: String,
    codes: Vec<CodePattern>,
    enhanced: Vec<EnhancedPattern>,
    /// In lower case.
    texts: Vec<String>,
    kind: BounceKind,
    category: Category,
    may_suppress: bool,
    advice: String,
    examples: Vec<String>,
}

/// `550` or `5xx`.
#[derive(Debug, Clone, Copy)]
pub(super) enum CodePattern {
    Exact(u16),
    Class(u16),
}

/// `5.1.1`, with `*` for any subject or detail.
#[derive(Debug, Clone, Copy)]
pub(super) struct EnhancedPattern {
    class: u8,
    subject: Option<u16>,
    detail: Option<u16>,
}

/// A refusal as rules look at it.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// The reply code, where there is one (a DSN may have none).
    pub code: Option<u16>,
    /// The enhanced code, where there is one.
    pub enhanced: Option<EnhancedCode>,
    /// What it says, in one line of lower-case words without addresses ([`Reply::words`]).
    pub words: &'a str,
}

impl Rule {
    fn read(entry: Entry) -> Result<Self, InvalidRules> {
        let bad = |pattern: &String| InvalidRules::Pattern { rule: entry.id.clone(), pattern: pattern.clone() };
        let codes = entry
            .code
            .iter()
            .map(|text| CodePattern::parse(text).ok_or_else(|| bad(text)))
            .collect::<Result<_, _>>()?;
        let enhanced = entry
            .enhanced
            .iter()
            .map(|text| EnhancedPattern::parse(text).ok_or_else(|| bad(text)))
            .collect::<Result<_, _>>()?;
        if entry.code.is_empty() && entry.enhanced.is_empty() && entry.text.is_empty() {
            return Err(InvalidRules::Unconditional(entry.id));
        }
        if entry.suppress && !(entry.kind == BounceKind::Hard && entry.category.is_of_the_address()) {
            return Err(InvalidRules::Suppression(entry.id));
        }
        Ok(Self {
            codes,
            enhanced,
            texts: entry.text.iter().map(|text| text.to_lowercase()).collect(),
            id: entry.id,
            kind: entry.kind,
            category: entry.category,
            may_suppress: entry.suppress,
            advice: entry.advice,
            examples: entry.examples,
        })
    }

    fn fits(&self, refusal: Refusal<'_>) -> bool {
        let has_code = |pattern: &CodePattern| refusal.code.is_some_and(|code| pattern.fits(code));
        let has_enhanced = |pattern: &EnhancedPattern| refusal.enhanced.is_some_and(|code| pattern.fits(code));
        (self.codes.is_empty() || self.codes.iter().any(has_code))
            && (self.enhanced.is_empty() || self.enhanced.iter().any(has_enhanced))
            && (self.texts.is_empty() || self.texts.iter().any(|text| refusal.words.contains(text)))
    }
}

impl CodePattern {
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(class) = text.strip_suffix("xx") {
            return class.parse().ok().filter(|class| (4..=5).contains(class)).map(Self::Class);
        }
        text.parse().ok().filter(|code| (400..=599).contains(code)).map(Self::Exact)
    }

    pub(super) const fn fits(self, code: u16) -> bool {
        match self {
            Self::Exact(exact) => code == exact,
            Self::Class(class) => code / 100 == class,
        }
    }
}

impl EnhancedPattern {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let part = |part: &str| if part == "*" { Some(None) } else { part.parse().ok().map(Some) };
        let mut parts = text.split('.');
        let class = parts.next()?.parse().ok().filter(|class| matches!(class, 4 | 5))?;
        let pattern = Self { class, subject: part(parts.next()?)?, detail: part(parts.next()?)? };
        parts.next().is_none().then_some(pattern)
    }

    pub(super) fn fits(self, code: EnhancedCode) -> bool {
        let agrees = |want: Option<u16>, got| want.is_none_or(|want| want == got);
        self.class == code.class && agrees(self.subject, code.subject) && agrees(self.detail, code.detail)
    }
}

/// All rules, in the order in which they are tried.
#[derive(Debug, Clone)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// The rules that ship with the program.
    pub fn built_in() -> &'static Self {
        static RULES: LazyLock<Rules> = LazyLock::new(|| {
            Rules::read(BUILT_IN).unwrap_or_else(|_| unreachable!("a test reads the rules that ship with the program"))
        });
        &RULES
    }

    /// The rules of `file`, tried before those built in; a rule with the id of one built in replaces it.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn with_overlay(file: &str) -> Result<Self, InvalidRules> {
        let mut all = Self::read(file)?;
        // Before the others join: an example of theirs may rightly meet a rule of the operator's.
        all.check_examples()?;
        let ids: Vec<_> = all.rules.iter().map(|rule| rule.id.clone()).collect();
        all.rules.extend(Self::built_in().rules.iter().filter(|rule| !ids.contains(&rule.id)).cloned());
        Ok(all)
    }

    /// Every rule is the one that its own examples meet.
    fn check_examples(&self) -> Result<(), InvalidRules> {
        for rule in &self.rules {
            for example in &rule.examples {
                let reply =
                    ReplyParser::new().feed(format!("{example}\n").as_bytes()).ok().and_then(|(_, reply)| reply);
                if reply.is_none_or(|reply| self.explain_reply(&reply).rule != rule.id) {
                    return Err(InvalidRules::Example { rule: rule.id.clone(), example: example.clone() });
                }
            }
        }
        Ok(())
    }

    fn read(file: &str) -> Result<Self, InvalidRules> {
        let file: File = toml::from_str(file).map_err(|fault| InvalidRules::Syntax(fault.to_string()))?;
        Ok(Self { rules: file.rule.into_iter().map(Rule::read).collect::<Result<_, _>>()? })
    }

    /// What an answer in the SMTP session means.
    pub fn explain_reply(&self, reply: &Reply) -> Bounce {
        let refusal = Refusal { code: Some(reply.code), enhanced: reply.enhanced(), words: &reply.words() };
        self.explain(refusal, BounceSource::Smtp)
    }

    /// What a refusal means. `suppressed` says whether the address is to be suppressed for it: for hard faults of the
    /// address alone, and only where the refusal is final (contract 6).
    pub fn explain(&self, refusal: Refusal<'_>, source: BounceSource) -> Bounce {
        let status = refusal.enhanced.map(|code| code.to_string());
        let is_final = match (refusal.code, refusal.enhanced) {
            (Some(code), _) => code >= 500,
            (None, Some(enhanced)) => enhanced.class == 5,
            (None, None) => false,
        };
        let Some(rule) = self.rules.iter().find(|rule| rule.fits(refusal)) else {
            return unexplained(status, source, is_final);
        };
        Bounce {
            kind: rule.kind,
            category: rule.category.as_str().to_owned(),
            status,
            source,
            rule: rule.id.clone(),
            advice: rule.advice.clone(),
            suppressed: rule.may_suppress && is_final && refusal.enhanced.is_none_or(is_of_the_recipient),
        }
    }
}

/// The enhanced codes that may suppress; words may where there is none (contract 6).
fn is_of_the_recipient(code: EnhancedCode) -> bool {
    matches!((code.class, code.subject, code.detail), (5, 1, 1 | 2 | 3 | 6 | 10) | (5, 2, 1))
}

fn unexplained(status: Option<String>, source: BounceSource, is_final: bool) -> Bounce {
    let (kind, rule, advice) = if is_final {
        (
            BounceKind::Undetermined,
            "unexplained",
            "Read the receiver's answer: it does not say what is wrong in a known form.",
        )
    } else {
        (BounceKind::Soft, "unexplained-transient", "Nothing to do: the message is tried again.")
    };
    let category = Category::Other.as_str().to_owned();
    Bounce { kind, category, status, source, rule: rule.to_owned(), advice: advice.to_owned(), suppressed: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Reply {
        ReplyParser::new().feed(format!("{text}\n").as_bytes()).unwrap().1.unwrap()
    }

    #[test]
    fn every_rule_is_the_one_that_its_examples_meet() {
        let rules = Rules::read(BUILT_IN).unwrap();
        assert!(rules.rules.len() >= 40, "{}", rules.rules.len());
        assert!(rules.rules.iter().all(|rule| !rule.examples.is_empty()));
        assert_eq!(rules.check_examples(), Ok(()));
    }

    #[test]
    fn rule_ids_are_unique() {
        let mut ids: Vec<_> = Rules::built_in().rules.iter().map(|rule| &rule.id).collect();
        ids.sort();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn only_hard_faults_of_the_recipient_suppress() {
        for (text, suppressed) in [
            ("550 5.1.1 <a@b.example>: Recipient address rejected: User unknown", true),
            ("550 5.1.2 Bad destination system", true),
            ("553 5.1.3 Bad recipient address syntax", true),
            ("550 5.1.6 Mailbox has moved", true),
            ("550 5.1.10 RESOLVER.ADR.RecipientNotFound", true),
            ("550 5.2.1 The email account is inactive", true),
            ("550 No such user here", true),
            ("554 5.7.1 Mailbox is disabled", false),
            ("550 5.4.1 Recipient address rejected: Access denied. AS(201806281)", false),
            ("551 user not local", false),
            ("450 4.1.1 User unknown", false),
            ("552 5.2.2 Mailbox full", false),
            ("550 5.7.1 Message rejected due to local policy", false),
            ("550 5.1.1 Blocked: see https://www.spamhaus.org/query/ip/192.0.2.1", false),
            ("550 rejected", false),
            ("550", false),
            ("554 5.4.4 Unable to route", false),
            ("550 5.1.8 Sender domain does not exist", false),
            ("550 5.1.7 Sender address rejected: user unknown", false),
            ("550 Sender verify failed: no such user here", false),
        ] {
            assert_eq!(Rules::built_in().explain_reply(&reply(text)).suppressed, suppressed, "{text}");
        }
    }

    #[test]
    fn the_recipient_s_own_name_decides_nothing() {
        let bounce = Rules::built_in().explain_reply(&reply("550 5.1.1 <spamhaus@b.example> User unknown"));
        assert!(bounce.suppressed, "{bounce:?}");
    }

    #[test]
    fn an_operator_s_rules_come_first_and_replace_by_id() {
        let file = r#"
            [[rule]]
            id = "user-unknown"
            code = ["550"]
            text = ["our own words"]
            kind = "soft"
            category = "other"
            advice = "Wait."
        "#;
        let rules = Rules::with_overlay(file).unwrap();
        assert_eq!(rules.explain_reply(&reply("550 5.1.1 Our own words")).rule, "user-unknown");
        assert_eq!(rules.rules.len(), Rules::built_in().rules.len());
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_reason() {
        let rule = |rest: &str| format!("[[rule]]\nid = \"x\"\nadvice = \"\"\n{rest}");
        let refused = |rest: &str| Rules::with_overlay(&rule(rest)).unwrap_err();
        let block = "kind = \"block\"\ncategory = \"policy\"\n";
        assert_eq!(refused(block), InvalidRules::Unconditional("x".to_owned()));
        let suppresses = format!("{block}code = [\"550\"]\nsuppress = true");
        assert_eq!(refused(&suppresses), InvalidRules::Suppression("x".to_owned()));
        for pattern in ["code = [\"250\"]", "code = [\"55\"]", "enhanced = [\"5.1\"]", "enhanced = [\"2.1.1\"]"] {
            assert!(matches!(refused(&format!("{block}{pattern}")), InvalidRules::Pattern { .. }), "{pattern}");
        }
        let misses = format!("{block}code = [\"550\"]\nexamples = [\"551 no\"]");
        assert!(matches!(refused(&misses), InvalidRules::Example { .. }));
        assert!(matches!(refused("kind = \"nope\"\n"), InvalidRules::Syntax(_)));
    }
}
