//! Backups of the store.

use prombus_engine::disk::backup::{Backup, BackupError, OnDamage};
use prombus_proto::ErrorCode;

use crate::bus::Bus;
use crate::error::Refusal;

impl Bus {
    /// Starts a backup of everything: events, settings, groups, marks and state.
    ///
    /// # Errors
    ///
    /// If the engine has no backups, or cannot start one now.
    pub async fn backup(&self, on_damage: OnDamage) -> Result<Backup, BackupError> {
        self.engine().backup(on_damage).await
    }
}

impl From<BackupError> for Refusal {
    fn from(error: BackupError) -> Self {
        let code = match &error {
            BackupError::Unsupported(_) => ErrorCode::UnknownOp,
            BackupError::TooMany => ErrorCode::LimitExceeded,
            BackupError::Damaged(_) => ErrorCode::Internal,
            BackupError::Full(_) | BackupError::Io { .. } => ErrorCode::StorageUnavailable,
            BackupError::Unavailable(unavailable) => unavailable.code(),
        };
        Self::new(code, error.to_string())
    }
}
