//! Names for people of receiving providers. The API, the configuration and stored rows use the identifiers of
//! `data/shaping.toml`.

/// Returns the name of a receiving provider, or any other name of a site as it is.
pub fn provider_name(name: &str) -> &str {
    match name {
        "google" => "Gmail",
        "yahoo" => "Yahoo",
        "outlook" => "Outlook.com",
        "office365" => "Microsoft 365",
        "office365-dane" => "Microsoft 365 (DANE)",
        "apple" => "iCloud",
        "comcast" => "Comcast",
        "mimecast" => "Mimecast",
        "mimecast-au" => "Mimecast (Australia)",
        "mimecast-de" => "Mimecast (Germany)",
        "mimecast-eu" => "Mimecast (EU)",
        "mimecast-us" => "Mimecast (US)",
        "mimecast-za" => "Mimecast (South Africa)",
        "orange" => "Orange",
        "barracuda" => "Barracuda",
        "gmx" => "GMX and WEB.DE",
        "other" => "Other",
        other => other,
    }
}
