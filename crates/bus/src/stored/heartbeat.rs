//! The sign of life of a gateway. Renewing the entry changes its version, and that is all it says.

use prombus_engine::StateKey;
use serde::{Deserialize, Serialize};

use super::versioned::Versioned;
use crate::sharing::GatewayId;

const PREFIX: &str = "gateway/";

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredHeartbeat {}

impl Versioned for StoredHeartbeat {
    const VERSION: u32 = 1;
}

impl StoredHeartbeat {
    /// Returns `None` if the id is too long for a key, and so not an id of a gateway.
    pub(crate) fn key(gateway: &GatewayId) -> Option<StateKey> {
        StateKey::new(format!("{PREFIX}{gateway}")).ok()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_versioned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_is_unchanged() {
        assert_eq!(StoredHeartbeat {}.encode(), br#"{"v":1}"#);
    }
}
