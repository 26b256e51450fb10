//! The address of a MongoDB deployment, which may contain a password.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::auth::secret::REDACTED;

/// A `mongodb://` connection string. `Display` and `Debug` redact user, password and options.
#[derive(Clone, PartialEq, Eq)]
pub struct MongoAddress(String);

/// Why a string is not a usable connection string. Messages complete "must be …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidMongoAddress {
    #[error("a MongoDB connection string, such as mongodb://db1,db2,db3/prombus?replicaSet=rs0")]
    Other,
    /// The hosts would have to be looked up in DNS.
    #[error("a mongodb:// address that lists the hosts: mongodb+srv:// is not supported")]
    Srv,
}

const SCHEME: &str = "mongodb://";

impl MongoAddress {
    /// Returns the full connection string, for the driver.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns `true` if `text` is meant to be a MongoDB address, valid or not.
    #[must_use]
    pub fn has_mongo_scheme(text: &str) -> bool {
        text.starts_with("mongodb:") || text.starts_with("mongodb+")
    }
}

impl FromStr for MongoAddress {
    type Err = InvalidMongoAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("mongodb+srv:") {
            return Err(InvalidMongoAddress::Srv);
        }
        match text.strip_prefix(SCHEME) {
            Some(rest) if !rest.is_empty() => Ok(Self(text.to_owned())),
            _ => Err(InvalidMongoAddress::Other),
        }
    }
}

impl fmt::Display for MongoAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = &self.0[SCHEME.len()..];
        // Options may contain secrets as well, such as the password of a key file.
        let hosts = rest.split('?').next().unwrap_or(rest);
        match hosts.rsplit_once('@') {
            Some((_, hosts)) => write!(f, "{SCHEME}{REDACTED}@{hosts}"),
            None => write!(f, "{SCHEME}{hosts}"),
        }
    }
}

impl fmt::Debug for MongoAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacts_secrets() {
        for (text, shown) in [
            ("mongodb://db", "mongodb://db"),
            ("mongodb://me:hunter2@a,b:1/x?replicaSet=r", "mongodb://<redacted>@a,b:1/x"),
            ("mongodb://me:hun@ter2@a/x", "mongodb://<redacted>@a/x"),
            ("mongodb://a/?tlsCertificateKeyFilePassword=hunter2", "mongodb://a/"),
        ] {
            let address: MongoAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
            assert_eq!(address.reveal(), text);
        }
    }

    #[test]
    fn rejects_other_addresses() {
        for text in ["", "db:27017", "mongodb://", "mongodb:", "http://db"] {
            assert_eq!(text.parse::<MongoAddress>(), Err(InvalidMongoAddress::Other));
        }
        assert_eq!("mongodb+srv://db".parse::<MongoAddress>(), Err(InvalidMongoAddress::Srv));
    }
}
