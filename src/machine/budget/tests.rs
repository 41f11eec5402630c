//! Tests: the shares of accounts, sites and networks, and the sum of units.

use super::*;
use crate::base::id::Ulid;
use proptest::prelude::*;

fn claim(account: u8, site: u64) -> Claim {
    Claim {
        stream: Stream::Transactional,
        account: AccountId(Ulid([account; 16])),
        site: Some(site),
        network: None,
        units: 1,
    }
}

/// Grants all that can be granted.
fn granted(budget: &mut Budget) -> Vec<Claim> {
    std::iter::from_fn(|| budget.grant()).map(|(_, claim)| claim).collect()
}

fn of(claims: &[Claim], account: u8) -> usize {
    claims.iter().filter(|one| one.account == claim(account, 0).account).count()
}

#[test]
fn a_single_account_gets_the_whole_budget_and_the_others_still_a_quarter_at_once() {
    let mut budget = Budget::new(64);
    (0..100).for_each(|site| _ = budget.request(claim(1, site)));
    let first = granted(&mut budget);
    assert_eq!(first.len(), 64);
    (0..100).for_each(|site| _ = budget.request(claim(2, site)));
    assert_eq!(of(&granted(&mut budget), 2), 16, "none of them has ended");
    (3..5).for_each(|account| (0..100).for_each(|site| _ = budget.request(claim(account, site))));
    let others = granted(&mut budget);
    assert_eq!([2, 3, 4].map(|account| of(&others, account)), [0, 4, 4], "those with few get an eighth more");
    // The first account gets nothing while it holds half, and units that it held beyond half are not free again.
    first.iter().take(32).for_each(|claim| budget.release(claim));
    let again = granted(&mut budget);
    assert_eq!((of(&again, 1), again.len()), (0, 8));
    first.iter().skip(32).take(32).for_each(|claim| budget.release(claim));
    assert_eq!(granted(&mut budget).len(), 32);
}

#[test]
fn another_account_gets_a_part_at_once_of_what_one_account_took_in_a_stream() {
    for stream in Stream::ALL {
        let mut budget = Budget::new(64);
        (0..100).for_each(|site| _ = budget.request(Claim { stream, ..claim(1, site) }));
        let first = granted(&mut budget).len();
        (0..100).for_each(|site| _ = budget.request(Claim { stream, ..claim(2, site) }));
        let second = of(&granted(&mut budget), 2);
        let expected = if stream == Stream::Transactional { (64, 16) } else { (48, 8) };
        assert_eq!((first, second), expected, "marketing is given half as much");
    }
}

#[test]
fn units_are_left_for_transactional_mail_however_many_accounts_send_marketing_mail() {
    let mut budget = Budget::new(64);
    for account in 1..60 {
        let claims = if account == 1 { 64 } else { 2 };
        (0..claims).for_each(|_| _ = budget.request(Claim { stream: Stream::Marketing, ..claim(account, 1) }));
        granted(&mut budget);
    }
    assert_eq!(budget.used(), 64);
    (0..100).for_each(|site| _ = budget.request(claim(60, site)));
    assert_eq!(of(&granted(&mut budget), 60), 16, "a quarter of the budget");
}

#[test]
fn an_account_that_holds_nothing_is_served_at_once_even_if_three_others_hold_all() {
    let mut budget = Budget::new(64);
    for account in 1..4 {
        (0..100).for_each(|site| _ = budget.request(claim(account, site)));
        let expected = [64, 16, 4][usize::from(account) - 1];
        let first = granted(&mut budget);
        assert_eq!((first.len(), of(&first, account)), (expected, expected), "{account}");
    }
    (4..12).for_each(|account| (0..2).for_each(|site| _ = budget.request(claim(account, site))));
    let first = granted(&mut budget);
    assert_eq!((4..12).map(|account| of(&first, account)).collect::<Vec<_>>(), [1; 8]);
}

#[test]
fn under_contention_accounts_take_turns_and_get_at_most_half() {
    let mut budget = Budget::new(64);
    for site in 0..100 {
        budget.request(claim(1, site));
    }
    for site in 0..100 {
        budget.request(claim(2, 1000 + site));
    }
    let first = granted(&mut budget);
    assert_eq!((of(&first, 1), of(&first, 2)), (32, 32));
    // Released units go to both in turn, and neither gets more than half.
    first.iter().take(10).for_each(|claim| budget.release(claim));
    let again = granted(&mut budget);
    assert_eq!((of(&again, 1), of(&again, 2)), (5, 5));
}

