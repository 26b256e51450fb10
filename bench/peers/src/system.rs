//! The systems that are measured: their settings, their use and their guarantees.

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Prombus,
    Nats,
    Redis,
    Mongod,
}

/// A server program with its settings.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum System {
    Prombus,
    Nats,
    NatsAlways,
    Redis,
    RedisAlways,
    Mongodb,
    MongodbJournaled,
}

impl System {
    pub(crate) const ALL: [Self; 7] = [
        Self::Prombus,
        Self::Nats,
        Self::NatsAlways,
        Self::Redis,
        Self::RedisAlways,
        Self::Mongodb,
        Self::MongodbJournaled,
    ];

    /// The name in the results and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prombus => prombus_peers_report::PROMBUS,
            Self::Nats => "nats",
            Self::NatsAlways => "nats-always",
            Self::Redis => "redis",
            Self::RedisAlways => "redis-always",
            Self::Mongodb => "mongodb",
            Self::MongodbJournaled => "mongodb-journaled",
        }
    }

    /// The name in tables and charts.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Prombus => "Prombus",
            Self::Nats => "NATS JetStream, default",
            Self::NatsAlways => "NATS JetStream, sync always",
            Self::Redis => "Redis Streams, everysec",
            Self::RedisAlways => "Redis Streams, always",
            Self::Mongodb => "MongoDB, w:1",
            Self::MongodbJournaled => "MongoDB, w:1 j:true",
        }
    }

    pub(crate) fn program(self) -> Program {
        match self {
            Self::Prombus => Program::Prombus,
            Self::Nats | Self::NatsAlways => Program::Nats,
            Self::Redis | Self::RedisAlways => Program::Redis,
            Self::Mongodb | Self::MongodbJournaled => Program::Mongod,
        }
    }

    /// The server's settings besides address and folder. All others have their defaults.
    pub(crate) fn settings(self) -> &'static str {
        match self {
            Self::Prombus => "--set limits.enabled=false --set log.level=warn",
            Self::Nats | Self::Mongodb | Self::MongodbJournaled => "",
            Self::NatsAlways => "sync_interval: always",
            Self::Redis => "--save '' --appendonly yes --appendfsync everysec",
            Self::RedisAlways => "--save '' --appendonly yes --appendfsync always",
        }
    }

    /// The crate of the client.
    pub(crate) fn client(self) -> &'static str {
        match self.program() {
            Program::Prombus => "tokio-tungstenite",
            Program::Nats => "async-nats",
            Program::Redis => "redis",
            Program::Mongod => "mongodb",
        }
    }

    /// How the client uses the system.
    pub(crate) fn usage(self) -> &'static str {
        match self {
            Self::Prombus => {
                "one text frame per event; a batch is one PUBLISH with `events`; `maxInFlight` 1000"
            }
            Self::Nats | Self::NatsAlways => {
                "file storage; confirmations counted on one inbox; a batch is an atomic batch \
                 (`Nats-Batch-Id`) with one confirmation; a durable pull consumer, explicit \
                 acknowledgement, `max_ack_pending` 1000"
            }
            Self::Redis | Self::RedisAlways => {
                "`XADD` in pipelines of 100; a batch is a transaction (`MULTI`); \
                 `XREADGROUP COUNT 1000`; one `XACK` per event, pipelined, on a separate connection"
            }
            Self::Mongodb => {
                "one insert per event on 100 connections, three indexes; a batch is `insertMany`; \
                 the group's cursor is updated once per event, one after the other; \
                 polled every millisecond while there are no new events"
            }
            Self::MongodbJournaled => "the same, with `j: true`",
        }
    }

    /// Returns `true` if a confirmed publish is on stable storage.
    pub(crate) fn is_fsynced(self) -> bool {
        matches!(
            self,
            Self::Prombus | Self::NatsAlways | Self::RedisAlways | Self::MongodbJournaled
        )
    }

    pub(crate) fn publish_guarantee(self) -> &'static str {
        match self {
            Self::Prombus => "on stable storage; concurrent publishes share a sync",
            Self::Nats => "written to the operating system; synced every 2 minutes",
            Self::NatsAlways => "on stable storage",
            Self::Redis => "in memory and written to the operating system; synced every second",
            Self::RedisAlways => "on stable storage; commands that are read together share a sync",
            Self::Mongodb => "in memory; the journal is synced every 100 ms",
            Self::MongodbJournaled => "on stable storage; concurrent inserts share a sync",
        }
    }

    pub(crate) fn ack_guarantee(self) -> &'static str {
        match self {
            Self::Prombus => "confirmed once it is on stable storage",
            Self::Nats | Self::NatsAlways => {
                "not confirmed; at the end the consumer's state shows that all have arrived; \
                 held in memory and written from time to time"
            }
            Self::Redis => "confirmed; synced every second",
            Self::RedisAlways => "confirmed once it is on stable storage",
            Self::Mongodb => "confirmed; the journal is synced every 100 ms",
            Self::MongodbJournaled => "confirmed once it is on stable storage",
        }
    }
}
