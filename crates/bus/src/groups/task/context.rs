//! What a group needs of the bus.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use prombus_engine::Engine;
use prombus_proto::{Clock, IdSource};

use crate::groups::{Groups, RetryRules};
use crate::limits::Census;
use crate::memory::Budget;
use crate::metrics::Metrics;
use crate::notices::Notices;
use crate::publish::Committer;
use crate::sharing::GroupLeases;
use crate::spans::Tracer;

#[derive(Clone)]
pub(crate) struct GroupContext {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) committer: Committer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<IdSource>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) census: Arc<Census>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) notices: Arc<Notices>,
    /// `None` if no event has spans.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// `None` if this is the only process that uses the store.
    pub(crate) group_leases: Option<Arc<GroupLeases>>,
    /// For events that were read and not delivered yet.
    pub(crate) read_ahead: Budget,
    /// For groups whose members name nothing else.
    pub(crate) retry: RetryRules,
    /// Set when the bus is closing: nothing more is delivered.
    pub(crate) is_closing: Arc<AtomicBool>,
}
