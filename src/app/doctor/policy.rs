//! Check of the MTA-STS policy of the bounce domain, if one is published: bounces are lost if the policy can't be
//! fetched or does not list this server.

use super::{CONNECTING, Check, DoctorInputs, Verdict};
use crate::net::probe::dns::{ProbeType, ServerError};
use crate::net::probe::policy::{PolicyHost, fetch};
use crate::net::tls;
use crate::smtp::mta_sts::{StsMode, StsPolicy};

pub(super) async fn checks(patient: &DoctorInputs) -> Vec<Check> {
    let domain = patient.config.bounce_host().as_str();
    let name = format!("MTA-STS of {domain}");
    let published = match patient.ask(&format!("_mta-sts.{domain}"), ProbeType::Txt).await {
        Ok(answer) => answer.records.iter().any(|text| text.starts_with("v=STSv1")),
        Err(ServerError::Absent) => false,
        Err(ServerError::Failed(why)) => return vec![Check::new(name, Verdict::Warn, why, "Try again.")],
    };
    if !published {
        return vec![Check::new(name, Verdict::Ok, "no policy is published; it is optional", "")];
    }
    vec![match policy(patient, domain).await {
        Ok(policy) => judge(name, &policy, patient.config.hostname.as_str()),
        Err(why) => {
            let remedy = format!("Serve the policy at mta-sts.{domain}, or remove the record _mta-sts.{domain}.");
            Check::new(name, Verdict::Fail, format!("the policy can't be fetched: {why}"), remedy)
        }
    }]
}

async fn policy(patient: &DoctorInputs, domain: &str) -> Result<String, String> {
    let addresses = patient.addresses(&format!("mta-sts.{domain}")).await.map_err(|why| why.to_string())?;
    let addresses: Vec<_> = addresses.into_iter().filter(|address| patient.guard.permits(*address)).collect();
    let delivery = &patient.config.delivery;
    let roots = tls::trusted_roots(delivery.extra_roots.as_deref()).map_err(|fault| fault.to_string())?;
    fetch(&PolicyHost { domain, addresses: &addresses, port: delivery.mta_sts_port }, roots, CONNECTING).await
}

fn judge(name: String, policy: &str, host: &str) -> Check {
    let policy = match StsPolicy::read(policy) {
        Ok(policy) => policy,
        Err(why) => {
            let seen = format!("the policy can't be parsed, so servers ignore it: {why}");
            return Check::new(name, Verdict::Fail, seen, "Correct the policy, and change its id.");
        }
    };
    if policy.mode == StsMode::None {
        return Check::new(name, Verdict::Ok, "the policy is withdrawn (mode: none)", "");
    }
    if policy.admits(host) {
        return Check::new(name, Verdict::Ok, format!("the policy lists {host}"), "");
    }
    let seen = format!("the policy does not list {host}, so servers that apply it can't deliver bounces");
    Check::new(name, Verdict::Fail, seen, format!("Add mx: {host} to the policy, and change its id."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_lists_this_server_or_its_parent_domain_or_is_withdrawn() {
        let judged = |rest: &str| {
            let policy = format!("version: STSv1\r\nmax_age: 604800\r\n{rest}");
            judge("x".to_owned(), &policy, "mail.example.com").verdict
        };
        assert_eq!(judged("mode: enforce\r\nmx: mail.example.com\r\n"), Verdict::Ok);
        assert_eq!(judged("mode: testing\r\nmx: *.Example.com\r\n"), Verdict::Ok);
        assert_eq!(judged("mode: enforce\r\nmx: *.com\r\n"), Verdict::Fail);
        assert_eq!(judged("mode: none\r\n"), Verdict::Ok);
        assert_eq!(judged("mx: mail.example.com\r\n"), Verdict::Fail, "it can't be parsed");
    }
}
