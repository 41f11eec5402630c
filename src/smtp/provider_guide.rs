//! Advice about receiving providers from `data/providers.toml`. It does not affect delivery; the panel shows it beside
//! each provider's counts.

use std::sync::LazyLock;

use serde::Deserialize;

const BUILT_IN: &str = include_str!("../../data/providers.toml");

/// The whole table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderGuide {
    provider: Vec<Entry>,
}

/// The entry of one provider.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    names: Vec<String>,
    #[serde(default)]
    links: Vec<GuideLink>,
    #[serde(default)]
    advice: Vec<Advice>,
}

/// A link to a provider's page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuideLink {
    /// The title.
    pub title: String,
    /// The address.
    pub url: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Advice {
    when: AdviceCondition,
    text: String,
}

/// Condition for an advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AdviceCondition {
    Always,
    Blocked,
    Listed,
    Deferred,
    Complained,
}

/// Whether a provider refused the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refusal {
    /// The provider did not refuse the sender.
    #[default]
    None,
    /// The provider refused the sender.
    Blocked,
    /// The provider refused the sender, and its most frequent answer names a block list.
    Listed,
}

impl Refusal {
    /// Returns the refusal of a sender whose most frequent answer is `answer`.
    pub fn by(answer: Option<&str>) -> Self {
        let words = ["blocklist", "block list", "blacklist", "black list", "dnsbl", "spamhaus", "listed"];
        let answer = answer.unwrap_or_default().to_lowercase();
        if words.iter().any(|word| answer.contains(word)) { Self::Listed } else { Self::Blocked }
    }
}

/// A sender's results at a provider, which select the advice.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProviderResults {
    /// Whether the provider refused the sender.
    pub refusal: Refusal,
    /// Whether the provider deferred messages.
    pub is_deferred: bool,
    /// Whether recipients complained.
    pub has_complaints: bool,
}

impl ProviderResults {
    const fn needs(self, when: AdviceCondition) -> bool {
        match when {
            AdviceCondition::Always => true,
            AdviceCondition::Blocked => !matches!(self.refusal, Refusal::None),
            AdviceCondition::Listed => matches!(self.refusal, Refusal::Listed),
            AdviceCondition::Deferred => self.is_deferred,
            AdviceCondition::Complained => self.has_complaints,
        }
    }
}

impl ProviderGuide {
    /// Returns the built-in table.
    pub fn built_in() -> &'static Self {
        static GUIDE: LazyLock<ProviderGuide> = LazyLock::new(|| {
            toml::from_str(BUILT_IN).unwrap_or_else(|_| unreachable!("a test parses the built-in table"))
        });
        &GUIDE
    }

    fn entry(&self, provider: &str) -> Option<&Entry> {
        self.provider.iter().find(|entry| entry.names.iter().any(|name| name == provider))
    }

    /// Returns the advice for a sender with these results, in the table's order. Empty for a provider without an entry.
    pub fn advice(&self, provider: &str, experience: ProviderResults) -> Vec<&str> {
        let advice = self.entry(provider).map_or(&[][..], |entry| &entry.advice);
        advice.iter().filter(|advice| experience.needs(advice.when)).map(|advice| advice.text.as_str()).collect()
    }

    /// Returns links to the provider's own pages.
    pub fn links(&self, provider: &str) -> &[GuideLink] {
        self.entry(provider).map_or(&[], |entry| &entry.links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smtp::shaping::Shaping;

    #[test]
    fn the_built_in_table_has_each_provider_once_with_https_links() {
        let guide = ProviderGuide::built_in();
        let known: Vec<_> = Shaping::built_in().provider_names().chain(["other"]).collect();
        let mut named: Vec<_> = guide.provider.iter().flat_map(|entry| &entry.names).map(String::as_str).collect();
        named.sort_unstable();
        let mut expected = known.clone();
        expected.sort_unstable();
        assert_eq!(named, expected, "every provider in shaping.toml has one entry");
        for link in guide.provider.iter().flat_map(|entry| &entry.links) {
            assert!(link.url.starts_with("https://") && !link.title.is_empty(), "{link:?}");
        }
    }

    #[test]
    fn advice_depends_on_the_senders_results() {
        let guide = ProviderGuide::built_in();
        assert_eq!(guide.advice("google", ProviderResults::default()).len(), 1);
        let blocked = ProviderResults { refusal: Refusal::Blocked, ..ProviderResults::default() };
        assert!(guide.advice("google", blocked)[1].contains("5.7.26"));
        let complained = ProviderResults { has_complaints: true, ..ProviderResults::default() };
        assert_eq!(guide.advice("yahoo", complained).len(), 2);
        assert!(guide.advice("a site of one's own", blocked).is_empty());
        let listed =
            ProviderResults { refusal: Refusal::by(Some("554 Client host Blocked using zen.Spamhaus.org")), ..blocked };
        assert!(guide.advice("other", listed)[1].contains("block list") && guide.advice("other", blocked).len() == 1);
        assert_eq!([None, Some("550 5.1.1 User unknown")].map(Refusal::by), [Refusal::Blocked; 2]);
        assert_eq!((guide.links("google").len(), guide.links("nobody").len()), (3, 0));
    }
}
