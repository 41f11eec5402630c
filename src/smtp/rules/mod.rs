//! The table of rules that classify a server's refusal: `data/bounces.toml`, and an operator's file on top.
//!
//! Rules are tried in order, and the first match counts. A rule decides the subject of an answer; it can't change
//! whether the answer is final.

use std::sync::LazyLock;

use serde::Deserialize;
use toml::Spanned;

use super::category::Category;
use super::pattern::{CodePattern, EnhancedPattern, HostPattern, TextPattern};
use super::reply::{EnhancedCode, Reply, ReplyParser, TEXT_BYTES_MAX};
use crate::domain::event::{Bounce, BounceKind, BounceSource};

const BUILT_IN: &str = include_str!("../../../data/bounces.toml");

/// Errors in a file of rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRules {
    /// The file is not TOML of the expected form. The text has line and column.
    #[error("{0}")]
    Syntax(String),
    /// A rule can't be used.
    #[error("line {line}: rule {rule}: {fault}")]
    Rule {
        /// The line of the rule's id, from 1.
        line: usize,
        /// The rule's id.
        rule: String,
        /// The error in the rule.
        fault: RuleFault,
    },
}

/// An error in a bounce rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// A code pattern is malformed.
    #[error("{0:?} is not a code such as \"550\" or \"5xx\", or \"5.1.1\" or \"*.7.*\"")]
    Code(String),
    /// A host is malformed.
    #[error("{0:?} is not a host name or its end after a dot, such as \"icloud.com\"")]
    Host(String),
    /// A text that every answer contains, or that no answer can contain.
    #[error("{0:?} can't be searched for; write words separated by single blanks, without an address")]
    Text(String),
    /// The rule would suppress an address for a failure with another cause.
    #[error("only a hard bounce of an invalid or inactive recipient may suppress")]
    Suppression,
    /// An example does not match the rule: it is not a reply, or an earlier rule matches it.
    #[error("its example {0:?} does not match it")]
    Example(String),
    /// The rule has no condition, and would hide all later rules.
    #[error("it needs at least one of host, code, enhanced and text")]
    Unconditional,
    /// Another rule of the file has its ID.
    #[error("an earlier rule has the same id")]
    Duplicate,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Entry>,
}

/// A rule as written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: Spanned<String>,
    #[serde(default)]
    host: Vec<String>,
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

/// One rule. An empty condition always holds. Of several values for one condition, one must match.
#[derive(Debug, Clone)]
struct Rule {
    id: String,
    /// The line of its ID.
    line: usize,
    hosts: Vec<HostPattern>,
    codes: Vec<CodePattern>,
    enhanced: Vec<EnhancedPattern>,
    texts: Vec<TextPattern>,
    kind: BounceKind,
    category: Category,
    may_suppress: bool,
    advice: String,
    examples: Vec<String>,
}

/// A refusal in the form for matching rules.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// The name of the refusing server, if known.
    pub host: Option<&'a str>,
    /// The reply code, if there is one (a DSN may have none).
    pub code: Option<u16>,
    /// The enhanced code, if there is one.
    pub enhanced: Option<EnhancedCode>,
    /// Text of the reply, as one line of lower-case words without addresses ([`Reply::words`]). Text beyond 4 KiB is
    /// ignored.
    pub words: &'a str,
}

impl Refusal<'_> {
    /// Returns whether the refusal is final. Only the code's first digit decides, even if the enhanced code disagrees
    /// (RFC 5321 4.2.1).
    fn is_final(&self) -> bool {
        self.code.map_or(self.enhanced.is_some_and(|enhanced| enhanced.class == 5), |code| code >= 500)
    }
}

impl Entry {
    fn into_rule(self, line: usize) -> Result<Rule, RuleFault> {
        if self.host.is_empty() && self.code.is_empty() && self.enhanced.is_empty() && self.text.is_empty() {
            return Err(RuleFault::Unconditional);
        }
        if self.suppress && !(self.kind == BounceKind::Hard && self.category.is_of_the_address()) {
            return Err(RuleFault::Suppression);
        }
        Ok(Rule {
            line,
            hosts: patterns(&self.host, HostPattern::parse, RuleFault::Host)?,
            codes: patterns(&self.code, CodePattern::parse, RuleFault::Code)?,
            enhanced: patterns(&self.enhanced, EnhancedPattern::parse, RuleFault::Code)?,
            texts: patterns(&self.text, TextPattern::parse, RuleFault::Text)?,
            id: self.id.into_inner(),
            kind: self.kind,
            category: self.category,
            may_suppress: self.suppress,
            advice: self.advice,
            examples: self.examples,
        })
    }
}

/// Parses each of `texts`, or returns the first malformed one.
fn patterns<T>(
    texts: &[String],
    parse: impl Fn(&str) -> Option<T>,
    fault: impl Fn(String) -> RuleFault,
) -> Result<Vec<T>, RuleFault> {
    texts.iter().map(|text| parse(text).ok_or_else(|| fault(text.clone()))).collect()
}

impl Rule {
    fn fits(&self, refusal: Refusal<'_>) -> bool {
        let Refusal { host, code, enhanced, words } = refusal;
        let has_host = |pattern: &HostPattern| host.is_some_and(|host| pattern.fits(host));
        let has_enhanced = |pattern: &EnhancedPattern| enhanced.is_some_and(|code| pattern.fits(code));
        (self.hosts.is_empty() || self.hosts.iter().any(has_host))
            && (self.codes.is_empty() || self.codes.iter().any(|pattern| pattern.fits(code, enhanced)))
            && (self.enhanced.is_empty() || self.enhanced.iter().any(has_enhanced))
            && (self.texts.is_empty() || self.texts.iter().any(|pattern| pattern.fits(words)))
    }

