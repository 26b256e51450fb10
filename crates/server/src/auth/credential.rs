//! What a client presented to get its rights.

use std::sync::Arc;

use super::certificate::ClientCertificate;
use super::secret::Secret;

/// Kept as long as the rights, so that a reload can check it again: a token may have been removed, or
/// the key that signed it.
#[derive(Clone, Debug)]
pub enum Credential {
    Token(Secret),
    /// The certificate of the connection.
    Certificate(Arc<ClientCertificate>),
}
