//! The address of a MongoDB deployment, which may hold a password.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::auth::secret::REDACTED;

/// A `mongodb://` address. It shows neither its user nor its password.
#[derive(Clone, PartialEq, Eq)]
pub struct MongoAddress(String);

/// Why a text is no address of MongoDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidMongoAddress {
    /// Something else, or nothing behind the scheme.
    #[error("an address of MongoDB, such as mongodb://db1,db2,db3/prombus?replicaSet=rs0")]
    Other,
    /// One that is to be looked up in the DNS.
    #[error("a mongodb:// address with the names of the servers: mongodb+srv:// is not built in")]
    Srv,
}

const SCHEME: &str = "mongodb://";

impl MongoAddress {
    /// The address itself, for the driver.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `text` is meant to be one.
    #[must_use]
    pub fn is_meant_by(text: &str) -> bool {
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
        // Options may hold secrets, too, such as the password of a key file.
        let servers = rest.split('?').next().unwrap_or(rest);
        match servers.rsplit_once('@') {
            Some((_, servers)) => write!(f, "{SCHEME}{REDACTED}@{servers}"),
            None => write!(f, "{SCHEME}{servers}"),
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
    fn shows_no_secret() {
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
    fn what_is_none_is_refused() {
        for text in ["", "db:27017", "mongodb://", "mongodb:", "http://db"] {
            assert_eq!(text.parse::<MongoAddress>(), Err(InvalidMongoAddress::Other));
        }
        assert_eq!("mongodb+srv://db".parse::<MongoAddress>(), Err(InvalidMongoAddress::Srv));
    }
}