    fn invalid(&self, fault: RuleFault) -> InvalidRules {
        InvalidRules::Rule { line: self.line, rule: self.id.clone(), fault }
    }
}

/// All rules, in the order in which they are tried.
#[derive(Debug, Clone)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Returns the built-in rules.
    pub fn built_in() -> &'static Self {
        static RULES: LazyLock<Rules> = LazyLock::new(|| {
            Rules::read(BUILT_IN).unwrap_or_else(|_| unreachable!("a test parses the built-in rules"))
        });
        &RULES
    }

    /// Returns the rules of `file`, tried before the built-in ones. A rule with the ID of a built-in one replaces it.
    ///
    /// # Errors
    /// The error in the file, with its line.
    pub fn with_overlay(file: &str) -> Result<Self, InvalidRules> {
        let mut all = Self::read(file)?;
        // The operator's rules are checked before the built-in rules join: an example of a built-in rule may rightly
        // match a rule of the operator.
        all.check_examples()?;
        let ids: Vec<_> = all.rules.iter().map(|rule| rule.id.clone()).collect();
        all.rules.extend(Self::built_in().rules.iter().filter(|rule| !ids.contains(&rule.id)).cloned());
        Ok(all)
    }

    /// Checks that each example matches its own rule first. The example counts as an answer of the rule's host, if it
    /// has one.
    fn check_examples(&self) -> Result<(), InvalidRules> {
        for rule in &self.rules {
            let host = rule.hosts.first().map(HostPattern::as_str);
            for example in &rule.examples {
                let reply =
                    ReplyParser::new().feed(format!("{example}\n").as_bytes()).ok().and_then(|(_, reply)| reply);
                if reply.is_none_or(|reply| self.explain_reply(&reply, host).rule != rule.id) {
                    return Err(rule.invalid(RuleFault::Example(example.clone())));
                }
            }
        }
        Ok(())
    }

    fn read(text: &str) -> Result<Self, InvalidRules> {
        let file: File = toml::from_str(text).map_err(|fault| InvalidRules::Syntax(fault.to_string()))?;
        let mut rules: Vec<Rule> = Vec::with_capacity(file.rule.len());
        for entry in file.rule {
            let line = 1 + text[..entry.id.span().start].matches('\n').count();
            let id = entry.id.get_ref().clone();
            let fault = |fault| InvalidRules::Rule { line, rule: id.clone(), fault };
            if rules.iter().any(|rule| rule.id == id) {
                return Err(fault(RuleFault::Duplicate));
            }
            rules.push(entry.into_rule(line).map_err(fault)?);
        }
        Ok(Self { rules })
    }

    /// Classifies an answer of `host` in the SMTP session.
    pub fn explain_reply(&self, reply: &Reply, host: Option<&str>) -> Bounce {
        let words = reply.words();
        let refusal = Refusal { host, code: Some(reply.code), enhanced: reply.enhanced(), words: &words };
        self.explain(refusal, BounceSource::Smtp)
    }

    /// Classifies a refusal. `suppressed` is set if the address must be suppressed: only for hard failures of the
    /// address itself, and only if the refusal is final (contract 6).
    pub fn explain(&self, refusal: Refusal<'_>, source: BounceSource) -> Bounce {
        let end = refusal.words.floor_char_boundary(TEXT_BYTES_MAX);
        let words = format!(" {} ", &refusal.words[..end]);
        let refusal = Refusal { words: &words, ..refusal };
        let status = refusal.enhanced.map(|code| code.to_string());
        let is_final = refusal.is_final();
        let Some(rule) = self.rules.iter().find(|rule| rule.fits(refusal)) else {
            return unexplained(status, source, is_final);
        };
        let kind = match rule.kind {
            // A retried message may still be accepted.
            BounceKind::Hard if !is_final => BounceKind::Soft,
            kind => kind,
        };
        Bounce {
            kind,
            category: rule.category.as_str().to_owned(),
            status,
            source,
            rule: rule.id.clone(),
            advice: rule.advice.clone(),
            suppressed: rule.may_suppress && is_final && refusal.enhanced.is_none_or(is_of_the_recipient),
        }
    }
}

/// Returns whether an enhanced code may suppress. Without an enhanced code, the words may (contract 6).
fn is_of_the_recipient(code: EnhancedCode) -> bool {
    matches!((code.class, code.subject, code.detail), (5, 1, 1 | 2 | 3 | 6 | 10) | (5, 2, 1))
}

fn unexplained(status: Option<String>, source: BounceSource, is_final: bool) -> Bounce {
    let (kind, rule, advice) = if is_final {
        (BounceKind::Undetermined, "unexplained", "Read the receiver's answer: Postrider has no rule for this reason.")
    } else {
        (BounceKind::Soft, "unexplained-transient", "Nothing to do: Postrider retries the message.")
    };
    let category = Category::Other.as_str().to_owned();
    Bounce { kind, category, status, source, rule: rule.to_owned(), advice: advice.to_owned(), suppressed: false }
}

#[cfg(test)]
mod answers;
#[cfg(test)]
mod tests;
