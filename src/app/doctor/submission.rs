//! Checks whether programs can reach SMTP submission under the host name, with TLS that they can verify.

use std::net::SocketAddr;

use super::{CONNECTING, Check, DoctorInputs, Verdict};
use crate::net::probe::submission::{SubmissionFault, SubmissionHost, look};
use crate::net::tls;

/// Name of the check of `submission.listen`.
const CLEAR: &str = "submission";
/// Name of the check of `submission.tls_listen`.
const TLS: &str = "submissions";

/// Checks the first address of each kind, if there is one.
pub(super) async fn checks(patient: &DoctorInputs) -> Vec<Check> {
    let section = &patient.config.submission;
    let mut checks = Vec::new();
    for (name, addresses, is_implicit) in [(CLEAR, &section.listen, false), (TLS, &section.tls_listen, true)] {
        if let Some(address) = addresses.first() {
            checks.push(check(patient, name, address.port(), is_implicit).await);
        }
    }
    checks
}

async fn check(patient: &DoctorInputs, name: &'static str, port: u16, is_implicit: bool) -> Check {
    let host = patient.config.hostname.as_str();
    let addresses = match patient.addresses(host).await {
        Ok(addresses) => addresses,
        Err(why) => {
            let remedy = format!("Publish an A or AAAA record of {host}.");
            return Check::new(name, Verdict::Fail, format!("{host} has no address: {why}"), remedy);
        }
    };
    let roots = match tls::trusted_roots(patient.config.delivery.extra_roots.as_deref()) {
        Ok(roots) => roots,
        Err(fault) => return Check::new(name, Verdict::Warn, fault.to_string(), "Correct delivery.extra_roots."),
    };
    for address in addresses {
        let address = SocketAddr::new(address, port);
        let found = look(&SubmissionHost { name: host, address, is_implicit }, roots.clone(), CONNECTING).await;
        if let Err(fault) = found {
            return Check::new(name, Verdict::Fail, fault.to_string(), remedy(&fault, host, port));
        }
    }
    Check::new(
        name,
        Verdict::Ok,
        format!("{host} port {port} sends a greeting and offers TLS with a valid certificate"),
        "",
    )
}

fn remedy(fault: &SubmissionFault, host: &str, port: u16) -> String {
    match fault {
        SubmissionFault::Unreachable(..) => {
            format!("Start the service, make {host} resolve to it, and open port {port} in the firewall.")
        }
        SubmissionFault::NotSmtp(..) => {
            format!("Check which program listens on port {port}, and whether its TLS mode is the configured one.")
        }
        SubmissionFault::NoTls(_) => format!("Check that no proxy on port {port} removes STARTTLS."),
        SubmissionFault::ClearAuth(_) => {
            format!("Another server answers on port {port}: programs would send it keys unencrypted.")
        }
        SubmissionFault::Tls(..) => {
            format!("Use a certificate for {host} from an authority that clients trust, in [http.tls] or [submission].")
        }
    }
}
