//! Which systems there are, with which settings, and what their answers promise.

/// A server's program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Prombus,
    Nats,
    Redis,
    Mongod,
}

/// A server with its settings.
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

    /// What it is called in the results and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prombus => prombus_peers_report::US,
            Self::Nats => "nats",
            Self::NatsAlways => "nats-always",
            Self::Redis => "redis",
            Self::RedisAlways => "redis-always",
            Self::Mongodb => "mongodb",
            Self::MongodbJournaled => "mongodb-journaled",
        }
    }

    /// What it is called in tables.
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

    /// The server's settings besides address and folder. Everything else is its default.
    pub(crate) fn settings(self) -> &'static str {
        match self {
            Self::Prombus => "--set limits.enabled=false --set log.level=warn",
            Self::Nats | Self::Mongodb | Self::MongodbJournaled => "",
            Self::NatsAlways => "sync_interval: always",
            Self::Redis => "--save '' --appendonly yes --appendfsync everysec",
            Self::RedisAlways => "--save '' --appendonly yes --appendfsync always",
        }
    }

    /// The crate of its client.
    pub(crate) fn client(self) -> &'static str {
        match self.program() {
            Program::Prombus => "tokio-tungstenite",
            Program::Nats => "async-nats",
            Program::Redis => "redis",
            Program::Mongod => "mongodb",
        }
    }

    /// How the client uses it.
    pub(crate) fn usage(self) -> &'static str {
        match self {
            Self::Prombus => {
                "a text frame each; a batch is one PUBLISH with `events`; `maxInFlight` 1000"
            }
            Self::Nats | Self::NatsAlways => {
                "file storage; answers counted on one inbox; a batch is an atomic one \
                 (`Nats-Batch-Id`), one answer each; a durable pull consumer, explicit \
                 acknowledgement, `max_ack_pending` 1000"
            }
            Self::Redis | Self::RedisAlways => {
                "`XADD` in pipelines of 100; a batch is a transaction (`MULTI`); \
                 `XREADGROUP COUNT 1000`, an `XACK` each, pipelined, on a connection of its own"
            }
            Self::Mongodb => {
                "an insert each on 100 connections, the note's indexes; a batch is `insertMany`; \
                 the group's cursor is updated once for each event, one after the other; \
                 asked for new events every millisecond when there are none"
            }
            Self::MongodbJournaled => "the same, with `j: true`",
        }
    }

    /// Whether an answered publish is on stable storage.
    pub(crate) fn is_fsynced(self) -> bool {
        matches!(
            self,
            Self::Prombus | Self::NatsAlways | Self::RedisAlways | Self::MongodbJournaled
        )
    }

    /// What the answer to a publish says.
    pub(crate) fn publish_promise(self) -> &'static str {
        match self {
            Self::Prombus => "on stable storage; waiting publishes share a sync",
            Self::Nats => "handed to the operating system, which is told to sync every 2 minutes",
            Self::NatsAlways => "on stable storage",
            Self::Redis => "in memory and handed to the operating system; synced every second",
            Self::RedisAlways => "on stable storage; what is read together shares a sync",
            Self::Mongodb => "in memory; the journal is synced every 100 ms",
            Self::MongodbJournaled => "on stable storage; waiting inserts share a sync",
        }
    }

    /// What an acknowledgement of a delivered event says.
    pub(crate) fn ack_promise(self) -> &'static str {
        match self {
            Self::Prombus => "answered when it is on stable storage",
            Self::Nats | Self::NatsAlways => {
                "not answered; at the end the consumer is asked whether it has all of them; \
                 kept in memory and written from time to time"
            }
            Self::Redis => "answered; synced every second",
            Self::RedisAlways => "answered when it is on stable storage",
            Self::Mongodb => "answered; the journal is synced every 100 ms",
            Self::MongodbJournaled => "answered when it is on stable storage",
        }
    }
}
