//! Floor 1: the program's vocabulary as parsed types and limits. A value of these types is valid, and no raw strings
//! are passed on below the edges.

pub mod account;
pub mod address;
pub mod alert;
pub mod api_key;
pub mod attachment;
pub mod audit;
pub mod device;
pub mod dmarc_record;
pub mod dmarc_source;
pub mod dmarc_walk;
pub mod enhanced_code;
pub mod event;
pub mod fields;
mod foreign_fields;
pub mod header;
pub mod hostname;
pub mod id_token;
pub mod limits;
pub mod nearest;
pub mod network;
pub mod provider_document;
pub mod replication;
pub mod return_path;
pub mod sending_domain;
pub mod session;
pub mod setup_link;
pub mod site_name;
pub mod stream;
pub mod subject_words;
pub mod submission;
pub mod text;
pub mod token_key;
pub mod unsubscribe_url;
pub mod user;
pub mod violation;
pub mod webhook_url;
