//! The sites of one page of the queue. However many sites there are, only those of the page are in memory.

use std::collections::BTreeMap;

use crate::engine::queue::{SiteKey, SiteQueue};

/// The sites found so far: the first ones after a key, in the order of their keys.
pub(super) struct ListedSites<'a> {
    after: Option<&'a SiteKey>,
    most: usize,
    found: BTreeMap<SiteKey, SiteQueue>,
    is_cut: bool,
}

impl<'a> ListedSites<'a> {
    /// Creates a page of at most `most` sites after the key.
    pub(super) fn new(after: Option<&'a SiteKey>, most: usize) -> Self {
        Self { after, most, found: BTreeMap::new(), is_cut: false }
    }

    /// Returns the site of this key; `None` if it does not belong to the page.
    pub(super) fn entry(&mut self, key: &SiteKey) -> Option<&mut SiteQueue> {
        if self.after.is_some_and(|after| key <= after) {
            return None;
        }
        if !self.found.contains_key(key) {
            self.found.insert(key.clone(), empty(key.clone()));
            if self.found.len() > self.most {
                self.is_cut = true;
                self.found.pop_last();
            }
        }
        self.found.get_mut(key)
    }

    /// Returns the site of this key, if it has been found.
    pub(super) fn get_mut(&mut self, key: &SiteKey) -> Option<&mut SiteQueue> {
        self.found.get_mut(key)
    }

    /// Returns the sites, and the key of the last one if there are more.
    pub(super) fn into_page(self) -> (Vec<SiteQueue>, Option<SiteKey>) {
        let last = self.found.last_key_value().map(|(key, _)| key.clone()).filter(|_| self.is_cut);
        (self.found.into_values().collect(), last)
    }
}

fn empty((site, relay): SiteKey) -> SiteQueue {
    SiteQueue {
        site,
        relay,
        waiting: 0,
        in_flight: 0,
        next_at: None,
        held_until: None,
        last_answer: None,
        reason: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(sites: Vec<SiteQueue>) -> Vec<String> {
        sites.into_iter().map(|site| site.site).collect()
    }

    #[test]
    fn pages_follow_each_other_and_count_each_site_once() {
        let seen = ["d", "b", "e", "a", "c", "b", "a"];
        let (mut all, mut after, mut waiting) = (Vec::new(), None, 0);
        loop {
            let mut page = ListedSites::new(after.as_ref(), 2);
            for site in seen {
                page.entry(&(site.to_owned(), "direct".to_owned())).into_iter().for_each(|site| site.waiting += 1);
            }
            let (sites, next) = page.into_page();
            assert!(sites.len() <= 2);
            waiting += sites.iter().map(|site| site.waiting).sum::<u64>();
            all.extend(keys(sites));
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((all.concat().as_str(), waiting), ("abcde", 7));
    }
}