#[test]
fn under_contention_a_site_and_a_network_get_at_most_a_sixteenth() {
    let mut budget = Budget::new(64);
    (0..50).for_each(|_| _ = budget.request(claim(1, 7)));
    (0..50).for_each(|site| _ = budget.request(claim(1, 100 + site)));
    let first = granted(&mut budget);
    assert_eq!((first.len(), first.iter().filter(|claim| claim.site == Some(7)).count()), (64, 14));

    let mut budget = Budget::new(64);
    let network = Some(Network::of("192.0.2.1".parse().unwrap()));
    (0..50).for_each(|site| _ = budget.request(Claim { network, ..claim(1, site) }));
    (0..50).for_each(|site| _ = budget.request(claim(2, 100 + site)));
    let first = granted(&mut budget);
    assert_eq!((of(&first, 2), first.len()), (32, 36));
}

#[test]
fn a_large_claim_blocks_only_its_own_account() {
    let mut budget = Budget::new(64);
    budget.request(Claim { units: 40, ..claim(1, 1) });
    budget.request(Claim { units: 40, ..claim(1, 2) });
    budget.request(claim(1, 3));
    budget.request(claim(2, 4));
    let first = granted(&mut budget);
    assert_eq!((of(&first, 1), of(&first, 2)), (1, 1));
    budget.release(&first[0]);
    assert_eq!(of(&granted(&mut budget), 1), 1, "it has more than half now");
    budget.release(&first[1]);
    assert_eq!(of(&granted(&mut budget), 1), 1, "it is alone");
}

#[test]
fn an_account_gets_at_most_half_while_another_holds_a_unit() {
    let mut budget = Budget::new(64);
    (0..10).for_each(|site| _ = budget.request(claim(2, site)));
    assert_eq!(granted(&mut budget).len(), 10);
    (0..100).for_each(|site| _ = budget.request(claim(1, 100 + site)));
    assert_eq!(granted(&mut budget).len(), 32);
    assert!(!budget.take_now(claim(1, 300)));
    // The other account gets its half at once, although units of the first stay in use.
    (0..30).for_each(|site| _ = budget.request(claim(2, 200 + site)));
    assert_eq!(of(&granted(&mut budget), 2), 22);
}

#[test]
fn marketing_mail_does_not_wait_for_transactional_mail_beyond_its_account_s_share() {
    let mut budget = Budget::new(64);
    (0..100).for_each(|site| _ = budget.request(claim(1, site)));
    assert_eq!(granted(&mut budget).len(), 64);
    budget.request(Claim { stream: Stream::Marketing, ..claim(2, 200) });
    assert_eq!(of(&granted(&mut budget), 2), 1);
    let other = Claim { stream: Stream::Marketing, ..claim(3, 201) };
    assert!(budget.take_now(other), "waiting claims of others can't be granted");
}

/// Lets two accounts hold nearly all of 256 units, each at most half.
fn fill(budget: &mut Budget) {
    for account in [1, 3] {
        (0..7).for_each(|_| _ = budget.request(Claim { units: 18, ..claim(account, 1) }));
    }
    assert_eq!(granted(budget).len(), 14);
}

#[test]
fn a_large_claim_of_an_account_with_few_units_is_granted_beyond_the_budget() {
    let mut budget = Budget::new(256);
    fill(&mut budget);
    budget.request(Claim { units: 18, ..claim(2, 100) });
    assert_eq!(of(&granted(&mut budget), 2), 1);
    budget.request(Claim { units: 18, ..claim(2, 100) });
    assert_eq!(of(&granted(&mut budget), 2), 0, "a second one has to wait");
}

#[test]
fn small_claims_pass_a_large_one_of_their_account_that_still_gets_its_turn() {
    let mut budget = Budget::new(256);
    fill(&mut budget);
    let large = Claim { units: 18, ..claim(2, 100) };
    assert!(budget.take_now(large));
    let waiting = (budget.request(large), large);
    // Its small claims are granted at once, even if its large claims hold their units for a long time.
    for _ in 0..100 {
        (10..18).for_each(|site| _ = budget.request(claim(2, site)));
        let small = granted(&mut budget);
        assert_eq!(small, [10, 11, 12, 13, 14, 15, 16, 17].map(|site| claim(2, site)));
        small.iter().for_each(|claim| budget.release(claim));
    }
    // The second large claim is granted once the first has ended, even if the small ones never end and more of them
    // wait.
    (10..100).for_each(|site| _ = budget.request(claim(2, site)));
    assert_eq!(granted(&mut budget).len(), 8);
    budget.release(&large);
    assert_eq!(budget.grant(), Some(waiting));
}

#[test]
fn a_large_claim_over_its_account_s_share_is_granted_despite_a_stream_of_small_ones() {
    let mut budget = Budget::new(256);
    assert!(budget.take_now(claim(1, 1)), "another account is active");
    let mut small: Vec<_> = (0..128).map(|site| claim(2, site)).filter(|claim| budget.take_now(*claim)).collect();
    assert_eq!(small.len(), 128);
    let large = Claim { units: 20, ..claim(2, 200) };
    let waiting = (budget.request(large), large);
    // For each small one that ends, another one comes.
    for site in 300..320 {
        assert_eq!(budget.grant(), None);
        budget.release(&small.remove(0));
        budget.request(claim(2, site));
    }
    assert_eq!(budget.grant(), Some(waiting));
}

#[test]
fn a_network_is_an_ipv4_24_or_an_ipv6_48() {
    let same = |a: &str, b: &str| Network::of(a.parse().unwrap()) == Network::of(b.parse().unwrap());
    assert!(same("192.0.2.1", "192.0.2.255") && same("::ffff:192.0.2.1", "192.0.2.7"));
    assert!(!same("192.0.2.1", "192.0.3.1") && !same("2001:db8:1::1", "2001:db8:2::1"));
    assert!(same("2001:db8:1::1", "2001:db8:1:ffff::1") && !same("::c000:2", "192.0.2.1"));
}

proptest! {
    #[test]
    fn units_add_up_and_every_fitting_claim_is_granted(
        steps in prop::collection::vec((0u8..4, 1u8..5, 0u64..6, 1u32..9, any::<bool>()), 1..120),
    ) {
        let mut budget = Budget::new(32);
        let (mut taken, mut waiting) = (Vec::new(), HashMap::new());
        for (step, account, site, units, is_marketing) in steps {
            match step {
                0 if !taken.is_empty() => budget.release(&taken.swap_remove(0)),
                1 => {
                    if let Some(id) = waiting.keys().min().copied() {
                        budget.withdraw(id, &waiting.remove(&id).unwrap());
                    }
                }
                _ => {
                    let stream = if is_marketing { Stream::Marketing } else { Stream::Transactional };
                    let claim = Claim { stream, units, ..claim(account, site) };
                    waiting.insert(budget.request(claim), claim);
                }
            }
            while let Some((id, claim)) = budget.grant() {
                prop_assert!(waiting.remove(&id).is_some());
                taken.push(claim);
            }
            let used: u32 = taken.iter().map(|claim| claim.units).sum();
            prop_assert!(budget.used == used && used <= 48);
            let of_one = |number| taken.iter().filter(|one| one.account == claim(number, 0).account).map(|one| one.units).sum::<u32>();
            prop_assert!((1..5).all(|number| of_one(number) <= 34), "only small claims exceed the whole budget");
            let beyond = (1..5).map(|number| of_one(number).saturating_sub(16)).sum::<u32>();
            prop_assert_eq!((budget.has_waiters(), budget.beyond_half), (!waiting.is_empty(), beyond));
        }
        taken.iter().for_each(|claim| budget.release(claim));
        let left: Vec<_> = std::iter::from_fn(|| { let (_, claim) = budget.grant()?; budget.release(&claim); Some(()) }).collect();
        prop_assert_eq!(left.len(), waiting.len(), "no claim waits forever");
        prop_assert!(budget.accounts.is_empty() && budget.sites.is_empty() && budget.used == 0);
    }
}
